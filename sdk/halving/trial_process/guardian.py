"""What ends processes that this one has started and that outlive it, wherever they hang: a small process
beside it, which watches it.

No thread of theirs could: one that is stopped, or hangs in C and holds the interpreter's lock, runs none. The
guardian is a child of the process that it watches, not of those that it may kill, so that a trainable that
waits for all of its children does not meet it.

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
    """Have the kernel kill this process when the one that has forked it dies: at once, also where it hangs in
    C.
    """
    parent = os.getppid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


class Guardian:
    """Kills the processes that it is told of when this one has been dead for so long.

    Only on Linux; elsewhere it does nothing.

    Args:
        seconds: from this process's death on, in which the others may end by themselves.
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
        # perhaps Python's own
        libraries = {name: value for name, value in os.environ.items() if name == "LD_LIBRARY_PATH"}
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            # who reads this process's output to its end does not wait for the guardian's end
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env=libraries,
            start_new_session=True,  # what ends this process by its group does not end the guardian
        )

    def watch(self, pid: int) -> None:
        """Kill this process, too. Any process may say so that has been forked from this one."""
        began = _began(pid)
        if self._process is None or began is None:
            return
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # somebody has killed the guardian
            # as a whole: it is shorter than PIPE_BUF
            os.write(self._process.stdin.fileno(), f"{pid} {began}\n".encode())

    def end(self) -> None:
        """Kill nothing any more."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            assert self._process.stdin is not None
            self._process.stdin.close()


def _began(pid: int) -> int | None:
    """When a process began, in ticks of the machine's clock, which tells it from a later one with its number;
    None where it has died.
    """
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    state, *numbers = status.rpartition(")")[2].split()  # its name, which is before, may contain spaces
    # proc_pid_stat(5): field 22, of which the state is the third
    return None if state in ("Z", "X") else int(numbers[18])


def _main(parent: int, began: int, seconds: float) -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):  # they are for the process that it watches
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
    """The processes that were named since the last call: each its number and when it began."""
    lines = b""
    while select.select([0], [], [], 0)[0] and (data := os.read(0, select.PIPE_BUF)):
        lines += data
    return {(int(pid), int(began)) for pid, began in (line.split() for line in lines.splitlines())}


if __name__ == "__main__":
    _main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
