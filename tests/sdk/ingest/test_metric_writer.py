"""Metric points on their way to Parquet: none is lost or doubled, and training never notices the store."""

import math
import subprocess
import threading
import time
import warnings
from pathlib import Path
from unittest.mock import ANY

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from halving import Store, StoreError
from halving.ingest.metric_writer import MetricWriter
from halving.ingest.recovery import Recovered, recover
from halving.metrics.segments import COLUMNS
from tests.sdk.conftest import Script
from tests.sdk.ingest.stored_points import count_points, end_record, points

SMALL = 1 << 15  # bytes of a journal log segment in these tests
SOON = 0.01  # seconds that points wait in these tests


def close_and_count(writer: MetricWriter, deadline: float = 10.0) -> tuple[bool, int]:
    """Close a writer and give whether the store has everything, and how many points were dropped."""
    complete = writer.close(deadline)
    writer.release(None if complete else {"status": "finished", "points": 0, "summary": {}})
    return complete, writer.dropped


def test_every_point_arrives_with_its_run_attempt_key_step_time_and_value(store: Store) -> None:
    writer = MetricWriter(store, "p", "r", 3, delay=SOON)
    for step in range(100):
        writer.append(
            {"loss": 1 / (step + 1), "accuracy": float(step)}, step, (1_700_000_000_000 + step) * 1_000_000
        )
    assert close_and_count(writer) == (True, 0)
    rows = points(store)
    assert len(rows) == 200
    assert {(row["run"], row["attempt"]) for row in rows} == {("r", 3)}
    assert {row["step"]: row["value"] for row in rows if row["key"] == "loss"} == {
        step: 1 / (step + 1) for step in range(100)
    }
    assert {row["step"]: row["value"] for row in rows if row["key"] == "accuracy"} == {
        step: float(step) for step in range(100)
    }
    assert all(
        row["wall_time"].timestamp() == pytest.approx(1_700_000_000 + row["step"] / 1000, abs=1e-6)
        for row in rows
    )


def test_segments_have_the_columns_and_types_that_readers_expect(store: Store) -> None:
    writer = MetricWriter(store, "p", "r", 1)
    writer.append({"a": 1.0}, -5, 0)
    assert close_and_count(writer) == (True, 0)
    assert store.names("metrics/project=p/run=r/live") == ["0001-000000.parquet"]
    schema = pq.ParquetFile(store.path("metrics/project=p/run=r/live/0001-000000.parquet")).schema_arrow
    assert tuple(schema.names) == COLUMNS
    for name in ("run", "key"):
        assert schema.field(name).type.value_type == pa.string()
    assert schema.field("attempt").type == pa.int32()
    assert schema.field("step").type == pa.int64()
    assert schema.field("wall_time").type == pa.timestamp("ms", tz="UTC")
    assert schema.field("value").type == pa.float64()


def test_nan_infinity_and_the_largest_steps_are_kept(store: Store) -> None:
    values = [math.nan, math.inf, -math.inf, -0.0, 5e-324, True, 2**53]
    steps = [-(2**63), 2**63 - 1]
    writer = MetricWriter(store, "p", "r", 1)
    for step in steps:
        writer.append({str(index): value for index, value in enumerate(values)}, step, 0)
    assert close_and_count(writer) == (True, 0)
    rows = sorted(points(store), key=lambda row: (row["step"], row["key"]))
    assert [repr(row["value"]) for row in rows] == [repr(float(value)) for value in values] * 2
    assert {row["step"] for row in rows} == set(steps)


def test_points_arrive_without_a_flush(store: Store) -> None:
    writer = MetricWriter(store, "p", "r", 1, delay=SOON)
    writer.append({"a": 1.0}, 1, 0)
    until = time.monotonic() + 30
    while not points(store) and time.monotonic() < until:
        time.sleep(0.01)
    assert count_points(store) == {("a", 1): 1}
    assert close_and_count(writer) == (True, 0)


def test_flush_says_that_everything_is_in_the_store(store: Store) -> None:
    writer = MetricWriter(store, "p", "r", 1, delay=3600)
    assert writer.flush()
    for step in range(3):
        writer.append({"a": 1.0}, step, 0)
        assert writer.flush()
        assert len(points(store)) == step + 1
    assert close_and_count(writer) == (True, 0)


def test_an_unreachable_store_loses_nothing_and_never_raises_into_training(
    tmp_path: Path,
) -> None:
    root = tmp_path / "store"
    store = Store(root)
    writer = MetricWriter(store, "p", "r", 1, delay=SOON)
    writer.append({"a": 0.0}, 0, 0)
    assert writer.flush()
    root.rename(tmp_path / "unmounted")
    root.write_text("not a folder")
    for step in range(1, 50):
        writer.append({"a": float(step)}, step, 0)
    assert not writer.flush(0.3)
    for step in range(50, 100):
        writer.append({"a": float(step)}, step, 0)
    assert not writer.flush(0.1)
    root.unlink()
    (tmp_path / "unmounted").rename(root)
    assert writer.flush(60)
    assert close_and_count(writer) == (True, 0)
    assert count_points(store) == {("a", step): 1 for step in range(100)}


def unreachable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A store that is unreachable, whose journal is elsewhere on this machine, as with an object store."""
    (tmp_path / "store").write_text("not a folder")
    monkeypatch.setenv("HALVING_JOURNAL", str(tmp_path / "journals"))
    return Store(tmp_path / "store")


def back(store: Store) -> None:
    assert store.folder is not None
    store.folder.unlink()


def test_the_user_is_warned_once_when_the_store_becomes_unreachable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = unreachable(tmp_path, monkeypatch)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        writer = MetricWriter(store, "p", "r", 1, delay=SOON)
        writer.append({"a": 0.0}, 0, 0)
        assert not writer.flush(0.5)
        assert close_and_count(writer, 0.1) == (False, 0)
    assert [str(warning.message).split(" (")[0] for warning in caught] == [
        f"halving: cannot write metrics to {tmp_path}/store"
    ]
    assert "StoreError: cannot write" in str(caught[0].message)


def test_a_flush_that_does_not_insist_waits_for_one_refusal_and_no_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = unreachable(tmp_path, monkeypatch)
    with pytest.warns(UserWarning, match="The journal keeps them, and writing is retried"):
        writer = MetricWriter(store, "p", "r", 1, delay=SOON)
        for step in range(3):
            writer.append({"a": 0.0}, step, 0)
            assert not writer.flush(3600, insist=False)
    back(store)
    assert writer.flush(60)
    assert close_and_count(writer) == (True, 0)


def test_what_the_store_never_took_stays_in_the_journal_and_is_recovered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = unreachable(tmp_path, monkeypatch)
    with pytest.warns(UserWarning, match="The journal keeps them, and writing is retried"):
        writer = MetricWriter(store, "p", "r", 1, delay=SOON)
        for step in range(7):
            writer.append({"a": 1.0, "b": 2.0}, step, 0)
        assert not writer.close(0.3)
    kept = writer.release({"status": "finished", "points": 0, "summary": {}, "dropped_points": 0})
    assert kept is not None
    assert recover(store)[0].state.startswith("kept: StoreError: cannot list")
    back(store)
    assert recover(store) == [Recovered("p", "r", 1, 14, "recovered")]
    assert count_points(store) == {(key, step): 1 for key in "ab" for step in range(7)}
    assert end_record(store) == {
        "status": "finished",
        "points": 14,
        "summary": {"a": 1.0, "b": 2.0},
        "dropped_points": 0,
        "time": ANY,
    }
    assert not kept.exists()
    assert recover(store) == []


def test_what_exceeds_the_journals_bound_is_dropped_and_counted_and_the_rest_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = unreachable(tmp_path, monkeypatch)
    with pytest.warns(UserWarning, match="halving: ") as caught:
        writer = MetricWriter(store, "p", "r", 1, delay=SOON, max_bytes=3 * SMALL, log_segment_bytes=SMALL)
        for step in range(5_000):
            writer.append({"a": 1.0, "b": 2.0}, step, 0)
        assert not writer.flush(0.3)
    assert (
        sum(
            "points of run r are dropped and counted: the journal holds" in str(warning.message)
            for warning in caught
        )
        == 1
    )
    kept = 5_000 - writer.dropped // 2
    assert 3 * SMALL // 48 - 50 < kept < 3 * SMALL // 48
    back(store)
    assert writer.flush(60)
    writer.append({"a": 1.0}, 5_000, 0)
    assert close_and_count(writer) == (True, 2 * (5_000 - kept))
    assert count_points(store) == {
        **{(key, step): 1 for key in "ab" for step in range(kept)},
        ("a", 5_000): 1,
    }


def test_a_disk_that_takes_no_journal_warns_and_costs_no_point_of_a_live_process(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HALVING_JOURNAL", "/proc/no/such/folder")
    with pytest.warns(
        UserWarning,
        match="cannot write the journal of run r .*points wait in memory, and are lost if the process dies",
    ):
        writer = MetricWriter(store, "p", "r", 1, delay=SOON)
        for step in range(100):
            writer.append({"a": 1.0}, step, 0)
    assert close_and_count(writer) == (True, 0)
    assert count_points(store) == {("a", step): 1 for step in range(100)}


@pytest.mark.slow
def test_a_run_and_its_children_leave_a_foreign_journal_folder_as_it_is(script: Script, store: Store) -> None:
    done = script(
        "import os\n"
        "from halving import Store\n"
        "from halving.journal.directory import journal_home\n"
        "from halving.ingest.metric_writer import MetricWriter\n"
        "folder = journal_home(Store()) / 'project=p/run=r/0001'\n"
        "folder.mkdir(parents=True)\n"
        "(folder / 'main-000000.journal').write_bytes(b'theirs')\n"
        "writer = MetricWriter(Store(), 'p', 'r', 1)\n"
        "writer.append({'a': 1.0}, 1, 0)\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    writer.append({'b': 1.0}, 1, 0); os._exit(writer.dropped)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
        "assert writer.close(); writer.release()\n"
        "print(os.listdir(folder), (folder / 'main-000000.journal').read_bytes(), "
        "os.listdir(folder.parent))\n"
    )
    assert done.stdout.splitlines() == ["1", "['main-000000.journal'] b'theirs' ['0001']"], done.stderr
    assert "belongs to another process" in done.stderr
    assert count_points(store) == {("a", 1): 1}


def test_points_without_journal_and_store_are_counted_as_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "store").write_text("not a folder")
    monkeypatch.setenv("HALVING_JOURNAL", "/proc/no/such/folder")
    with pytest.warns(UserWarning, match="halving: cannot write (the journal|metrics)"):
        writer = MetricWriter(Store(tmp_path / "store"), "p", "r", 1, delay=SOON)
        for step in range(7):
            writer.append({"a": 1.0, "b": 2.0}, step, 0)
        assert close_and_count(writer, 0.2) == (False, 14)
        assert close_and_count(writer, 0.2) == (False, 14)


@pytest.mark.slow
def test_a_full_disk_neither_kills_nor_loses_anything(tmp_path: Path, script: Script) -> None:
    """On a really full disk, writing to mapped memory without allocated blocks would raise SIGBUS."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(disk)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"this user may not mount a small disk: {mounted.stderr.decode().strip()}")
    try:
        done = script(
            "import halving, os, sys\n"
            "run = halving.init('p', id='r', root=sys.argv[1], system_metrics=None)\n"
            "run.log({'a': -1.0}, step=-1)\n"
            "with open(sys.argv[1] + '/../ballast', 'wb', buffering=0) as file:\n"
            "    try:\n"
            "        while True: file.write(bytes(4096))\n"
            "    except OSError: pass\n"
            "for i in range(400_000): run.log({'a': i}, step=i)\n"
            "assert not run.flush(1)\n"
            "os.unlink(sys.argv[1] + '/../ballast')\n"
            "assert run.flush(30)\n"
            "run.finish()\n",
            str(disk / "store"),
        )
        assert done.returncode == 0, done.stderr
        assert "cannot write the journal of run r ([Errno 28] No space left on device" in done.stderr
        assert "cannot write metrics to" in done.stderr
        store = Store(disk / "store")
        assert sorted(point["step"] for point in points(store)) == list(range(-1, 400_000))
        assert end_record(store).items() >= {"status": "finished", "dropped_points": 0}.items()
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


class LostAnswer(Store):
    """A store whose first writes succeed and whose answers get lost on the way back, as over a network."""

    lost = 2

    def create(self, name: str, content: bytes | Path, *, sole: bool = False) -> None:
        super().create(name, content, sole=sole)
        if self.lost:
            self.lost -= 1
            raise StoreError("connection reset")


def test_a_write_whose_answer_was_lost_neither_doubles_points_nor_blocks_the_next(tmp_path: Path) -> None:
    store = LostAnswer(tmp_path / "store")
    writer = MetricWriter(store, "p", "r", 1, delay=SOON)
    for step in range(20):
        writer.append({"a": 1.0}, step, 0)
        writer.flush(0.05)
    assert writer.flush(60)
    assert close_and_count(writer) == (True, 0)
    assert count_points(store) == {("a", step): 1 for step in range(20)}


class Hanging(Store):
    """A store that answers no write until it is released."""

    released = threading.Event()

    def create(self, name: str, content: bytes | Path, *, sole: bool = False) -> None:
        self.released.wait(30)
        super().create(name, content, sole=sole)


def test_a_store_that_hangs_holds_up_a_flush_no_longer_than_its_deadline(tmp_path: Path) -> None:
    store = Hanging(tmp_path / "store")
    writer = MetricWriter(store, "p", "r", 1, delay=SOON)
    for step in range(5):
        writer.append({"a": 1.0}, step, 0)
        assert not writer.flush(0.05)  # one that waited for the store would come back with True
    store.released.set()
    assert writer.flush(60)
    assert close_and_count(writer) == (True, 0)
    assert count_points(store) == {("a", step): 1 for step in range(5)}


def test_many_threads_log_at_once_and_every_point_arrives_exactly_once(store: Store) -> None:
    writer = MetricWriter(store, "p", "r", 1, delay=0.001)

    def log(thread: int) -> None:
        for step in range(500):
            writer.append({f"t{thread}": 1.0}, step, 0)
            if step % 100 == 0:
                writer.flush()

    threads = [threading.Thread(target=log, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert close_and_count(writer) == (True, 0)
    assert count_points(store) == {(f"t{thread}", step): 1 for thread in range(8) for step in range(500)}
