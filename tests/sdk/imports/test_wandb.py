"""``halving import wandb``: folders that W&B itself wrote, and some that are made here byte by byte."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from halving import Store
from halving.cli.main import main
from halving.errors import ExtraMissing
from halving.imports import wandb_messages
from halving.query.curve_stats import fill_last
from halving.query.runs import read_run
from tests.permissions import deny_access
from tests.properties import ALL
from tests.sdk.imports.tools import python_with
from tests.sdk.imports.wandb_files import (
    STARTED,
    documents,
    ends_of,
    exit_record,
    history_record,
    log_of,
    logged_of,
    points_of,
    run_record,
    write_run,
)

WANDB = "wandb==0.31.0"
STEPS = 30

Import = Callable[..., dict[str, Any]]


@pytest.fixture
def importer(store: Store, capfd: pytest.CaptureFixture[str]) -> Import:
    """Import a folder into the test's store, and give what the command says in JSON."""

    def run(source: Path, *arguments: str, status: int = 0) -> dict[str, Any]:
        assert main(["import", "wandb", str(source), "--root", store.root, "--json", *arguments]) == status
        report: dict[str, Any] = json.loads(capfd.readouterr().out)
        return report

    return run


def outcomes(report: dict[str, Any]) -> dict[str, str]:
    return {row["run"]: row["outcome"] for row in report["runs"]}


def age(path: Path) -> None:
    """Make a file look as if nothing had been written to it for an hour."""
    os.utime(path, (path.stat().st_atime, path.stat().st_mtime - 3600))


# ---- folders that are made here ----


@pytest.mark.parametrize("form", ["the folder of all", "a run's folder", "the file"])
def test_a_folder_a_runs_folder_and_a_file_are_accepted(
    tmp_path: Path, store: Store, importer: Import, form: str
) -> None:
    path = write_run(
        tmp_path / "wandb", "a", [run_record("a"), history_record(0, {"loss": 0.5}), exit_record(0)]
    )
    source = {"the folder of all": tmp_path / "wandb", "a run's folder": path.parent, "the file": path}[form]
    assert outcomes(importer(source)) == {"a": "new"}
    assert logged_of(store, "digits", "a") == [("loss", 0, "0.5")]


def test_a_run_that_is_given_by_its_file_is_the_one_of_its_folder(tmp_path: Path, importer: Import) -> None:
    path = write_run(
        tmp_path / "wandb", "a", [run_record("a"), history_record(0, {"loss": 0.5}), exit_record(0)]
    )
    assert outcomes(importer(path)) == {"a": "new"}
    moved = tmp_path / "elsewhere.wandb"
    shutil.copy(path, moved)
    assert outcomes(importer(moved)) == outcomes(importer(tmp_path / "wandb")) == {"a": "unchanged"}
    assert outcomes(importer(tmp_path)) == {"a": "unchanged"}  # with both


@pytest.mark.parametrize("content", [None, b"PK\x03\x04 a zip file"])
def test_a_source_without_runs_is_refused_with_what_is_accepted(
    tmp_path: Path, store: Store, content: bytes | None, capfd: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path
    if content is not None:
        source = tmp_path / "run-a.wandb"
        source.write_bytes(content)
    assert main(["import", "wandb", str(source), "--root", store.root]) != 0
    assert "give a folder that has W&B's runs (offline-run-…/run-ID.wandb)" in " ".join(
        capfd.readouterr().err.split()
    )


def test_a_missing_protobuf_is_named_with_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "google.protobuf.descriptor_pb2", None)
    wandb_messages.record_class.cache_clear()
    try:
        with pytest.raises(ExtraMissing, match=r"pip install 'halving\[wandb\]'"):
            wandb_messages.record_class()
    finally:
        wandb_messages.record_class.cache_clear()


def test_numbers_texts_and_nested_names_are_taken_as_they_were_logged(
    tmp_path: Path, store: Store, importer: Import
) -> None:
    values = {
        "a": 1,
        "b": True,
        "c": {"d": {"e": 2.5}},
        "n": "NaN",
        "i": "-Infinity",
        "t": "said",
        "none": None,
        "l": [1, 2],
        "_runtime": 3,
    }
    values["x"] = float("inf")  # as a bare word
    values["huge"] = 10**400
    write_run(tmp_path, "a", [run_record("a"), history_record(7, values), exit_record(0)])
    report = importer(tmp_path)
    expected = {"a": "1.0", "b": "1.0", "c/d/e": "2.5", "n": "nan", "i": "-inf", "x": "inf"}
    assert logged_of(store, "digits", "a") == sorted((key, 7, value) for key, value in expected.items())
    assert {row["wall_time"].timestamp() for row in points_of(store, "digits", "a")} == {STARTED + 7.5}
    (text,) = documents(store, "digits", "a", "media/*.json")
    assert (text["key"], text["kind"], text["step"]) == ("t", "text", 7)
    assert report["not_taken"] == {"lists in a history": 1, "integers that a float64 does not hold": 1}


def test_a_config_with_nan_and_infinity_is_the_same_when_it_is_read_again(
    tmp_path: Path, store: Store, importer: Import
) -> None:
    config = {
        "nan": float("nan"),
        "inf": float("inf"),
        "deep": {"list": [float("nan"), 1]},
        "_wandb": {"version": 1},
    }
    write_run(tmp_path, "a", [run_record("a", config=config), history_record(0, {"loss": 1}), exit_record(0)])
    assert importer(tmp_path)["not_taken"] == {}
    (record,) = documents(store, "digits", "a", "record.json")
    assert json.dumps(record["params"]) == '{"deep": {"list": [NaN, 1]}, "inf": Infinity, "nan": NaN}'
    report = importer(tmp_path)
    assert (outcomes(report), report["not_taken"]) == ({"a": "unchanged"}, {})


def test_values_of_wandbs_later_typed_form_are_taken(tmp_path: Path, store: Store, importer: Import) -> None:
    record = wandb_messages.record_class()()
    record.history.step.num = 4
    for name, field, value in [
        ("i", "integer", -3),
        ("n", "number", 0.5),
        ("b", "boolean", False),
        ("j", "json", '{"x": 1}'),
    ]:
        item = record.history.item.add(nested_key=["typed", name])
        setattr(item, field, value)
    write_run(tmp_path, "a", [run_record("a"), bytes(record.SerializeToString()), exit_record(0)])
    importer(tmp_path)
    expected = [("typed/b", 4, "0.0"), ("typed/i", 4, "-3.0"), ("typed/j/x", 4, "1.0"), ("typed/n", 4, "0.5")]
    assert logged_of(store, "digits", "a") == expected


def test_the_metadata_file_says_where_an_online_run_ran(
    tmp_path: Path, store: Store, importer: Import
) -> None:
    path = write_run(tmp_path, "a", [run_record("a"), history_record(0, {"loss": 1}), exit_record(0)])
    metadata = {
        "os": "Linux",
        "python": "3.9.1",
        "program": "train.py",
        "executable": "/usr/bin/python3",
        "args": ["--lr", "1"],
        "host": "gpu1",
        "git": {"remote": "https://user:secret@example.org/a.git", "commit": "abc"},
        "gpu": "A100",
        "gpu_count": 2,
        "memory": {"total": "1024"},
    }
    (path.parent / "files").mkdir()
    (path.parent / "files" / "wandb-metadata.json").write_text(json.dumps(metadata))
    importer(tmp_path)
    (record,) = documents(store, "digits", "a", "record.json")
    provenance = record["provenance"]
    assert (provenance["git"]["commit"], provenance["git"]["remote"]) == ("abc", "https://example.org/a.git")
    assert provenance["command"] == ["/usr/bin/python3", "train.py", "--lr", "1"]
    assert provenance["hardware"] == {
        "platform": "Linux",
        "host": "gpu1",
        "memory_bytes": 1024,
        "gpus": ["A100", "A100"],
    }
    assert provenance["python"] == {"version": "3.9.1", "implementation": "CPython"}


def test_a_tag_with_the_name_of_another_fact_is_counted(
    tmp_path: Path, store: Store, importer: Import
) -> None:
    record = wandb_messages.record_class().FromString(run_record("a"))
    record.run.display_name = "mine"
    record.run.tags.extend(["name", "other"])
    write_run(tmp_path, "a", [bytes(record.SerializeToString()), history_record(0, {"loss": 1})])
    report = importer(tmp_path)
    assert documents(store, "digits", "a", "record.json")[0]["parent"]["tags"] == {
        "name": "mine",
        "other": "true",
    }
    assert list(report["not_taken"].values()) == [1]


def test_a_media_path_that_leads_out_of_the_runs_folder_is_not_followed(
    tmp_path: Path, store: Store, importer: Import
) -> None:
    (tmp_path / "secret.table.json").write_text('{"columns": ["a"], "data": [[1]]}')
    value = {"_type": "table-file", "path": "../../secret.table.json"}
    records = [
        run_record("a"),
        history_record(0, {"t": value, "gone": {"_type": "image-file", "path": "media/gone.png"}, "loss": 1}),
    ]
    write_run(tmp_path, "a", records)
    report = importer(tmp_path)
    assert documents(store, "digits", "a", "media/*.json") == []
    assert sum(report["not_taken"].values()) == 2
    assert report["runs"][0]["points"] == 1


def test_a_run_cut_at_any_byte_is_read_without_an_error_and_completed_later(
    tmp_path: Path, store: Store, importer: Import
) -> None:
    records = [run_record("a"), *(history_record(step, {"loss": step}) for step in range(3)), exit_record(0)]
    content = log_of(records)
    ends = ends_of(records)
    path = write_run(tmp_path / "wandb", "a", [])
    edges = {size for end in ends[2:] for size in (end - 1, end)}
    for size in sorted(
        {*range(0, ends[2], 9), *range(ends[2] - 1, len(content) + 1, 1 if ALL else 4), *edges}
    ):
        path.write_bytes(content[:size])
        report = importer(tmp_path / "wandb")
        points = sum(end <= size for end in ends[1:4])
        assert len(report["runs"]) == (size >= ends[0]), size
        assert logged_of(store, "digits", "a") == [("loss", step, f"{step}.0") for step in range(points)], (
            size
        )
    assert documents(store, "digits", "a", "end-*.json")[-1]["status"] == "finished"
    assert outcomes(importer(tmp_path / "wandb")) == {"a": "unchanged"}


def test_a_run_without_an_exit_goes_on_while_written_and_has_crashed_later(
    tmp_path: Path, store: Store, importer: Import
) -> None:
    records = [run_record("a"), history_record(0, {"loss": 1})]
    path = write_run(tmp_path, "a", records)
    assert outcomes(importer(tmp_path)) == {"a": "new"}
    assert documents(store, "digits", "a", "end-*.json") == []
    assert outcomes(importer(tmp_path)) == {"a": "unchanged"}
    age(path)
    assert outcomes(importer(tmp_path)) == {"a": "continued"}
    assert [end["status"] for end in documents(store, "digits", "a", "end-*.json")] == ["crashed"]
    write_run(tmp_path, "a", [*records, exit_record(1)])
    assert outcomes(importer(tmp_path)) == {"a": "continued"}
    assert [end["status"] for end in documents(store, "digits", "a", "end-*.json")] == ["crashed", "failed"]
    assert len(logged_of(store, "digits", "a")) == 1


def test_the_files_of_a_resumed_run_are_one_run_in_the_order_of_their_times(
    tmp_path: Path, store: Store, importer: Import
) -> None:
    later = [
        run_record("a", started=STARTED + 60, config={"lr": 2}),
        history_record(9, {"loss": 9}),
        exit_record(0),
    ]
    earlier = [
        run_record("a", config={"lr": 1, "kept": True}),
        history_record(1, {"loss": 1}),
        exit_record(1),
    ]
    for folder, records in (("1-later", later), ("2-earlier", earlier)):
        write_run(tmp_path / folder, "a", records)
    report = importer(tmp_path)
    assert outcomes(report) == {"a": "new"}
    assert logged_of(store, "digits", "a") == [("loss", 1, "1.0"), ("loss", 9, "9.0")]
    (record,) = documents(store, "digits", "a", "record.json")
    assert record["params"] == {"lr": 2, "kept": True}
    assert record["provenance"]["hardware"] == {}
    assert [end["status"] for end in documents(store, "digits", "a", "end-*.json")] == ["finished"]


def test_a_damaged_run_keeps_no_other_from_being_read(tmp_path: Path, store: Store, importer: Import) -> None:
    whole = [run_record("b"), history_record(0, {"loss": 1}), exit_record(0)]
    write_run(tmp_path, "b", whole)
    path = write_run(
        tmp_path,
        "a",
        [run_record("a"), *(history_record(step, {"x": step}) for step in range(2000)), exit_record(0)],
    )
    content = bytearray(path.read_bytes())
    content[40_000] ^= 255
    path.write_bytes(content)
    (tmp_path / "run-c.wandb").write_bytes(b"no log of W&B's")
    report = importer(tmp_path)
    assert outcomes(report) == {"a": "new", "b": "new"}
    assert report["not_taken"]["damaged parts of log files (up to 32 KiB each)"] == 1
    taken = [step for _, step, _ in logged_of(store, "digits", "a")]
    assert 0 in taken
    assert 1999 in taken
    assert 1000 < len(taken) < 2000


@pytest.mark.parametrize(
    "part",
    [
        "the log",
        "the folder",
        "files",
        "files/wandb-metadata.json",
        "files/requirements.txt",
        "files/media/t.json",
    ],
)
@pytest.mark.parametrize("others", [True, False])
def test_a_run_that_may_not_be_read_is_reported_and_imported_later(
    tmp_path: Path, store: Store, importer: Import, part: str, others: bool
) -> None:
    value = {"_type": "table-file", "path": "media/t.json"}
    path = write_run(
        tmp_path / "1",
        "a",
        [run_record("a", config={"lr": 1, "kept": True}), history_record(0, {"t": value, "loss": 1})],
    )
    files = path.parent / "files"
    (files / "media").mkdir(parents=True)
    (files / "media" / "t.json").write_text('{"columns": ["a"], "data": [[1]]}')
    (files / "requirements.txt").write_text("numpy==1.0\n")
    (files / "wandb-metadata.json").write_text('{"host": "gpu1"}')
    if others:  # the same run, resumed, and another
        write_run(
            tmp_path / "2",
            "a",
            [
                run_record("a", started=STARTED + 60, config={"lr": 2}),
                history_record(1, {"loss": 2}),
                exit_record(0),
            ],
        )
        write_run(tmp_path, "b", [run_record("b"), history_record(0, {"loss": 1}), exit_record(0)])
    with deny_access({"the log": path, "the folder": path.parent}.get(part, path.parent / part)):
        report = importer(tmp_path, status=1)
    rows = {row["name"].rpartition("/")[2]: row for row in report["runs"]}
    assert {run: row["outcome"] for run, row in rows.items()} == {
        "a": "failed",
        **({"b": "new"} if others else {}),
    }
    assert "cannot be read: Permission denied" in rows["a"]["error"]
    assert str(path.parent) in rows["a"]["error"]
    importer(tmp_path)
    (record,) = documents(store, "digits", "a", "record.json")
    assert record["params"] == {"lr": 2 if others else 1, "kept": True}
    assert (record["provenance"]["packages"], record["provenance"]["hardware"]) == (
        {"numpy": "1.0"},
        {"host": "gpu1"},
    )
    assert [row["kind"] for row in documents(store, "digits", "a", "media/*.json")] == ["table"]
    assert len(logged_of(store, "digits", "a")) == 1 + others


# ---- folders that W&B wrote ----

TRAINING = """
import math, os, signal, sys, time
from pathlib import Path
import numpy as np
import wandb

how, run_id, steps = sys.argv[1], sys.argv[2], int(sys.argv[3])
run = wandb.init(
    project="My digits", id=run_id, name="a nice name", group="g", job_type="train", notes="two\\nlines",
    tags=["first", "second"],
    config={"lr": 0.1, "opt": {"name": "sgd", "betas": [0.9, 0.99]}, "none": None},
    resume="allow" if how == "resume" else None,
)
run.config.update({"late": 5})
run.define_metric("acc", summary="max")
run.define_metric("valid/*", step_metric="epoch")
if how == "kill":
    log = Path(run.dir).parent / f"run-{run_id}.wandb"
    step = 0
    while log.stat().st_size < 3 * 32768:  # W&B's own process writes whole blocks, some time later
        run.log({"loss": 1 / (step + 1), "pad": "x" * 500})
        step += 1
        time.sleep(0.001)
    os.kill(os.getpid(), signal.SIGKILL)
noise = np.random.default_rng(0)
pixels = lambda: noise.integers(0, 255, (8, 9, 3), dtype=np.uint8)
for step in range(steps):
    run.log({
        "loss": 1 / (step + 1), "flag": step % 2 == 0, "train/acc": np.float32(0.5),
        "nan": math.nan, "inf": -math.inf,
        "nested": {"a": step, "b": {"c": 2}}, "acc": 1 / (step + 1), "valid/loss": step, "epoch": step,
    })
if how != "resume":
    run.log({
        "image": wandb.Image(pixels(), caption="said"),
        "jpeg": wandb.Image(pixels(), file_type="jpg"),
        "several": [wandb.Image(pixels(), caption=f"c{n}") for n in range(3)],
        "histogram": wandb.Histogram(np_histogram=([3, 1, 2], [0.0, 0.5, 1.0, 1.5])),
        "table": wandb.Table(columns=["a", "b"], data=[[1, "x"], [2, "y"]]),
        "text": "some words",
        "page": wandb.Html("<b>x</b>"),
        "list": [1, 2, 3],
    }, step=1000)
run.summary["best"] = 0.9
run.summary["loss"] = 0.25
run.alert("title", "text")
Path("weights.txt").write_text("weights")
run.save("weights.txt")
if how == "fail":
    sys.exit(3)  # which W&B sees; it does not see a SystemExit that is raised
run.finish()
"""


@pytest.fixture(scope="session")
def wandb_python() -> Path:
    """An interpreter that has W&B, in an environment of its own that is kept for the next time."""
    return python_with("wandb", WANDB, "numpy", "pillow")


Training = Callable[..., int]


def trainer(python: Path, folder: Path) -> Training:
    """Run the training in a folder; its W&B folder is ``wandb`` in it. Gives the status."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "training.py").write_text(TRAINING)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("WANDB_")}
    own = {
        "WANDB_MODE": "offline",
        "WANDB_SILENT": "true",
        "WANDB_CACHE_DIR": str(folder / "cache"),
        "WANDB_DATA_DIR": str(folder / "data"),
    }

    def run(how: str, run_id: str, steps: int = STEPS) -> int:
        command = [str(python), "training.py", how, run_id, str(steps)]
        return subprocess.run(
            command, cwd=folder, env=clean | own, capture_output=True, timeout=120, check=False
        ).returncode

    return run


@pytest.fixture(scope="session")
def wandb_runs(wandb_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of W&B's with a run that finished, one that failed and one that was killed. Tests copy it."""
    folder = tmp_path_factory.mktemp("wandb-runs")
    train = trainer(wandb_python, folder)
    assert train("finish", "good") == 0
    assert train("fail", "bad") == 3
    assert train("kill", "killed") == -signal.SIGKILL
    age(next(folder.glob("wandb/offline-run-*/run-killed.wandb")))
    return folder / "wandb"


@pytest.fixture
def runs(wandb_runs: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "wandb"
    shutil.copytree(wandb_runs, folder, symlinks=True)
    return folder


def expected_points(steps: int = STEPS, first: int = 0) -> list[tuple[str, int, str]]:
    """What the training logs, as numbers."""
    rows = []
    for number in range(steps):
        values = {
            "loss": 1 / (number + 1),
            "flag": float(number % 2 == 0),
            "train/acc": 0.5,
            "nan": float("nan"),
            "inf": float("-inf"),
            "nested/a": float(number),
            "nested/b/c": 2.0,
            "acc": 1 / (number + 1),
            "valid/loss": float(number),
            "epoch": float(number),
        }
        rows += [(key, first + number, str(value)) for key, value in values.items()]
    return sorted(rows)


@pytest.mark.slow
@pytest.mark.xdist_group("wandb")
def test_what_wandb_logged_is_what_the_store_has(runs: Path, store: Store, importer: Import) -> None:
    report = importer(runs)
    assert outcomes(report) == {"good": "new", "bad": "new", "killed": "new"}
    for run in ("good", "bad"):
        assert logged_of(store, "My-digits", run) == expected_points()
        media = documents(store, "My-digits", run, "media/*.json")
        kinds = Counter(medium["kind"] for medium in media)
        assert kinds == {"image": 5, "histogram": 1, "table": 1, "text": 1}
        assert {medium["key"] for medium in media if medium["kind"] == "image"} == {
            "image",
            "jpeg",
            *(f"several/{n}" for n in range(3)),
        }
        assert {medium["step"] for medium in media} == {1000}
        by_key = {medium["key"]: medium for medium in media}
        assert (by_key["image"]["caption"], by_key["image"]["width"], by_key["image"]["height"]) == (
            "said",
            9,
            8,
        )
        assert [by_key[f"several/{n}"]["caption"] for n in range(3)] == ["c0", "c1", "c2"]
        assert by_key["jpeg"]["media_type"] == "image/jpeg"
        assert json.loads(store.get_blob(by_key["histogram"]["digest"]))["counts"] == [3, 1, 2]
        assert (by_key["table"]["rows"], by_key["table"]["columns"]) == (2, 2)
        assert store.get_blob(by_key["text"]["digest"]) == b"some words"
        (picture,) = runs.glob(f"*-{run}/files/media/images/image_*")
        assert store.get_blob(by_key["image"]["digest"]) == picture.read_bytes()
    axes = "x axes of their own (define_metric with step_metric; the values are taken)"
    assert report["not_taken"] == {
        "lists in a history": 2,
        "media of W&B's kind 'html-file'": 2,
        "alerts": 2,
        axes: 3,
    }


@pytest.mark.slow
@pytest.mark.xdist_group("wandb")
def test_a_runs_summary_is_what_it_shows_as_its_values(runs: Path, store: Store, importer: Import) -> None:
    importer(runs)
    (info,) = fill_last(store, [read_run(store, "My-digits", "good")])
    assert {name: info.summary[name] for name in ("best", "loss", "acc", "acc/max")} == {
        "best": 0.9,
        "loss": 0.25,
        "acc": 1 / STEPS,
        "acc/max": 1.0,
    }
    (killed,) = fill_last(store, [read_run(store, "My-digits", "killed")])
    assert killed.summary["loss"] == 1 / sum(
        key == "loss" for key, _, _ in logged_of(store, "My-digits", "killed")
    )


@pytest.mark.slow
@pytest.mark.xdist_group("wandb")
def test_who_how_and_where_are_recorded(runs: Path, store: Store, importer: Import) -> None:
    importer(runs)
    (record,) = documents(store, "My-digits", "good", "record.json")
    assert record["params"] == {
        "lr": 0.1,
        "opt": {"name": "sgd", "betas": [0.9, 0.99]},
        "none": None,
        "late": 5,
    }
    expected = {
        "name": "a nice name",
        "group": "g",
        "job_type": "train",
        "notes": "two\nlines",
        "first": "true",
        "second": "true",
    }
    assert record["parent"]["tags"] == expected
    origin = record["parent"]["imported"]
    assert (origin["tool"], origin["run"]) == ("wandb", "My digits/good")
    provenance = record["provenance"]
    assert provenance["python"]["version"].startswith(f"{sys.version_info[0]}.{sys.version_info[1]}.")
    assert provenance["packages"]["wandb"] == WANDB.partition("==")[2]
    assert provenance["command"][1:][-3:] == ["finish", "good", str(STEPS)]
    assert provenance["hardware"]["cpus"] >= 1
    statuses = {
        run: documents(store, "My-digits", run, "end-*.json")[-1]["status"]
        for run in ("good", "bad", "killed")
    }
    assert statuses == {"good": "finished", "bad": "failed", "killed": "crashed"}
    names = {row["name"] for row in documents(store, "My-digits", "good", "artifacts/*.json")}
    assert {"requirements.txt", "weights.txt"} <= names
    assert any(row["key"].startswith("system/") for row in points_of(store, "My-digits", "good"))


@pytest.mark.slow
@pytest.mark.xdist_group("wandb")
def test_of_a_killed_run_everything_that_wandb_wrote_is_there_without_gaps(
    runs: Path, store: Store, importer: Import
) -> None:
    importer(runs)
    losses = [(step, value) for key, step, value in logged_of(store, "My-digits", "killed") if key == "loss"]
    assert len(losses) > 50
    assert losses == [(step, str(1 / (step + 1))) for step in range(len(losses))]


@pytest.mark.slow
@pytest.mark.xdist_group("wandb")
def test_a_second_import_changes_nothing(runs: Path, store: Store, importer: Import) -> None:
    importer(runs)
    before = {path: path.read_bytes() for path in Path(store.root).rglob("*") if path.is_file()}
    report = importer(runs)
    assert set(outcomes(report).values()) == {"unchanged"}
    assert report["not_taken"] == {}
    assert {path: path.read_bytes() for path in Path(store.root).rglob("*") if path.is_file()} == before


@pytest.mark.slow
@pytest.mark.xdist_group("wandb")
def test_a_resumed_run_goes_on_with_what_is_new(
    wandb_python: Path, wandb_runs: Path, tmp_path: Path, store: Store, importer: Import
) -> None:
    folder = tmp_path / "again"
    folder.mkdir()
    shutil.copytree(wandb_runs, folder / "wandb", symlinks=True)
    importer(folder / "wandb")
    assert trainer(wandb_python, folder)("resume", "good", 5) == 0
    report = importer(folder / "wandb")
    assert outcomes(report) == {"good": "continued", "bad": "unchanged", "killed": "unchanged"}
    # W&B offline knows nothing of the earlier steps, so they begin with 0 again; the attempt tells them
    # apart.
    assert logged_of(store, "My-digits", "good") == sorted(expected_points() + expected_points(5))
    second = [
        row
        for row in points_of(store, "My-digits", "good")
        if row["attempt"] == 2 and not row["key"].startswith("system/")
    ]
    assert len(second) == len(expected_points(5))


@pytest.mark.slow
@pytest.mark.xdist_group("wandb")
def test_a_grown_run_gives_only_what_is_new(runs: Path, store: Store, importer: Import) -> None:
    (path,) = runs.glob("*-good/*.wandb")
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 4])
    first = {row["run"]: row for row in importer(runs)["runs"]}["good"]
    assert 0 < first["points"] < len(expected_points())
    path.write_bytes(whole)
    assert outcomes(importer(runs))["good"] == "continued"
    assert logged_of(store, "My-digits", "good") == expected_points()
    assert len(documents(store, "My-digits", "good", "media/*.json")) == 8
    assert documents(store, "My-digits", "good", "end-*.json")[-1]["status"] == "finished"


KILLED_IMPORTS = """
import os, signal, sys
import pyarrow.parquet
from halving.cli.main import main
from halving.imports import copying, foreign_run, wandb_folder
from halving.store.store import Store

foreign_run.PIECE_POINTS = 20
every, root = int(sys.argv[1]), sys.argv[3]
left = killed = 0
create, put = Store.create, Store.put_blob

def counted(function):
    def call(*arguments, **named):
        global left
        done = function(*arguments, **named)
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return done
    return call

Store.create, Store.put_blob = counted(create), counted(put)
while True:
    # Later each time, so that a process that has to write something again comes further than the one before.
    left += every
    if not (child := os.fork()):
        sys.exit(main(["import", "wandb", sys.argv[2], "--root", root, "--json"]))
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status != -signal.SIGKILL:
        print(killed)
        sys.exit(status)
    killed += 1
"""


@pytest.mark.slow
@pytest.mark.xdist_group("wandb")
@pytest.mark.parametrize("every", [1, 2, 5])
def test_an_import_that_is_killed_again_and_again_takes_all_and_nothing_twice(
    runs: Path, store: Store, importer: Import, tmp_path: Path, every: int
) -> None:
    for path in runs.glob("offline-run-*-killed"):
        shutil.rmtree(path)
    # Forks of one process, which has imported what all of them need.
    command = [sys.executable, "-c", KILLED_IMPORTS, str(every), str(runs), store.root]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    killed = int(done.stdout.splitlines()[-1])
    assert killed >= 3
    for run in ("good", "bad"):
        assert logged_of(store, "My-digits", run) == expected_points()
        assert len(documents(store, "My-digits", run, "media/*.json")) == 8
    assert set(outcomes(importer(runs)).values()) == {"unchanged"}
