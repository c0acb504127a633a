"""Open runs are finished when the process ends: at the interpreter's exit, after an exception, and under
SIGTERM.

Where somebody else has installed a handler of SIGTERM, that one stays and this module does nothing.

A signal may have been ignored when the process was started (``trap "" TERM`` in a script around it; a shell
ignores SIGINT for its background jobs). In a user's own program it stays ignored, as it does in any Unix
program: whoever started it so wants it to go on. A trial's process is the platform's, which ends it by
SIGTERM: there SIGTERM is handled whatever was inherited. SIGINT is ignored there, because Ctrl-C is meant for
the trial's worker.
"""

# Why the handler runs in the main thread, and not in a thread that reads from signal.set_wakeup_fd, which
# would run even while the main thread hangs in C. A prototype did flush and end such a process, but:
# - No guard against handlers that interrupt their own thread could go. Others' handlers log and finish runs,
# too: that of Lightning for SLURM calls logger.finalize() on SIGUSR1.
# - There is one such descriptor in a process, and children inherit it. Trio warns that it is taken, asyncio
# replaces it, and a SIGTERM that was sent to a forked data loader ended its parent's run.
# - A finish() beside a running main thread needs locks around all that a run does, and waits for those that
# are held where it hangs.
# - Little is gained: the writer's own thread goes on while the main thread hangs in C, so that after one
# delay (5 s, at most 60 s with an object store) every point is in the store. Only the end's record is
# missing, as after a SIGKILL.

import atexit
import contextlib
import os
import signal
import sys
import threading
from typing import Any, Protocol

STATUS = 128 + signal.SIGTERM
"""The exit status of a trial that has saved its checkpoint after a SIGTERM."""


class _Open(Protocol):
    def finish(self, status: str) -> None: ...

    def terminate(self) -> bool: ...


_open: dict[int, tuple[_Open, int]] = {}  # with the process that opened it
_waiting: list[int] = []  # a signal that came during a finish(), to be raised again after it


def listen(*, even_ignored: bool = False) -> None:
    """Let SIGTERM end this process with its open runs finished, and one that is the first of a container,
    too.

    Args:
        even_ignored: also where the process was started to ignore it.
    """
    # Without a handler SIGTERM ends a process at once, and what only its disk has is gone with a reclaimed
    # machine.
    unhandled = (signal.SIG_DFL, signal.SIG_IGN) if even_ignored else (signal.SIG_DFL,)
    if (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGTERM) in unhandled
    ):
        signal.signal(signal.SIGTERM, _terminated)


def opened(run: _Open) -> None:
    """Finish this run when the process ends, unless it is finished by then."""
    # What is registered last runs first. After the functions of the store's libraries an object store could
    # not be written any more.
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
    if _own():  # the signal interrupted a finish(): closed() raises it again
        _waiting[:] = [number]
        return
    signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)
    os._exit(STATUS)  # the kernel does not end the first process of a container by a signal without a handler


def _finish(status: str) -> None:
    for run in _own():
        with contextlib.suppress(Exception):  # the process must end, and the other runs be finished
            run.finish(status)


def _own() -> list[_Open]:
    """The open runs of this process.

    In a forked child its parent's are listed, too; those are the parent's to finish.
    """
    return [run for run, process in list(_open.values()) if process == os.getpid()]
