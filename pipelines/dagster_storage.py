"""Dagster's own files: opening an instance, running Dagster's command line on it, and checking its schema.

Dagster makes the tables of its SQLite files when an instance is opened for the first time. Two processes that
do so at once fail, and may leave a file with two revisions of the schema, which no process can open any more.
So all processes that open an instance here take turns.
"""

import fcntl
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import dagster as dg
from sqlalchemy import MetaData, create_engine, inspect

from halving.doctor.checks import ERROR, Finding
from halving.machine.locks import lockable

_LOCK = "halving.lock"
_MIGRATIONS = Path(dg.__file__).parent / "_core" / "storage" / "alembic"


@contextmanager
def open_instance(home: Path) -> Iterator[dg.DagsterInstance]:
    """Open the Dagster instance of a folder (``DAGSTER_HOME``), which exists.

    Only one process opens it at a time; the others wait.

    Raises:
        DagsterError: the folder's ``dagster.yaml`` is not accepted.
        OSError: the folder cannot be written.
    """
    with _lock(home):
        instance = dg.DagsterInstance.from_config(str(home))
    with instance:
        yield instance


def check_storage(home: Path) -> Iterator[Finding]:
    """Check that each of Dagster's SQLite files has only one revision of its schema, if it exists."""
    from alembic.script import ScriptDirectory

    newest = ScriptDirectory(str(_MIGRATIONS)).get_current_head()
    for name, schema in _schemas().items():
        file = home / name
        revisions = _revisions(file)
        if len(revisions) < 2:
            continue
        problem = (
            f"{file} has {len(revisions)} revisions of Dagster's schema at once, "
            f"{' and '.join(revisions)}: two processes have made it"
        )
        means = "Dagster does not open it: no sweep of this store runs"
        if newest in revisions and _is_whole(file, schema):
            mend = f"sqlite3 {file} \"DELETE FROM alembic_version WHERE version_num <> '{newest}'\""
            yield Finding(ERROR, problem, means, mend, partial(_keep_revision, home, file, newest))
        else:
            folder = home / Path(name).parts[0]
            mend = (
                f"mv {folder} {folder}.broken, while no sweep and nothing of Dagster runs; sweeps and "
                "models are in the catalog"
            )
            yield Finding(ERROR, problem, means, mend)


@contextmanager
def _lock(home: Path) -> Iterator[None]:
    with lockable(home / _LOCK) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _revisions(file: Path) -> list[str]:
    """The revisions in a file; none where it does not exist or is no database, which opening it reports."""
    if not file.exists():
        return []
    try:
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=rw", uri=True)) as connection:
            rows = connection.execute("SELECT version_num FROM alembic_version ORDER BY version_num")
            return [revision for (revision,) in rows]
    except sqlite3.DatabaseError:
        return []


def _schemas() -> dict[str, MetaData]:
    """The schemas of Dagster's SQLite files, by their names below its folder."""
    # Dagster's schemas import Alembic, which the code location, and so each step's process, does not need.
    from dagster._core.storage.event_log.schema import SqlEventLogStorageMetadata
    from dagster._core.storage.runs.schema import RunStorageSqlMetadata
    from dagster._core.storage.schedules.schema import ScheduleStorageSqlMetadata

    return {
        "history/runs.db": RunStorageSqlMetadata,
        "history/runs/index.db": SqlEventLogStorageMetadata,
        "schedules/schedules.db": ScheduleStorageSqlMetadata,
    }


def _is_whole(file: Path, schema: MetaData) -> bool:
    """Whether a file has all tables, columns and indexes of the newest schema.

    The process that wrote its revision had made them before.
    """
    engine = create_engine(f"sqlite:///{file}")
    try:
        inspector = inspect(engine)
        tables = set(inspector.get_table_names())
        for table in schema.sorted_tables:
            if table.name not in tables:
                return False
            columns = {column["name"] for column in inspector.get_columns(table.name)}
            indexes = {index["name"] for index in inspector.get_indexes(table.name)}
            has_columns = {column.name for column in table.columns} <= columns
            has_indexes = {index.name for index in table.indexes} <= indexes
            if not (has_columns and has_indexes):
                return False
        return True
    finally:
        engine.dispose()


def _keep_revision(home: Path, file: Path, newest: str) -> str:
    with _lock(home), closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("DELETE FROM alembic_version WHERE version_num <> ?", (newest,))
    return f"{file} has the newest revision alone, {newest}, whose tables it has"


def main() -> None:
    """Run Dagster's command line on an instance that has its tables.

    ``python -m pipelines.dagster_storage job execute …``
    """
    from dagster._cli import main as run_dagster

    with open_instance(Path(os.environ["DAGSTER_HOME"])):
        pass
    run_dagster()


if __name__ == "__main__":
    main()
