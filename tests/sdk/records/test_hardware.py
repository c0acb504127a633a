"""What a process may use of its machine: its affinity, and the limits of its control groups."""

import os
from pathlib import Path

import psutil
import pytest

from halving.records import hardware
from halving.run.system_metrics import _Machine
from tests.control_groups import control_group
from tests.sdk.conftest import Script

MIB = 1 << 20


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The root of a machine with eight CPUs, whose files say what a test writes."""
    monkeypatch.setattr(hardware, "ROOT", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)))
    return tmp_path


def write(root: Path, files: dict[str, str]) -> None:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{content}\n")


def test_a_machine_without_control_groups_limits_nothing(machine: Path) -> None:
    assert hardware.usable_cpus() == 8
    assert hardware.usable_memory() == psutil.virtual_memory().total
    assert (hardware.cpu_quota(), hardware.memory_limit()) == (None, None)


@pytest.mark.parametrize(
    ("quota", "cpus"), [("max", 8), ("50000", 1), ("200000", 2), ("250000", 3), ("6400000", 8)]
)
def test_a_quota_of_v2_is_rounded_up_and_never_above_the_affinity(
    machine: Path, quota: str, cpus: int
) -> None:
    write(machine, {"proc/self/cgroup": "0::/job", "sys/fs/cgroup/job/cpu.max": f"{quota} 100000"})
    assert hardware.usable_cpus() == cpus


@pytest.mark.parametrize(("quota", "cpus"), [("-1", 8), ("150000", 2)])
def test_a_quota_of_v1_is_rounded_up(machine: Path, quota: str, cpus: int) -> None:
    write(machine, {"proc/self/cgroup": "5:cpuset:/\n4:cpu,cpuacct:/job"})
    write(
        machine,
        {
            "sys/fs/cgroup/cpu/job/cpu.cfs_quota_us": quota,
            "sys/fs/cgroup/cpu/job/cpu.cfs_period_us": "100000",
        },
    )
    assert hardware.usable_cpus() == cpus


def test_the_tightest_group_of_the_hierarchy_decides(machine: Path) -> None:
    write(machine, {"proc/self/cgroup": "0::/pod/container"})
    write(
        machine,
        {"sys/fs/cgroup/pod/memory.max": str(64 * MIB), "sys/fs/cgroup/pod/container/memory.max": "max"},
    )
    write(
        machine,
        {
            "sys/fs/cgroup/pod/cpu.max": "300000 100000",
            "sys/fs/cgroup/pod/container/cpu.max": "400000 100000",
        },
    )
    assert (hardware.usable_memory(), hardware.usable_cpus()) == (64 * MIB, 3)
    write(machine, {"sys/fs/cgroup/pod/container/memory.max": str(32 * MIB)})
    assert hardware.usable_memory() == 32 * MIB


def test_a_container_that_sees_its_own_group_as_the_top_is_limited_by_it(machine: Path) -> None:
    """Its group is named as outside, where the folder of that name is not."""
    write(
        machine,
        {
            "proc/self/cgroup": "4:memory:/docker/1f",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": str(64 * MIB),
        },
    )
    assert hardware.usable_memory() == 64 * MIB


def test_memory_without_a_limit_is_the_machines(machine: Path) -> None:
    write(
        machine,
        {
            "proc/self/cgroup": "4:memory:/\n0::/",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
        },
    )
    assert hardware.usable_memory() == psutil.virtual_memory().total


def test_system_metrics_are_percent_of_the_limit_and_of_the_quota(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = {"cpu.max": "50000 100000", "memory.max": str(64 * MIB), "memory.current": str(40 * MIB)}
    group |= {"memory.stat": f"anon 1\ninactive_file {8 * MIB}", "cpu.stat": "usage_usec 1000000"}
    write(
        machine,
        {
            "proc/self/cgroup": "0::/job",
            **{f"sys/fs/cgroup/job/{name}": content for name, content in group.items()},
        },
    )
    sampled = _Machine()
    clock = [100.0]
    monkeypatch.setattr("halving.run.system_metrics.time.monotonic", lambda: clock[0])
    first = sampled.read()
    assert (first["system/memory/used"], first["system/memory/percent"]) == (32 * MIB, 50.0)
    assert "system/cpu/percent" not in first
    clock[0] += 10.0
    # 2 s of the 5 s that half a CPU has in 10 s
    write(machine, {"sys/fs/cgroup/job/cpu.stat": "usage_usec 3000000"})
    assert sampled.read()["system/cpu/percent"] == 40.0


@pytest.mark.slow
def test_a_process_with_a_narrow_affinity_has_as_many_cpus_on_record(script: Script) -> None:
    done = script(
        "import os\n"
        "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        "from halving import Store\n"
        "from halving.records.provenance import capture\n"
        "print(capture(Store())['hardware']['cpus'])\n"
    )
    assert done.stdout == "1\n", done.stderr


@pytest.mark.slow
def test_a_process_in_a_real_control_group_sees_its_limits_and_its_use(script: Script) -> None:
    quota = {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "50000"}
    with (
        control_group("cpu", quota, {"cpu.max": "50000 100000"}) as cpu,
        control_group(
            "memory", {"memory.limit_in_bytes": str(256 * MIB)}, {"memory.max": str(256 * MIB)}
        ) as memory,
    ):
        done = script(
            "import sys\n"
            "from pathlib import Path\n"
            "for group in sys.argv[1:]: Path(group, 'cgroup.procs').write_text('0')\n"
            "from halving.records.hardware import memory_limit, usable_cpus, usable_memory\n"
            "held = bytearray(b'x' * 2**26)\n"
            "limit, group = memory_limit()\n"
            "print(usable_cpus(), usable_memory() >> 20, limit >> 20, 2**26 < group.memory_used() < 2**28)\n",
            str(cpu),
            str(memory),
        )
    assert done.stdout == "1 256 256 True\n", done.stderr
