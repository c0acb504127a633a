"""Compaction keeps every point, in order, whatever happens to it."""

import secrets
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from halving import InvalidInput, NotFound, Store, StoreError
from halving.errors import AlreadyExists
from halving.maintenance import external_sort
from halving.maintenance.compaction import compact
from halving.metrics import parquet_reader
from halving.metrics.manifest import publish_manifest, read_manifest, run_files
from halving.metrics.parquet_reader import Files
from halving.metrics.points import EVERYWHERE
from tests.properties import examples
from tests.s3 import S3
from tests.sdk.metric_files import (
    Logged,
    Row,
    all_files,
    in_order,
    killed_everywhere,
    read_points,
    rows,
    write_segment,
)

KEYS = st.sampled_from(["loss", "acc", "val/loss", "système", "system/gpu.0/power"])
STEPS = st.one_of(st.integers(0, 5), st.integers(-(2**63), 2**63 - 1))
POINTS = st.tuples(KEYS, STEPS, st.integers(0, 2**45), st.floats(width=64))
SEGMENTS = st.lists(st.lists(POINTS, min_size=1, max_size=12), max_size=4)
# Attempt by attempt what is compacted first, and what is there by the second time.
ROUNDS = st.lists(st.dictionaries(st.integers(1, 3), SEGMENTS, max_size=3), min_size=1, max_size=3)


@pytest.fixture
def store(any_store: Store, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Every kind of store; an object store keeps superfluous files for a while."""
    monkeypatch.setattr("halving.maintenance.compaction.GRACE_SECONDS", 0.0)
    return any_store


def log_rounds(
    store: Store, rounds: list[dict[int, list[list[Logged]]]], after_each: Callable[[], object]
) -> list[Row]:
    sequences: dict[int, int] = {}
    logged: list[Row] = []
    for attempts in rounds:
        for attempt, segments in attempts.items():
            for segment in segments:
                write_segment(store, "r", attempt, sequences.get(attempt, 0), segment)
                sequences[attempt] = sequences.get(attempt, 0) + 1
                logged += rows(attempt, sorted(segment, key=lambda point: point[0]))
        after_each()
    return logged


@given(rounds=ROUNDS)
@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.parametrize("limit", [7, external_sort.LIMIT])
def test_points_are_read_back_bit_by_bit_by_key_step_attempt_and_logging_order(
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    rounds: list[dict[int, list[list[Logged]]]],
    limit: int,
) -> None:
    monkeypatch.setattr(external_sort.Sorter.__init__, "__defaults__", (limit,))
    store = Store(tmp_path_factory.mktemp("store"))
    logged = log_rounds(store, rounds, lambda: compact(store, "p", "r"))
    assert read_points(store, "r") == in_order(logged)
    assert not run_files(store, "p", "r").segments
    assert read_manifest(store, "p", "r").points == len(logged)


def curve(count: int, key: str = "loss", first: int = 0) -> list[Logged]:
    return [(key, step, 1_700_000_000_000 + step, float(step) / 3) for step in range(first, first + count)]


def test_compacting_again_does_nothing_and_new_segments_are_added(store: Store) -> None:
    write_segment(store, "r", 1, 0, curve(10))
    write_segment(store, "r", 1, 1, curve(10, first=5))
    first = compact(store, "p", "r")
    assert (first.points, first.segments, first.total) == (20, 2, 20)
    assert len(first.deleted) == 2
    files = all_files(store)
    again = compact(store, "p", "r")
    assert (again.points, again.segments, again.total, again.deleted) == (0, 0, 20, ())
    assert all_files(store) == files
    write_segment(store, "r", 2, 0, curve(3))
    assert compact(store, "p", "r").total == 23
    assert len(all_files(store)) == 3  # full, rollup and manifest of one generation
    absorbed = read_manifest(store, "p", "r").absorbed
    assert {attempt: part.segments for attempt, part in absorbed.items()} == {1: 2, 2: 1}
    assert absorbed[1].drained == {"main": [0, 200]}


def test_a_run_without_points_is_left_as_it_is(store: Store) -> None:
    assert compact(store, "p", "r").points == 0
    assert read_manifest(store, "p", "r").generation == 0


def test_what_is_behind_a_gap_stays_and_is_reported(store: Store) -> None:
    for sequence in (0, 1, 3):
        write_segment(store, "r", 1, sequence, curve(4, first=4 * sequence))
    write_segment(store, "r", 2, 1, curve(1))
    done = compact(store, "p", "r")
    assert done.segments == 2
    assert [name.rpartition("/")[2] for name in done.gaps] == ["0001-000003.parquet", "0002-000001.parquet"]
    assert len(read_points(store, "r")) == 13
    write_segment(store, "r", 1, 2, curve(4, first=8))
    assert compact(store, "p", "r").segments == 2


def test_a_late_segment_of_an_earlier_attempt_does_not_overrule_a_later_attempt(store: Store) -> None:
    write_segment(store, "r", 2, 0, [("loss", 5, 20, 2.0)])
    compact(store, "p", "r")
    write_segment(store, "r", 1, 0, [("loss", 5, 99, 1.0)])  # recovered from another machine's journal
    compact(store, "p", "r")
    assert [attempt for attempt, *_ in read_points(store, "r")] == [1, 2]


def test_a_key_with_many_points_has_row_groups_of_its_own_and_small_keys_share_one(store: Store) -> None:
    small = [point for number in range(50) for point in curve(10, f"small/{number:02d}")]
    write_segment(store, "r", 1, 0, [*curve(300_000, "m/big"), *curve(20_000, "n/big"), *small])
    compact(store, "p", "r")
    manifest = read_manifest(store, "p", "r")
    metadata = pq.read_metadata(store.path(f"metrics/project=p/{manifest.full}"), filesystem=store.filesystem)
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    keys = [
        (group.column(2).statistics.min, group.column(2).statistics.max, group.num_rows) for group in groups
    ]
    assert keys == [
        ("m/big", "m/big", 150_000),
        ("m/big", "m/big", 150_000),
        ("n/big", "n/big", 20_000),
        ("small/00", "small/49", 500),
    ]


def test_noisy_losses_take_at_most_3_8_bytes_a_point(store: Store) -> None:
    random = np.random.default_rng(0)
    times = 1_700_000_000_000 + np.cumsum(50 + random.integers(-3, 4, 50_000))
    logged = []
    for number in range(3):
        noisy = (
            ((0.1 + 2 / (1 + 0.001 * np.arange(50_000))) * random.uniform(0.8, 1.2, 50_000))
            .astype(np.float32)
            .astype(np.float64)
        )
        logged += list(
            zip([f"loss/{number}"] * 50_000, range(50_000), times.tolist(), noisy.tolist(), strict=True)
        )
    write_segment(store, "r", 1, 0, logged)
    done = compact(store, "p", "r")
    assert done.bytes_after / done.total <= 3.8


@pytest.mark.slow
@pytest.mark.folder
def test_a_compaction_killed_anywhere_keeps_each_point_once_and_the_next_ends_it(
    store: Store,
) -> None:
    logged = []
    for sequence in range(2):
        write_segment(store, "r", 1, sequence, curve(5, first=5 * sequence))
        logged += rows(1, curve(5, first=5 * sequence))
    compact(store, "p", "r")
    for sequence in (2, 3):
        write_segment(store, "r", 1, sequence, curve(5, first=5 * sequence))
        logged += rows(1, curve(5, first=5 * sequence))
    copies = killed_everywhere(store, 'compact(store, "p", "r")')
    assert len(copies) > 15
    for copy in copies:
        assert sorted(read_points(copy, "r")) == sorted(logged), copy
        compact(copy, "p", "r")
        assert read_points(copy, "r") == logged, copy
        visible = [name for name in all_files(copy) if not Path(name).name.startswith(".")]
        assert len(visible) == 3, (copy, visible)


@pytest.mark.folder
def test_unfinished_files_of_killed_writers_go_after_a_day(store: Store) -> None:
    import os

    write_segment(store, "r", 1, 0, curve(5))
    compact(store, "p", "r")
    folder = (store.folder or Path()) / "metrics/project=p/run=r"
    for name in (".full-old", ".full-new"):
        (folder / name).write_bytes(b"half")
    os.utime(folder / ".full-old", (0, 0))
    compact(store, "p", "r")
    assert not (folder / ".full-old").exists()
    assert (folder / ".full-new").exists()


def test_a_compaction_that_comes_second_takes_its_files_away(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    from halving.maintenance import compaction

    write_segment(store, "r", 1, 0, curve(5))

    def publish_after_another(*arguments: object) -> None:
        monkeypatch.setattr(compaction, "publish_manifest", publish_manifest)
        assert compact(store, "p", "r").points == 5
        publish_manifest(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(compaction, "publish_manifest", publish_after_another)
    second = compact(store, "p", "r")
    assert second.superseded
    assert second.points == 0
    assert read_points(store, "r") == rows(1, curve(5))
    assert len(all_files(store)) == 3


def test_a_compaction_overtaken_by_several_deletes_nothing_that_they_need(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    from halving.maintenance import compaction

    write_segment(store, "r", 1, 0, curve(5))
    compact(store, "p", "r")
    write_segment(store, "r", 1, 1, curve(5, first=5))

    def publish_after_another(*arguments: object) -> None:
        monkeypatch.setattr(compaction, "publish_manifest", publish_manifest)
        for sequence in (2, 3):  # its generation is published and deleted again
            compact(store, "p", "r")
            write_segment(store, "r", 1, sequence, curve(5, first=5 * sequence))
        compact(store, "p", "r")
        publish_manifest(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(compaction, "publish_manifest", publish_after_another)
    compact(store, "p", "r")
    assert read_points(store, "r") == rows(1, curve(20))
    assert len(all_files(store)) == 3


def test_readers_and_compactions_at_the_same_time_see_every_point_once(store: Store) -> None:
    written = [0]
    stop = threading.Event()
    wrong = []

    def keep_compacting() -> None:
        while not stop.is_set():
            compact(store, "p", "r")

    def keep_reading() -> None:
        while not stop.is_set():
            at_least = written[0]
            steps = sorted(step for _, _, step, _, _ in read_points(store, "r"))
            if steps != list(range(len(steps))) or len(steps) < at_least:
                wrong.append((at_least, steps))

    threads = [
        threading.Thread(target=target)
        for target in (keep_compacting, keep_compacting, keep_reading, keep_reading)
    ]
    for thread in threads:
        thread.start()
    for sequence in range(40):
        write_segment(store, "r", 1, sequence, curve(3, first=3 * sequence))
        written[0] = 3 * (sequence + 1)
    stop.set()
    for thread in threads:
        thread.join()
    assert not wrong
    compact(store, "p", "r")
    assert read_points(store, "r") == rows(1, curve(120))


@pytest.mark.parametrize(
    "folder", ["x", "x" * 200], ids=["an answer of NO_SUCH_KEY", "an answer longer than what is read"]
)
def test_an_open_file_deleted_in_an_object_store_reads_as_missing(
    s3: S3, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_reader, "_SMALL", 0)  # a small file is read whole when it is opened
    remote = Store(s3.root(secrets.token_hex(6)).replace("/experiments", f"/{folder}"))
    write_segment(remote, "r", 1, 0, curve(5))
    compact(remote, "p", "r")
    [name] = [name for name in all_files(remote) if "full" in name]
    files = Files(remote)
    assert not len(files.points(remote.path(name), "other", EVERYWHERE).step), (
        "opened, and nothing read of it"
    )
    remote.delete(name)
    with pytest.raises(FileNotFoundError):
        files.points(remote.path(name), "loss", EVERYWHERE)


def test_on_an_object_store_what_is_superfluous_goes_only_after_a_while(
    s3: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    from halving.maintenance import compaction

    remote = Store(s3.root(secrets.token_hex(6)))
    write_segment(remote, "r", 1, 0, curve(5))
    assert compact(remote, "p", "r").deleted == ()
    assert read_points(remote, "r") == rows(1, curve(5))
    monkeypatch.setattr(compaction, "GRACE_SECONDS", 0.0)
    assert len(compact(remote, "p", "r").deleted) == 1
    assert read_points(remote, "r") == rows(1, curve(5))


def test_a_full_file_that_is_missing_is_an_error_and_nothing_is_deleted(store: Store) -> None:
    write_segment(store, "r", 1, 0, curve(5))
    compact(store, "p", "r")
    write_segment(store, "r", 1, 1, curve(5))
    manifest = read_manifest(store, "p", "r")
    store.delete(f"metrics/project=p/{manifest.full}")
    with pytest.raises(NotFound, match="full-000001"):
        compact(store, "p", "r")
    assert len(run_files(store, "p", "r").segments) == 1


def test_names_that_are_no_names_are_refused(store: Store) -> None:
    with pytest.raises(InvalidInput, match=r"run id '\.\./r'"):
        compact(store, "p", "../r")


def test_a_manifest_published_for_one_generation_cannot_be_replaced(store: Store) -> None:
    write_segment(store, "r", 1, 0, curve(5))
    compact(store, "p", "r")
    manifest = read_manifest(store, "p", "r")
    publish_manifest(store, "p", "r", manifest)  # the very same is accepted
    with pytest.raises(AlreadyExists):
        publish_manifest(store, "p", "r", replace(manifest, full=None))


def test_points_that_an_earlier_version_merged_with_other_runs_are_refused(store: Store) -> None:
    write_segment(store, "r", 1, 0, [("loss", 1, 1, 0.5)])
    compact(store, "p", "r")
    manifest = read_manifest(store, "p", "r")
    publish_manifest(store, "p", "r", replace(manifest, generation=2, full="merged/old.parquet"))
    with pytest.raises(StoreError, match=r"run 'r' of project 'p' has points in merged/old\.parquet"):
        run_files(store, "p", "r")
