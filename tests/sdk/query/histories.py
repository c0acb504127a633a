"""Histories of points, logged by several attempts, and stores that have them in every form."""

import math
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from halving import Store
from halving.maintenance.compaction import compact
from halving.metrics.segments import encode, live_folder, points_table, segment_name
from tests.properties import examples

T0 = 1_700_000_000_000
VALUES = st.one_of(
    st.floats(-100, 100, width=32), st.sampled_from([math.nan, math.inf, -math.inf, 1e308, -1e308])
)
Logged = list[tuple[int, int, float]]  # step, ms behind T0, value: a segment's points of one key


def put_segment(store: Store, run: str, attempt: int, sequence: int, points: dict[str, Logged]) -> None:
    """One segment, as the writer encodes it."""
    keys = sorted(points)
    codes = np.repeat(np.arange(len(keys), dtype=np.int32), [len(points[key]) for key in keys])
    rows = [row for key in keys for row in points[key]]
    columns = [
        np.array([row[place] for row in rows], kind)
        for place, kind in ((0, np.int64), (1, np.int64), (2, np.float64))
    ]
    data = encode(points_table(run, attempt, keys, codes, columns[0], columns[1] + T0, columns[2]))
    store.create(f"{live_folder('p', run)}/{segment_name(attempt, sequence)}", data)


def put_record(store: Store, *runs: str) -> None:
    for run in runs:
        store.create(f"runs/project=p/{run}/record.json", b"{}")


def stitch_expected(segments: list[tuple[int, Logged]]) -> Logged:
    """The brute force: of each step the highest attempt's, and there the last."""
    newest: dict[int, tuple[int, tuple[int, int, float]]] = {}
    for attempt, points in segments:
        for point in points:
            if point[0] not in newest or newest[point[0]][0] <= attempt:
                newest[point[0]] = (attempt, point)
    return [newest[step][1] for step in sorted(newest)]


def rows(table: Any) -> list[tuple[int, int, float]]:
    times = [round(time.timestamp() * 1000) - T0 for time in table["wall_time"].to_pylist()]
    return list(zip(table["step"].to_pylist(), times, table["value"].to_pylist(), strict=True))


def same(actual: Logged, expected: Logged) -> bool:
    return len(actual) == len(expected) and all(
        value[:2] == other[:2] and (value[2] == other[2] or (math.isnan(value[2]) and math.isnan(other[2])))
        for value, other in zip(actual, expected, strict=True)
    )


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[int, Logged]]:
    """Segments of up to three attempts: long orderly stretches, which have buckets, and short ones that
    repeat steps and jump back.
    """
    segments: list[tuple[int, Logged]] = []
    for attempt in range(1, draw(st.integers(1, 3)) + 1):
        step = draw(st.integers(0, 900))
        for _ in range(draw(st.integers(1, 3))):
            if draw(st.booleans()):
                count = draw(st.integers(256, 700))
                stride = draw(st.integers(1, 3))
                seed = draw(st.integers(0, 9))
                values = np.random.default_rng(seed).standard_normal(count).tolist()
                for place in draw(st.lists(st.integers(0, count - 1), max_size=3)):
                    values[place] = draw(VALUES)
                points = [
                    (step + i * stride, 10 * (step + i * stride) + attempt, value)
                    for i, value in enumerate(values)
                ]
                step += count * stride
            else:
                points = draw(
                    st.lists(
                        st.tuples(st.integers(step, step + 20), st.integers(0, 5), VALUES),
                        min_size=1,
                        max_size=30,
                    )
                )
                step = max(point[0] for point in points) + draw(st.integers(-10, 1))
            segments.append((attempt, points))
    return segments


FORMS = ("segments", "half compacted", "compacted")


def store_of(folder: Path, history: list[tuple[int, Logged]], form: str) -> Store:
    """A store with the history in one of the forms that it can have."""
    store = Store(folder)
    put_record(store, "r", "other")
    put_segment(
        store,
        "other",
        1,
        0,
        {"a": [(1, 1, 1.0)], "m": [(step, step, 7.0) for step in range(300)], "z": [(2, 2, 2.0)]},
    )
    sequences: dict[int, int] = {}
    for place, (attempt, points) in enumerate(history):
        if form == "half compacted" and place == len(history) // 2 and place:
            compact(store, "p", "r")
        sequence = sequences.get(attempt, 0)
        sequences[attempt] = sequence + 1
        put_segment(
            store,
            "r",
            attempt,
            sequence,
            {"a": [(0, 0, 5.0)], "m": points, "z": [(step, time, -1.0) for step, time, _ in points]},
        )
    if form == "compacted":
        compact(store, "p", "r")
    return store


slow = settings(
    max_examples=examples(25),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
