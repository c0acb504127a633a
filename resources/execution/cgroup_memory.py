"""Whether the kernel killed a process of this control group because memory ran out: its counter of kills (Linux, cgroup v1 and v2)."""

from pathlib import Path

_UNLIMITED = 1 << 60  # bytes; v1 says "no limit" by a number near 2**63


class OutOfMemory:
    """Remembers the counter, so that a kill for memory can be distinguished from any other SIGKILL later."""

    def __init__(self) -> None:
        self._before = _oom_kills()

    def reason(self) -> str:
        """Why a SIGKILL came that has happened since: that memory ran out, with the limit if there is one; else an empty text."""
        if _oom_kills() <= self._before:
            return ""
        limit = _limit()
        return f": out of memory (the limit is {limit >> 20}Mi)" if limit else ": out of memory"


def _oom_kills() -> int:
    """How many processes of this control group the kernel has killed for memory; 0 if there is no counter."""
    for line in _read("memory.oom_control", "memory.events").splitlines():
        name, _, number = line.partition(" ")
        if name == "oom_kill":
            return int(number)
    return 0


def _limit() -> int | None:
    """Bytes that this control group may use; None if it has no limit."""
    limit = _read("memory.limit_in_bytes", "memory.max").strip()
    return int(limit) if limit.isdigit() and int(limit) < _UNLIMITED else None


def _read(of_v1: str, of_v2: str) -> str:
    """A file of this process's memory controller."""
    for hierarchy in _read_text(Path("/proc/self/cgroup")).splitlines():
        number, controllers, group = hierarchy.split(":", 2)
        if "memory" not in controllers.split(",") and number != "0":
            continue
        root, name = (Path("/sys/fs/cgroup"), of_v2) if number == "0" else (Path("/sys/fs/cgroup/memory"), of_v1)
        # A container sees its own group as the root, whatever its path outside is.
        if found := _read_text(root / group.lstrip("/") / name) or _read_text(root / name):
            return found
    return ""


def _read_text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
