"""Samples per second: counted by training, and logged by the sampler or by themselves."""

import math
import threading
from collections.abc import Callable
from typing import Any

import pytest

from halving.errors import InvalidInput
from halving.run.system_metrics import SystemMetrics, Throughput
from tests.sdk.run.samples import Logged, wait_until


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
