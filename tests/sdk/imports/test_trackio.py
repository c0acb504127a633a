"""``halving import trackio``: databases that trackio itself wrote, and some that are made here."""

import io
import json
import sqlite3
import struct
import time
import zlib
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from halving import Store
from halving.cli.main import main
from halving.errors import StoreError
from halving.identifiers import plain_name
from halving.imports import sqlite_file
from halving.imports.copying import copy_run
from halving.imports.foreign_run import ForeignRun, Skipped
from halving.imports.trackio import read_runs
from tests.permissions import deny_access
from tests.sdk.imports.copies import media, outcomes, points, run_import, small_disk
from tests.sdk.imports.tools import python_with, run_script
from tests.sdk.imports.trackio_files import STARTED, Database, at
from tests.sdk.imports.wandb_files import documents

KINDS = ["with ids", "without ids"]


def png() -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(b"\0\0"))
        + chunk(b"IEND", b"")
    )


def values(root: str) -> list[tuple[str, int, float]]:
    return [(key, step, value) for _, key, step, value, _ in points(root)]


def record_of(root: str) -> dict[str, Any]:
    """The only run's record."""
    (path,) = Path(root).glob("runs/*/*/record.json")
    record: dict[str, Any] = json.loads(path.read_text())
    return record


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path / "store")


@pytest.fixture
def top(tmp_path: Path) -> Path:
    return tmp_path / "trackio"


# ---- databases that are made here ----


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("source", ["the folder", "the database"])
def test_a_run_has_its_params_tags_points_and_times(
    top: Path, root: str, kind: str, source: str, capsys: pytest.CaptureFixture[str]
) -> None:
    own = {"_Username": "ada", "_Created": at(-5), "_Group": "first"}
    database = Database(top / "digits.db", kind).configure(
        "a", {"lr": 0.1, "deep": {"layers": [1, "NaN"]}, "clip": "Infinity", **own}
    )
    database.log("a", 0, {"loss": 0.5}, time=at(1)).log("a", 7, {"loss": 0.25, "acc": True}, time=at(2.5))
    database.log_system("a", 12, {"gpu": {"0": {"power": 80}}})
    report = run_import(capsys, "trackio", top if source == "the folder" else database.path, root)
    assert (outcomes(report), report["not_taken"]) == ({"digits/a": ("new", 4, 0, 0)}, {})
    assert report["taken"] == {"points": 4, "params": 3, "tags": 3}
    begun = STARTED * 1000
    run = report["runs"][0]["run"]
    assert points(root) == [
        (run, "acc", 7, 1.0, begun + 2500),
        (run, "loss", 0, 0.5, begun + 1000),
        (run, "loss", 7, 0.25, begun + 2500),
        (run, "system/gpu/0/power", 11, 80.0, begun + 12_000),
    ]
    record = record_of(root)
    assert (record["project"], record["parent"]["tags"]) == (
        "digits",
        {"name": "a", "user": "ada", "group": "first"},
    )
    assert (
        json.dumps(record["params"], sort_keys=True)
        == '{"clip": Infinity, "deep": {"layers": [1, NaN]}, "lr": 0.1}'
    )
    (end,) = documents(Store(root), "digits", run, "end-*.json")
    assert (record["started"], end["status"]) == ("2023-11-14T22:13:15.000+00:00", "finished")
    report = run_import(capsys, "trackio", top, root)
    assert (outcomes(report), report["taken"], report["not_taken"]) == (
        {"digits/a": ("unchanged", 0, 0, 0)},
        {},
        {},
    )


@pytest.mark.parametrize(
    ("value", "taken", "not_taken"),
    [
        (1, {"x": 1.0}, []),
        (False, {"x": 0.0}, []),
        (-0.125, {"x": -0.125}, []),
        ("NaN", {"x": "nan"}, []),
        ("Infinity", {"x": float("inf")}, []),
        ("-Infinity", {"x": float("-inf")}, []),
        (2**62, {"x": float(2**62)}, []),
        (10**400, {}, ["integers that a float64 does not hold"]),
        (None, {}, []),
        ({"a": 1, "b": {"c": 2}}, {"x/a": 1.0, "x/b/c": 2.0}, []),
        ([1, 2], {}, ["lists in a history"]),
        ([], {}, ["lists in a history"]),
        (
            {"_type": "trackio.video", "file_path": "digits/a/0/v.mp4"},
            {},
            ["media of trackio's kind 'trackio.video'"],
        ),
        ({"_type": "trackio.html", "file_path": "a"}, {}, ["media of trackio's kind 'trackio.html'"]),
        ({"_type": ["odd"]}, {}, ["media of trackio's kind ['odd']"]),
        (
            {"_type": "trackio.image", "file_path": "digits/gone.png"},
            {},
            ["media whose file is not in trackio's folder media"],
        ),
        (
            {"_type": "trackio.image"},
            {},
            ["media of trackio's kind 'trackio.image' that have no form here, or are damaged"],
        ),
        (
            {"_type": "trackio.image", "file_path": "../secret.png"},
            {},
            ["media of trackio's kind 'trackio.image' that have no form here, or are damaged"],
        ),
        (
            {"_type": "trackio.histogram", "bins": [], "values": []},
            {},
            ["media of trackio's kind 'trackio.histogram' that have no form here, or are damaged"],
        ),
        (
            {"_type": "trackio.table", "_value": "rows"},
            {},
            ["media of trackio's kind 'trackio.table' that have no form here, or are damaged"],
        ),
    ],
)
def test_each_value_is_taken_as_it_was_logged_or_counted(
    top: Path,
    root: str,
    value: Any,
    taken: dict[str, float],
    not_taken: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    Database(top / "digits.db").log("a", 3, {"x": value, "loss": 1, "__step": 2})
    (top / "secret.png").write_bytes(png())
    report = run_import(capsys, "trackio", top, root)
    assert values(root) == sorted(
        (key, 3, value) for key, value in {"loss": 1.0, "__step": 2.0, **taken}.items()
    )
    assert (report["not_taken"], media(root)) == (dict.fromkeys(not_taken, 1), [])


def test_images_histograms_tables_and_texts_are_media(
    top: Path, root: str, capsys: pytest.CaptureFixture[str]
) -> None:
    image = {"_type": "trackio.image", "file_path": "digits/a b/0/1.png", "caption": "a digit"}
    path = top / "media" / image["file_path"]
    path.parent.mkdir(parents=True)
    path.write_bytes(png())
    rows = [{"x": 1, "y": "NaN", "t": "NaN"}, {"x": 2.5, "t": "a", "pic": image, "pics": [image]}, {}]
    logged = {
        "image": image,
        "images": [image, image],
        "histogram": {"_type": "trackio.histogram", "bins": [0, 1, 2.5], "values": [3, 4]},
        "table": {"_type": "trackio.table", "_value": rows},
        "report": {"_type": "trackio.markdown", "_value": "# Title"},
        "note": "said",
    }
    Database(top / "digits.db").log("a", 3, logged)
    report = run_import(capsys, "trackio", top, root)
    assert report["taken"] == {"images": 3, "histograms": 1, "tables": 1, "texts": 2, "tags": 1}
    assert report["not_taken"] == {"media in tables' cells (the tables are taken)": 2}
    contents = {key: (kind, digest) for key, step, kind, digest in media(root) if step == 3}
    assert {key: kind for key, (kind, _) in contents.items()} == {
        **dict.fromkeys(("image", "images/0", "images/1"), "image"),
        "histogram": "histogram",
        "table": "table",
        "report": "text",
        "note": "text",
    }
    references = [json.loads(path.read_text()) for path in Path(root).glob("runs/*/*/media/*.json")]
    assert {each["key"]: each["media_type"] for each in references if each["kind"] == "text"} == {
        "report": "text/markdown",
        "note": "text/plain",
    }
    assert {each["caption"] for each in references if each["kind"] == "image"} == {"a digit"}
    table = pq.read_table(io.BytesIO(Store(root).get_blob(contents["table"][1]))).to_pydict()
    assert json.dumps(table) == (
        '{"x": [1.0, 2.5, null], "y": [NaN, null, null], "t": ["NaN", "a", null], "pic": [null, null, '
        'null], "pics": [null, null, null]}'
    )


@pytest.mark.parametrize(
    ("time", "milliseconds"),
    [
        ("2023-11-14T22:13:20+00:00", STARTED * 1000),
        ("2023-11-14T22:13:20.125000+00:00", STARTED * 1000 + 125),
        ("2023-11-14T22:13:20Z", STARTED * 1000),
        ("2023-11-15T03:43:20+05:30", STARTED * 1000),
        ("2023-11-14 22:13:20+00:00", STARTED * 1000),
        ("2023-11-14T19:13:20", STARTED * 1000),  # the machine's own
        ("2023-11-14T19:13:20.500000", STARTED * 1000 + 500),
        ("no time", STARTED * 1000 - 1000),  # that of the row before
        ("", STARTED * 1000 - 1000),
        ("0001-01-01T00:00:00+00:00", -62_135_596_800_000),
    ],
)
def test_times_are_read_with_and_without_a_zone(
    top: Path,
    root: str,
    time: str,
    milliseconds: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    _set_zone(monkeypatch, "UTC+3")  # west of Greenwich
    Database(top / "digits.db").log("a", 0, {"before": 1}, time=at(-1)).log("a", 1, {"loss": 1}, time=time)
    run_import(capsys, "trackio", top, root)
    assert [at for _, key, _, _, at in points(root) if key == "loss"] == [milliseconds]
    _set_zone(monkeypatch, "UTC")


def _set_zone(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("TZ", name)
    time.tzset()


def test_two_runs_of_one_name_and_projects_in_one_project_are_two(
    top: Path, root: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for project in ("one", "two"):
        database = Database(top / f"{project}.db")
        for step in range(3):
            database.log("a", step, {"loss": step}, id="x").log("a", step, {"loss": -step}, id="y")
        database.configure("a", {"of": "x"}, id="x").configure("a", {"of": "y"}, id="y")
    report = run_import(capsys, "trackio", top, root, "--project", "all")
    assert [(row["project"], row["outcome"], row["points"]) for row in report["runs"]] == [
        ("all", "new", 3)
    ] * 4
    assert len({row["run"] for row in report["runs"]}) == 4
    assert sorted(values(root)) == sorted(
        ("loss", step, sign * step) for step in range(3) for sign in (1.0, -1.0) for _ in range(2)
    )
    records = [json.loads(path.read_text()) for path in Path(root).glob("runs/*/*/record.json")]
    assert sorted(record["params"]["of"] for record in records) == ["x", "x", "y", "y"]


@pytest.mark.parametrize(
    "name", ["a", "mixed Case", "ä/ö", "x" * 300, "a'b\"c", "%41", "a\nb", "🙂", "-", "1"]
)
def test_any_name_of_a_run_is_kept_as_its_tag(
    top: Path, root: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Database(top / "my project.db").log(name, 0, {"loss": 1}).configure(name, {"lr": 1})
    report = run_import(capsys, "trackio", top, root)
    record = record_of(root)
    assert (record["parent"]["tags"], record["params"]) == ({"name": name}, {"lr": 1})
    assert report["runs"][0]["run"].startswith(plain_name(name, otherwise="run")[:121])
    assert record["project"] == "my-project"


@pytest.mark.parametrize("tables", [(), ("configs",), ("system_metrics",), ("configs", "system_metrics")])
@pytest.mark.parametrize("kind", KINDS)
def test_databases_of_versions_with_fewer_tables_are_read(
    top: Path, root: str, kind: str, tables: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    Database(top / "digits.db", kind, tables).log("a", 0, {"loss": 1})
    report = run_import(capsys, "trackio", top, root)
    assert (outcomes(report), report["not_taken"]) == ({"digits/a": ("new", 1, 0, 0)}, {})


def test_a_run_stays_the_same_when_trackio_gives_it_an_id(
    top: Path, root: str, capsys: pytest.CaptureFixture[str]
) -> None:
    database = (
        Database(top / "digits.db", "without ids")
        .log("a", 0, {"loss": 1})
        .log_system("a", 1, {"cpu": 2})
        .configure("a", {"lr": 1})
    )
    before = run_import(capsys, "trackio", top, root)
    for table in ("metrics", "system_metrics", "configs"):
        database.do(f"alter table {table} add column run_id text default 'a new id'")
    after = run_import(capsys, "trackio", top, root)
    assert (before["runs"][0]["run"], before["runs"][0]["outcome"]) == (after["runs"][0]["run"], "new")
    assert outcomes(after) == {"digits/a": ("unchanged", 0, 0, 0)}


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


# ---- databases that trackio wrote ----

SCRIPT = """
import numpy, trackio
run = trackio.init("digits", name="a", config={"lr": 0.1, "clip": float("inf")}, group="first",
    embed=False, auto_log_gpu=False, auto_log_cpu=False)
for step in range(3):
    run.log({"loss": 1 / (step + 1), "deep": {"acc": step}, "nan": float("nan"), "step": 9})
run.log({
    "image": trackio.Image(numpy.zeros((2, 3, 3), numpy.uint8), caption="black"),
    "histogram": trackio.Histogram([1, 2, 2, 3], num_bins=2),
    "table": trackio.Table(columns=["x", "y"], data=[[1, 0.5], [2, float("nan")]]),
    "report": trackio.Markdown("# Title"),
    "said": "a text",
}, step=7)
run.log_system({"cpu/percent": 12.5})
run.alert("low", "the loss is low")
trackio.finish()
"""


@pytest.mark.slow
def test_what_trackio_logged_is_what_the_store_has(
    tmp_path: Path, root: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    run_script(python_with("trackio", "trackio==0.43.0", "numpy", "pillow"), SCRIPT, tmp_path / "work")
    (source,) = (path.parent for path in tmp_path.rglob("digits.db"))
    report = run_import(capsys, "trackio", source, root)
    assert report["not_taken"] == {"alerts": 1}
    assert report["taken"] == {
        "points": 13,
        "images": 1,
        "histograms": 1,
        "tables": 1,
        "texts": 2,
        "params": 2,
        "tags": 2,
    }
    expected = [
        (key, step, value)
        for step in range(3)
        for key, value in (
            ("loss", 1 / (step + 1)),
            ("deep/acc", float(step)),
            ("nan", "nan"),
            ("__step", 9.0),
        )
    ]
    assert [row for row in values(root) if not row[0].startswith("system/")] == sorted(expected)
    assert [(key, value) for key, _, value in values(root) if key.startswith("system/")] == [
        ("system/cpu/percent", 12.5)
    ]
    assert [(key, step, kind) for key, step, kind, _ in media(root)] == [
        ("histogram", 7, "histogram"),
        ("image", 7, "image"),
        ("report", 7, "text"),
        ("said", 7, "text"),
        ("table", 7, "table"),
    ]
    record = record_of(root)
    assert (json.dumps(record["params"]), record["parent"]["tags"]["group"]) == (
        '{"clip": Infinity, "lr": 0.1}',
        "first",
    )
