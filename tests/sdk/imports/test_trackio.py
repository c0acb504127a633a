"""``halving import trackio``: runs in databases that trackio wrote or that are made here."""

import io
import json
import struct
import time
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from halving import Audio, Store, Video
from halving.identifiers import sanitize_name
from tests.sdk.imports.copies import media, outcomes, points, run_import
from tests.sdk.imports.tools import python_with, run_script
from tests.sdk.imports.trackio_files import STARTED, Database, at, record_of, values
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
            ["media whose file is not in trackio's folder media"],
        ),
        (
            {"_type": "trackio.html", "file_path": "../a"},
            {},
            ["media of trackio's kind 'trackio.html' that have no form here, or are damaged"],
        ),
        ({"_type": "trackio.object3d"}, {}, ["media of trackio's kind 'trackio.object3d'"]),
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


def test_sound_videos_and_html_are_media(top: Path, root: str, capsys: pytest.CaptureFixture[str]) -> None:
    contents = {
        "audio": Audio(np.zeros(8, np.int16), sample_rate=8).encode(),
        "video": Video(np.zeros((2, 3, 3, 1), np.uint8)).encode(),
        "html": b"<b>said</b>",
    }
    logged = {}
    for kind, content in contents.items():
        (top / "media").mkdir(parents=True, exist_ok=True)
        (top / "media" / kind).write_bytes(content)
        logged[kind] = {"_type": f"trackio.{kind}", "file_path": kind, "caption": "said"}
    Database(top / "digits.db").log("a", 3, logged)
    report = run_import(capsys, "trackio", top, root)
    assert report["taken"] == {"audio clips": 1, "videos": 1, "HTML": 1, "tags": 1}
    assert report["not_taken"] == {}
    assert {key: (kind, Store(root).get_blob(digest)) for key, _, kind, digest in media(root)} == {
        kind: (kind, content) for kind, content in contents.items()
    }


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
    assert report["runs"][0]["run"].startswith(sanitize_name(name, otherwise="run")[:121])
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
