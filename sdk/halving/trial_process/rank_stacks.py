"""Where a rank is that does not answer, as its node's agent finds out: also one that is stopped, or that
holds the interpreter's lock.
"""

import contextlib
import faulthandler
import os
import signal
import threading
import time
from collections.abc import Mapping
from pathlib import Path

_SIGNAL = signal.SIGRTMIN + 14  # the trainable may use SIGUSR1 and SIGUSR2
_WAIT_SECONDS = 1.0
_LOOK_SECONDS = 0.05
_OWN_FRAME = "halving/trial_process/"
_FIRST_LINE = len(f"{0:#018x}\n")


def answer_to_agent(folder: Path, rank: int) -> None:
    """In a rank's process: have its stacks written to ``folder`` when :func:`stacks_of` asks, whatever it is
    doing then.
    """
    file = _path(folder, rank).open("w")  # for as long as the process lives
    file.write(f"{threading.get_ident():#018x}\n")  # of this thread, as faulthandler writes it
    file.flush()
    faulthandler.register(_SIGNAL, file, all_threads=True)


def stacks_of(pids: Mapping[int, int], folder: Path) -> dict[int, str]:
    """Where the main threads of ranks are, for those that answer within a second.

    One that is stopped goes on, for it is about to be killed, and its stack says so.

    Args:
        pids: rank to process.
    """
    stopped = {rank for rank, pid in pids.items() if _is_stopped(pid)}
    for pid in pids.values():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, _SIGNAL)
            os.kill(pid, signal.SIGCONT)
    until = time.monotonic() + _WAIT_SECONDS
    before = dict.fromkeys(pids, -1)
    while time.monotonic() < until:
        sizes = {rank: _size(folder, rank) for rank in pids}
        if sizes == before and all(size > _FIRST_LINE for size in sizes.values()):
            break
        before = sizes
        time.sleep(_LOOK_SECONDS)
    found = {}
    for rank in pids:
        with contextlib.suppress(OSError):
            if stack := main_stack(_path(folder, rank).read_text()):
                found[rank] = (
                    f"its process was stopped by a signal (SIGSTOP), here:\n{stack}"
                    if rank in stopped
                    else stack
                )
    return found


def main_stack(text: str) -> str:
    """The main thread's stack from the trainable on, the outermost call first, of what faulthandler wrote
    behind that thread's number.
    """
    main, _, dump = text.partition("\n")
    for part in dump.split("\n\n"):
        head, _, frames = part.partition("\n")
        if main and main in head:
            lines = frames.rstrip().splitlines()[::-1]
            own = [number for number, line in enumerate(lines) if _OWN_FRAME in line]
            return "\n".join(lines[own[-1] + 1 :] or lines if own else lines)
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
