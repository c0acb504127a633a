"""System metrics: what is sampled, when, and that training never notices."""

import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import psutil
import pytest

from halving.errors import InvalidInput
from halving.run.system_metrics import SystemMetrics, Throughput, _Machine
from tests.sdk.conftest import Script
from tests.waiting import wait_for

UUIDS = ["GPU-aa11", "GPU-aa22", "GPU-bb33"]
MIG = "MIG-7f0c"


class Logged:
    """What was logged, and on which thread."""

    def __init__(self) -> None:
        self.samples: list[tuple[dict[str, float], int]] = []
        self.threads: set[str] = set()

    def __call__(self, values: dict[str, float], *, step: int) -> None:
        self.threads.add(threading.current_thread().name)
        self.samples.append((dict(values), step))

    @property
    def last(self) -> dict[str, float]:
        return self.samples[-1][0]


class FakeNvml(ModuleType):
    """``pynvml`` as on a machine with three GPUs; each reading can be broken."""

    class NVMLError(Exception):
        pass

    NVML_TEMPERATURE_GPU = 0

    def __init__(self) -> None:
        super().__init__("pynvml")
        self.broken: set[str] = set()
        self.started = 0

    def _answer(self, name: str, value: Any) -> Any:
        if name in self.broken or "everything" in self.broken:
            raise self.NVMLError(name)
        return value

    def nvmlInit(self) -> None:  # noqa: N802
        self._answer("init", None)
        self.started += 1

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(UUIDS)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        return index

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> int:  # noqa: N802
        if uuid != MIG:
            raise self.NVMLError("not found")
        return 10

    def nvmlDeviceGetUUID(self, handle: int) -> str:  # noqa: N802
        return UUIDS[handle]

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> Any:  # noqa: N802
        return self._answer("utilization", SimpleNamespace(gpu=10 + handle))

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:  # noqa: N802
        return self._answer("memory", SimpleNamespace(used=2**30 * (1 + handle), total=2**32))

    def nvmlDeviceGetTemperature(self, handle: int, sensor: int) -> int:  # noqa: N802
        return self._answer("temperature", 40 + handle)  # type: ignore[no-any-return]

    def nvmlDeviceGetPowerUsage(self, handle: int) -> int:  # noqa: N802
        return self._answer("power", 250_500)  # type: ignore[no-any-return]


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    fake = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return fake


@pytest.fixture
def sampling() -> Iterator[Callable[..., SystemMetrics]]:
    started: list[SystemMetrics] = []

    def start(*arguments: Any, **keywords: Any) -> SystemMetrics:
        started.append(SystemMetrics(*arguments, **keywords))
        return started[-1]

    yield start
    for metrics in started:
        metrics.stop()


def wait_until(reached: Callable[[], bool]) -> None:
    wait_for(reached, 30, "what is logged", every=0.005)


def sample(log: Logged, sampling: Callable[..., SystemMetrics], count: int = 1) -> dict[str, float]:
    """Take ``count`` samples and give the last one."""
    metrics = sampling(log, 0.02)
    wait_until(lambda: len(log.samples) >= count)
    metrics.stop()
    return log.samples[count - 1][0]


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


# GPUs


def test_every_gpu_is_measured_in_plain_units(nvml: FakeNvml, sampling: Callable[..., SystemMetrics]) -> None:
    values = {name: value for name, value in sample(Logged(), sampling).items() if "gpu" in name}
    assert len(values) == 15
    assert {name: value for name, value in values.items() if ".1/" in name} == {
        "system/gpu.1/utilization": 11.0,
        "system/gpu.1/memory_used": 2.0**31,
        "system/gpu.1/memory_percent": 50.0,
        "system/gpu.1/temperature": 41.0,
        "system/gpu.1/power": 250.5,
    }
    assert nvml.started == 1


@pytest.mark.parametrize(
    ("visible", "indexes"),
    [
        ("2,0", [12, 10]),
        (" 1 ", [11]),
        ("GPU-bb33,GPU-aa11", [12, 10]),
        ("GPU-bb", [12]),
        ("GPU-bb,1", [12, 11]),
        ("GPU-aa,1", []),  # it fits two
        (MIG, [20]),
        ("1,7,0", [11]),  # what follows a GPU that is not there is not visible
        ("1,-1,0", [11]),
        ("1,1", []),
        ("", []),
        ("-1", []),
        ("NoDevFiles", []),
    ],
)
def test_only_the_visible_gpus_are_measured_and_numbered_as_the_process_sees_them(
    visible: str,
    indexes: list[int],
    nvml: FakeNvml,
    sampling: Callable[..., SystemMetrics],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    values = sample(Logged(), sampling)
    assert [values[name] for name in sorted(values) if name.endswith("/utilization")] == indexes
    assert sorted(name for name in values if name.endswith("/utilization")) == [
        f"system/gpu.{n}/utilization" for n in range(len(indexes))
    ]


def test_a_gpu_reading_that_fails_is_left_out_until_it_works_again(
    nvml: FakeNvml, sampling: Callable[..., SystemMetrics]
) -> None:
    log = Logged()
    nvml.broken = {"power"}
    sampling(log, 0.02)
    wait_until(lambda: len(log.samples) >= 1)
    assert "system/gpu.0/power" not in log.samples[0][0]
    assert "system/gpu.0/temperature" in log.samples[0][0]
    nvml.broken = set()
    wait_until(lambda: "system/gpu.0/power" in log.last)


def test_a_driver_that_is_reloaded_is_found_again(
    nvml: FakeNvml, sampling: Callable[..., SystemMetrics]
) -> None:
    log = Logged()
    nvml.broken = {"init"}
    sampling(log, 0.02)
    wait_until(lambda: len(log.samples) >= 2)
    assert not any("gpu" in name for name in log.last)
    nvml.broken = set()
    wait_until(lambda: "system/gpu.0/power" in log.last)
    nvml.broken = {"everything"}
    wait_until(lambda: "system/gpu.0/power" not in log.last)
    nvml.broken = set()
    wait_until(lambda: "system/gpu.0/power" in log.last)
    assert nvml.started >= 2


def test_newer_bindings_are_asked_for_the_temperature_their_way(
    nvml: FakeNvml, sampling: Callable[..., SystemMetrics], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvml, "nvmlDeviceGetTemperatureV", lambda handle, sensor: 77, raising=False)
    assert sample(Logged(), sampling)["system/gpu.0/temperature"] == 77


def test_the_real_library_gives_the_gpus_that_are_there_and_none_without_a_driver(
    sampling: Callable[..., SystemMetrics], monkeypatch: pytest.MonkeyPatch
) -> None:
    import pynvml

    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    try:
        pynvml.nvmlInit()
        there = pynvml.nvmlDeviceGetCount()
    except pynvml.NVMLError:
        there = 0
    values = sample(Logged(), sampling, count=2)
    assert [name for name in values if name.endswith("memory_used")] == [
        f"system/gpu.{number}/memory_used" for number in range(there)
    ]


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


# Throughput


def test_throughput_is_samples_per_second_since_the_first_call(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr("halving.run.system_metrics.time.monotonic", lambda: clock[0])
    throughput = Throughput()
    assert throughput.rate() is None
    clock[0] += 60  # data is read, a model compiled
    throughput.add(32)
    for _ in range(10):
        clock[0] += 0.5
        throughput.add(32)
    assert throughput.rate() == 64
    assert throughput.rate() is None  # no time went by
    clock[0] += 2
    assert throughput.rate() == 0  # an evaluation, say


def test_the_sampler_logs_the_throughput_along(sampling: Callable[..., SystemMetrics]) -> None:
    log = Logged()
    throughput = Throughput()
    sampling(log, 0.02, throughput=throughput)
    wait_until(lambda: len(log.samples) >= 1)
    assert "system/throughput" not in log.samples[0][0]
    throughput.add(1)
    throughput.add(1)
    wait_until(lambda: any(values.get("system/throughput", 0) > 0 for values, _ in log.samples))


def test_without_a_sampler_throughput_logs_itself_once_per_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr("halving.run.system_metrics.time.monotonic", lambda: clock[0])
    log = Logged()
    throughput = Throughput(log, 10)
    for _ in range(36):
        throughput.add(8)
        clock[0] += 1
    assert [values for values, _ in log.samples] == [{"system/throughput": 8.0}] * 3
    throughput.stop()
    assert len(log.samples) == 4
    assert log.last["system/throughput"] == pytest.approx(8 * 5 / 6)
    throughput.stop()
    assert len(log.samples) == 4


def test_samples_counted_on_many_threads_are_all_counted_in_bounded_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = [100.0]
    monkeypatch.setattr("halving.run.system_metrics.time.monotonic", lambda: clock[0])
    throughput = Throughput()
    throughput.add(0)
    threads = [threading.Thread(target=lambda: [throughput.add(1) for _ in range(20_000)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(throughput._added) < 5000
    clock[0] += 1
    assert throughput.rate() == 80_000


@pytest.mark.parametrize("samples", [-1, math.nan, math.inf, "32", None])
def test_a_count_that_is_none_is_refused(samples: Any) -> None:
    with pytest.raises(InvalidInput, match=r"samples .* is not accepted: give a finite number"):
        Throughput().add(samples)
