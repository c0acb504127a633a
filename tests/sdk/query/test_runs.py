"""What the store tells of its runs: how each stands, and which one a person means."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import halving
from halving import InvalidInput, NotFound, Store, StoreError
from halving.ingest.recovery import recover
from halving.query.curve_stats import read_extremes
from halving.query.runs import RunInfo, find_run, list_runs, read_run
from halving.store.json_files import now
from tests.waiting import wait_for

ENDLESS = """
import halving, time
run = halving.init("p", {}, id="live", system_metrics=None)
run._writer._delay = 3600
run.log({"loss": 1.0}, step=0)
assert run.flush(30)
run.log({"loss": 0.5}, step=1)
print("ready", flush=True)
time.sleep(600)
"""

Start = Callable[[], "subprocess.Popen[str]"]


@pytest.fixture
def store(any_store: Store) -> Store:
    """Everything here holds for every kind of store."""
    return any_store


@pytest.fixture
def trainer(store: Store) -> Iterator[Start]:
    """Start a process that trains the run ``p/live`` until it is killed."""
    started: list[subprocess.Popen[str]] = []

    def start() -> "subprocess.Popen[str]":
        environment = {**os.environ, "HALVING_ROOT": store.root}
        process = subprocess.Popen(
            [sys.executable, "-c", ENDLESS], env=environment, stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def new_run(store: Store, run: str, project: str = "p", status: str = "finished", **values: float) -> None:
    opened = halving.init(project, {"lr": 0.1}, store.root, id=run, system_metrics=None)
    opened.log(values or {"loss": 1.0}, step=0)
    opened.finish(status)


def let_a_millisecond_pass() -> None:
    """Until what is recorded next has a later time."""
    before = now()
    wait_for(lambda: now() > before, 30, "a later time", every=0.001)


def only(store: Store) -> RunInfo:
    (info,) = list_runs(store)
    return info


def test_a_run_has_the_status_that_its_newest_attempt_ended_with_and_the_time_of_all(store: Store) -> None:
    new_run(store, "r", status="paused", loss=2.0, first=7.0)
    let_a_millisecond_pass()
    new_run(store, "r", loss=1.0)
    info = only(store)
    assert (info.status, [attempt.status for attempt in info.attempts]) == (
        "finished",
        ["paused", "finished"],
    )
    assert info.seconds is not None
    assert info.seconds == sum(attempt.seconds or 0.0 for attempt in info.attempts)
    assert info.started == info.attempts[0].started < info.attempts[1].started
    assert (info.summary, info.summarized) == ({"loss": 1.0, "first": 7.0}, True)


@pytest.mark.slow
def test_a_run_is_running_then_unfinished_after_a_kill_then_crashed_once_recovered(
    store: Store, trainer: Start
) -> None:
    process = trainer()
    assert only(store).status == "running"
    process.kill()
    process.wait()
    assert (only(store).status, only(store).summarized) == ("unfinished", False)
    assert [attempt.state for attempt in recover(store)] == ["recovered"]
    assert only(store).status == "crashed"


@pytest.mark.slow
def test_what_only_a_killed_attempt_has_logged_is_found_after_a_later_one_has_ended(
    store: Store, trainer: Start
) -> None:
    process = trainer()
    process.kill()
    process.wait()
    recover(store)
    with halving.init("p", {}, store.root, id="live", system_metrics=None) as run:
        run.log({"accuracy": 0.9}, step=2)
    assert {key: extremes.last for key, extremes in read_extremes(store, only(store)).items()} == {
        "accuracy": 0.9,
        "loss": 0.5,
    }


@pytest.mark.slow
def test_reading_a_runs_status_takes_its_lock_from_no_process(store: Store, trainer: Start) -> None:
    trainer()
    own = halving.init("p", {}, store.root, id="own", system_metrics=None)
    for _ in range(3):
        assert [info.status for info in list_runs(store)] == ["running", "running"]
    script = (
        "import sys; from halving import Store; from halving.ingest.recovery import recover\n"
        "print([r.state for r in recover(Store(sys.argv[1]))])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, store.root], capture_output=True, text=True, check=True
    )
    assert done.stdout == "['live', 'live']\n"
    own.finish()


@pytest.mark.slow
@pytest.mark.folder
def test_on_another_machine_a_run_is_running_while_it_writes_files(
    store: Store, trainer: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer()
    monkeypatch.setenv("HALVING_JOURNAL", str(tmp_path / "journals of another machine"))
    assert only(store).status == "running"
    old = time.time() - 3600
    (record,) = Path(store.root).glob("runs/project=p/live/record.json")
    (segment,) = Path(store.root).glob("metrics/project=p/run=live/live/*.parquet")
    started = only(store).started
    record.write_text(record.read_text().replace(started, "2020-01-01T00:00:00.000+00:00"))
    assert only(store).status == "running"
    os.utime(segment, (old, old))
    assert only(store).status == "unfinished"
    # the other machine's clock is wrong
    record.write_text(record.read_text().replace("2020-01-01", "2999-01-01"))
    assert only(store).status == "unfinished"
    record.write_text(record.read_text().replace("2999-01-01", "2020-01-01"))
    assert only(store).seconds == pytest.approx(old - 1577836800, abs=1)


def test_a_run_is_found_by_its_id_a_unique_beginning_or_behind_its_project(store: Store) -> None:
    for project, run in (("p", "alpha-1"), ("p", "alpha-10"), ("p", "beta"), ("q", "beta"), ("q", "gamma")):
        new_run(store, run, project)
    assert find_run(store, "gamma") == find_run(store, "g") == find_run(store, "q/g") == ("q", "gamma")
    assert find_run(store, "alpha-1") == ("p", "alpha-1")  # exactly, though it begins another
    assert find_run(store, "q/beta") == ("q", "beta")
    with pytest.raises(
        InvalidInput, match=r"'beta' is ambiguous: .* 2 runs \(p/beta, q/beta\); give project/run"
    ):
        find_run(store, "beta")
    with pytest.raises(
        InvalidInput, match=r"'al' is ambiguous: .*p/alpha-1, p/alpha-10.*give more of the id"
    ):
        find_run(store, "al")
    with pytest.raises(NotFound, match=r"no run 'gamna' in .*; close to it: gamma"):
        find_run(store, "gamna")
    with pytest.raises(NotFound, match="there are 4 runs: alpha-1, alpha-10, beta, gamma"):
        find_run(store, "zzzz")
    with pytest.raises(NotFound, match=r"no project 'r' in .*; there are 2 projects: p, q"):
        find_run(store, "r/beta")
    with pytest.raises(NotFound, match="no run ''"):
        find_run(store, "")


@pytest.mark.folder
def test_runs_are_listed_newest_first_without_what_never_started(store: Store) -> None:
    for run in ("b", "a", "c"):
        new_run(store, run)
        let_a_millisecond_pass()
    Path(store.root, "runs", "project=p", "killed-at-once").mkdir()
    assert [info.run for info in list_runs(store)] == ["c", "a", "b"]
    with pytest.raises(NotFound, match="no run 'killed-at-once' in project 'p'"):
        read_run(store, "p", "killed-at-once")


def test_a_damaged_record_is_named(store: Store) -> None:
    new_run(store, "r")
    path = "runs/project=p/r/end-0001.json"
    store.replace(path, b"{")
    with pytest.raises(StoreError, match=r"runs/project=p/r/end-0001.json is damaged"):
        list_runs(store)


@pytest.mark.parametrize(
    ("name", "content"),
    [("end-0001.json", b"{"), ("record.json", b""), ("record.json", b"{}"), ("record.json", b"[]")],
)
def test_a_run_that_is_damaged_does_not_keep_the_others_out_of_a_list(
    store: Store, name: str, content: bytes
) -> None:
    for run in ("r", "sound"):
        new_run(store, run)
    store.replace(f"runs/project=p/r/{name}", content)
    problems: list[str] = []
    assert [info.run for info in list_runs(store, None, problems)] == ["sound"]
    (problem,) = problems
    assert store.address("runs/project=p/r") in problem


def test_an_empty_store_has_no_runs(store: Store) -> None:
    assert list_runs(store) == []
    with pytest.raises(NotFound, match=r"there are no runs in .* yet"):
        find_run(store, "r")
