"""Signals that end a worker, and a block in which they are ignored while it gives its trial back."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class Sigterm:
    """Notes in its block that a SIGTERM has come, and passes it on.

    Dagster raises the same error for SIGTERM (the machine is reclaimed) and for Ctrl-C (its user wants the
    trial back), which mean different things to the trial.

    If nobody else handles SIGTERM, it raises SystemExit, so that the block is left in order. So it does if
    SIGTERM is ignored: the process may have been started so, or Dagster may have given SIGTERM the handler of
    SIGINT, which a shell's background job ignores. A worker must give its trial back when its machine is
    reclaimed.

    Attributes:
        came: whether one has come.
    """

    def __init__(self) -> None:
        self.came = False
        self._before: Any = None

    def __enter__(self) -> "Sigterm":
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGTERM, self._note)
        return self

    def __exit__(self, *_raised: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGTERM, self._before)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.came = True
        if callable(self._before):
            self._before(number, frame)
        else:
            raise SystemExit(128 + number)


@contextmanager
def ignore_signals() -> Iterator[None]:
    """Let no signal interrupt the block; Ctrl-C comes twice, from the terminal and from Dagster."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is None:
                handler = signal.SIG_DFL
            signal.signal(number, handler)
