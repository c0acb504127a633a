"""Whether the kernel killed a process of this control group because memory ran out: what its counter says (Linux, cgroup v1 and v2)."""

from halving.records.hardware import groups, memory_limit


class OutOfMemory:
    """Remembers the counter, so that a death later can be told from another SIGKILL."""

    def __init__(self) -> None:
        self._before = _oom_kills()

    def told(self) -> str:
        """What to say of a SIGKILL that has happened since: that memory ran out, with the limit if there is one; else nothing."""
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
