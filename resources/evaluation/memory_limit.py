"""How much memory a user's function may take that runs in a process of its own.

The limit is on what the process and its children hold for themselves, looked at every 50 ms: a limit on
addresses (RLIMIT_AS) would refuse what CUDA reserves and never touches, and a control group needs rights that
a worker rarely has. What fills memory faster than that is left to the kernel, which is told to take that
process first (:func:`goes_first`).
"""

import math
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from halving.records.hardware import available_memory, usable_memory
from resources.sweep_spec.requirements import quantity_bytes

LOOK_SECONDS = 0.05
_LIST_SECONDS = 1.0
_SHARE = 0.9  # of the memory that is available


@dataclass(frozen=True)
class MostMemory:
    """Memory that a function may take, in bytes, and by what limit."""

    memory: int
    whose: str

    def exceeded(self, held: int) -> str:
        """What became of the process that held so much."""
        return (
            f"ended with {held >> 20}Mi of memory, more than the limit of {self.memory >> 20}Mi "
            f"({self.whose})"
        )


def most_memory(given: str | None, field: str) -> MostMemory:
    """What a spec's field gives, or most of what is free now."""
    if given is not None:
        return MostMemory(quantity_bytes(given), f"{field} = {given}")
    free = available_memory() or usable_memory()
    return MostMemory(int(_SHARE * free), f"{field}, by default {100 * _SHARE:.0f} % of what was free")


def goes_first() -> None:
    """Where the kernel runs out of memory, this process is the first that it ends."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


class Family:
    """What a process has started, and it itself where that is wanted.

    To list it takes a machine's whole process table, so that is done once a second.
    """

    def __init__(self, pid: int, *, with_itself: bool = False) -> None:
        self._pid = pid
        self._with_itself = with_itself
        self._members = list[Any]()
        self._listed = -math.inf

    def memory(self) -> int:
        """Bytes that they hold for themselves: without files that are mapped."""
        import psutil

        held = 0
        with suppress(psutil.Error):
            if time.monotonic() > self._listed + _LIST_SECONDS:
                head = psutil.Process(self._pid)
                self._members = [*([head] if self._with_itself else []), *head.children(recursive=True)]
                self._listed = time.monotonic()
        for one in self._members:
            with suppress(psutil.Error):
                info = one.memory_info()
                held += info.rss - getattr(info, "shared", 0)
        return held
