"""Whether the kernel killed a process of this control group because memory ran out: its counter of kills
(Linux, cgroup v1 and v2).
"""

from halving.records.hardware import groups, memory_limit


class MemoryKills:
    """Remembers the counter, so that a kill for memory can be distinguished from any other SIGKILL later."""

    def __init__(self) -> None:
        self._before = _oom_kills()

    def reason(self) -> str:
        """Why a SIGKILL came that has happened since: that memory ran out, with the limit if there is one;
        else an empty text.
        """
        if _oom_kills() <= self._before:
            return ""
        limit = memory_limit()
        return f": out of memory (the limit is {limit[0] >> 20}Mi)" if limit else ": out of memory"


def _oom_kills() -> int:
    """How many processes of this control group the kernel has killed for memory; 0 where it does not say."""
    for group in groups("memory"):
        for line in group.read("memory.oom_control", "memory.events").splitlines():
            name, _, number = line.partition(" ")
            if name == "oom_kill":
                return int(number)
    return 0
