"""Merged files hold every point of their runs, and every run is readable at any moment."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from halving import Store
from halving.maintenance import merging
from halving.maintenance.compaction import compact
from halving.maintenance.merging import merge
from halving.metrics.manifest import publish_manifest, read_manifest
from tests.sdk.metric_files import Logged, all_files, killed_everywhere, read_points, read_rollup, rows, write_segment

RUNS = ("a", "b", "c")


@pytest.fixture
def store(any_store: Store, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Everything here holds for every kind of store, but that an object store keeps what is superfluous for a while."""
    monkeypatch.setattr("halving.maintenance.compaction.GRACE_SECONDS", 0.0)
    return any_store


def points(run: str, first: int = 0, count: int = 30) -> list[Logged]:
    """In the order of a full file."""
    return [(key, step, 1000 + step, ord(run) + step / 7) for key in ("acc", "loss") for step in range(first, first + count)]


def write_runs(store: Store) -> None:
    for run in RUNS:
        write_segment(store, run, 1, 0, points(run))


def test_a_merged_file_is_sorted_by_key_run_and_step_and_replaces_the_runs_own(store: Store) -> None:
    write_runs(store)
    done = merge(store, "p", RUNS, "sweep-1")
    assert (done.name, done.runs, dict(done.left_out), done.points) == ("merged/sweep-1.parquet", RUNS, {}, 180)
    table = pq.ParquetFile(store.path(f"metrics/project=p/{done.name}"), filesystem=store.filesystem).read()
    order = list(zip(*(table.column(name).to_pylist() for name in ("key", "run", "step")), strict=True))
    assert order == sorted(order)
    assert len(order) == 180
    for run in RUNS:
        assert read_points(store, run) == rows(1, points(run))
        assert [bucket["step"] for bucket in read_rollup(store, run)] == [*range(30), *range(30)]
    assert len([name for name in all_files(store) if "/merged/" in name]) == 2
    assert len(all_files(store)) == 2 + len(RUNS)  # the manifests


def test_merging_again_changes_nothing(store: Store) -> None:
    write_runs(store)
    merge(store, "p", RUNS, "sweep-1")
    files = all_files(store)
    again = merge(store, "p", RUNS, "sweep-1")
    assert again.runs == RUNS
    assert all_files(store) == files


def test_a_run_that_goes_on_takes_its_points_out_of_the_merged_file(store: Store) -> None:
    write_runs(store)
    merge(store, "p", RUNS, "sweep-1")
    write_segment(store, "b", 2, 0, points("b", first=30))
    assert len(read_points(store, "b")) == 120
    compact(store, "p", "b")
    assert sorted(read_points(store, "b")) == sorted(rows(1, points("b")) + rows(2, points("b", first=30)))
    assert read_points(store, "a") == rows(1, points("a"))
    again = merge(store, "p", RUNS, "sweep-1")
    assert again.runs == ("a", "c")
    assert "went on" in again.left_out["b"]
    other = merge(store, "p", RUNS, "sweep-2")
    assert other.runs == RUNS
    assert not [name for name in all_files(store) if "sweep-1" in name]  # no run needs it any more
    assert len(read_points(store, "b")) == 120


def test_runs_that_cannot_be_merged_are_said(store: Store) -> None:
    write_runs(store)
    done = merge(store, "p", ["a", "b", "empty"], "sweep-1")
    assert done.runs == ("a", "b")
    assert "no points" in done.left_out["empty"]
    assert "another name" in merge(store, "p", RUNS, "sweep-1").left_out["c"]
    assert merge(store, "p", ["empty"], "sweep-2").name is None


def test_a_merge_that_a_compaction_overtakes_leaves_that_run_its_own_file(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    write_runs(store)
    write_merged = merging.write_merged

    def overtaken(*arguments: object) -> object:
        name = write_merged(*arguments)  # type: ignore[arg-type]
        write_segment(store, "b", 1, 1, points("b", first=30))
        compact(store, "p", "b")
        return name

    monkeypatch.setattr(merging, "write_merged", overtaken)
    done = merge(store, "p", RUNS, "sweep-1")
    assert done.runs == ("a", "c")
    assert len(read_points(store, "b")) == 120
    assert read_points(store, "a") == rows(1, points("a"))


@pytest.mark.folder
def test_a_merge_killed_at_any_step_leaves_every_run_readable_and_is_finished_by_the_next(store: Store) -> None:
    write_runs(store)
    compact(store, "p", "a")
    copies = killed_everywhere(store, 'merge(store, "p", ["a", "b", "c"], "sweep-1")')
    assert len(copies) > 40
    for copy in copies:
        for run in RUNS:
            assert read_points(copy, run) == rows(1, points(run)), copy
        done = merge(copy, "p", RUNS, "sweep-1")
        assert (done.runs, dict(done.left_out)) == (RUNS, {}), copy
        for run in RUNS:
            assert read_points(copy, run) == rows(1, points(run)), copy
            assert len(read_rollup(copy, run)) == 60, copy
        visible = [name for name in all_files(copy) if not Path(name).name.startswith(".")]
        assert len(visible) == 2 + len(RUNS), (copy, visible)


def test_a_manifest_published_for_one_generation_cannot_be_replaced(store: Store) -> None:
    from halving.errors import AlreadyExists

    write_runs(store)
    compact(store, "p", "a")
    manifest = read_manifest(store, "p", "a")
    assert manifest is not None
    publish_manifest(store, "p", "a", manifest)  # the very same is accepted
    from dataclasses import replace

    with pytest.raises(AlreadyExists):
        publish_manifest(store, "p", "a", replace(manifest, full=None))
