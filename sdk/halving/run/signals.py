"""Open runs are finished when the process ends: at the interpreter's exit, after an exception, and under SIGTERM.

A handler that somebody else has installed stays, and SIGTERM is then theirs. A signal that this process was started to ignore
(``trap "" TERM`` in the script around it; a shell's background job ignores SIGINT) stays ignored in a program of the user's: to go on
is what whoever started it asked for, and a library has no say in that. A trial's process is the platform's: a scheduler ends it by
SIGTERM, so there SIGTERM is handled whatever was inherited, and SIGINT is ignored, because Ctrl-C is for its worker.
"""

import atexit
import contextlib
import os
import signal
import sys
import threading
from typing import Any, Protocol

STATUS = 128 + signal.SIGTERM
"""With which a trial ends that has saved its checkpoint after a SIGTERM."""


class _Open(Protocol):
    def finish(self, status: str) -> None: ...

    def terminate(self) -> bool: ...


_open: dict[int, tuple[_Open, int]] = {}
_waiting: list[int] = []  # a signal that waits for the end of a finish()


def listen(*, even_ignored: bool = False) -> None:
    """Let SIGTERM end this process with its open runs finished, and one that is the first of a container, too.

    Args:
        even_ignored: also where the process was started to ignore it.
    """
    # Without a handler SIGTERM ends a process at once, and what only its disk has is gone with a reclaimed machine.
    unhandled = (signal.SIG_DFL, signal.SIG_IGN) if even_ignored else (signal.SIG_DFL,)
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) in unhandled:
        signal.signal(signal.SIGTERM, _terminated)


def opened(run: _Open) -> None:
    """Finish this run with the process, if nobody has until then."""
    # Functions run last first: behind what the store's libraries have registered, an object store could not be written any more.
    atexit.unregister(_exited)
    atexit.register(_exited)
    _open[id(run)] = (run, os.getpid())
    listen()


def closed(run: _Open) -> None:
    """The run is finished. A SIGTERM that came while it was being finished ends the process now."""
    _open.pop(id(run), None)
    if _waiting and not _own():
        os.kill(os.getpid(), _waiting.pop())


def _exited() -> None:
    # The interpreter sets last_value when an uncaught exception ended the script.
    _finish("failed" if getattr(sys, "last_value", None) is not None else "finished")


def _terminated(number: int, _: Any) -> None:
    going_on = [run.terminate() for run in _own()]
    if any(going_on):  # a trial in the middle of an epoch saves a checkpoint first
        return
    _finish("terminated")
    if _own():  # interrupted in the middle of its finish()
        _waiting[:] = [number]
        return
    signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)
    os._exit(STATUS)  # the first process of a container is spared the signal


def _finish(status: str) -> None:
    for run in _own():
        with contextlib.suppress(Exception):  # the process is to end, and the next run is to be finished
            run.finish(status)


def _own() -> list[_Open]:
    """The open runs of this process. A forked child has its parent's in here, too, which are not its own to finish."""
    return [run for run, process in list(_open.values()) if process == os.getpid()]
