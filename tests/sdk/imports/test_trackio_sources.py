"""``halving import trackio``: databases that grow, are damaged or are none of trackio's."""

import sqlite3
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from halving import Store
from halving.cli.main import main
from halving.errors import StoreError
from halving.imports import sqlite_file
from halving.imports.copying import copy_run
from halving.imports.foreign_run import ForeignRun, Skipped
from halving.imports.trackio import read_runs
from tests.permissions import deny_access
from tests.sdk.imports.copies import media, outcomes, run_import, small_disk
from tests.sdk.imports.trackio_files import STARTED, Database, at, values
from tests.sdk.imports.wandb_files import documents


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path / "store")


@pytest.fixture
def top(tmp_path: Path) -> Path:
    return tmp_path / "trackio"


def test_a_grown_run_gets_an_attempt_with_what_is_new(
    top: Path, root: str, capsys: pytest.CaptureFixture[str]
) -> None:
    database = (
        Database(top / "digits.db")
        .log("a", 0, {"loss": 1})
        .log_system("a", 1, {"cpu": 2})
        .log("b", 0, {"loss": 9})
    )
    run_import(capsys, "trackio", top, root)
    database.log("a", 1, {"loss": 0.5}).log("a", 0, {"loss": 0.75}).log_system("a", 2, {"cpu": 3})
    report = run_import(capsys, "trackio", top, root)
    assert outcomes(report) == {"digits/a": ("continued", 3, 0, 0), "digits/b": ("unchanged", 0, 0, 0)}
    assert sorted(
        value for key, step, value in values(root) if key == "loss" and step == 0 and value != 9
    ) == [0.75, 1.0]
    assert [value for key, _, value in values(root) if key == "system/cpu"] == [2.0, 3.0]
    database.do("delete from metrics").do("delete from system_metrics")
    assert run_import(capsys, "trackio", top, root)["runs"] == []
    assert len(list(Path(root).glob("runs/*/*/record.json"))) == 2


def test_a_run_that_has_logged_just_now_goes_on(
    top: Path, root: str, capsys: pytest.CaptureFixture[str]
) -> None:
    begun = time.time() - STARTED
    database = (
        Database(top / "digits.db")
        .log("now", 0, {"loss": 1}, time=at(begun))
        .log("then", 0, {"loss": 1}, time=at(begun - 3600))
    )
    database.log_system("beginning", begun, {"cpu": 1})
    database.log_system("never began", begun - 3600, {"cpu": 1})
    report = run_import(capsys, "trackio", top, root)
    assert report["not_taken"] == {"runs that have not logged a metric yet": 1}
    ended = {
        row["name"]: len(documents(Store(root), "digits", row["run"], "end-*.json")) for row in report["runs"]
    }
    assert ended == {"digits/now": 0, "digits/then": 1, "digits/never began": 1}
    database.log("now", 1, {"loss": 0.5}, time=at(begun)).log("beginning", 0, {"loss": 1}, time=at(begun))
    report = run_import(capsys, "trackio", top, root)
    assert {name: row[:2] for name, row in outcomes(report).items()} == {
        "digits/now": ("continued", 1),
        "digits/then": ("unchanged", 0),
        "digits/never began": ("unchanged", 0),
        "digits/beginning": ("new", 2),
    }


def test_a_database_that_is_written_meanwhile_is_read_as_far_as_it_goes(
    top: Path, root: str, capsys: pytest.CaptureFixture[str]
) -> None:
    database = Database(top / "digits.db").do("pragma journal_mode = wal").log("a", 0, {"loss": 1})
    with closing(sqlite3.connect(database.path)) as writer:
        writer.execute(
            "insert into metrics (run_id, timestamp, run_name, step, metrics) select run_id, timestamp, "
            "run_name, 1, metrics from metrics"
        )
        writer.commit()  # into the journal
        writer.execute("update metrics set step = step + 10")
        assert outcomes(run_import(capsys, "trackio", top, root)) == {"digits/a": ("new", 2, 0, 0)}
        writer.commit()  # nobody holds it back
    assert values(root) == [("loss", 0, 1.0), ("loss", 1, 1.0)]


def test_a_reader_lets_writers_write_between_its_parts(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_file, "_ROWS", 2)
    database = Database(top / "digits.db")
    for step in range(5):
        database.log("a", step, {"loss": step}).log("b", step, {"loss": -step})
    steps = []
    for _, step in sqlite_file.SqliteFile(database.path, "trackio's").after(
        "metrics", "step", "run_name = ?", "a", 2, 9
    ):
        database.log("a", 100 + step, {"loss": 0})  # which waits for nobody
        steps.append(step)
    assert steps == [1, 2, 3, 4]


def test_a_folder_that_may_not_be_written_is_read(
    top: Path, root: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Database(top / "digits.db").do("pragma journal_mode = wal").log("a", 0, {"loss": 1})
    assert [path.name for path in top.iterdir()] == ["digits.db"]
    top.chmod(0o500)
    try:
        with deny_access(_other(top)):
            assert outcomes(run_import(capsys, "trackio", top, root)) == {"digits/a": ("new", 1, 0, 0)}
        assert [path.name for path in top.iterdir()] == ["digits.db"]
    finally:
        top.chmod(0o700)


def _other(top: Path) -> Path:
    path = top.parent / "other"
    path.mkdir()
    return path


def test_a_step_that_is_no_whole_number_and_rows_that_are_not_json_are_counted(
    top: Path, root: str, capsys: pytest.CaptureFixture[str]
) -> None:
    database = (
        Database(top / "digits.db")
        .log("a", 0.5, {"loss": 1, "acc": 2})
        .log("a", 1, b"{")
        .log("a", 2, b"\xff")
        .log("a", 3, [1])
    )
    database.log("a", 4, b"[" * 100_000).log("a", "x", {"loss": 1}).log("a", 5, {"loss": 1}).configure(
        "a", b"{"
    )
    database.configure("nobody", {})
    report = run_import(capsys, "trackio", top, root)
    assert values(root) == [("loss", 5, 1.0)]
    assert report["not_taken"] == {
        "values with a step that is no whole number": 3,
        "rows that are not JSON": 4,
        "configs that are not JSON": 1,
        "configs of runs that have logged nothing": 1,
    }


def test_what_trackio_keeps_beside_runs_is_counted(
    top: Path, root: str, capsys: pytest.CaptureFixture[str]
) -> None:
    database = Database(top / "digits.db").log("a", 0, {"loss": 1})
    for table, count in (("alerts", 1), ("traces", 2), ("artifact_versions", 3)):
        database.do(f"create table {table} (id integer primary key)")
        for _ in range(count):
            database.do(f"insert into {table} default values")
    for name in ("media/digits/files/deep/a.txt", "media/digits/files/b.txt", "inbox/writer/00000000.jsonl"):
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text("")
    with closing(sqlite3.connect(top / "other.db")) as other:
        other.execute("create table things (id)")
    report = run_import(capsys, "trackio", top, root)
    assert report["not_taken"] == {
        "alerts": 1,
        "traces": 2,
        "versions of artifacts": 3,
        "files of a project, which trackio keeps with no run": 2,
        "files in trackio's inbox, which its dashboard puts into a database: open it, and import again": 1,
        "databases without a table metrics, such as other.db": 1,
    }


OLD = (
    "create table metrics (id integer primary key, timestamp text, project_name text, run_name text, step "
    "integer, metrics text)"
)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("nothing", "give trackio's folder or one of its databases (PROJECT.db)"),
        ("an empty folder", "give trackio's folder or one of its databases (PROJECT.db)"),
        ("what file managers leave", "give trackio's folder or one of its databases (PROJECT.db)"),
        ("a text", "is not a database of trackio's that can be read"),
        ("another database", "it has no table metrics"),
        ("an empty file", "it has no table metrics"),
        ("one database of all projects", "kept all projects in one database (project_name)"),
    ],
)
def test_a_source_without_runs_of_trackio_is_refused(
    tmp_path: Path, root: str, content: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "trackio.db"
    if content in ("an empty folder", "what file managers leave"):
        source.mkdir()
    if content == "what file managers leave":
        (source / "._digits.db").write_bytes(b"\x00\x05\x16\x07")
    if content in ("a text", "an empty file"):
        source.write_text("no database" * 100 if content == "a text" else "")
    if content in ("another database", "one database of all projects"):
        with closing(sqlite3.connect(source)) as connection:
            connection.execute(OLD if "projects" in content else "create table things (id)")
    assert main(["import", "trackio", str(source), "--root", root]) == 1
    assert said in " ".join(capsys.readouterr().err.split())
    assert not Path(root).joinpath("runs").exists()


def test_a_database_that_cannot_be_read_keeps_no_other_from_being_taken(
    top: Path, root: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Database(top / "digits.db").log("a", 0, {"loss": 1})
    (top / "broken.db").write_text("no database" * 100)
    with closing(sqlite3.connect(top / "trackio.db")) as connection:
        connection.execute(OLD)
    report = run_import(capsys, "trackio", top, root, status=1)
    assert outcomes(report) == {
        "broken": ("failed", 0, 0, 0),
        "digits/a": ("new", 1, 0, 0),
        "trackio": ("failed", 0, 0, 0),
    }


@pytest.mark.parametrize("stopped", range(10))
def test_an_import_that_is_stopped_at_any_write_goes_on_and_takes_nothing_twice(
    top: Path, store: Store, root: str, monkeypatch: pytest.MonkeyPatch, stopped: int
) -> None:
    database = Database(top / "digits.db").configure("a", {"lr": 1})
    for step in range(4):
        database.log("a", step, {"loss": step, "note": f"step {step}"}).log_system("a", step, {"cpu": step})
    monkeypatch.setattr("halving.imports.foreign_run.PIECE_POINTS", 2)
    taken = Counter[str]()
    (run,) = read_runs(str(top), None, Skipped())
    assert isinstance(run, ForeignRun)
    with small_disk(stopped), pytest.raises(StoreError, match="the disk is full"):
        copy_run(store, run, Skipped(), taken)
    copy_run(store, run, Skipped(), taken)
    assert values(root) == [(key, step, float(step)) for key in ("loss", "system/cpu") for step in range(4)]
    assert (taken["points"], len({row[:2] for row in media(root)})) == (8, 4)
