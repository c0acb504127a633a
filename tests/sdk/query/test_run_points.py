"""Many metrics' points at once: they are what single curves are read as, and every file is read once for all
of them, and never again.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given

from halving import Store, init
from halving.ingest.metric_writer import MetricWriter
from halving.maintenance.compaction import compact
from halving.maintenance.retention import PointDays, drop_points
from halving.metrics.points import Points
from halving.query.curve_reader import read_run_curves
from halving.query.run_points import PointsNow, RunPoints
from tests.sdk.query.histories import FORMS, Logged, histories, put_record, put_segment, slow, store_of

Reads = list[tuple[int, tuple[str, ...]]]


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    """Row groups and the columns that are read of them."""
    groups: Reads = []
    read_row_group = pq.ParquetFile.read_row_group

    def read_counted(file: pq.ParquetFile, group: int, columns: list[str], **options: Any) -> Any:
        groups.append((group, tuple(columns)))
        return read_row_group(file, group, columns=columns, **options)

    monkeypatch.setattr(pq.ParquetFile, "read_row_group", read_counted)
    return groups


def _same(points: dict[str, Points], others: dict[str, Points]) -> bool:
    return points.keys() == others.keys() and all(
        all(
            np.array_equal(column, other, equal_nan=True)
            for column, other in zip(own, others[key], strict=True)
        )
        for key, own in points.items()
    )


def _one_by_one(store: Store, *keys: str) -> dict[str, Points]:
    return read_run_curves(store, "p", "r", keys, lambda curves: {key: curves.raw(key) for key in keys})


def _everything(store: Store) -> PointsNow:
    return RunPoints(store, "p", "r", lambda key: True).look()


@pytest.mark.parametrize("form", FORMS)
@slow
@given(history=histories())
def test_points_of_many_metrics_are_those_of_each(
    form: str, history: list[tuple[int, Logged]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    store = store_of(tmp_path_factory.mktemp("q"), history, form)
    assert _same(_everything(store).points, _one_by_one(store, "a", "m", "z"))
    assert _same(
        RunPoints(store, "p", "r", lambda key: key in ("a", "z")).look().points, _one_by_one(store, "a", "z")
    )


@slow
@given(history=histories())
def test_looking_again_and_again_gives_what_one_look_does(
    history: list[tuple[int, Logged]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    store = Store(tmp_path_factory.mktemp("q"))
    points = RunPoints(store, "p", "r", lambda key: True)
    sequences: dict[int, int] = {}
    for place, (attempt, logged) in enumerate(history):
        sequences[attempt] = sequences.get(attempt, -1) + 1
        put_segment(store, "r", attempt, sequences[attempt], {"m": logged, f"only-{place}": [(1, 1, 1.0)]})
        if place == len(history) // 2:
            compact(store, "p", "r")
        assert _same(points.look().points, _everything(store).points)


def _log_runs(keys: int) -> dict[str, Logged]:
    """Curves that have buckets in a segment's footer."""
    return {
        f"{name}/{key:03d}": [(step, step, 1.0) for step in range(300)]
        for name in ("other", "wanted")
        for key in range(keys)
    }


@pytest.mark.parametrize(
    ("is_compacted", "groups"), [(False, [(0, True), (0, False)]), (True, [(0, True), (1, False)])]
)
def test_a_row_group_is_read_once_however_many_metrics_are_in_it(
    tmp_path: Path, reads: Reads, is_compacted: bool, groups: list[tuple[int, bool]]
) -> None:
    """Its keys are read first, and nothing else of one in which no metric is wanted."""
    curves = _log_runs(120)
    for wanted in (2, 100):
        keys = list(curves)[100 : 100 + wanted]
        store = Store(tmp_path / str(wanted))
        put_segment(store, "r", 1, 0, curves)
        put_segment(store, "r", 1, 1, {"other/000": [(1000, 1, 1.0)]})
        if is_compacted:
            compact(store, "p", "r")
        reads.clear()
        points = RunPoints(store, "p", "r", set(keys).__contains__).look()
        assert len(points.points) == wanted
        assert [group for group, columns in reads if columns == ("key",)] == [group for group, _ in groups]
        assert [group for group, columns in reads if "value" in columns] == [
            group for group, is_wanted in groups if is_wanted
        ]


def test_what_was_read_is_not_read_again_until_the_run_is_compacted(tmp_path: Path, reads: Reads) -> None:
    store = Store(tmp_path)
    put_segment(store, "r", 1, 0, _log_runs(2))
    points = RunPoints(store, "p", "r", lambda key: key.startswith("wanted/"))

    def look() -> tuple[dict[str, Points], int]:
        reads.clear()
        return points.look().points, len(reads)

    assert look()[1] == 2, "keys, and then points"
    first, count = look()
    assert count == 0
    assert not first["wanted/000"].value.flags.writeable
    assert points.nbytes == 2 * 300 * 28
    put_segment(store, "r", 2, 0, {"wanted/000": [(7, 7, 7.0)]})
    second, count = look()
    assert count == 2
    assert (second["wanted/000"].attempt[-1], second["wanted/000"].value[-1]) == (2, 7.0)
    assert len(first["wanted/000"].value) == 300, "what was given is left as it was"
    assert points.nbytes == (2 * 300 + 1) * 28
    compact(store, "p", "r")
    third, count = look()
    assert count > 0
    assert {key: len(own.value) for key, own in third.items()} == {"wanted/000": 301, "wanted/001": 300}
    assert look()[1] == 0


def test_points_of_this_machines_journal_are_there_once_before_and_after_a_drain(
    any_store: Store,
) -> None:
    writer = MetricWriter(any_store, "p", "r", 1, delay=3600)
    points = RunPoints(any_store, "p", "r", lambda key: key == "a")

    def values() -> list[float]:
        return [value for own in points.look().points.values() for value in own.value.tolist()]

    writer.append({"a": 1.0, "b": 1.0}, 1, 1_000_000)
    assert values() == [1.0]
    assert writer.flush()
    writer.append({"a": 2.0}, 2, 1_000_000)
    assert values() == [1.0, 2.0]
    assert writer.flush()
    assert values() == [1.0, 2.0]
    assert writer.close()
    writer.release()
    assert values() == [1.0, 2.0]


@pytest.mark.folder  # an object store deletes compacted segments later
def test_files_that_a_compaction_takes_away_are_looked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path)
    put_segment(store, "r", 1, 0, _log_runs(2))
    from halving.query import run_points as module

    read_mixed: Callable[..., Any] = module.read_mixed

    def late(*arguments: Any) -> Any:
        monkeypatch.setattr(module, "read_mixed", read_mixed)
        compact(store, "p", "r")
        return read_mixed(*arguments)

    monkeypatch.setattr(module, "read_mixed", late)
    assert _same(_everything(store).points, _one_by_one(store, *_log_runs(2)))


def test_metrics_of_which_retention_has_dropped_points_are_named(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with init("p", id="r", root=store.root, system_metrics=None) as run:
        run.log({"loss": 1.0, "system/x": 1.0}, step=1)
    compact(store, "p", "r")
    later = datetime.now(UTC)
    points = RunPoints(store, "p", "r", lambda key: True)
    for days, left, dropped in (
        (PointDays(system=7), ["loss"], ["system/x"]),
        (PointDays(7), [], ["loss", "system/x"]),
    ):
        later += timedelta(days=10)
        assert drop_points(store, "p", days, protected=(), now=later)
        for now in (points.look(), _everything(store)):
            assert (sorted(now.points), now.dropped) == (left, dropped)


def test_a_run_without_points_has_none(tmp_path: Path) -> None:
    put_record(Store(tmp_path), "r")
    assert _everything(Store(tmp_path)) == ({}, [])
