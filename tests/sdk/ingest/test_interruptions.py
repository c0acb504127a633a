"""Signal handlers, forks and exits at the worst moments neither hang a run nor change its points."""

import json
import os
import signal
import threading
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from halving import Store
from halving.ingest.metric_writer import MetricWriter
from halving.ingest.recovery import recover
from halving.journal.appender import Appender
from halving.journal.format import Block, Reading
from halving.journal.log_segment import log_segment_files
from tests.sdk.conftest import Script
from tests.sdk.run.runs import start

SMALL = 1 << 15


def points(store: Store, run: str = "r") -> list[tuple[str, int, float]]:
    folder = f"metrics/project=p/run={run}/live"
    tables = [pq.ParquetFile(store.path(f"{folder}/{name}")).read() for name in store.names(folder)]
    return sorted((row["key"], row["step"], row["value"]) for table in tables for row in table.to_pylist())


def in_journal(appender: Appender) -> list[tuple[str, float]]:
    points = []
    for log_segment in appender.log_segments.values():
        reading = Reading(log_segment.memory, verify=True)
        for block in reading.blocks():
            if isinstance(block, Block):
                rows = block.rows.view(np.float64)
                points += [
                    point for row in rows for point in zip(block.keys, row[3:-1].tolist(), strict=True)
                ]
    return points


class Interrupted:
    """Calls a handler once, after a step of an appender that happens under its lock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str, handler: Any) -> None:
        self.armed = True
        real = getattr(Appender, name)

        def interrupt(appender: Appender, *arguments: Any) -> Any:
            if self.armed and appender._is_interrupting():
                self.armed = False
                handler()
            return real(appender, *arguments)

        monkeypatch.setattr(Appender, name, interrupt)


@pytest.mark.parametrize(
    "method", ["_open_segment", "_create", "_count_undrained_bytes", "_take_spare", "_give_final_name"]
)
def test_a_handler_that_logs_during_a_change_of_log_segments_keeps_every_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    refused: list[OSError] = []
    appender = Appender(
        tmp_path,
        "main",
        max_bytes=1 << 30,
        log_segment_bytes=SMALL,
        on_full=lambda: None,
        on_refused=refused.append,
    )
    interruption = Interrupted(
        monkeypatch, method, lambda: appender.append(("sig_x", "sig_y"), (100.0, 200.0), 1, 1)
    )
    appender.append(("loss", "acc"), (1.0, 2.0), 0, 0)
    appender.append(("sig_x", "sig_y"), (101.0, 201.0), 2, 2)
    assert not interruption.armed
    assert sorted(in_journal(appender)) == [
        ("acc", 2.0),
        ("loss", 1.0),
        ("sig_x", 100.0),
        ("sig_x", 101.0),
        ("sig_y", 200.0),
        ("sig_y", 201.0),
    ]
    assert [number for number, _ in log_segment_files(tmp_path)["main"]] == sorted(appender.log_segments)
    assert refused == []


def test_a_handler_that_finishes_the_run_during_a_definition_hangs_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = start(store)
    run.log({"a": 1.0}, step=0)
    run.flush()
    interruption = Interrupted(monkeypatch, "_open_segment", run.finish)
    with pytest.warns(UserWarning, match="halving: "):
        run.log({"b": 1.0}, step=1)
        run.log({"c": 1.0}, step=2)
    assert not interruption.armed
    assert ("a", 0, 1.0) in points(store)


@pytest.mark.slow
def test_sigterm_in_the_middle_of_finish_lets_it_be_finished(script: Script, store: Store) -> None:
    done = script(
        "import halving, os, signal\n"
        "from halving.ingest.metric_writer import MetricWriter\n"
        "run = halving.init('p', id='r', system_metrics=None)\n"
        "run.log({'a': 1}, step=1)\n"
        "real = MetricWriter.close\n"
        "def close(self, seconds):\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    return real(self, seconds)\n"
        "MetricWriter.close = close\n"
        "run.finish()\n"
        "print('not reached')\n"
    )
    assert (done.returncode, done.stdout) == (-signal.SIGTERM, ""), done.stderr
    assert points(store) == [("a", 1, 1.0)]
    assert json.loads(store.read("runs/project=p/r/end-0001.json"))["status"] == "finished"


@pytest.mark.slow
def test_a_forked_child_ends_by_a_sigterm_in_its_finish_despite_its_parents_runs(
    script: Script,
) -> None:
    done = script(
        "import halving, os, signal\n"
        "from halving.ingest.metric_writer import MetricWriter\n"
        "parent = halving.init('p', id='parent', system_metrics=None)\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    run = halving.init('p', id='child', system_metrics=None)\n"
        "    real = MetricWriter.close\n"
        "    MetricWriter.close = lambda self, seconds: (os.kill(os.getpid(), signal.SIGTERM), real(self, "
        "seconds))[1]\n"
        "    run.finish(); os._exit(0)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )
    assert done.stdout == f"{-signal.SIGTERM}\n", done.stderr


@pytest.mark.slow
def test_a_storm_of_sigterms_while_logging_and_flushing_still_finishes(script: Script, store: Store) -> None:
    done = script(
        "import halving, os, signal, threading, time\n"
        "run = halving.init('p', id='r', system_metrics=None)\n"
        "def storm():\n"
        "    time.sleep(0.2)\n"
        "    for _ in range(5): os.kill(os.getpid(), signal.SIGTERM)\n"
        "threading.Thread(target=storm, daemon=True).start()\n"
        "step = 0\n"
        "while True:\n"
        "    run.log({f'k{step % 50}': step}, step=step); run.flush(0.01); step += 1\n"
    )
    assert done.returncode == -signal.SIGTERM, done.stderr
    assert store.exists("runs/project=p/r/end-0001.json")
    steps = [step for _, step, _ in points(store)]
    assert sorted(steps) == list(range(len(steps)))


def test_a_bell_rung_within_its_own_ringing_wakes_and_does_not_hang(store: Store) -> None:
    writer = MetricWriter(store, "p", "r", 1, delay=3600)
    rings = []

    def ring(*_: object) -> None:
        rings.append(writer.flush(5))
        signal.setitimer(signal.ITIMER_REAL, 0.001)

    before = signal.signal(signal.SIGALRM, ring)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.001)
        for step in range(300):
            writer.append({"a": 1.0}, step, 0)
            assert writer.flush(5)
    finally:
        signal.signal(signal.SIGALRM, signal.SIG_IGN)  # one that is on its way sets the timer no more
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert rings
    assert writer.close()
    writer.release()


@pytest.mark.slow
def test_dead_children_cost_the_parent_neither_files_nor_descriptors(script: Script, store: Store) -> None:
    done = script(
        "import halving, os, resource\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (60, 60))\n"
        "run = halving.init('p', id='r', system_metrics=None)\n"
        "for i in range(100):\n"
        "    child = os.fork()\n"
        "    if child == 0:\n"
        "        run.log({'child': i}, step=i); os._exit(0)\n"
        "    os.waitpid(child, 0)\n"
        "    if i % 10 == 9:\n"
        "        run.log({'parent': i}, step=i); assert run.flush(30)\n"
        "print(len([name for name in os.listdir(run._writer.folder) if not name.startswith('main')]))\n"
        "run.finish()\n"
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) <= 2  # the lock; and the newest child's
    assert points(store) == [("child", step, float(step)) for step in range(100)] + [
        ("parent", step, float(step)) for step in range(9, 100, 10)
    ]


def test_a_child_killed_while_it_made_its_file_does_not_stop_the_drain(store: Store) -> None:
    writer = MetricWriter(store, "p", "r", 1, delay=3600)
    (writer.folder / "12345-000000.journal").touch()
    writer.append({"a": 1.0}, 1, 0)
    assert writer.flush(10)
    assert writer.close()
    writer.release()
    assert points(store) == [("a", 1, 1.0)]


@pytest.mark.slow
def test_a_child_that_logs_on_while_its_parent_finishes_loses_nothing(script: Script, store: Store) -> None:
    done = script(
        "import halving, os, time\n"
        "run = halving.init('p', id='r', system_metrics=None)\n"
        "run.log({'parent': 0}, step=0)\n"
        "real, (read, write) = run.records.end, os.pipe()\n"
        "if os.fork() == 0:\n"
        "    run.log({'child': 0}, step=0)\n"
        "    os.read(read, 1)\n"
        "    run.log({'child': 1}, step=1)\n"
        "    os._exit(0)\n"
        # the child logs after the last drain, and is gone before the journal is removed
        "def end(*arguments):\n"
        "    os.write(write, b'x'); os.wait(); real(*arguments)\n"
        "run.records.end = end\n"
        "run.finish()\n"
    )
    assert done.returncode == 0, done.stderr
    recover(store)
    assert points(store) == [("child", 0, 0.0), ("child", 1, 1.0), ("parent", 0, 0.0)]


def test_dicts_that_make_up_values_are_read_as_they_are(store: Store) -> None:
    with start(store) as run:
        run.log({"train/loss": 1.0, "train/acc": 0.5}, step=1)
        sparse: defaultdict[str, float] = defaultdict(float, {"val/loss": 0.9})
        run.log(sparse, step=2)
        run.log(defaultdict(float, {"a": 1.0, "b": 2.0}), step=3)
        assert dict(sparse) == {"val/loss": 0.9}
    assert points(store) == [
        ("a", 3, 1.0),
        ("b", 3, 2.0),
        ("train/acc", 1, 0.5),
        ("train/loss", 1, 1.0),
        ("val/loss", 2, 0.9),
    ]


class Broken:
    """An object of which every attribute raises."""

    def __repr__(self) -> str:
        raise RuntimeError("not materialised")

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("not materialised")


def test_nothing_that_is_logged_raises_into_training(store: Store) -> None:
    run = start(store)
    with pytest.warns(UserWarning, match="halving: "):
        run.log({"fine": 1.0, "odd": Broken()}, step=1)
        run.log(Broken(), step=2)  # type: ignore[arg-type]
    with pytest.warns(UserWarning, match="were not accepted"):
        run.finish()


def test_a_wrong_value_is_never_written_out_for_a_message(store: Store) -> None:
    class Large(list[float]):
        def __repr__(self) -> str:
            raise AssertionError(
                "the repr of a long list takes a while, and that of a device tensor waits for the device"
            )

    run = start(store)
    with pytest.warns(UserWarning, match="metric 'a' = a .*Large is not accepted"):
        run.log({"a": Large([0.5])}, step=1)
    with pytest.warns(UserWarning, match="1 values"):
        run.finish()


def test_artifacts_of_many_threads_keep_their_own_content(store: Store) -> None:
    from halving import Text

    with start(store) as run:
        threads = [
            threading.Thread(
                target=lambda n=n: [run.log({f"t{n}": Text(f"{n}.{i}")}, step=i) for i in range(50)]
            )
            for n in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    folder = "runs/project=p/r/media"
    rows = [json.loads(store.read(f"{folder}/{name}")) for name in store.names(folder)]
    assert len(rows) == 200
    assert all(store.get_blob(row["digest"]).decode() == f"{row['key'][1:]}.{row['step']}" for row in rows)


def test_artifacts_are_bounded_too_while_the_store_is_unreachable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "store").write_text("not a folder")
    monkeypatch.setenv("HALVING_JOURNAL", str(tmp_path / "journals"))
    with pytest.warns(UserWarning, match="halving: "):
        writer = MetricWriter(
            Store(tmp_path / "store"), "p", "r", 1, delay=3600, max_bytes=1 << 20, log_segment_bytes=SMALL
        )
        for step in range(50):
            writer.append_artifact("a", bytes(100_000), ".bin", {}, step, 0)
        used = sum(path.stat().st_size for path in writer.folder.iterdir())
        assert used < 2 << 20
        assert writer.dropped == 40
        os.unlink(tmp_path / "store")  # noqa: PTH108
        assert writer.flush(30)
        assert writer.close()
        writer.release()


def test_a_value_that_a_device_cannot_give_holds_up_nothing_else(store: Store) -> None:
    class Gone:
        def fetch(self) -> list[float]:
            raise TypeError("complex")

    writer = MetricWriter(store, "p", "r", 1, delay=3600)
    writer._device.append((("lost",), Gone(), 1, 0))
    writer.append({"a": 1.0}, 1, 0)
    with pytest.warns(UserWarning, match="are dropped and counted"):
        assert writer.flush(10)
        assert writer.close()
    writer.release()
    assert (points(store), writer.dropped) == ([("a", 1, 1.0)], 1)
