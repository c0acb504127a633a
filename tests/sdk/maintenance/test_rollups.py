"""Rollups say the truth about every bucket, at levels that a drawing needs."""

import math
import statistics
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from halving import Store
from halving.maintenance import external_sort
from halving.maintenance.compaction import compact
from halving.maintenance.rollups import COARSE, as_buckets, group_by_eight
from tests.properties import examples
from tests.sdk.metric_files import Logged, read_points, read_rollup, write_segment


@pytest.fixture
def store(any_store: Store) -> Store:
    """Everything here holds for every kind of store."""
    return any_store


def levels_for(count: int) -> list[int]:
    """The levels of a curve of ``count`` points, as the format defines them."""
    if count <= COARSE:
        return [0]
    coarsest = next(level for level in range(1, 30) if -(-count // 8**level) <= COARSE)
    return [*range(2, coarsest), coarsest]


def expected_buckets(curve: list[tuple[int, int, float]], level: int) -> list[dict[str, Any]]:
    """Buckets of a stitched curve of (step, time, value), one by one."""
    buckets = []
    for start in range(0, len(curve), 8**level):
        held = curve[start : start + 8**level]
        finite = [value for _, _, value in held if math.isfinite(value)]
        buckets.append(
            {
                "step": held[0][0],
                "step_last": held[-1][0],
                "times": (held[0][1], held[-1][1]),
                "min": min(finite, default=math.nan),
                "max": max(finite, default=math.nan),
                "mean": statistics.fmean(finite) if finite else math.nan,
                "last": held[-1][2],
                "count": len(held),
                "nonfinite": len(held) - len(finite),
            }
        )
    return buckets


def assert_equal(buckets: list[dict[str, Any]], wanted: list[dict[str, Any]]) -> None:
    assert len(buckets) == len(wanted)
    for got, want in zip(buckets, wanted, strict=True):
        times = tuple(int(got[name].timestamp() * 1000 + 0.5) for name in ("wall_time", "wall_time_last"))
        assert times == want["times"]
        for name in ("step", "step_last", "count", "nonfinite"):
            assert got[name] == want[name]
        for name in ("min", "max", "last"):
            assert np.array_equal(got[name], want[name], equal_nan=True)
        assert got["mean"] == pytest.approx(want["mean"], rel=1e-12, abs=1e-12, nan_ok=True)
        if not math.isnan(want["mean"]):
            assert got["min"] <= got["mean"] <= got["max"]


def read_stitched(store: Store, run: str, key: str) -> list[tuple[int, int, float]]:
    read_stitched = {
        step: (step, time, np.frombuffer(value)[0])
        for _, named, step, time, value in read_points(store, run)
        if named == key
    }
    return [read_stitched[step] for step in sorted(read_stitched)]


def noise(count: int, first: int = 0, key: str = "loss") -> list[Logged]:
    values = np.random.default_rng(count + first).normal(size=count)
    values[::50] = np.nan
    values[7::1000] = np.inf
    values[100:130] = np.nan
    return [
        (key, step, 1000 * step, float(value))
        for step, value in zip(range(first, first + count), values, strict=True)
    ]


@pytest.mark.parametrize("count", [1, 2_000, 2_001, 16_000, 16_001, 70_000, 140_000])
@pytest.mark.parametrize("limit", [5_000, external_sort.LIMIT])
def test_every_level_that_is_needed_is_there_and_every_bucket_is_true(
    store: Store, monkeypatch: pytest.MonkeyPatch, count: int, limit: int
) -> None:
    monkeypatch.setattr(external_sort.Sorter.__init__, "__defaults__", (limit,))
    write_segment(store, "r", 1, 0, noise(count))
    compact(store, "p", "r")
    buckets = read_rollup(store, "r")
    curve = read_stitched(store, "r", "loss")
    assert sorted({bucket["level"] for bucket in buckets}) == levels_for(count)
    for level in levels_for(count):
        assert_equal(
            [bucket for bucket in buckets if bucket["level"] == level], expected_buckets(curve, level)
        )
    coarsest = max(bucket["level"] for bucket in buckets)
    assert sum(bucket["level"] == coarsest for bucket in buckets) <= COARSE


def test_a_rollup_is_sorted_by_level_downwards_key_and_step(store: Store) -> None:
    write_segment(store, "r", 1, 0, noise(20_000, key="b") + noise(3, key="a") + noise(17_000, key="c"))
    compact(store, "p", "r")
    order = [(-bucket["level"], bucket["key"], bucket["step"]) for bucket in read_rollup(store, "r")]
    assert order == sorted(order)
    assert {key for _, key, _ in order} == {"a", "b", "c"}


@pytest.mark.parametrize("limit", [3_000, external_sort.LIMIT])
def test_steps_logged_again_by_a_resumed_run_count_once_with_their_latest_value(
    store: Store, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr(external_sort.Sorter.__init__, "__defaults__", (limit,))
    write_segment(store, "r", 1, 0, noise(30_000))
    write_segment(
        store, "r", 2, 0, [("loss", step, 5, 7.0) for step in range(29_000, 31_000) for _ in range(3)]
    )
    compact(store, "p", "r")
    buckets = read_rollup(store, "r")
    assert_equal(
        [bucket for bucket in buckets if bucket["level"] == 2],
        expected_buckets(read_stitched(store, "r", "loss"), 2),
    )
    assert sum(bucket["count"] for bucket in buckets if bucket["level"] == 2) == 31_000
    assert buckets[-1]["max"] == 7.0


@pytest.mark.parametrize("limit", [3_000, external_sort.LIMIT])
def test_ten_thousand_values_at_one_step_are_one_point(
    store: Store, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr(external_sort.Sorter.__init__, "__defaults__", (limit,))
    write_segment(store, "r", 1, 0, [("loss", 0, 5, float(number)) for number in range(100_000)])
    compact(store, "p", "r")
    (bucket,) = read_rollup(store, "r")
    assert (bucket["level"], bucket["count"], bucket["last"]) == (0, 1, 99_999.0)
    assert [np.frombuffer(value)[0] for *_, value in read_points(store, "r")] == list(range(100_000))


@given(st.lists(st.floats(width=64), min_size=1, max_size=100))
@settings(max_examples=examples(200))
def test_a_mean_never_leaves_the_range_of_its_bucket(values: list[float]) -> None:
    points = np.zeros(len(values), external_sort.POINT)
    points["value"] = values
    points["step"] = np.arange(len(values))
    buckets = as_buckets(points)
    while len(buckets) > 1:
        buckets = group_by_eight(buckets)
    finite = [value for value in values if math.isfinite(value)]
    assert buckets["nonfinite"][0] == len(values) - len(finite)
    if finite:
        assert (buckets["min"][0], buckets["max"][0]) == (min(finite), max(finite))
        assert min(finite) <= buckets["mean"][0] <= max(finite)
        middle = float(sum(map(Fraction, finite)) / len(finite))
        assert buckets["mean"][0] == pytest.approx(
            middle, rel=1e-9, abs=1e-9 * max(map(abs, finite)) + 1e-300
        )
    else:
        assert np.isnan(buckets["mean"][0])
