"""Control groups that tests put a process into."""

import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.waiting import wait_for


@contextmanager
def control_group(controller: str, of_v1: Mapping[str, str], of_v2: Mapping[str, str]) -> Iterator[Path]:
    """A control group below our own, with these files written; a test is skipped where none may be made.

    Who writes ``0`` into its ``cgroup.procs`` is in it.
    """
    groups = dict(line.split(":", 2)[1:] for line in Path("/proc/self/cgroup").read_text().splitlines())
    own = f"{controller}{groups[controller]}" if controller in groups else groups[""].lstrip("/")
    group = Path("/sys/fs/cgroup", own, f"halving-{secrets.token_hex(4)}")
    try:
        group.mkdir()
        for name, content in (of_v1 if controller in groups else of_v2).items():
            (group / name).write_text(content)
    except OSError as error:
        if group.is_dir():
            group.rmdir()
        pytest.skip(f"needs control groups that may be made here: {error}")
    yield group
    wait_for(lambda: not (group / "cgroup.procs").read_text(), 60, "the end of the group's processes")
    group.rmdir()
