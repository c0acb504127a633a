"""Waiting for something that another thread or process does."""

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

_Answer = TypeVar("_Answer")


def wait_for(condition: Callable[[], _Answer], seconds: float, what: str, *, every: float = 0.1) -> _Answer:
    """What ``condition`` gives, once that is true.

    Raises:
        TimeoutError: it is not within ``seconds``; names ``what`` was waited for.
    """
    deadline = time.monotonic() + seconds
    while not (answer := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {seconds:g} s")
        time.sleep(every)
    return answer


def wait_while_running(
    process: "subprocess.Popen[bytes]",
    condition: Callable[[], _Answer],
    log: Path,
    what: str,
    *,
    every: float = 1.0,
) -> _Answer:
    """Wait for ``condition`` as long as a process lives that is to make it true, however busy the machine is.

    Raises:
        AssertionError: the process has ended; has the end of its ``log``. What hangs is ended by pytest's own
            timeout.
    """
    while not (answer := condition()):
        if process.poll() is not None:
            raise AssertionError(
                f"{what}: the process ended before with status {process.returncode}; it "
                f"said:\n{log.read_text()[-3000:]}"
            )
        time.sleep(every)
    return answer


def is_worked_in(root: str) -> bool:
    """Whether any process has this store as its own: trials end by themselves when their worker dies."""
    return bool(working_in(root))


def working_in(root: str) -> list[int]:
    """The ids of the processes that have this store as their own, by their environment."""
    pids = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            environment = (folder / "environ").read_bytes()
            state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
        except (OSError, IndexError):
            continue
        if f"HALVING_ROOT={root}".encode() in environment.split(b"\0") and state != "Z":
            pids.append(int(folder.name))
    return pids
