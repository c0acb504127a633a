"""``python -m halving.trial_process.pod``: a trial in its own pod, in any image that has the SDK.

``HALVING_ROOT`` names the store, and ``HALVING_MAILBOX`` the attempt's mailbox in it, which has the trial's
description and the answers of its worker. The pod needs no other address and no other credential.
"""

import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

from halving.errors import InvalidInput
from halving.records import provenance
from halving.run import signals
from halving.store.store import Store
from halving.trial.context import TrialContext
from halving.trial.gang import own_place
from halving.trial.import_string import source_digest
from halving.trial.mailbox import VARIABLE, Mailbox, read_task
from halving.trial.messages import Granted, Interrupted, Message, Raised
from halving.trial_process import gang, gang_pod
from halving.trial_process.main import run_trial

_UNANSWERED_SECONDS = 600.0  # longer than a worker waits for an unavailable database
# Each look whether the trial is asked back is a request to the store.
_ASKED_BACK_LOOK_SECONDS = 10.0
_LAST_LOOK_SECONDS = 2.0  # for a look that has begun when the training is over

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Task:
    """The task of a trial's process, with the arguments of :func:`halving.trial_process.gang.run_gang`."""

    context: TrialContext
    trainable: str
    granted: int
    threads: int
    processes: int = 1

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self), sort_keys=True).encode()


class MailChannel:
    """A trial's connection to its worker, through the store.

    Args:
        in_gang: whether the last message is sent by the process from which rank 0 was forked, and all others
            by rank 0.
    """

    def __init__(self, mailbox: Mailbox, *, in_gang: bool = False) -> None:
        self._mailbox = mailbox
        self._in_gang = in_gang

    def send(self, message: Message) -> None:
        if self._in_gang:
            self._mailbox.catch_up()
        self._mailbox.send(message)

    def recv(self) -> Granted:
        """Wait for the worker's answer.

        After ten minutes without one the worker is taken to be gone, and this process ends as by SIGTERM.
        """
        answer = self._mailbox.receive(_UNANSWERED_SECONDS)
        if answer is None:
            self._mailbox.send(
                Interrupted(f"the trial's worker gave no answer within {_UNANSWERED_SECONDS:.0f} s")
            )
            signal.raise_signal(signal.SIGTERM)
        if not isinstance(answer, Granted):
            raise InvalidInput(f"the worker's answer {answer!r} is not accepted: give Granted")
        return answer

    @contextmanager
    def heeding(self, ask_back: Callable[[], object]) -> Iterator[None]:
        """Within the block, call ``ask_back`` from another thread when the worker wants the trial back."""
        over = threading.Event()
        looking = threading.Thread(
            target=self._look_whether_asked_back,
            args=(ask_back, over),
            name="halving-asked-back",
            daemon=True,
        )
        looking.start()
        try:
            yield
        finally:
            over.set()
            looking.join(_LAST_LOOK_SECONDS)

    def _look_whether_asked_back(self, ask_back: Callable[[], object], over: threading.Event) -> None:
        while not over.wait(_ASKED_BACK_LOOK_SECONDS):
            try:
                if self._mailbox.is_asked_back():
                    ask_back()
                    return
            except OSError as error:
                # The training goes on, and there will be another look.
                _log.warning("cannot look whether the trial is asked back: %s", error)


def main() -> None:
    """Run the trial that the environment names.

    Raises:
        SystemExit: with status 143 after a SIGTERM, when the checkpoint is saved.
    """
    signals.listen(even_ignored=True)
    store = Store()
    folder = os.environ.get(VARIABLE)
    if not folder:
        sys.exit(f"{VARIABLE} is not set: this program is started in a trial's pod, by the trial's worker")
    mailbox = Mailbox(store, folder, sends="trial", reads="worker")
    place = own_place()
    try:
        task = _parse_task(read_task(store, folder))
    except InvalidInput as error:
        if place is None:
            # In a gang only rank 0's pod may send, and it is not known yet which one that is.
            mailbox.send(Raised(str(error), final=True, checkpoint=None))
        sys.exit(str(error))
    # The worker knows the image's name, and this process what the image contains.
    captured = provenance.capture(store)
    captured["image"] = provenance.image(task.context.provenance.get("image"))
    parent = {**task.context.parent, "trainable_sha256": source_digest(task.trainable)}
    context = replace(task.context, root=store.root, provenance=captured, parent=parent)
    channel = MailChannel(mailbox, in_gang=place is not None or task.processes > 1)
    arguments = (context, task.trainable, task.granted, channel, task.threads)
    if place is not None:
        gang_pod.attend(place, *arguments, task.processes)
        return
    try:
        if task.processes > 1:
            gang.run_gang(*arguments, task.processes)
        else:
            run_trial(*arguments)
    except SystemExit as ended:
        if ended.code == signals.STATUS:
            channel.send(
                Interrupted(
                    f"the trial's pod {captured['hardware']['host']} received SIGTERM and saved a checkpoint"
                )
            )
        raise


def _parse_task(data: bytes) -> Task:
    try:
        fields: dict[str, Any] = json.loads(data)
        context = fields.pop("context")
        return Task(context=TrialContext.from_record({}, **context), **fields)
    except (TypeError, ValueError, KeyError) as error:
        raise InvalidInput(
            f"the trial's task is not accepted by the halving SDK of this image: {error}; install the SDK "
            "of the platform's version in it"
        ) from None


if __name__ == "__main__":
    main()
