"""The GPUs that a process may use, as NVML shows them."""

from collections.abc import Callable

import pytest

from halving.run.system_metrics import SystemMetrics
from tests.sdk.run.samples import MIG, FakeNvml, Logged, sample, wait_until


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
