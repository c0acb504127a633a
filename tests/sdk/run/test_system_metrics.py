"""System metrics: what is sampled, when, and that training never notices."""

import math
import os
import sys
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from halving.errors import InvalidInput
from halving.run.system_metrics import SystemMetrics, Throughput, _Machine
from tests.sdk.conftest import Script
from tests.sdk.run.samples import FakeNvml, Logged, sample, wait_until

# The machine


def test_the_machine_is_measured_as_psutil_sees_it(sampling: Callable[..., SystemMetrics]) -> None:
    values = sample(Logged(), sampling, count=3)
    assert 0 <= values["system/cpu/percent"] <= 100
    own = psutil.Process().memory_info().rss
    assert 0.5 * own < values["system/memory/process"] < 2 * own
    assert 0 < values["system/memory/used"] < psutil.virtual_memory().total
    assert 0 < values["system/memory/percent"] < 100
    assert 0 < values["system/disk/used"] <= psutil.disk_usage(".").total
    for rate in ("disk/read", "disk/write", "network/sent", "network/received"):
        assert values[f"system/{rate}"] >= 0


def test_the_first_sample_has_nothing_to_compare_with_and_gives_no_rate(
    sampling: Callable[..., SystemMetrics], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert set(sample(Logged(), sampling)) == {
        "system/memory/process",
        "system/memory/used",
        "system/memory/percent",
        "system/disk/used",
    }


def test_a_container_of_lxc_that_shows_its_own_cpus_only_is_measured_by_all_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("halving.run.system_metrics.cpu_quota", lambda: None)
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {12, 13})
    monkeypatch.setattr(psutil, "cpu_percent", lambda interval, percpu: [20.0, 40.0])
    machine = _Machine()
    machine.read()
    assert machine.read()["system/cpu/percent"] == 30.0


def test_rates_are_bytes_per_second_without_the_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr("halving.run.system_metrics.time.monotonic", lambda: clock[0])

    def bytes_after(per_second: int) -> int:
        return int(clock[0] * per_second)

    def network(pernic: bool) -> dict[str, Any]:
        assert pernic
        counters = SimpleNamespace(bytes_sent=bytes_after(10_000_000), bytes_recv=bytes_after(2_000_000))
        return {
            "eth0": counters,
            "eth1": counters,
            "lo": SimpleNamespace(bytes_sent=bytes_after(10**12), bytes_recv=bytes_after(10**12)),
        }

    monkeypatch.setattr(psutil, "net_io_counters", network)
    monkeypatch.setattr(
        psutil,
        "disk_io_counters",
        lambda: SimpleNamespace(read_bytes=bytes_after(5_000_000), write_bytes=-bytes_after(9)),
    )
    machine = _Machine()
    machine.read()
    clock[0] += 2.0
    values = machine.read()
    assert (values["system/network/sent"], values["system/network/received"]) == (20_000_000, 4_000_000)
    assert values["system/disk/read"] == 5_000_000


def test_a_counter_that_falls_gives_no_rate(
    sampling: Callable[..., SystemMetrics], monkeypatch: pytest.MonkeyPatch
) -> None:
    readings = iter(range(10**9, 0, -1))
    monkeypatch.setattr(
        psutil, "disk_io_counters", lambda: SimpleNamespace(read_bytes=next(readings), write_bytes=5)
    )
    values = sample(Logged(), sampling, count=3)
    assert "system/disk/read" not in values
    assert values["system/disk/write"] == 0


@pytest.mark.parametrize("module", ["psutil", "pynvml"])
def test_without_a_library_its_metrics_are_absent_and_nothing_else(
    module: str, nvml: FakeNvml, sampling: Callable[..., SystemMetrics], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    families = {name.split("/")[1] for name in sample(Logged(), sampling, count=2)}
    assert families == (
        {"gpu.0", "gpu.1", "gpu.2"} if module == "psutil" else {"cpu", "memory", "disk", "network"}
    )


def test_a_sensor_that_fails_is_left_out_and_tried_again(
    sampling: Callable[..., SystemMetrics], monkeypatch: pytest.MonkeyPatch
) -> None:
    works = psutil.virtual_memory
    broken = threading.Event()

    def memory() -> Any:
        if not broken.is_set():
            broken.set()
            raise OSError("/proc is not mounted")
        return works()

    monkeypatch.setattr(psutil, "virtual_memory", memory)
    log = Logged()
    sample(log, sampling, count=2)
    first, second = (values for values, _ in log.samples[:2])
    assert "system/memory/used" not in first
    assert "system/memory/process" in first
    assert "system/memory/used" in second


# The thread


def test_samples_come_from_a_named_daemon_thread_at_unix_seconds(
    sampling: Callable[..., SystemMetrics],
) -> None:
    log = Logged()
    before = int(time.time())
    metrics = sampling(log, 0.02, name="r1")
    wait_until(lambda: len(log.samples) >= 2)
    (thread,) = [thread for thread in threading.enumerate() if thread.name == "halving-system-r1"]
    assert thread.daemon
    metrics.stop()
    assert not thread.is_alive()
    assert log.threads == {"halving-system-r1"}
    assert all(before <= step <= time.time() for _, step in log.samples)


@pytest.mark.slow
def test_a_short_run_samples_nothing_and_imports_nothing(script: Script) -> None:
    done = script(
        "import sys\n"
        "from halving.run.system_metrics import SystemMetrics\n"
        "def log(values, *, step): print('sampled')\n"
        "metrics = SystemMetrics(log)\n"
        "metrics.stop()\n"
        "metrics.stop()\n"
        "print([name for name in ('psutil', 'pynvml') if name in sys.modules])\n"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[]\n"


@pytest.mark.slow
def test_a_run_without_a_stop_ends_all_the_same(script: Script) -> None:
    done = script(
        "from halving.run.system_metrics import SystemMetrics\nSystemMetrics(print, 0.001)\nimport time; "
        "time.sleep(0.2)"
    )
    assert done.returncode == 0
    assert done.stderr == ""


def test_the_first_sample_is_due_after_a_second_and_stopping_takes_the_last(
    sampling: Callable[..., SystemMetrics],
) -> None:
    log = Logged()
    began = time.monotonic()
    metrics = sampling(log, 600)
    wait_until(lambda: len(log.samples) == 1)
    first = time.monotonic()
    assert first - began >= 1
    time.sleep(1.1)  # the time that is tested: no sample is taken within a second of the one before
    metrics.stop()
    assert len(log.samples) == 2
    assert "system/cpu/percent" in log.last
    assert "system/network/sent" in log.last


def test_stopping_right_after_a_sample_takes_no_second_one(sampling: Callable[..., SystemMetrics]) -> None:
    log = Logged()
    metrics = sampling(log, 600)
    wait_until(lambda: len(log.samples) == 1)
    metrics.stop()
    assert len(log.samples) == 1


def test_a_sensor_that_hangs_holds_up_nobody_and_logs_nothing_afterwards(
    sampling: Callable[..., SystemMetrics], monkeypatch: pytest.MonkeyPatch
) -> None:
    entered = threading.Event()
    answer = threading.Event()

    def hangs(path: str) -> Any:
        entered.set()
        answer.wait(60)
        return SimpleNamespace(used=1)

    monkeypatch.setattr(psutil, "disk_usage", hangs)
    monkeypatch.setattr("halving.run.system_metrics._JOIN_SECONDS", 0.1)
    log = Logged()
    metrics = sampling(log, 0.02, name="hanging")
    assert entered.wait(30)
    began = time.monotonic()
    metrics.stop()
    assert time.monotonic() - began < 5
    answer.set()
    wait_until(lambda: not any(thread.name == "halving-system-hanging" for thread in threading.enumerate()))
    assert log.samples == []


def test_a_log_that_raises_ends_neither_the_thread_nor_training(
    sampling: Callable[..., SystemMetrics],
) -> None:
    calls: list[int] = []

    def log(values: dict[str, float], *, step: int) -> None:
        calls.append(step)
        raise OSError("no space left")

    metrics = sampling(log, 0.01)
    wait_until(lambda: len(calls) >= 3)
    metrics.stop()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:This process.*multi-threaded:DeprecationWarning")
def test_a_forked_child_has_no_such_thread_and_may_stop_it(sampling: Callable[..., SystemMetrics]) -> None:
    metrics = sampling(Logged(), 600, name="parent")
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        alone = len(threading.enumerate()) == 1
        began = time.monotonic()
        metrics.stop()
        os.write(writing, b"yes" if alone and time.monotonic() - began < 0.5 else b"no")
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reading, 3) == b"yes"
    assert any(thread.name == "halving-system-parent" for thread in threading.enumerate())
    os.close(reading)
    os.close(writing)


@pytest.mark.parametrize("interval", [0, -1.0, math.nan, math.inf, "30", True, None])
def test_an_interval_that_is_none_is_refused_by_the_name_of_its_argument(interval: Any) -> None:
    for make in (lambda: SystemMetrics(Logged(), interval), lambda: Throughput(Logged(), interval)):
        with pytest.raises(InvalidInput, match=r"system_metrics .* is not accepted: give the seconds"):
            make()


def test_an_interval_of_centuries_is_a_long_wait(sampling: Callable[..., SystemMetrics]) -> None:
    log = Logged()
    metrics = sampling(log, 1e300)
    wait_until(lambda: len(log.samples) == 1)
    metrics.stop()
