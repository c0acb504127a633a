"""The memory limit of a user's function that runs in a process of its own.

The limit is on the memory that the process and its children do not share with others, measured every 50 ms.
A limit on addresses (RLIMIT_AS) would refuse memory that CUDA reserves but never uses, and a control group
needs rights that a worker rarely has. If a process fills the memory in less than 50 ms, the kernel ends it
before any other process (:func:`goes_first`).
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
class MemoryLimit:
    """The memory that a function may take, in bytes, and where this limit is from."""

    memory: int
    source: str

    def excess(self, memory: int) -> str:
        """A text that says why a process with so much memory, in bytes, was ended."""
        return (
            f"ended with {memory >> 20}Mi of memory, more than the limit of {self.memory >> 20}Mi "
            f"({self.source})"
        )


def memory_limit_of(quantity: str | None, field: str) -> MemoryLimit:
    """The limit that a spec's field sets; by default 90 % of the memory that is free now."""
    if quantity is not None:
        return MemoryLimit(quantity_bytes(quantity), f"{field} = {quantity}")
    free = available_memory() or usable_memory()
    return MemoryLimit(int(_SHARE * free), f"{field}, by default {100 * _SHARE:.0f} % of what was free")


def goes_first() -> None:
    """Make this process the first that the kernel ends when it runs out of memory."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


class Family:
    """The processes that a process has started, and on request that process itself.

    Listing them takes a machine's whole process table, so it is done once a second.
    """

    def __init__(self, pid: int, *, with_itself: bool = False) -> None:
        self._pid = pid
        self._with_itself = with_itself
        self._members = list[Any]()
        self._listed = -math.inf

    def memory(self) -> int:
        """The bytes of memory that they do not share, so without mapped files."""
        import psutil

        size = 0
        with suppress(psutil.Error):
            if time.monotonic() > self._listed + _LIST_SECONDS:
                head = psutil.Process(self._pid)
                self._members = head.children(recursive=True)
                if self._with_itself:
                    self._members.append(head)
                self._listed = time.monotonic()
        for process in self._members:
            with suppress(psutil.Error):
                info = process.memory_info()
                size += info.rss - getattr(info, "shared", 0)
        return size
