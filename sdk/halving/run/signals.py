"""Finishing open runs when the process ends: at the interpreter's exit, after an exception, under SIGTERM.

Where another library has installed a handler of SIGTERM, that one stays and this module does nothing.

A signal may have been ignored when the process was started (``trap "" TERM`` in a script around it; a shell
ignores SIGINT for its background jobs). In a user's own program it stays ignored, as in any Unix program,
because whoever started it so wants it to go on. A trial's process is the platform's, which ends it by
SIGTERM: there SIGTERM is handled whatever was inherited. SIGINT is ignored there, because Ctrl-C is meant
for the trial's worker.
"""

# The handler runs in the main thread. A thread that reads from signal.set_wakeup_fd would run even while the
# main thread hangs in C. A prototype did flush and end such a process, but:
# - All guards against handlers that interrupt their own thread would remain necessary, because handlers of
#   other libraries log and finish runs, too: that of Lightning for SLURM calls logger.finalize() on SIGUSR1.
# - There is one such descriptor in a process, and children inherit it. Trio warns that it is taken, asyncio
#   replaces it, and a SIGTERM that was sent to a forked data loader ended its parent's run.
# - A finish() beside a running main thread needs locks around all that a run does, and waits for the locks
#   that the hanging thread holds.
# - Little is gained: the writer's own thread goes on while the main thread hangs in C, so that after one
#   delay (5 s, at most 60 s with an object store) every point is in the store. Only the end's record is
#   missing, as after a SIGKILL.

import atexit
import contextlib
import os
import signal
import sys
import threading
from typing import Any, Protocol

STATUS = 128 + signal.SIGTERM
"""The exit status of a trial that has saved its checkpoint after a SIGTERM."""


class _OpenRun(Protocol):
    def finish(self, status: str) -> None: ...

    def terminate(self) -> bool: ...


_open_runs: dict[int, tuple[_OpenRun, int]] = {}  # with the process that opened it
_pending_signals: list[int] = []  # a signal that came during a finish(), to be sent again after it


def newest_open_run() -> Any:
    """The run that this process has opened last and not finished; None if there is none."""
    own = [run for run, process in _open_runs.values() if process == os.getpid()]
    if not own:
        return None
    return own[-1]


def listen(*, even_ignored: bool = False) -> None:
    """Handle SIGTERM: finish the open runs and end the process, even the first process of a container.

    Args:
        even_ignored: handle it also where the process was started to ignore it.
    """
    # Without a handler SIGTERM ends a process at once, and what only its disk has is lost with a reclaimed
    # machine.
    unhandled = [signal.SIG_DFL]
    if even_ignored:
        unhandled.append(signal.SIG_IGN)
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and signal.getsignal(signal.SIGTERM) in unhandled:
        signal.signal(signal.SIGTERM, _handle_sigterm)


def register(run: _OpenRun) -> None:
    """Have this run finished when the process ends, unless it is finished by then."""
    # The function that is registered last runs first. After those of the store's libraries an object store
    # could not be written any more.
    atexit.unregister(_finish_at_exit)
    atexit.register(_finish_at_exit)
    _open_runs[id(run)] = (run, os.getpid())
    listen()


def unregister(run: _OpenRun) -> None:
    """Forget a run that is finished; a SIGTERM that came while it was being finished now ends the process."""
    _open_runs.pop(id(run), None)
    if _pending_signals and not _own_runs():
        os.kill(os.getpid(), _pending_signals.pop())


def _finish_at_exit() -> None:
    # The interpreter sets last_value when an uncaught exception ended the script.
    has_failed = getattr(sys, "last_value", None) is not None
    _finish("failed" if has_failed else "finished")


def _handle_sigterm(number: int, _: Any) -> None:
    going_on = [run.terminate() for run in _own_runs()]
    if any(going_on):  # A trial in the middle of an epoch saves a checkpoint first.
        return
    _finish("terminated")
    if _own_runs():  # The signal interrupted a finish(), and unregister() sends it again.
        _pending_signals[:] = [number]
        return
    signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)
    # The kernel does not end the first process of a container by a signal without a handler.
    os._exit(STATUS)


def _finish(status: str) -> None:
    for run in _own_runs():
        with contextlib.suppress(Exception):  # The other runs must be finished, and the process must end.
            run.finish(status)


def _own_runs() -> list[_OpenRun]:
    """The open runs of this process, without those that a forked child has inherited from its parent."""
    return [run for run, process in list(_open_runs.values()) if process == os.getpid()]
