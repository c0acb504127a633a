"""What ends a process whose parent has died, wherever it hangs: a small process beside it, which looks after both."""

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

_LOOK_SECONDS = 0.5
_PR_SET_PDEATHSIG = 1


def be_killed_with_parent() -> None:
    """Have the kernel kill this process when the one that has forked it dies: at once, also where it hangs in C."""
    parent = os.getppid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def be_killed_after_parent(parent: int, seconds: float) -> None:
    """Have this process killed when its parent has been dead for so long, in which it may end by itself. Only on Linux.

    Also where it is stopped, or hangs in C and holds the interpreter's lock: so no thread of it can see to that. To be called before it
    has threads.

    Args:
        parent: the process that has started it, perhaps by way of a fork server.
        seconds: from its parent's death on.
    """
    if sys.platform != "linux":
        return
    ward, began = os.getpid(), _began(parent)
    if os.fork():
        return
    try:
        _guard(ward, lambda: began is not None and _began(parent) == began, seconds)
    finally:
        os._exit(0)


def _guard(ward: int, parent_lives: Callable[[], bool], seconds: float) -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):  # they are for its ward
        signal.signal(number, signal.SIG_IGN)
    for file in os.listdir("/proc/self/fd"):  # while the ward's files are open here, it seems to live
        with contextlib.suppress(OSError):
            os.close(int(file))
    be_killed_with_parent()
    orphaned_at: float | None = None
    while os.getppid() == ward:
        if orphaned_at is None and not parent_lives():
            orphaned_at = time.monotonic()
        if orphaned_at is not None and time.monotonic() - orphaned_at > seconds:
            os.kill(ward, signal.SIGKILL)
        time.sleep(_LOOK_SECONDS)


def _began(pid: int) -> int | None:
    """When a process began, in ticks of the machine's clock, which tells it from a later one with its number; None where it has died."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    state, *numbers = status.rpartition(")")[2].split()  # its name, which is before, may contain spaces
    return None if state in ("Z", "X") else int(numbers[18])  # proc_pid_stat(5): field 22, of which the state is the third
