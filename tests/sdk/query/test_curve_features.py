"""What stands out in a curve is what a brute-force reading of the same definition finds."""

import statistics
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from halving.query.curve_features import (
    BLOCK,
    MIN_SIDE,
    SIDE,
    SPIKE_SCORE,
    find_plateau,
    find_spikes,
    find_step_gaps,
    find_time_gaps,
    fit_last_tenth,
)
from tests.properties import examples

_SIZES = st.integers(0, 5 * BLOCK)


def _noise(count: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).normal(1, 0.01, count)


def _level(values: list[float]) -> tuple[float, float]:
    median = statistics.median(values)
    distances = [abs(value - median) for value in values]
    scale = 1.4826 * statistics.median(distances) or 1.2533 * statistics.mean(distances)
    return median, max(scale, abs(median) * 1e-12 + np.finfo(np.float64).tiny)


def _spike_places(values: list[float]) -> set[int]:
    """The definition, point by point."""
    count = max(len(values) // BLOCK, 1)
    levels = [_level(values[n * BLOCK : (n + 1) * BLOCK]) for n in range(count - 1)]
    levels += [_level(values[(count - 1) * BLOCK :])] if values else []
    places = set()
    for place, value in enumerate(values):
        block = min(place // BLOCK, count - 1)
        around = [levels[min(max(block + shift, 0), count - 1)] for shift in (-1, 0, 1)]
        median = statistics.median(level for level, _ in around)
        scale = max(deviation for _, deviation in around)
        before = values[max(0, place - SIDE) : place]
        after = values[place + 1 : place + 1 + SIDE]
        if min(len(before), len(after)) < MIN_SIDE or abs(value - median) <= SPIKE_SCORE * scale:
            continue
        sides = [statistics.median(before), statistics.median(after)]
        margin = SPIKE_SCORE / 2 * scale
        if value > max(sides) + margin or value < min(sides) - margin:
            places.add(place)
    return places


@settings(max_examples=examples(200), deadline=None)
@given(
    count=_SIZES, seed=st.integers(0, 1000), planted=st.dictionaries(st.integers(0, 400), st.floats(-9, 9))
)
def test_spikes_are_those_of_the_definition(count: int, seed: int, planted: dict[int, float]) -> None:
    values = _noise(count, seed)
    for place, value in planted.items():
        if place < count:
            values[place] = value
    expected = sorted(_spike_places(values.tolist()))
    spikes = find_spikes(np.arange(count), values)
    assert {spike.step for spike in spikes} <= set(expected)
    groups = sum(later - earlier > SIDE for earlier, later in pairwise(expected))
    assert len(spikes) == groups + bool(expected)


@pytest.mark.parametrize("place", [64, 127, 128, 191, 500_000, 900_000, 999_990])
def test_a_single_spike_among_a_million_points_is_at_its_exact_step(place: int) -> None:
    values = _noise(1_000_000)
    values[place] = 1.2
    [spike] = find_spikes(np.arange(1_000_000) * 3, values)
    assert (spike.step, spike.value) == (place * 3, 1.2)
    assert spike.usual == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize(
    "values",
    [
        1 / (1 + np.arange(2000.0)),
        np.exp(-np.arange(2000.0) / 50),
        np.where(np.arange(2000) < 1000, 1.0, 0.1),
        np.arange(2000.0) ** 2,
        np.zeros(2000),
        np.sin(np.arange(2000.0) / 30),
    ],
    ids=["hyperbola", "exponential", "step down", "parabola", "constant", "sine"],
)
def test_steep_beginnings_and_jumps_to_a_level_are_no_spikes(values: np.ndarray[Any, Any]) -> None:
    assert find_spikes(np.arange(len(values)), values) == []


def test_neighbouring_spikes_are_one_at_the_largest() -> None:
    values = _noise(1000)
    values[500:504] = [2, 5, 3, 2]
    [spike] = find_spikes(np.arange(1000), values)
    assert (spike.step, spike.value) == (501, 5)


@given(values=st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=300))
@settings(max_examples=examples(100), deadline=None)
def test_no_finite_values_break_the_features(values: list[float]) -> None:
    steps = np.arange(len(values))
    array = np.array(values, np.float64)
    assert all(spike.step in steps for spike in find_spikes(steps, array))
    fit_last_tenth(steps, array)
    find_plateau(steps, array)


@given(
    slope=st.floats(-5, 5).filter(lambda slope: abs(slope) > 1e-3),
    level=st.floats(-100, 100),
    seed=st.integers(0, 99),
)
@settings(max_examples=examples(100), deadline=None)
def test_the_slope_of_the_last_tenth_is_numpys_least_squares(slope: float, level: float, seed: int) -> None:
    steps = np.arange(0, 5000, 5)
    values = level + slope * steps + _noise(1000, seed)
    fit = fit_last_tenth(steps, values)
    assert fit is not None
    assert fit.per_step == pytest.approx(np.polyfit(steps[-100:], values[-100:], 1)[0], rel=1e-6)
    assert fit.trend == ("rising" if slope > 0 else "falling")


def test_noise_alone_has_no_trend() -> None:
    trends = []
    for seed in range(100):
        fit = fit_last_tenth(np.arange(2000), _noise(2000, seed))
        assert fit is not None
        trends.append(fit.trend)
    assert trends.count("flat") >= 97


def test_a_plateau_begins_where_the_curve_stops_moving() -> None:
    steps = np.arange(100_000)
    values = np.maximum(1 - steps / 40_000, 0) + _noise(100_000)
    since = find_plateau(steps, values)
    assert since is not None
    assert 38_000 <= since <= 40_500


@pytest.mark.parametrize("count", [10, 20, 100, 5000])
def test_a_steady_fall_is_no_plateau(count: int) -> None:
    assert find_plateau(np.arange(count), -np.arange(float(count))) is None


@given(steps=st.lists(st.integers(0, 10**6), unique=True, max_size=60).map(sorted))
@settings(max_examples=examples(100), deadline=None)
def test_gaps_are_distances_beyond_ten_times_the_usual(steps: list[int]) -> None:
    lengths = [later - earlier for earlier, later in pairwise(steps)]
    expected = set()
    if len(lengths) > 1:
        usual = statistics.median(lengths)
        expected = {(steps[i], steps[i + 1]) for i, length in enumerate(lengths) if length > 10 * usual}
    assert {(gap.after, gap.before) for gap in find_step_gaps(np.array(steps, np.int64))} == expected


def test_a_pause_shorter_than_a_minute_is_no_gap_in_time() -> None:
    times = np.arange(100) * 100
    times[50:] += 59_000
    times[80:] += 3_600_000
    [gap] = find_time_gaps(np.arange(100), times)
    assert (gap.after, gap.before, gap.length) == (79, 80, 3_600_100)
