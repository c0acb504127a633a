"""Every point that a dead process logged reaches the store once, by the next open or by ``recover``."""

import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import nullcontext
from datetime import datetime
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import halving
from halving import Store, StoreError
from halving.ingest.metric_writer import MetricWriter
from halving.ingest.recovery import Recovered, recover
from halving.journal.directory import attempt_folders, journal_home
from halving.maintenance.compaction import compact
from halving.metrics.manifest import Absorbed, Manifest, publish_manifest, run_files
from tests.sdk.conftest import Script
from tests.sdk.ingest.stored_points import count_points, end_record, points


@pytest.fixture
def store(any_store: Store) -> Store:
    """Everything here holds for every kind of store."""
    return any_store


KILLED = """
import halving, os, signal
run = halving.init('p', id='r', system_metrics=None)
for i in range(100): run.log({'a': i, 'b': -i}, step=i)
assert run.flush(30)
for i in range(100, 150): run.log({'a': i, 'b': -i}, step=i)
run.log({'sample': halving.Text('so far so good', caption='note')}, step=150)
os.kill(os.getpid(), signal.SIGKILL)
"""
LOGGED = {(key, step): 1 for key in "ab" for step in range(150)}


@pytest.mark.slow
def test_a_killed_process_loses_nothing_that_it_logged(script: Script, store: Store) -> None:
    assert script(KILLED).returncode == -signal.SIGKILL
    assert len(points(store)) < 300
    assert recover(store) == [Recovered("p", "r", 1, 300 - 200, "recovered")]
    assert count_points(store) == LOGGED
    assert end_record(store).items() >= {"status": "crashed"}.items()
    (name,) = store.names("runs/project=p/r/media")
    reference = json.loads(store.read(f"runs/project=p/r/media/{name}"))
    assert (
        reference.items()
        >= {"key": "sample", "step": 150, "kind": "text", "caption": "note", "attempt": 1}.items()
    )
    assert store.get_blob(reference["digest"]) == b"so far so good"
    assert recover(store) == []
    assert not list(journal_home(store).iterdir())


@pytest.mark.slow
def test_folders_of_a_process_killed_while_it_made_or_removed_its_journal_are_mended(
    script: Script, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(KILLED)
    (folder,) = attempt_folders(store)
    folder.rename(folder.with_name(".done-0001-12345"))
    (folder.parent / ".new-abcdef").mkdir()
    assert recover(store) == []  # so young that a living process may be at work on them
    monkeypatch.setattr("halving.journal.directory._UNFINISHED_SECONDS", 0)
    assert [recovered.state for recovered in recover(store)] == ["recovered"]
    assert count_points(store) == LOGGED
    assert not list(journal_home(store).iterdir())


@pytest.mark.slow
def test_the_next_attempt_drains_what_the_killed_one_left(script: Script, store: Store) -> None:
    script(KILLED)
    with halving.init("p", id="r", root=store.root, system_metrics=None) as run:
        assert run.attempt == 2
        assert count_points(store) == LOGGED
        run.log({"a": 1.0}, step=149)
    assert [
        (row["attempt"], row["value"]) for row in points(store) if (row["key"], row["step"]) == ("a", 149)
    ] == [(1, 149.0), (2, 1.0)]
    assert (end_record(store, 1)["status"], end_record(store, 2)["status"]) == ("crashed", "finished")


@pytest.mark.slow
def test_a_run_that_lives_is_left_alone(store: Store) -> None:
    writer = MetricWriter(store, "p", "r", 1, delay=3600)
    writer.append({"a": 1.0}, 1, 0)
    assert recover(store) == [Recovered("p", "r", 1, 0, "live")]
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            (
                "from halving import Store; from halving.ingest.recovery import recover; "
                f"print(recover(Store({store.root!r})))"
            ),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "state='live'" in done.stdout
    assert writer.close()
    writer.release()
    assert count_points(store) == {("a", 1): 1}


class Stops(Store):
    """A store whose process "dies" at the n-th write: before it, or after it and before the answer."""

    def __init__(self, root: str, at: int, *, after: bool) -> None:
        super().__init__(root)
        self.left = at
        self.after = after

    def create(self, name: str, content: bytes | Path, *, sole: bool = False) -> None:
        self.left -= 1
        if self.left == 0 and not self.after:
            raise KeyboardInterrupt
        super().create(name, content, sole=sole)
        if self.left == 0:
            raise KeyboardInterrupt


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True], ids=["before-the-write", "after-the-write"])
@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_recovery_that_is_killed_anywhere_is_finished_by_the_next(
    script: Script, store: Store, at: int, after: bool
) -> None:
    script(KILLED)
    with pytest.raises(KeyboardInterrupt):
        recover(Stops(store.root, at, after=after))
    assert [recovered.state for recovered in recover(store)] in ([], ["recovered"])
    assert count_points(store) == LOGGED
    assert len(store.names("runs/project=p/r/media")) == 1
    assert end_record(store)["status"] == "crashed"


@pytest.mark.slow
@pytest.mark.folder
def test_what_was_compacted_meanwhile_is_not_written_again(script: Script, store: Store) -> None:
    """The segments that say how far the journal was drained are gone; the manifest says it."""
    script(KILLED)
    files = run_files(store, "p", "r")
    drained = json.loads(pq.read_metadata(store.path(max(files.segments))).metadata[b"halving.drained"])
    publish_manifest(
        store,
        "p",
        "r",
        Manifest(1, None, None, {1: Absorbed(len(files.segments), drained)}, 200, "2026-01-01"),
    )
    for name in files.segments:
        Path(store.path(name)).unlink()
    assert recover(store)[0].points == 100
    assert count_points(store) == {(key, step): 1 for key in "ab" for step in range(100, 150)}
    assert store.names("metrics/project=p/run=r/live") == [f"0001-{len(files.segments):06d}.parquet"]


@pytest.mark.slow
@pytest.mark.parametrize("is_compacted", [False, True], ids=["live", "compacted"])
def test_a_killed_attempt_ended_at_its_last_point_however_late_it_is_recovered(
    script: Script, store: Store, is_compacted: bool
) -> None:
    script(
        "import halving, os, signal\n"
        "run = halving.init('p', id='r', system_metrics=None)\n"
        "run.log({'a': 1.0}, step=1)\n"
        "assert run.flush(30)\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    (point,) = points(store)
    if is_compacted:
        compact(store, "p", "r")
        assert not run_files(store, "p", "r").segments
    recover(store)
    assert datetime.fromisoformat(end_record(store)["time"]) == point["wall_time"]


@pytest.mark.slow
def test_a_killed_attempt_without_points_has_trained_for_no_time(script: Script, store: Store) -> None:
    script(
        "import halving, os, signal\nhalving.init('p', id='r', system_metrics=None)\nos.kill(os.getpid(), "
        "signal.SIGKILL)"
    )
    recover(store)
    assert end_record(store)["time"] == json.loads(store.read("runs/project=p/r/record.json"))["started"]


@pytest.mark.slow
@pytest.mark.folder
def test_a_journal_cut_at_any_byte_gives_a_prefix_of_what_was_logged(
    script: Script, store: Store, tmp_path: Path
) -> None:
    script(
        KILLED.replace("assert run.flush(30)", "").replace(
            "halving.Text('so far so good', caption='note')", "1"
        )
    )
    (folder,) = attempt_folders(store)
    log_segment = folder / "main-000000.journal"
    content = log_segment.read_bytes()
    saved = tmp_path / "saved"
    shutil.copytree(store.root, saved)
    end = len(content.rstrip(b"\0"))
    for cut in [*range(0, 200, 7), *range(200, end, 397), end]:
        shutil.rmtree(store.root)
        shutil.copytree(saved, store.root)
        log_segment.write_bytes(
            content[:cut] + os.urandom(min(40, len(content) - cut)) + bytes(max(0, len(content) - cut - 40))
        )
        recover(store)
        steps = sorted(step for key, step in count_points(store) if key == "a")
        assert steps == list(range(len(steps)))
        assert all(count == 1 for count in count_points(store).values())
        assert len(steps) >= min(150, (cut - 100) // 48)


@pytest.mark.slow
def test_a_journal_of_another_store_is_not_touched(
    script: Script, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HALVING_JOURNAL", str(tmp_path / "journals"))
    script(KILLED)
    assert recover(Store(tmp_path / "another")) == []
    assert recover(store)[0].points == 100


@pytest.mark.slow
def test_two_processes_with_the_same_run_id_are_two_attempts_and_lose_nothing(
    script: Script, store: Store
) -> None:
    with halving.init("p", id="r", root=store.root, system_metrics=None) as run:
        run.log({"a": 1.0}, step=1)
        other = script(
            "import halving\nrun = halving.init('p', id='r', system_metrics=None)\nrun.log({'a': 2.0}, "
            "step=1)\nprint(run.attempt)\n"
        )
        assert (other.stdout.strip(), other.returncode) == ("2", 0), other.stderr
        run.log({"a": 1.5}, step=2)
    assert {(row["attempt"], row["step"], row["value"]) for row in points(store)} == {
        (1, 1, 1.0),
        (2, 1, 2.0),
        (1, 2, 1.5),
    }


@pytest.mark.slow
@pytest.mark.folder
def test_permission_lost_while_training_is_survived_and_recovered(
    tmp_path: Path, script: Script, store: Store
) -> None:
    """Immutable by attribute: root, who may run the tests, passes every permission bit."""
    root = Path(store.root)
    root.mkdir()
    probe = subprocess.run(["chattr", "+i", str(root)], capture_output=True, check=False)
    if probe.returncode:
        pytest.skip(f"no immutable folders here: {probe.stderr.decode().strip()}")
    subprocess.run(["chattr", "-i", str(root)], check=True)
    done = script(
        "import halving, os, subprocess, sys\n"
        "run = halving.init('p', id='r', system_metrics=None)\n"
        "run.log({'a': 0.0}, step=0); assert run.flush(30)\n"
        "live = os.environ['HALVING_ROOT'] + '/metrics/project=p/run=r/live'\n"
        "subprocess.run(['chattr', '+i', live], check=True)\n"
        "for i in range(1, 50): run.log({'a': i}, step=i)\n"
        "assert not run.flush(1)\n"
        "run._writer.close(0.5)\n"
        "run.finish()\n"
        "subprocess.run(['chattr', '-i', live], check=True)\n"
    )
    assert done.returncode == 0, done.stderr
    assert "did not take everything of r" in done.stderr
    assert "halving recover" in done.stderr
    assert recover(store) == [Recovered("p", "r", 1, 49, "recovered")]
    assert count_points(store) == {("a", step): 1 for step in range(50)}
    assert end_record(store).items() >= {"status": "finished", "points": 50, "summary": {"a": 49.0}}.items()


@pytest.mark.slow
@pytest.mark.parametrize("errors", [False, True], ids=["warned", "warnings are errors"])
def test_a_store_that_refuses_keeps_the_journal_and_lets_the_next_attempt_train(
    script: Script, store: Store, monkeypatch: pytest.MonkeyPatch, errors: bool
) -> None:
    script(KILLED)

    def refuse(self: Store, name: str, data: bytes, **options: bool) -> None:
        if "/live/" in name:
            raise StoreError("away")
        real(self, name, data, **options)

    real = Store.create
    with monkeypatch.context() as patched:
        patched.setattr(Store, "create", refuse)
        warned = pytest.warns(
            UserWarning,
            match="attempt 1 of r left points that are not in the store yet: kept: StoreError: away",
        )
        with nullcontext() if errors else warned:
            run = halving.init("p", id="r", root=store.root, system_metrics=None)
    run.finish()
    assert recover(store) == [Recovered("p", "r", 1, 100, "recovered")]
    assert count_points(store) == LOGGED
