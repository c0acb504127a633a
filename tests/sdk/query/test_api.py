"""Curves, last and best values of many runs, compared with what plain Python makes of the same points."""

import math
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from halving import InvalidInput, NotFound, Store, init
from halving.maintenance.compaction import compact
from halving.metrics.manifest import run_files
from halving.metrics.parquet_reader import Files
from halving.query import api as module
from halving.query.api import best, curves, last
from tests.sdk.query.histories import (
    FORMS,
    T0,
    VALUES,
    Logged,
    histories,
    put_record,
    put_segment,
    rows,
    same,
    slow,
    stitch_expected,
    store_of,
)


@pytest.mark.parametrize("form", FORMS)
@slow
@given(history=histories())
def test_single_points_are_exactly_the_stitched_history(
    form: str, history: list[tuple[int, Logged]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    store = store_of(tmp_path_factory.mktemp("q"), history, form)
    expected = stitch_expected(history)
    assert same(rows(curves("r", "m", project="p", root=store, max_points=None)), expected)
    assert same(rows(curves("r", "m", project="p", root=store, max_points=100_000)), expected)
    assert same(rows(last("r", "m", project="p", root=store)), expected[-1:])


@pytest.mark.parametrize("form", FORMS)
@slow
@given(
    history=histories(),
    limit=st.integers(1, 300),
    ends=st.none() | st.tuples(st.integers(0, 2000), st.integers(0, 2000)),
)
def test_buckets_keep_extremes_and_counts_and_are_no_more_than_asked(
    form: str,
    history: list[tuple[int, Logged]],
    limit: int,
    ends: tuple[int, int] | None,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    store = store_of(tmp_path_factory.mktemp("q"), history, form)
    window = (min(ends), max(ends)) if ends else None
    expected = [
        point for point in stitch_expected(history) if window is None or window[0] <= point[0] <= window[1]
    ]
    table = curves("r", "m", project="p", root=store, max_points=limit, window=window)
    assert len(table) <= limit
    assert 2 * len(table) >= min(limit, len(expected))
    assert len(table) == len(expected) or len(expected) > limit
    at = 0
    for row in table.to_pylist():
        inside = expected[at : at + row["count"]]
        at += row["count"]
        finite = [value for *_, value in inside if math.isfinite(value)]
        assert (row["step"], round(row["wall_time"].timestamp() * 1000) - T0) == inside[0][:2]
        if finite:
            assert (row["min"], row["max"]) == (min(finite), max(finite))
            assert row["min"] <= row["value"] <= row["max"] or len(inside) == 1
            assert (
                math.isclose(
                    row["value"],
                    math.fsum(value / len(finite) for value in finite),
                    rel_tol=1e-9,
                    abs_tol=1e295,
                )
                or len(inside) == 1
            )
        else:
            assert math.isnan(row["min"])
            assert math.isnan(row["max"])
    assert at == len(expected)


@pytest.mark.parametrize("form", FORMS)
@slow
@given(history=histories(), direction=st.sampled_from(["minimize", "maximize"]))
def test_the_best_is_the_first_extreme_of_the_stitched_history(
    form: str, history: list[tuple[int, Logged]], direction: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    store = store_of(tmp_path_factory.mktemp("q"), history, form)
    finite = [point for point in stitch_expected(history) if math.isfinite(point[2])]
    sign = 1 if direction == "minimize" else -1
    expected = sorted(finite, key=lambda point: point[2] * sign)[:1]
    assert same(rows(best("r", "m", project="p", root=store, direction=direction)), expected)


@pytest.mark.parametrize("form", FORMS)
@slow
@given(history=histories())
def test_raw_attempts_are_all_that_was_logged(
    form: str, history: list[tuple[int, Logged]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    store = store_of(tmp_path_factory.mktemp("q"), history, form)
    table = curves("r", "m", project="p", root=store, max_points=None, attempts="raw")
    for attempt in {attempt for attempt, _ in history}:
        logged = [point for number, points in history if number == attempt for point in points]
        own = table.filter(np.asarray(table["attempt"]) == attempt)
        assert same(rows(own), sorted(logged, key=lambda point: point[0]))
    assert len(table) == sum(len(points) for _, points in history)


@pytest.mark.parametrize("form", FORMS)
def test_a_time_window_and_time_as_x_follow_the_clock(form: str, tmp_path: Path) -> None:
    first = [(step, step * 1000, float(step)) for step in range(600)]
    again = [(step, 700_000 + step * 1000, -float(step)) for step in range(300, 900)]
    store = store_of(tmp_path, [(1, first), (2, again)], form)
    expected = [(step, step * 1000, float(step)) for step in range(300)] + again
    low = datetime.fromtimestamp((T0 + 200_000) / 1000, UTC)
    high = (T0 + 1_100_000) / 1000
    inside = [point for point in expected if 200_000 <= point[1] <= 1_100_000]
    assert same(rows(curves("r", "m", project="p", root=store, x="time", window=(low, high))), inside)
    reduced = curves("r", "m", project="p", root=store, x="time", window=(low, None), max_points=10)
    assert sum(reduced["count"].to_pylist()) == len([point for point in expected if point[1] >= 200_000])
    assert reduced["wall_time"].to_pylist() == sorted(reduced["wall_time"].to_pylist())


@given(
    values=st.lists(VALUES.filter(lambda value: abs(value) != 1e308), max_size=60),
    weight=st.floats(0, 0.99),
    points=st.integers(1, 12),
)
def test_smoothing_is_what_a_plain_loop_gives(values: list[float], weight: float, points: int) -> None:
    from halving.query.curve_table import smoother_of

    array = np.array(values, np.float64)
    ema = []
    mean = []
    finite = []
    state = 0.0
    for value in values:
        if not math.isfinite(value):
            ema.append(value)
            mean.append(value)
            continue
        finite.append(value)
        state = weight * state + (1 - weight) * value
        ema.append(state / (1 - weight ** len(finite)))
        mean.append(sum(finite[-points:]) / len(finite[-points:]))
    np.testing.assert_allclose(smoother_of({"ema": weight})(array), ema, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(smoother_of({"mean": points})(array), mean, rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(smoother_of(None)(array), array)


@pytest.mark.parametrize("form", FORMS)
@slow
@given(
    history=histories(), limit=st.integers(1, 300), ends=st.tuples(st.integers(0, 2000), st.integers(0, 2000))
)
def test_whole_edges_return_the_window_and_only_the_buckets_that_cross_its_ends(
    form: str,
    history: list[tuple[int, Logged]],
    limit: int,
    ends: tuple[int, int],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    store = store_of(tmp_path_factory.mktemp("q"), history, form)
    low = min(ends)
    high = max(ends)
    every = stitch_expected(history)
    inside = [point for point in every if low <= point[0] <= high]
    table = curves("r", "m", project="p", root=store, max_points=limit, window=(low, high), edges="whole")
    assert len(table) <= limit
    steps = [point[0] for point in every]
    first = steps.index(table["step"][0].as_py()) if len(table) else 0
    count = sum(table["count"].to_pylist())
    expected = every[first : first + count]
    assert [point[0] for point in expected if low <= point[0] <= high] == [point[0] for point in inside]
    # Of what is outside, only buckets that cross an end have any.
    assert all(row["count"] > 1 or low <= row["step"] <= high for row in table.to_pylist())
    at = first
    for row in table.to_pylist():
        assert row["step"] == every[at][0]
        finite = [value for *_, value in every[at : at + row["count"]] if math.isfinite(value)]
        assert (row["min"], row["max"]) == (
            (min(finite), max(finite)) if finite else (None, None)
        ) or not finite
        at += row["count"]


def test_whole_edges_read_no_points(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    put_record(store, "r")
    put_segment(store, "r", 1, 0, {"m": [(step, step, float(step % 9)) for step in range(100_000)]})
    compact(store, "p", "r")
    read: list[str] = []
    real = Files.points
    monkeypatch.setattr(
        Files, "points", lambda self, *arguments: read.append(arguments[0]) or real(self, *arguments)
    )
    query: Any = {"project": "p", "root": store, "max_points": 100, "window": (10_001, 89_999)}
    whole = curves("r", "m", **query, edges="whole")
    assert read == []
    exact = curves("r", "m", **query)
    assert len(read) == 1
    assert sum(exact["count"].to_pylist()) == 79_999 <= sum(whole["count"].to_pylist()) < 82_000


def test_keys_that_no_run_has_are_left_out_where_that_is_asked_for(store: Store) -> None:
    put_record(store, "r")
    put_segment(store, "r", 1, 0, {"m": [(1, 1, 1.0), (2, 2, 2.0)]})
    counted: list[int] = []
    (curve,) = module.curve_rows(
        "p/r", ["m", "nope"], root=store, known_keys=False, after_each=counted.append
    )
    # 0 before its one block
    assert (curve.run, curve.key, curve.step.tolist(), counted) == ("p/r", "m", [1, 2], [0, 2, 0])


def test_smoothing_works_on_the_rows_that_come_out(store: Store) -> None:
    put_record(store, "r")
    put_segment(store, "r", 1, 0, {"m": [(step, step, float(step % 7)) for step in range(1000)]})
    unsmoothed = curves("p/r", "m", root=store, max_points=50)
    smooth = curves("p/r", "m", root=store, max_points=50, smooth={"mean": 3})
    values = unsmoothed["value"].to_pylist()
    expected = [
        sum(values[max(0, place - 2) : place + 1]) / min(3, place + 1) for place in range(len(values))
    ]
    np.testing.assert_allclose(smooth["value"].to_pylist(), expected)
    assert smooth.drop(["value"]).equals(unsmoothed.drop(["value"]))


def test_rows_are_sorted_by_run_key_and_step_and_runs_keep_the_callers_names(store: Store) -> None:
    put_record(store, "b", "a")
    for run in ("b", "a"):
        put_segment(store, run, 1, 0, {key: [(2, 0, 2.0), (1, 0, 1.0)] for key in ("y", "x")})
    table = curves(["p/b", "a"], ["y", "x"], root=store, max_points=None)
    assert list(zip(*(table[name].to_pylist() for name in ("run", "key", "step")), strict=True)) == [
        (run, key, step) for run in ("a", "p/b") for key in ("x", "y") for step in (1, 2)
    ]
    assert table.column_names == ["run", "key", "step", "wall_time", "value"]


def test_a_run_that_trains_is_read_up_to_its_latest_log(store: Store) -> None:
    run = init(project="p", id="live", root=store.root, system_metrics=None)
    try:
        for step in range(1000):
            run.log({"loss": float(step)}, step=step)
            if step == 500:
                run.flush()
        assert curves("live", "loss", project="p", root=store)["value"].to_pylist() == [
            float(step) for step in range(1000)
        ]
        assert last("live", "loss", project="p", root=store)["value"].to_pylist() == [999.0]
    finally:
        run.finish()


def test_files_that_are_compacted_away_while_they_are_read_are_listed_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_record(store, "r")
    for sequence in range(3):
        put_segment(store, "r", 1, sequence, {"m": [(sequence * 10 + i, 0, 1.0 * i) for i in range(10)]})
    listed = run_files(store, "p", "r")
    compact(store, "p", "r")
    for name in listed.segments:
        store.delete(name)
    from halving.query import curve_reader

    answers = [listed]
    monkeypatch.setattr(
        curve_reader, "run_files", lambda *args: answers.pop() if answers else run_files(*args)
    )
    assert curves("r", "m", project="p", root=store)["step"].to_pylist() == list(range(30))
    assert not answers


@pytest.mark.parametrize(
    ("ask", "error", "message"),
    [
        (
            lambda store: curves("nope", "m", project="p", root=store),
            NotFound,
            "no run 'nope' in project 'p' .*; there are 1 runs: r",
        ),
        (
            lambda store: curves("r", "m", project="q", root=store),
            NotFound,
            "no project 'q' in .*; there are 1 projects: p",
        ),
        (lambda store: curves("rr", "m", root=store), NotFound, "no run 'rr'"),
        (
            lambda store: curves("r", "lss", project="p", root=store),
            NotFound,
            "no metric 'lss' in r; close to it: loss",
        ),
        (
            lambda store: last("r", ["loss", "k"], project="p", root=store),
            NotFound,
            "no metric 'k' in r; there are 1 metrics: loss",
        ),
        (
            lambda store: best("r", "k", project="p", root=store, direction="minimize"),
            NotFound,
            "no metric 'k'",
        ),
        (
            lambda store: best("r", "loss", project="p", root=store, direction="up"),
            InvalidInput,
            "direction 'up' is not accepted",
        ),
        (lambda store: curves("../r", "loss", project="p", root=store), InvalidInput, "is not accepted"),
        (lambda store: curves("r", 3, project="p", root=store), InvalidInput, "key"),
        (
            lambda store: curves("r", "loss", project="p", root=store, max_points=0),
            InvalidInput,
            "max_points 0 is not accepted",
        ),
        (
            lambda store: curves("r", "loss", project="p", root=store, x="epoch"),
            InvalidInput,
            "x 'epoch' is not accepted",
        ),
        (
            lambda store: curves("r", "loss", project="p", root=store, window=(5, 1)),
            InvalidInput,
            "its first end 5 comes after",
        ),
        (
            lambda store: curves("r", "loss", project="p", root=store, window=("a", 1)),
            InvalidInput,
            "window .* is not accepted: give two steps",
        ),
        (
            lambda store: curves("r", "loss", project="p", root=store, smooth={"ema": 1.0}),
            InvalidInput,
            "smooth .* is not accepted",
        ),
        (
            lambda store: curves("r", "loss", project="p", root=store, smooth={"mean": 0}),
            InvalidInput,
            "smooth .* is not accepted",
        ),
        (
            lambda store: curves("r", "loss", project="p", root=store, attempts="all"),
            InvalidInput,
            "attempts 'all' is not accepted",
        ),
        (
            lambda store: curves("r", "loss", project="p", root=store, edges="cut"),
            InvalidInput,
            "edges 'cut' is not accepted",
        ),
    ],
)
def test_a_slip_is_answered_with_what_there_is(
    store: Store, ask: Callable[[Store], Any], error: type[Exception], message: str
) -> None:
    put_record(store, "r")
    put_segment(store, "r", 1, 0, {"loss": [(1, 1, 1.0)]})
    with pytest.raises(error, match=message):
        ask(store)


def test_a_run_that_has_logged_nothing_has_no_rows(store: Store) -> None:
    put_record(store, "r")
    assert len(curves("r", "loss", project="p", root=store)) == 0
    assert len(last("r", "loss", project="p", root=store)) == 0


def test_a_store_by_its_address_gives_the_same(tmp_path: Path) -> None:
    history = [
        (1, [(step, step, float(step % 9)) for step in range(700)]),
        (2, [(step, step, 1.0) for step in range(500, 600)]),
    ]
    for form in FORMS:
        folder = store_of(tmp_path / form.replace(" ", ""), history, form)
        address = Store(f"file://{folder.folder}")
        for limit in (None, 20):
            assert curves("r", "m", project="p", root=address, max_points=limit).equals(
                curves("r", "m", project="p", root=folder, max_points=limit)
            )


@pytest.mark.slow
def test_curves_are_drawn_without_duckdb_and_pandas(store: Store, script: Any) -> None:
    put_record(store, "r")
    put_segment(store, "r", 1, 0, {"m": [(step, step, 1.0) for step in range(1000)]})
    done = script(
        "import sys, halving.query.api\n"
        "table = halving.query.api.curves('p/r', 'm', max_points=10)\n"
        "print(len(table), [name for name in ('duckdb', 'pandas', 'pyarrow.compute') if name in "
        "sys.modules])\n"
    )
    assert done.stdout == "8 []\n", done.stderr
    assert module.MAX_POINTS == 1000
