"""The CPUs and the memory that this process may use, by its affinity, its quota and its limit.

Quota and limit are those of its control group and of the groups around that one (Linux, cgroup v1 and v2),
which give a container or a batch job its share of a machine. Elsewhere only the machine itself limits a
process.
"""

import contextlib
import math
import os
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

ROOT = Path("/")


class Group(NamedTuple):
    """A control group that this process is in."""

    folder: Path
    is_v2: bool

    def read(self, of_v1: str, of_v2: str) -> str:
        """A file of the group; empty where there is none."""
        name = of_v2 if self.is_v2 else of_v1
        return _text(self.folder / name)

    def cpu_seconds(self) -> float:
        """CPU time of all its processes so far.

        Raises:
            ValueError: the group does not tell.
        """
        if self.is_v2:
            return _entry(self.read("", "cpu.stat"), "usage_usec") / 1e6
        # This is often the same folder by another name.
        accounting = Path(str(self.folder).replace("/cgroup/cpu", "/cgroup/cpuacct", 1))
        return int(_text(accounting / "cpuacct.usage")) / 1e9

    def memory_used(self) -> int:
        """Bytes that its processes hold.

        Pages of files that the kernel can drop at once do not count, as in ``kubectl top``.

        Raises:
            ValueError: the group does not tell.
        """
        used = int(self.read("memory.usage_in_bytes", "memory.current"))
        name = "inactive_file" if self.is_v2 else "total_inactive_file"
        return max(0, used - _entry(self.read("memory.stat", "memory.stat"), name))


def usable_cpus() -> int:
    """The number of CPUs that this process may use, rounded up and at least 1."""
    allowed = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        allowed = len(os.sched_getaffinity(0))
    quota = cpu_quota()
    if quota is None:
        return allowed
    return max(1, min(allowed, math.ceil(quota[0])))


def usable_memory() -> int:
    """Bytes of memory that this process may use."""
    limit = memory_limit()
    if limit is None:
        return _physical_memory()
    return limit[0]


def available_memory() -> int | None:
    """Bytes of memory that this process may take beyond what is used now; None where that is unknown."""
    lines = _text(ROOT / "proc/meminfo").replace(":", "").splitlines()
    amounts = [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable ")]
    for group in groups("memory"):
        limit = group.read("memory.limit_in_bytes", "memory.max").strip()
        if limit.isdigit():
            with contextlib.suppress(ValueError):
                amounts.append(max(0, int(limit) - group.memory_used()))
    return min(amounts, default=None)


def cpu_quota() -> tuple[float, Group] | None:
    """The smallest quota, in CPUs, and the control group that has it; None without one."""
    quotas = []
    for group in groups("cpu"):
        quota, period = (
            *group.read("cpu.cfs_quota_us", "cpu.max").split(),
            *group.read("cpu.cfs_period_us", "-").split(),
            "",
            "",
        )[:2]
        # Without a quota v1 has -1, and v2 has "max".
        if quota.isdigit() and period.isdigit():
            quotas.append((int(quota) / int(period), group))
    return min(quotas, key=itemgetter(0), default=None)


def memory_limit() -> tuple[int, Group] | None:
    """The smallest limit, in bytes, and the control group that has it; None if all memory may be used."""
    limits = []
    for group in groups("memory"):
        limit = group.read("memory.limit_in_bytes", "memory.max").strip()
        # Without a limit v1 has a number near 2**63, and v2 has "max".
        if limit.isdigit() and int(limit) < _physical_memory():
            limits.append((int(limit), group))
    return min(limits, key=itemgetter(0), default=None)


def groups(controller: str) -> list[Group]:
    """The control groups by which a controller (``cpu``, ``memory``) limits this process, innermost first."""
    own_groups = []
    for line in _text(ROOT / "proc/self/cgroup").splitlines():
        number, controllers, path = line.split(":", 2)
        is_v2 = number == "0"
        top = ROOT / "sys/fs/cgroup"
        if not is_v2:
            if controller not in controllers.split(","):
                continue
            top /= controller
        own = top / path.lstrip("/")
        # A container sees its own group as the top, whatever its path outside; so folders may be missing.
        own_groups += [Group(folder, is_v2) for folder in (own, *own.parents) if folder.is_relative_to(top)]
    return own_groups


def _physical_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _entry(text: str, name: str) -> int:
    """The number beside a name in a file of lines ``name number``."""
    for line in text.splitlines():
        key, _, number = line.partition(" ")
        if key == name:
            return int(number)
    raise ValueError(f"no {name}")


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
