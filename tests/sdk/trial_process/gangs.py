"""A gang of a trial for tests, with its agent in this process."""

from typing import Any

from halving import Store
from halving.trial.messages import Granted, Message, ReachedRung
from halving.trial_process.gang import run_gang
from tests.gangs import SERVER, start
from tests.sdk.trial_process.attempts import context


class Gang:
    """A gang of two ranks, and the platform's end of its channel.

    A trainable without a module is one of :mod:`tests.sdk.trial_process.gang_trainables`.
    """

    def __init__(self, store: Store, trainable: str = "train", *, attempt: int = 1, **params: Any) -> None:
        self._ours, theirs = SERVER.Pipe()
        if ":" not in trainable:
            trainable = f"tests.sdk.trial_process.gang_trainables:{trainable}"
        self.process = start(run_gang, context(store, attempt, **params), trainable, 3, theirs, 1, 2)
        theirs.close()

    def messages(self, *budgets: int) -> list[Message]:
        """All that it says, while it is granted these budgets, one after another, and then no more."""
        heard = []
        left = list(budgets)
        while True:
            try:
                message = self._ours.recv()
            except (EOFError, ConnectionResetError):
                self.process.join()
                return heard
            heard.append(message)
            if isinstance(message, ReachedRung):
                self._ours.send(Granted(left.pop(0) if left else message.epoch, complete=not left))
