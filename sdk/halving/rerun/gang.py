"""Training a recorded gang again: the agent's process and its ranks."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from halving.run import signals
from halving.trial.context import TrialContext
from halving.trial.messages import Granted, Message, ReachedRung, Stopped
from halving.trial_process.gang import run_gang


def train_gang(
    context: TrialContext, trainable: str, epochs: int, threads: int, processes: int
) -> str | None:
    """Train up to ``epochs`` without a stop at rungs, and return the error with which it ended, else None.

    Raises:
        SystemExit: with status 143 after a SIGTERM, when the run is finished as terminated.
    """
    # This process has used the store, and a fork of it could not use it any more. So the agent is forked from
    # a server without threads.
    server = get_context("forkserver")
    ours, theirs = server.Pipe()
    arguments = (context, trainable, epochs, theirs, threads, processes)
    process = server.Process(target=run_gang, args=arguments, name=context.run)
    process.start()
    theirs.close()
    with _pass_on_sigterm(process):
        last = _attend(ours, epochs)
        process.join()
    if process.exitcode == signals.STATUS:
        raise SystemExit(signals.STATUS)
    if last is None:
        return f"its processes ended with status {process.exitcode} and without a message"
    if isinstance(last, Stopped):
        return None
    return str(getattr(last, "error", last))


def _attend(ours: Connection, epochs: int) -> Message | None:
    """Grant every rung to the gang, and return its last message; None if it ends without one."""
    while True:
        try:
            message: Message = ours.recv()
        except (EOFError, ConnectionResetError):
            return None
        if not isinstance(message, ReachedRung):
            return message
        ours.send(Granted(epochs, complete=True))


@contextmanager
def _pass_on_sigterm(process: BaseProcess) -> Iterator[None]:
    """Within the block, pass a SIGTERM on to the gang."""

    def pass_on(*_: Any) -> None:
        process.terminate()

    before = signal.signal(signal.SIGTERM, pass_on)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
