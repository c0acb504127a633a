"""Retention takes away what is old, never what is protected, and rollups keep the shape of what is gone."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from halving import InvalidInput, NotFound, Store
from halving.maintenance.compaction import compact
from halving.maintenance.orphan_files import owner_of_orphan_file
from halving.maintenance.retention import Drop, Policy, RunState, apply_retention, plan_retention
from halving.metrics.manifest import Manifest, read_manifest
from halving.records.run_record import RunRecords, SavedCheckpoint
from tests.sdk.metric_files import Logged, all_files, killed_everywhere, read_points, read_rollup, rows, write_segment

NOW = datetime(2026, 6, 1, tzinfo=UTC)
FUTURE = datetime.now(UTC) + timedelta(days=100)


@pytest.fixture
def store(any_store: Store, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Everything here holds for every kind of store, but that an object store keeps what is superfluous for a while."""
    monkeypatch.setattr("halving.maintenance.compaction.GRACE_SECONDS", 0.0)
    return any_store


def logged(first: int = 0, count: int = 40) -> list[Logged]:
    keys = ("loss", "system/cpu")
    return [(key, step, 1000 + step, step / 3 + len(key)) for key in keys for step in range(first, first + count)]


def only(key: str, points: list[Logged]) -> list[Logged]:
    return [point for point in points if point[0] == key]


def manifest_of(store: Store, run: str) -> Manifest:
    manifest = read_manifest(store, "p", run)
    assert manifest.generation, "the run is compacted"
    return manifest


def shape(buckets: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(bucket["key"], bucket["level"], bucket["step"], bucket["count"], bucket["last"]) for bucket in buckets]


def state(run: str, days_old: float, *, full: str | None = None, live: bool = False, system: int = 10) -> RunState:
    moment = (NOW - timedelta(days=days_old)).isoformat()
    full, rollup = f"run={run}/full.parquet" if full is None else full or None, f"run={run}/rollup.parquet"
    held = {"other": 30, "system": system} if full else {}
    manifest = Manifest(1, full, rollup, {}, 40, moment, moment, held)
    return RunState("p", run, manifest, {name: 4_000 for name in (full, rollup) if name}, live)


@pytest.mark.parametrize(
    ("policy", "states", "dropped"),
    [
        (Policy(), [state("a", 9999)], []),
        (Policy(days=30), [state("a", 29.9), state("b", 30.1)], [("b", "full", 40, 4000)]),
        (Policy(days=30), [state("a", 31, live=True)], []),
        (Policy(days=30), [state("safe", 31)], []),
        (Policy(days=30, system_days=7), [state("a", 8), state("b", 31)], [("a", "system", 10, 1000), ("b", "full", 40, 4000)]),
        (Policy(days=30, system_days=7), [state("a", 6)], []),
        (Policy(system_days=7), [state("a", 8, system=0)], []),
        (Policy(days=30, rollup_days=300), [state("a", 31, full=""), state("b", 301, full="")], [("b", "rollup", 0, 4000)]),
        (Policy(days=30, rollup_days=300), [state("a", 301)], [("a", "full", 40, 4000), ("a", "rollup", 0, 4000)]),
    ],
)  # fmt: skip
def test_what_is_due_is_what_should_be(policy: Policy, states: list[RunState], dropped: list[tuple[str, str, int, int]]) -> None:
    drops = plan_retention(states, policy, {("p", "safe")}, NOW)
    assert [(drop.run, drop.what, drop.points, drop.bytes) for drop in drops] == dropped


@pytest.mark.parametrize(
    ("days", "message"),
    [
        ({"days": -1.0}, "days = -1.0 is not accepted"),
        ({"days": float("nan")}, "days = nan is not accepted"),
        ({"days": 7.0, "system_days": 8.0}, "system_days = 8.0"),
        ({"days": 7.0, "rollup_days": 6.0}, "rollup_days = 6.0"),
        ({"rollup_days": 6.0}, "rollup_days = 6.0"),
    ],
)
def test_days_that_contradict_each_other_are_refused(days: dict[str, float], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        Policy(**days)


def test_a_dry_run_says_what_would_go_and_touches_nothing(store: Store) -> None:
    write_segment(store, "r", 1, 0, logged())
    compact(store, "p", "r")
    files = all_files(store)
    would = apply_retention(store, protected=(), days=30, dry_run=True, now=FUTURE)
    assert all_files(store) == files
    assert [(drop.run, drop.what, drop.points) for drop in would.drops] == [("r", "full", 80)]
    assert would.bytes == would.drops[0].bytes > 0
    assert apply_retention(store, protected=(), days=30, now=FUTURE).drops == would.drops
    assert apply_retention(store, protected=(), days=30, now=FUTURE).drops == ()


def test_the_rollup_outlives_the_points_and_goes_on_with_new_ones(store: Store) -> None:
    write_segment(store, "r", 1, 0, logged())
    compact(store, "p", "r")
    before = shape(read_rollup(store, "r"))
    apply_retention(store, protected=(), days=30, now=FUTURE)
    assert read_points(store, "r") == []
    assert shape(read_rollup(store, "r")) == before
    write_segment(store, "r", 2, 0, logged(first=30))  # resumed at step 30
    done = compact(store, "p", "r")
    assert done.total == 80
    assert read_points(store, "r") == rows(2, logged(first=30))
    assert shape(read_rollup(store, "r")) == [(key, 0, step, 1, value) for key, step, _, value in logged(count=70)]
    assert manifest_of(store, "r").points == 160
    write_segment(store, "r", 2, 1, logged(first=70, count=5))
    compact(store, "p", "r")
    assert len(read_rollup(store, "r")) == 150
    apply_retention(store, protected=(), days=30, now=FUTURE)
    assert len(read_rollup(store, "r")) == 150


@pytest.mark.parametrize(("old", "new"), [(1_500, 1_500), (2_000, 100_000), (20_000, 500), (140_000, 70_000)])
def test_a_long_history_and_new_points_share_their_levels(store: Store, old: int, new: int) -> None:
    write_segment(store, "r", 1, 0, only("loss", logged(count=old)))
    compact(store, "p", "r")
    apply_retention(store, protected=(), days=30, now=FUTURE)
    write_segment(store, "r", 2, 0, only("loss", logged(first=old, count=new)))
    compact(store, "p", "r")
    buckets = read_rollup(store, "r")
    counts = {
        level: [bucket["count"] for bucket in buckets if bucket["level"] == level] for level in {bucket["level"] for bucket in buckets}
    }
    assert all(sum(held) == old + new for held in counts.values())
    assert len(counts[max(counts)]) <= 2_000
    assert all(len(held) > 2_000 and level >= 2 for level, held in counts.items() if level != max(counts))
    for level in counts:
        steps = [bucket["step"] for bucket in buckets if bucket["level"] == level]
        assert steps == sorted(steps)
    assert max(bucket["max"] for bucket in buckets) == (old + new - 1) / 3 + 4


def test_system_metrics_go_earlier_and_later_ones_join_their_rollup(store: Store) -> None:
    write_segment(store, "r", 1, 0, logged())
    compact(store, "p", "r")
    done = apply_retention(store, protected=(), days=300, system_days=30, now=FUTURE)
    assert [(drop.what, drop.points) for drop in done.drops] == [("system", 40)]
    assert read_points(store, "r") == rows(1, only("loss", logged()))
    assert len(read_rollup(store, "r")) == 80
    assert apply_retention(store, protected=(), days=300, system_days=30, now=FUTURE).drops == ()
    write_segment(store, "r", 2, 0, logged(first=40))
    compact(store, "p", "r")
    assert len(read_points(store, "r")) == 120
    assert shape(read_rollup(store, "r")) == [(key, 0, step, 1, value) for key, step, _, value in logged(count=80)]
    apply_retention(store, protected=(), days=30, now=FUTURE)
    assert len(read_rollup(store, "r")) == 160
    write_segment(store, "r", 2, 1, logged(first=80))
    compact(store, "p", "r")
    assert len(read_rollup(store, "r")) == 240


def test_a_rollup_goes_last_and_the_run_can_still_go_on(store: Store) -> None:
    write_segment(store, "r", 1, 0, logged())
    compact(store, "p", "r")
    done = apply_retention(store, protected=(), days=30, rollup_days=60, now=FUTURE)
    assert [drop.what for drop in done.drops] == ["full", "rollup"]
    assert [Path(name).name for name in all_files(store)] == ["manifest-000002.json"]
    write_segment(store, "r", 1, 1, logged(first=40))
    assert compact(store, "p", "r").points == 80
    assert read_points(store, "r") == rows(1, logged(first=40))


def test_a_protected_run_keeps_every_point_and_the_others_keep_their_rollups(store: Store) -> None:
    for run in ("a", "champion"):
        write_segment(store, run, 1, 0, logged())
        compact(store, "p", run)
    before = shape(read_rollup(store, "a"))
    for days in ({"days": 300, "system_days": 30}, {"days": 30}):
        done = apply_retention(store, protected={("p", "champion")}, now=FUTURE, **days)
        assert [(drop.run, drop.what) for drop in done.drops] == [("a", "full" if days["days"] == 30 else "system")]
        assert read_points(store, "champion") == rows(1, logged())
        assert read_points(store, "a") == ([] if days["days"] == 30 else rows(1, only("loss", logged())))
        for run in ("a", "champion"):
            assert shape(read_rollup(store, run)) == before


@pytest.mark.slow
@pytest.mark.folder
@pytest.mark.parametrize("days", ["days=30", "days=300, system_days=30"])
def test_retention_killed_at_any_step_loses_nothing_that_stays_and_is_finished_by_the_next(store: Store, days: str) -> None:
    for run in ("a", "b", "champion"):
        write_segment(store, run, 1, 0, logged())
        compact(store, "p", run)
    call = f'protected={{("p", "champion")}}, {days}, now=__import__("datetime").datetime.fromisoformat("{FUTURE.isoformat()}")'
    apply: Callable[[Store], object] = lambda store: eval(f"apply_retention(store, {call})")  # noqa: E731
    copies = killed_everywhere(store, f"apply_retention(store, {call})")
    assert len(copies) > 10
    stays = [] if days == "days=30" else rows(1, only("loss", logged()))
    for copy in copies:
        assert read_points(copy, "champion") == rows(1, logged()), copy
        for _ in range(2):
            for run in ("a", "b"):
                assert read_points(copy, run) in (stays, rows(1, logged())), copy
                assert len(read_rollup(copy, run)) == 80, copy
            apply(copy)
        for run in ("a", "b"):
            assert read_points(copy, run) == stays, copy
        assert read_points(copy, "champion") == rows(1, logged()), copy
        for run in ("a", "b"):
            compact(copy, "p", run)  # deletes what a killed retention had no time to delete
        full = [name for name in all_files(copy) if Path(name).name.startswith("full-")]
        assert len(full) == (1 if days == "days=30" else 3), (copy, full)


def save(store: Store, run: str, epoch: int, content: bytes) -> str:
    digest = store.put_blob(content)
    RunRecords(store, "p", run).add_checkpoint(SavedCheckpoint(epoch, 1, digest, {}))
    return digest


def test_superseded_checkpoints_go_unless_some_record_that_stays_names_them(store: Store) -> None:
    first, second, last = (save(store, "r", epoch, b"r%d" % epoch) for epoch in (1, 2, 3))
    shared = save(store, "r", 1, b"also another run's newest")
    save(store, "s", 9, b"also another run's newest")
    kept = save(store, "safe", 1, b"safe1")
    save(store, "safe", 2, b"safe2")
    artifact = save(store, "r", 2, b"an artifact")
    RunRecords(store, "p", "s").add_artifact("weights", artifact, 11)
    done = apply_retention(store, protected={("p", "safe")}, checkpoint_days=30, keep_blobs={second}, now=FUTURE)
    assert done.drops == (Drop("p", "r", "checkpoint", 0, 2, first),)
    with pytest.raises(NotFound):
        store.get_blob(first)
    for digest in (second, last, shared, kept, artifact):
        assert store.get_blob(digest)
    assert len(RunRecords(store, "p", "r").checkpoints()) == 5
    assert apply_retention(store, protected=(), checkpoint_days=30, keep_blobs={second, kept}, now=FUTURE).drops == ()
    assert apply_retention(store, protected=(), checkpoint_days=300, now=FUTURE).drops == ()


@pytest.mark.parametrize(
    ("name", "days", "owner"),
    [
        ("runs/project=p/r/mail/0001/trial-000001.json", 31, ("p", "r")),
        ("runs/project=p/r/mail/0001/trial-000001.json", 29, None),
        ("runs/project=p/safe/mail/0001/trial-000001.json", 9999, None),
        ("runs/project=p/r/.claim-record.json-0a.1.2", 1.1, ("p", "r")),
        ("runs/project=p/r/artifacts/.claim-weights-0a.1.2", 0.9, None),
        ("metrics/project=p/run=r/.full.parquet.17.0123abcd", 1.1, ("p", "r")),
        ("metrics/project=p/run=r/.gitignore", 9999, None),
        ("steps/0f3e/plan/result.json", 366, ("", "0f3e")),
        ("steps/0f3e/plan/result.json", 364, None),
        ("runs/project=p/r/record.json", 9999, None),
        ("runs/project=p/mail/record.json", 9999, None),
    ],
)
def test_what_nobody_alive_can_want_is_left_over(name: str, days: float, owner: tuple[str, str] | None) -> None:
    assert owner_of_orphan_file(name, timedelta(days=days), {("p", "safe")}) == owner


def test_leftovers_go_with_every_retention_and_only_those_of_the_project(store: Store) -> None:
    save(store, "r", 1, b"content")
    kept = sorted(name for name, _, _ in store.files("runs"))
    left = ["runs/project=p/r/mail/0001/task.json", "steps/0f3e/plan/result.json"]
    for name in left:
        store.create(name, b"12345", sole=True)
    with store.filesystem.open_output_stream(store.path("runs/project=p/r/.claim-record.json-0a.1.2")) as claim:
        claim.write(b"claim")
    far = datetime.now(UTC) + timedelta(days=400)
    assert apply_retention(store, protected=(), now=datetime.now(UTC)).drops == ()
    assert len(apply_retention(store, protected=(), dry_run=True, now=far).drops) == 2
    assert all(store.exists(name) for name in left)
    assert apply_retention(store, protected=(), project="p", now=far).drops == (Drop("p", "r", "orphan files", 0, 10),)
    assert apply_retention(store, protected=(), now=far).drops == (Drop("", "0f3e", "orphan files", 0, 5),)
    assert sorted(name for folder in ("runs", "steps") for name, _, _ in store.files(folder)) == kept
