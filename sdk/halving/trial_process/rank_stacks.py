"""The stack of a silent rank, which its node's agent reads even if the rank is stopped or hangs in C."""

import contextlib
import faulthandler
import os
import signal
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from halving.store.deadline import Deadline

_SIGNAL = signal.SIGRTMIN + 14  # because the trainable may use SIGUSR1 and SIGUSR2
_WAIT_SECONDS = 1.0
_LOOK_SECONDS = 0.05
_OWN_FRAME = "halving/trial_process/"
_FIRST_LINE = len(f"{0:#018x}\n")


def answer_to_agent(folder: Path, rank: int) -> None:
    """Have the stacks of this rank's process written to ``folder`` whenever :func:`stacks_of` asks."""
    file = _path(folder, rank).open("w")  # It stays open as long as the process lives.
    file.write(f"{threading.get_ident():#018x}\n")  # This thread's number, in faulthandler's form.
    file.flush()
    faulthandler.register(_SIGNAL, file, all_threads=True)


def stacks_of(pids: Mapping[int, int], folder: Path) -> dict[int, str]:
    """Read the main threads' stacks of the ranks that answer within a second.

    A rank that is stopped is continued, because it will be killed anyway, and its stack says so.

    Args:
        pids: rank to process.
    """
    stopped = {rank for rank, pid in pids.items() if _is_stopped(pid)}
    for pid in pids.values():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, _SIGNAL)
            os.kill(pid, signal.SIGCONT)
    deadline = Deadline.after(_WAIT_SECONDS)
    before = dict.fromkeys(pids, -1)
    while not deadline.is_over():
        sizes = {rank: _size(folder, rank) for rank in pids}
        if sizes == before and all(size > _FIRST_LINE for size in sizes.values()):
            break
        before = sizes
        time.sleep(_LOOK_SECONDS)
    stacks = {}
    for rank in pids:
        with contextlib.suppress(OSError):
            stack = main_stack(_path(folder, rank).read_text())
            if stack and rank in stopped:
                stack = f"its process was stopped by a signal (SIGSTOP), here:\n{stack}"
            if stack:
                stacks[rank] = stack
    return stacks


def main_stack(text: str) -> str:
    """Parse the main thread's stack from the trainable on, the outermost call first.

    Args:
        text: the main thread's number, and the dump of faulthandler.
    """
    main, _, dump = text.partition("\n")
    for part in dump.split("\n\n"):
        head, _, frames = part.partition("\n")
        if main and main in head:
            lines = frames.rstrip().splitlines()[::-1]
            own = [number for number, line in enumerate(lines) if _OWN_FRAME in line]
            trainable = []
            if own:
                trainable = lines[own[-1] + 1 :]
            return "\n".join(trainable or lines)
    return ""


def _path(folder: Path, rank: int) -> Path:
    return folder / f"{rank}.stack"


def _size(folder: Path, rank: int) -> int:
    with contextlib.suppress(OSError):
        return _path(folder, rank).stat().st_size
    return 0


def _is_stopped(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    return False
