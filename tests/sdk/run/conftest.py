"""Fixtures for tests of runs: clocks of their own, and signal handlers that are put back."""

import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from halving.run.system_metrics import SystemMetrics
from tests.sdk.run.clocks import Slow, own_time
from tests.sdk.run.samples import FakeNvml


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Slow:
    return Slow(monkeypatch)


@pytest.fixture
def own_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trial in this process goes by ``own_time``."""
    for name in (
        "time.monotonic",
        "halving.run.epoch_loop.monotonic",
        "halving.run.grace_period.monotonic",
    ):
        monkeypatch.setattr(name, own_time)


@pytest.fixture
def signals() -> Iterator[None]:
    """The trial runs in the tests' own process, which wants its handlers back."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def sampling() -> Iterator[Callable[..., SystemMetrics]]:
    started: list[SystemMetrics] = []

    def start(*arguments: Any, **keywords: Any) -> SystemMetrics:
        started.append(SystemMetrics(*arguments, **keywords))
        return started[-1]

    yield start
    for metrics in started:
        metrics.stop()


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    fake = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return fake
