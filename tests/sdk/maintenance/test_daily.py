"""Retention starts by itself once a day where a run ends, in one process, and never does harm."""

import io
import logging
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import date, timedelta
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from halving import Run, Store
from halving.maintenance import daily
from halving.maintenance.daily import begin_daily, claim
from halving.trial.context import ObjectiveRule, TrialContext

FIRST = date(2026, 3, 4)
Begun = list[Path]


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> Begun:
    """The folders of the stores for which a process was begun; none is started."""
    folders: Begun = []

    class Process:
        def poll(self) -> int:
            return 0

    monkeypatch.setattr(daily, "_start", lambda folder, day: (folders.append(folder), Process())[1])
    return folders


def test_one_of_many_processes_has_a_day_and_the_first_one_is_nobodys(tmp_path: Path) -> None:
    for days, expected in ((0, 0), (1, 1), (2, 1), (0, 1)):  # at last a clock that was ahead is right again
        with ThreadPoolExecutor(8) as pool:
            taken = list(pool.map(lambda _: claim(tmp_path, FIRST + timedelta(days=days)), range(32)))  # noqa: B023
        assert sum(taken) == expected
        names = os.listdir(tmp_path / "retention/begun")
        assert [name.removesuffix(".ended") for name in names] == [str(FIRST + timedelta(days=days))]


def make_old(store: Store) -> None:
    """Have it that an hour has gone by since the store's marks were left."""
    for mark in Path(store.root, "retention/begun").iterdir():
        os.utime(mark, (time.time() - 3601, time.time() - 3601))


def test_an_hour_after_a_process_was_lost_one_begins_another_but_not_on_day_one(
    store: Store, begun: Begun
) -> None:
    begin_daily(store, FIRST)
    make_old(store)
    begin_daily(store, FIRST)
    assert begun == []
    second = FIRST + timedelta(days=1)
    for expected in (1, 2, 3):
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda _: begin_daily(store, second), range(32)))
        assert len(begun) == expected
        make_old(store)
    begin_daily(store, FIRST + timedelta(days=2))
    assert os.listdir(Path(store.root, "retention/begun")) == [str(FIRST + timedelta(days=2))]


@pytest.mark.slow
def test_a_day_is_over_only_when_a_process_has_ended_well(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin_daily(store, FIRST)
    second = FIRST + timedelta(days=1)
    main = daily._MAIN
    with monkeypatch.context() as broken:
        broken.setattr("sys.executable", store.address("no-python"))
        assert begin_daily(store, second) is None
    make_old(store)
    monkeypatch.setattr(daily, "_MAIN", "import signal; signal.pause()")
    running = begin_daily(store, second)
    assert running is not None
    make_old(store)
    assert begin_daily(store, second) is None  # it still runs, as this process knows
    running.kill()
    running.wait()
    store.create("retention.yaml", b"automatic: perhaps")
    monkeypatch.setattr(daily, "_MAIN", main)
    failing = begin_daily(store, second)
    assert failing is not None
    assert failing.wait() == 1
    store.replace("retention.yaml", b"automatic: true")
    assert begin_daily(store, second) is None
    make_old(store)
    done = begin_daily(store, second)
    assert done is not None
    assert done.wait() == 0, store.read(daily.LOG)
    make_old(store)
    assert begin_daily(store, second) is None


def test_the_end_of_a_run_begins_it_once_a_day_and_the_end_of_a_trial_does_not(
    store: Store, begun: Begun
) -> None:
    begin_daily(store, FIRST)
    about: dict[str, Any] = {
        "project": "p",
        "params": {},
        "seed": 1,
        "captured": {"git": None},
        "system_metrics": None,
    }
    data: dict[str, Any] = {"dataset_name": "d", "dataset_digest": f"sha256:{'0' * 64}"}
    task: dict[str, Any] = {
        "root": store.root,
        "project": "p",
        "run": "s.0000",
        "attempt": 1,
        "params": {},
        "seed": 1,
        "max_epochs": 9,
    }
    trial = TrialContext(
        **task, **data, objectives=(ObjectiveRule("score"),), parent={"sweep": "s"}, provenance={"git": None}
    )
    Run(store, run_id=trial.run, **{**about, "trial": trial}).finish()
    assert begun == []
    for run in ("a", "b"):
        Run(store, run_id=run, **about).finish()
    assert begun == [store.folder]


@pytest.mark.parametrize("closed", [True, False])
def test_a_run_ends_without_a_standard_error_and_the_log_says_what_was_begun(
    store: Store,
    begun: Begun,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    closed: bool,
) -> None:
    begin_daily(store, FIRST)
    stream = io.StringIO()
    stream.close()
    run = Run(store, run_id="a", project="p", params={}, seed=1, captured={"git": None}, system_metrics=None)
    caplog.set_level(logging.INFO, "halving.maintenance.daily")
    monkeypatch.setattr("sys.stderr", stream if closed else None)
    run.finish()
    assert begun == [store.folder]
    assert caplog.messages == [daily.begun_line(store)]


@pytest.mark.slow
def test_an_ended_process_is_waited_for_at_the_next_look_though_none_begins(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daily, "_MAIN", "")
    begin_daily(store, FIRST)
    process = begin_daily(store, FIRST + timedelta(days=1))
    assert process is not None
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert process.returncode is None
    assert begin_daily(store, FIRST + timedelta(days=1)) is None
    assert process.returncode == 0


def test_where_only_the_sdk_is_installed_nothing_is_begun_and_no_day_taken(
    store: Store, begun: Begun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "importlib.metadata.entry_points", lambda group: [EntryPoint("other", "other:add_commands", group)]
    )
    begin_daily(store, FIRST)
    begin_daily(store, FIRST + timedelta(days=1))
    assert begun == []
    assert not store.exists("retention/begun")
    assert store.names("retention") == []


def test_an_object_store_and_one_that_cannot_be_written_hold_nothing_up(begun: Begun, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert begin_daily(Store("s3://bucket/store?region=us-east-1"), FIRST) is None
    assert begin_daily(Store(tmp_path / "file"), FIRST) is None
    assert begun == []


@pytest.mark.slow
def test_the_process_has_lowest_priority_its_own_session_and_no_script_module(
    store: Store, script: Callable[..., Any]
) -> None:
    claim(Path(store.root), FIRST)
    Path("calendar.py").write_text("raise SystemError('a module of the script')")
    main = "import os; os.nice(19); import calendar; print(os.nice(0), os.getsid(0) == os.getpid())"
    done = script(
        "import sys\n"
        "sys.path.pop(0)\n"
        "import halving\n"
        "from halving.maintenance import daily\n"
        f"daily._MAIN = {main!r}\n"
        "halving.init('p', system_metrics=None).finish()\n"
        "print(next(iter(daily._processes.values())).wait())\n"
    )
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr
    assert store.read(daily.LOG) == b"19 True\n"
