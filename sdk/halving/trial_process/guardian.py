"""A small process that watches this one, and kills processes that this one has started and that outlive it.

No thread of theirs could end them: a process that is stopped, or hangs in C and holds the interpreter's lock,
runs no thread. The guardian is a child of the process that it watches, not of those that it may kill, so that
a trainable that waits for all of its children does not wait for it.

This file is also the guardian's program. It is run by itself, so that it needs nothing but the standard
library and starts in milliseconds.
"""

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

_LOOK_SECONDS = 0.5
_PR_SET_PDEATHSIG = 1


def be_killed_with_parent() -> None:
    """Have the kernel kill this process at once when its parent dies, even if it hangs in C."""
    parent = os.getppid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


class Guardian:
    """Kills registered processes some time after this process's death, on Linux; elsewhere it does nothing.

    Args:
        seconds: the time after this process's death, in which the others may end by themselves.
    """

    def __init__(self, seconds: float) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        if sys.platform != "linux":
            return
        command = [
            sys.executable,
            "-I",
            "-S",
            __file__,
            str(os.getpid()),
            str(_began(os.getpid())),
            str(seconds),
        ]
        # Python may need it to find its own library.
        libraries = {name: value for name, value in os.environ.items() if name == "LD_LIBRARY_PATH"}
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            # A process that reads this one's output to its end must not wait for the guardian's end.
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env=libraries,
            start_new_session=True,  # A signal to this process's group must not end the guardian.
        )

    def watch(self, pid: int) -> None:
        """Register a process; any process that has been forked from this one may call it."""
        began = _began(pid)
        if self._process is None or began is None:
            return
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # Somebody has killed the guardian.
            # A line that is shorter than PIPE_BUF is written as a whole.
            os.write(self._process.stdin.fileno(), f"{pid} {began}\n".encode())

    def end(self) -> None:
        """End the guardian, which then kills nothing."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            assert self._process.stdin is not None
            self._process.stdin.close()


def _began(pid: int) -> int | None:
    """The start of a process in ticks of the machine's clock; None if it has died.

    It distinguishes the process from a later one with the same number.
    """
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    state, *numbers = status.rpartition(")")[2].split()  # The name before it may contain spaces.
    # In proc_pid_stat(5) it is field 22; the state is field 3.
    if state in ("Z", "X"):
        return None
    return int(numbers[18])


def _main(parent: int, began: int, seconds: float) -> None:
    # These signals are meant for the process that is watched.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    wards: set[tuple[int, int]] = set()
    orphaned_at: float | None = None
    while True:
        wards = {ward for ward in wards | _read_wards() if _began(ward[0]) == ward[1]}
        if orphaned_at is None and _began(parent) != began:
            orphaned_at = time.monotonic()
        if orphaned_at is not None and not wards:
            return
        if orphaned_at is not None and time.monotonic() - orphaned_at > seconds:
            for pid, _ in wards:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        time.sleep(_LOOK_SECONDS)


def _read_wards() -> set[tuple[int, int]]:
    """The number and the start of each process that was registered since the last call."""
    lines = b""
    while select.select([0], [], [], 0)[0] and (data := os.read(0, select.PIPE_BUF)):
        lines += data
    return {(int(pid), int(began)) for pid, began in (line.split() for line in lines.splitlines())}


if __name__ == "__main__":
    _main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
