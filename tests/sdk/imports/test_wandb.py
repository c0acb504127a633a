"""``halving import wandb``: folders that are made here byte by byte."""

import json
import shutil
import sys
from pathlib import Path

import pytest

from halving import Store
from halving.cli.main import main
from halving.errors import ExtraMissing
from halving.imports import wandb_messages
from tests.permissions import deny_access
from tests.properties import ALL
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
from tests.sdk.imports.wandb_imports import Import, age, outcomes

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


def test_a_histogram_of_equal_values_has_one_bin_around_them(
    tmp_path: Path, store: Store, importer: Import
) -> None:
    equal = {"_type": "histogram", "values": [3], "bins": [-1.5, -1.5]}
    write_run(tmp_path, "a", [run_record("a"), history_record(0, {"gradient": equal}), exit_record(0)])
    assert importer(tmp_path)["not_taken"] == {}
    (medium,) = documents(store, "digits", "a", "media/*.json")
    histogram = json.loads(store.get_blob(medium["digest"]))
    assert (histogram["counts"], histogram["edges"]) == ([3], [-2.0, -1.0])
