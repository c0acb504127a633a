"""A recorded gang, trained again: the agent's process and its ranks, which are started from a process without
threads of its own.
"""

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
    """Train up to ``epochs`` in so many processes, without a stop at the rungs before; gives the error that
    it ended with, else None.

    Raises:
        SystemExit: with status 143 after a SIGTERM, when the run is finished as terminated.
    """
    # this process has used the store, which a fork of it could not do any more
    server = get_context("forkserver")
    ours, theirs = server.Pipe()
    arguments = (context, trainable, epochs, theirs, threads, processes)
    process = server.Process(target=run_gang, args=arguments, name=context.run)
    process.start()
    theirs.close()
    with _terminated_with(process):
        ended = _attend(ours, epochs)
        process.join()
    if process.exitcode == signals.STATUS:
        raise SystemExit(signals.STATUS)
    if ended is None:
        return f"its processes ended with status {process.exitcode} and without a message"
    return None if isinstance(ended, Stopped) else str(getattr(ended, "error", ended))


def _attend(ours: Connection, epochs: int) -> Message | None:
    """Its last message; None if it ends without one."""
    while True:
        try:
            message: Message = ours.recv()
        except (EOFError, ConnectionResetError):
            return None
        if not isinstance(message, ReachedRung):
            return message
        ours.send(Granted(epochs, complete=True))


@contextmanager
def _terminated_with(process: BaseProcess) -> Iterator[None]:
    """A SIGTERM to this process is one to the gang."""

    def pass_on(*_: Any) -> None:
        process.terminate()

    before = signal.signal(signal.SIGTERM, pass_on)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
