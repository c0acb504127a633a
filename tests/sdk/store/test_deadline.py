"""A deadline says how much time is left; whoever waits follows it, and its limits, wherever they move."""

import math
from types import SimpleNamespace

import pytest

from halving.store.deadline import Deadline


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    clock = SimpleNamespace(now=100.0)
    clock.monotonic = lambda: clock.now
    monkeypatch.setattr("halving.store.deadline.time", clock)
    return clock


def test_the_time_runs_out(clock: SimpleNamespace) -> None:
    deadline = Deadline.after(5)
    assert (deadline.time, deadline.remaining(), deadline.is_over()) == (105, 5, False)
    clock.now = 105.0
    assert (deadline.remaining(), deadline.is_over()) == (0, True)


def test_without_a_time_there_is_no_end() -> None:
    assert Deadline().remaining() == math.inf
    assert not Deadline().is_over()


def test_it_is_never_later_than_its_limits_wherever_they_move() -> None:
    first = Deadline()
    second = Deadline()
    deadline = Deadline.after(30, first, second)
    assert deadline.remaining() == 30
    first.move_to(110)
    assert deadline.remaining() == 10
    second.move_to(-math.inf)
    assert deadline.is_over()
    second.move_to(math.inf)
    deadline.move_to(math.inf)
    assert deadline.remaining() == 10
