"""Checkpoints cost at most a twentieth of the time, and are at most ten minutes apart."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from halving.checkpoints import interval
from halving.checkpoints.interval import CheckpointInterval
from tests.properties import examples
from tests.sdk.checkpoints.clocks import Clock


def simulate(epochs: int, seconds: float, cost: float) -> tuple[CheckpointInterval, list[float], float]:
    """Simulate a training that saves in every epoch.

    It returns the interval, when each checkpoint was written, and the time that passed.
    """
    clock = Clock()
    written = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interval, "monotonic", clock)
        simulated = CheckpointInterval()
        for _ in range(epochs):
            clock.now += seconds
            if simulated.due:
                with simulated.writing():
                    clock.now += cost / 2
                with simulated.counting():
                    clock.now += cost / 2
                written.append(clock.now)
    return simulated, written, clock.now - 1_000.0


@given(st.integers(1, 300), st.floats(0.001, 2_000), st.floats(0.0, 30.0))
@settings(max_examples=examples(100))
def test_checkpoints_cost_at_most_a_twentieth_of_the_time_after_the_first(
    epochs: int, seconds: float, cost: float
) -> None:
    interval, written, elapsed = simulate(epochs, seconds, cost)
    assert len(written) == interval.saves
    assert interval.seconds == pytest.approx(interval.saves * cost, abs=1e-6)
    assert interval.seconds <= cost + 0.05 * elapsed + 1e-6


@given(st.integers(2, 300), st.floats(0.001, 2_000), st.floats(0.0, 3_600.0))
@settings(max_examples=examples(100))
def test_checkpoints_are_at_most_ten_minutes_and_an_epoch_apart_from_the_first_on(
    epochs: int, seconds: float, cost: float
) -> None:
    _, written, elapsed = simulate(epochs, seconds, cost)
    assert written[0] == pytest.approx(1_000.0 + seconds + cost)
    ends = [*written, 1_000.0 + elapsed + seconds]
    assert all(later - earlier <= 600 + seconds + cost + 1e-6 for earlier, later in pairwise(ends))


def test_a_checkpoint_that_was_replaced_does_not_delay_the_one_that_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock()
    monkeypatch.setattr(interval, "monotonic", clock)
    replaced = CheckpointInterval()
    with replaced.writing():
        clock.now += 1
    with replaced.counting():
        pass
    clock.now += 19
    with replaced.writing():
        clock.now += 1
    assert not replaced.due
    assert replaced.overdue
