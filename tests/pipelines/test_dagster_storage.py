"""Dagster's files when several processes open them first, and doctor's repair of broken ones."""

import fcntl
import os
import sqlite3
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from alembic.util.exc import CommandError

from commands.doctor import check_daemon
from commands.launch import _first_failure
from halving.doctor.checks import ERROR, Check, examine
from halving.machine.locks import lockable
from pipelines.dagster_storage import check_storage, open_instance
from resources.backend import Backend
from tests.backends import CHECKOUT
from tests.commands.shell import Shell
from tests.waiting import wait_for

FILES = ("history/runs.db", "history/runs/index.db", "schedules/schedules.db")
OPEN = """
import sys
from pathlib import Path
from pipelines.dagster_storage import open_instance
print("ready", flush=True)
sys.stdin.readline()
with open_instance(Path(sys.argv[1])) as instance:
    instance.get_runs()
    instance.all_instigator_state()
"""
EARLIER = "5771160a95ad"  # the revision that Dagster writes where it finds tables that have none yet


def revisions(file: Path) -> list[str]:
    with closing(sqlite3.connect(file)) as connection:
        return [revision for (revision,) in connection.execute("SELECT version_num FROM alembic_version")]


def change(file: Path, statement: str) -> None:
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute(statement)


def opened_by_others(file: Path) -> list[str]:
    """The ids of other processes that have a file open."""
    ids = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if folder.name != str(os.getpid()) and any(
                link.readlink() == file for link in (folder / "fd").iterdir()
            ):
                ids.append(folder.name)
    return ids


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Of an instance whose runs have two revisions, as two processes leave it that made it at once."""
    home = tmp_path / "dagster"
    home.mkdir()
    (home / "dagster.yaml").write_text("telemetry: {enabled: false}")
    with open_instance(home):
        pass
    change(home / FILES[0], f"INSERT INTO alembic_version VALUES ('{EARLIER}')")
    return home


@pytest.mark.slow
@pytest.mark.parametrize("again", range(3))
def test_processes_that_open_a_new_instance_at_once_wait_for_each_other(tmp_path: Path, again: int) -> None:
    command = [sys.executable, "-c", OPEN, str(tmp_path)]
    options: Any = {"cwd": CHECKOUT, "env": {**os.environ, "DAGSTER_DISABLE_TELEMETRY": "1"}, "text": True}
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    processes = [subprocess.Popen(command, **options, **pipes) for _ in range(3)]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    said = [process.communicate()[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0], said
    assert [len(revisions(tmp_path / file)) for file in FILES] == [1, 1, 1]


@pytest.mark.slow
def test_two_first_sweeps_at_once_both_run(tmp_path: Path, small: Any) -> None:
    shell = Shell(tmp_path)
    home = tmp_path / "dagster"
    lock = home / "halving.lock"
    started = []
    with lockable(lock) as mine:
        fcntl.flock(mine, fcntl.LOCK_EX)
        for name in ("one", "two"):
            path = tmp_path / f"{name}.yaml"
            path.write_text(yaml.safe_dump(small(name=name, max_trials=1, concurrency=1)))
            started.append(shell.start("sweep", str(path)))
        wait_for(
            lambda: (
                len(opened_by_others(lock)) == 2 or any(process.poll() is not None for process in started)
            ),
            300,
            "both wait",
        )
        assert [process.poll() for process in started] == [None, None]
        assert not any((home / file).exists() for file in FILES)
    said = [process.communicate() for process in started]
    assert [process.returncode for process in started] == [0, 0], said
    assert [len(revisions(home / file)) for file in FILES] == [1, 1, 1]


def test_a_file_with_two_revisions_is_named_and_repaired(home: Path, backend: Backend) -> None:
    with pytest.raises(CommandError, match="more than one head"), open_instance(home):
        pass
    assert "halving doctor says more" in _first_failure(home, "any")
    (problem,) = check_daemon(home, backend.catalog)
    assert (problem.level, "2 revisions" in problem.what, "DELETE FROM alembic_version" in problem.mend) == (
        ERROR,
        True,
        True,
    )
    repaired, after = examine([Check("dagster", lambda: check_daemon(home, backend.catalog))], repair=True)
    assert "the newest revision alone" in repaired[1].repaired
    assert "has never run" in after[1].what
    with open_instance(home) as instance:
        assert not instance.get_runs()
    assert len(revisions(home / FILES[0])) == 1


@pytest.mark.parametrize(
    "lost",
    ["DROP TABLE run_tags", "DROP INDEX idx_run_partitions", "ALTER TABLE runs DROP end_time", "newest"],
)
def test_a_file_without_the_newest_schema_is_not_repaired_but_to_be_moved_away(home: Path, lost: str) -> None:
    change(
        home / FILES[0],
        f"UPDATE alembic_version SET version_num = 'x' WHERE version_num <> '{EARLIER}'"
        if lost == "newest"
        else lost,
    )
    (problem,) = check_storage(home)
    assert (problem.level, problem.repair) == (ERROR, None)
    assert f"mv {home / 'history'} {home / 'history.broken'}" in problem.mend
    (home / "history").rename(home / "history.broken")
    with open_instance(home) as instance:
        assert not instance.get_runs()
    assert not list(check_storage(home))
