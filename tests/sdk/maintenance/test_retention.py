"""Retention takes away what is old, never what is protected, and rollups keep the shape of what is gone."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from halving import Store
from halving.maintenance.compaction import compact
from halving.maintenance.retention import Drop, PointDays, RunState, drop_points, plan_retention
from halving.metrics.manifest import Manifest, read_manifest
from tests.sdk.metric_files import (
    Logged,
    all_files,
    killed_everywhere,
    read_points,
    read_rollup,
    rows,
    write_segment,
)

NOW = datetime(2026, 6, 1, tzinfo=UTC)
FUTURE = datetime.now(UTC) + timedelta(days=100)


@pytest.fixture
def store(any_store: Store, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Every kind of store; an object store keeps superfluous files for a while."""
    monkeypatch.setattr("halving.maintenance.compaction.GRACE_SECONDS", 0.0)
    return any_store


def log_points(first: int = 0, count: int = 40) -> list[Logged]:
    keys = ("loss", "system/cpu")
    return [
        (key, step, 1000 + step, step / 3 + len(key)) for key in keys for step in range(first, first + count)
    ]


def only(key: str, points: list[Logged]) -> list[Logged]:
    return [point for point in points if point[0] == key]


def manifest_of(store: Store, run: str) -> Manifest:
    manifest = read_manifest(store, "p", run)
    assert manifest.generation, "the run is compacted"
    return manifest


def shape(buckets: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [
        (bucket["key"], bucket["level"], bucket["step"], bucket["count"], bucket["last"])
        for bucket in buckets
    ]


def state(
    run: str, days_old: float, *, full: str | None = None, live: bool = False, system: int = 10
) -> RunState:
    written = (NOW - timedelta(days=days_old)).isoformat()
    full = f"run={run}/full.parquet" if full is None else full or None
    rollup = f"run={run}/rollup.parquet"
    held = {"other": 30, "system": system} if full else {}
    manifest = Manifest(1, full, rollup, {}, 40, written, written, held)
    return RunState("p", run, manifest, {name: 4_000 for name in (full, rollup) if name}, live)


@pytest.mark.parametrize(
    ("days", "states", "dropped"),
    [
        (PointDays(), [state("a", 9999)], []),
        (PointDays(30), [state("a", 29.9), state("b", 30.1)], [("b", "full", 40, 4000)]),
        (PointDays(30), [state("a", 31, live=True)], []),
        (PointDays(30), [state("safe", 31)], []),
        (
            PointDays(30, 7),
            [state("a", 8), state("b", 31)],
            [("a", "system", 10, 1000), ("b", "full", 40, 4000)],
        ),
        (PointDays(30, 7), [state("a", 6)], []),
        (PointDays(system=7), [state("a", 8, system=0)], []),
        (
            PointDays(30, rollup=300),
            [state("a", 31, full=""), state("b", 301, full="")],
            [("b", "rollup", 0, 4000)],
        ),
        (PointDays(30, rollup=300), [state("a", 301)], [("a", "full", 40, 4000), ("a", "rollup", 0, 4000)]),
    ],
)
def test_what_is_due_is_what_should_be(
    days: PointDays, states: list[RunState], dropped: list[tuple[str, str, int, int]]
) -> None:
    drops = plan_retention(states, days, {("p", "safe")}, NOW)
    assert [(drop.run, drop.kind, drop.points, drop.bytes) for drop in drops] == dropped


def apply_retention(
    store: Store, full: float | None, system: float | None = None, rollup: float | None = None, **options: Any
) -> list[Drop]:
    """What went of the project, a hundred days from now."""
    return drop_points(
        store, "p", PointDays(full, system, rollup), **{"protected": (), "now": FUTURE, **options}
    )


def test_a_dry_run_says_what_would_go_and_touches_nothing(store: Store) -> None:
    write_segment(store, "r", 1, 0, log_points())
    compact(store, "p", "r")
    files = all_files(store)
    would = apply_retention(store, 30, dry_run=True)
    assert all_files(store) == files
    assert [(drop.run, drop.kind, drop.points) for drop in would] == [("r", "full", 80)]
    assert would[0].bytes > 0
    assert apply_retention(store, 30) == would
    assert apply_retention(store, 30) == []


def test_the_rollup_outlives_the_points_and_goes_on_with_new_ones(store: Store) -> None:
    write_segment(store, "r", 1, 0, log_points())
    compact(store, "p", "r")
    before = shape(read_rollup(store, "r"))
    apply_retention(store, 30)
    assert read_points(store, "r") == []
    assert shape(read_rollup(store, "r")) == before
    write_segment(store, "r", 2, 0, log_points(first=30))  # resumed at step 30
    done = compact(store, "p", "r")
    assert done.total == 80
    assert read_points(store, "r") == rows(2, log_points(first=30))
    assert shape(read_rollup(store, "r")) == [
        (key, 0, step, 1, value) for key, step, _, value in log_points(count=70)
    ]
    assert manifest_of(store, "r").points == 160
    write_segment(store, "r", 2, 1, log_points(first=70, count=5))
    compact(store, "p", "r")
    assert len(read_rollup(store, "r")) == 150
    apply_retention(store, 30)
    assert len(read_rollup(store, "r")) == 150


def test_uncompacted_segments_go_by_their_own_age_and_their_rollup_stays(store: Store) -> None:
    for run in ("r", "safe"):
        for sequence in range(2):
            write_segment(store, run, 1, sequence, log_points(first=40 * sequence))
    options: Any = {"protected": {("p", "safe")}}
    files = all_files(store)
    assert apply_retention(store, 101, **options) == []
    would = apply_retention(store, 30, dry_run=True, **options)
    assert all_files(store) == files
    assert [(drop.run, drop.kind, drop.bytes > 0) for drop in would] == [("r", "full", True)]
    assert [(drop.run, drop.kind, drop.points) for drop in apply_retention(store, 30, **options)] == [
        ("r", "full", 160)
    ]
    assert (read_points(store, "r"), len(read_points(store, "safe"))) == ([], 160)
    assert len(read_rollup(store, "r")) == 160
    assert apply_retention(store, 30, **options) == []


def test_of_segments_that_nobody_has_compacted_system_metrics_go_earlier(store: Store) -> None:
    write_segment(store, "r", 1, 0, log_points())
    assert apply_retention(store, 300, 30, dry_run=True) == []  # whether it has any is not known
    assert [(drop.kind, drop.points) for drop in apply_retention(store, 300, 30)] == [("system", 40)]
    assert read_points(store, "r") == rows(1, only("loss", log_points()))


def test_points_that_were_put_while_a_run_is_compacted_are_young(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_segment(store, "r", 1, 0, log_points())

    def compact_late(*arguments: Any, **more: Any) -> Any:
        write_segment(store, "r", 1, 1, log_points(first=40))
        return compact(*arguments, **more)

    monkeypatch.setattr("halving.maintenance.compaction.now", lambda: FUTURE.isoformat())
    monkeypatch.setattr("halving.maintenance.retention.compact", compact_late)
    assert apply_retention(store, 30) == []
    assert len(read_points(store, "r")) == 160


@pytest.mark.parametrize("name", ["live/000001", "manifest-000001.json"])
def test_a_run_whose_files_are_damaged_keeps_its_points_and_the_others_go(store: Store, name: str) -> None:
    for run in ("bad", "r"):
        write_segment(store, run, 1, 0, log_points())
    if name.startswith("manifest"):
        store.create(f"metrics/project=p/run=bad/{name}", b"{")
    else:
        segment = next(file for file, _, _ in store.files("metrics/project=p/run=bad/live"))
        store.replace(segment, b"damaged")
    problems: list[str] = []
    assert [drop.run for drop in apply_retention(store, 30, problems=problems)] == ["r"]
    (problem,) = problems
    assert "bad" in problem


@pytest.mark.parametrize(("old", "new"), [(1_500, 1_500), (2_000, 100_000), (20_000, 500), (140_000, 70_000)])
def test_a_long_history_and_new_points_share_their_levels(store: Store, old: int, new: int) -> None:
    write_segment(store, "r", 1, 0, only("loss", log_points(count=old)))
    compact(store, "p", "r")
    apply_retention(store, 30)
    write_segment(store, "r", 2, 0, only("loss", log_points(first=old, count=new)))
    compact(store, "p", "r")
    buckets = read_rollup(store, "r")
    counts = {
        level: [bucket["count"] for bucket in buckets if bucket["level"] == level]
        for level in {bucket["level"] for bucket in buckets}
    }
    assert all(sum(held) == old + new for held in counts.values())
    assert len(counts[max(counts)]) <= 2_000
    assert all(len(held) > 2_000 and level >= 2 for level, held in counts.items() if level != max(counts))
    for level in counts:
        steps = [bucket["step"] for bucket in buckets if bucket["level"] == level]
        assert steps == sorted(steps)
    assert max(bucket["max"] for bucket in buckets) == (old + new - 1) / 3 + 4


def test_system_metrics_go_earlier_and_later_ones_join_their_rollup(store: Store) -> None:
    write_segment(store, "r", 1, 0, log_points())
    compact(store, "p", "r")
    done = apply_retention(store, 300, 30)
    assert [(drop.kind, drop.points) for drop in done] == [("system", 40)]
    assert read_points(store, "r") == rows(1, only("loss", log_points()))
    assert len(read_rollup(store, "r")) == 80
    assert apply_retention(store, 300, 30) == []
    write_segment(store, "r", 2, 0, log_points(first=40))
    compact(store, "p", "r")
    assert len(read_points(store, "r")) == 120
    assert shape(read_rollup(store, "r")) == [
        (key, 0, step, 1, value) for key, step, _, value in log_points(count=80)
    ]
    apply_retention(store, 30)
    assert len(read_rollup(store, "r")) == 160
    write_segment(store, "r", 2, 1, log_points(first=80))
    compact(store, "p", "r")
    assert len(read_rollup(store, "r")) == 240


def test_a_rollup_goes_last_and_the_run_can_still_go_on(store: Store) -> None:
    write_segment(store, "r", 1, 0, log_points())
    compact(store, "p", "r")
    done = apply_retention(store, 30, rollup=60)
    assert [drop.kind for drop in done] == ["full", "rollup"]
    assert [Path(name).name for name in all_files(store)] == ["manifest-000002.json"]
    write_segment(store, "r", 1, 1, log_points(first=40))
    assert compact(store, "p", "r").points == 80
    assert read_points(store, "r") == rows(1, log_points(first=40))


def test_a_protected_run_keeps_every_point_and_the_others_keep_their_rollups(store: Store) -> None:
    for run in ("a", "champion"):
        write_segment(store, run, 1, 0, log_points())
        compact(store, "p", run)
    before = shape(read_rollup(store, "a"))
    for days in ((300, 30), (30, None)):
        done = apply_retention(store, *days, protected={("p", "champion")})
        assert [(drop.run, drop.kind) for drop in done] == [("a", "full" if days[0] == 30 else "system")]
        assert read_points(store, "champion") == rows(1, log_points())
        assert read_points(store, "a") == ([] if days[0] == 30 else rows(1, only("loss", log_points())))
        for run in ("a", "champion"):
            assert shape(read_rollup(store, run)) == before


@pytest.mark.slow
@pytest.mark.folder
@pytest.mark.parametrize("days", ["30", "300, 30"])
def test_retention_killed_anywhere_loses_nothing_and_the_next_finishes_it(store: Store, days: str) -> None:
    for run in ("a", "b", "champion"):
        write_segment(store, run, 1, 0, log_points())
        compact(store, "p", run)
    now = f'__import__("datetime").datetime.fromisoformat("{FUTURE.isoformat()}")'
    call = f'drop_points(store, "p", PointDays({days}), protected={{("p", "champion")}}, now={now})'
    apply: Callable[[Store], object] = lambda store: eval(call)  # noqa: E731
    copies = killed_everywhere(store, call)
    assert len(copies) > 10
    stays = [] if days == "30" else rows(1, only("loss", log_points()))
    for copy in copies:
        assert read_points(copy, "champion") == rows(1, log_points()), copy
        for _ in range(2):
            for run in ("a", "b"):
                assert read_points(copy, run) in (stays, rows(1, log_points())), copy
                assert len(read_rollup(copy, run)) == 80, copy
            apply(copy)
        for run in ("a", "b"):
            assert read_points(copy, run) == stays, copy
        assert read_points(copy, "champion") == rows(1, log_points()), copy
        for run in ("a", "b"):
            compact(copy, "p", run)  # deletes what a killed retention had no time to delete
        full = [name for name in all_files(copy) if Path(name).name.startswith("full-")]
        assert len(full) == (1 if days == "30" else 3), (copy, full)
