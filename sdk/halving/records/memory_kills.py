"""The kernel's counter of processes that it killed for memory (Linux, cgroup v1 and v2)."""

from halving.records.hardware import groups, memory_limit


class MemoryKills:
    """Remembers the counter, to distinguish a later kill for memory from any other SIGKILL."""

    def __init__(self) -> None:
        self._before = _oom_kills()

    def reason(self) -> str:
        """A text for a message if a process was killed for memory since; else an empty text."""
        if _oom_kills() <= self._before:
            return ""
        limit = memory_limit()
        if limit is None:
            return ": out of memory"
        return f": out of memory (the limit is {limit[0] >> 20}Mi)"


def _oom_kills() -> int:
    """The number of processes of this control group that were killed for memory; 0 without a counter."""
    for group in groups("memory"):
        for line in group.read("memory.oom_control", "memory.events").splitlines():
            name, _, number = line.partition(" ")
            if name == "oom_kill":
                return int(number)
    return 0
