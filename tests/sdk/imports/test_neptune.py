"""Parquet files as neptune-exporter has written them, of a service that is gone."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from halving import Image, Store
from halving.imports import foreign_run
from halving.query.runs import list_runs
from tests.permissions import deny_access
from tests.properties import examples
from tests.sdk.imports.copies import media, outcomes, points, run_import, small_disk
from tests.sdk.imports.neptune_files import (
    BEGAN,
    BEGAN_MS,
    FOLDER,
    PROJECT,
    Row,
    file,
    histogram,
    param,
    point,
    series,
    write_export,
    write_file,
    write_part,
)

PNG = Image(np.zeros((2, 3), np.uint8)).encode()
NAME = f"{PROJECT}/RUN-1"


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path / "store")


@pytest.fixture
def exports(tmp_path: Path) -> Path:
    return tmp_path / "exports"


Capture = pytest.CaptureFixture[str]


def steps_and_values(root: str) -> list[tuple[str, int, float]]:
    return [(key, step, value) for _, key, step, value, _ in points(root)]


def artifacts(root: str) -> dict[str, bytes]:
    """The files of all runs by their names."""
    store = Store(root)
    records = [json.loads(path.read_text()) for path in Path(root).glob("runs/*/*/artifacts/*.json")]
    return {record["name"]: bytes(store.get_blob(record["digest"])) for record in records}


def contents(root: str, kind: str) -> list[tuple[str, int, bytes]]:
    """Media of a kind: key, step and content."""
    return [
        (key, step, bytes(Store(root).get_blob(digest)))
        for key, step, medium_kind, digest in media(root)
        if medium_kind == kind
    ]


@pytest.mark.parametrize(
    ("kind", "value", "kept"),
    [
        ("int", 2**63 - 1, 2**63 - 1),
        ("int", -(2**63), -(2**63)),
        ("int", 0, 0),
        ("float", 0.1, 0.1),
        ("float", 3.0, 3.0),
        ("float", float("inf"), float("inf")),
        ("string", "two\nlines, \u00fc", "two\nlines, \u00fc"),
        ("string", "007", "007"),
        ("string", "", ""),
        ("bool", False, False),
        ("bool", True, True),
        ("datetime", datetime(2024, 2, 29, 23, 59, 59, 123_000, UTC), "2024-02-29T23:59:59.123+00:00"),
        ("datetime", datetime(1969, 12, 31, 23, 59, 59, 999_000, UTC), "1969-12-31T23:59:59.999+00:00"),
        ("string_set", ["b", "a"], ["a", "b"]),
        ("string_set", [], []),
    ],
)
def test_a_param_is_what_it_was(
    exports: Path, root: str, capsys: Capture, kind: str, value: Any, kept: Any
) -> None:
    write_export(exports, [[param("config/it", kind, value)]])
    report = run_import(capsys, "neptune", exports, root)
    assert (outcomes(report), report["taken"], report["not_taken"]) == (
        {NAME: ("new", 0, 0, 0)},
        {"params": 1},
        {},
    )
    (info,) = list_runs(Store(root))
    assert (info.params, type(info.params["config/it"])) == ({"config/it": kept}, type(kept))


@pytest.mark.parametrize("kind", ["int", "float", "string", "bool", "datetime", "string_set"])
def test_a_param_without_a_value_is_one_that_the_run_does_not_have(
    exports: Path, root: str, capsys: Capture, kind: str
) -> None:
    write_export(exports, [[param("none", kind, None), param("lr", "float", 0.5)]])
    assert run_import(capsys, "neptune", exports, root)["not_taken"] == {}
    assert [info.params for info in list_runs(Store(root))] == [{"lr": 0.5}]


def test_series_are_points_texts_and_histograms_at_their_steps_and_times(
    exports: Path, root: str, capsys: Capture
) -> None:
    rows = [
        point("train/loss", 0, 0.5),
        point("train/loss", 1, float("nan"), None),
        point("train/loss", 10**11, -1e300),
        point("gr\u00f6\u00dfe", 7, 3),
        point("nothing", 1, None, None),
        series("notes", "string_series", 1, "a\nb"),
        series("notes", "string_series", 2, ""),
        series("notes", "string_series", 3, "c"),
        series("weights", "histogram_series", 4, histogram([0, 1, 3], [5, 2])),
        series("shares", "histogram_series", 4, histogram([0, 0.5, 1], [0.5, 1.5], "DENSITY")),
        series("broken", "histogram_series", 4, histogram([1, 1, 0], [5, 2])),
        series("broken", "histogram_series", 5, histogram([1, 2], [5, 2])),
        param("sys/creation_time", "datetime", datetime(2025, 3, 1, 11, tzinfo=UTC)),
    ]
    write_export(exports, [rows])
    report = run_import(capsys, "neptune", exports, root)
    assert outcomes(report) == {NAME: ("new", 4, 5, 0)}
    assert report["taken"] == {"points": 4, "texts": 3, "histograms": 2}
    assert report["not_taken"] == {"histograms whose edges do not grow, or that are damaged": 2}
    began = 1_740_826_800_000
    kept = [
        ("train/loss", 0, 0.5, BEGAN_MS),
        ("train/loss", 1, "nan", began),
        ("train/loss", 10**11, -1e300, BEGAN_MS),
    ]
    kept.append(("gr\u00f6\u00dfe", 7, 3.0, BEGAN_MS))
    assert [row[1:] for row in points(root)] == sorted(kept)
    assert contents(root, "text") == [("notes", 1, b"a\nb"), ("notes", 2, b""), ("notes", 3, b"c")]
    histograms = {key: json.loads(content) for key, _, content in contents(root, "histogram")}
    assert {key: (buckets["edges"], buckets["counts"]) for key, buckets in histograms.items()} == {
        "weights": ([0, 1, 3], [5, 2]),
        "shares": ([0, 0.5, 1], [0.25, 0.75]),
    }


def test_what_neptune_says_of_a_run_is_its_tags_its_times_and_its_end(
    exports: Path, root: str, capsys: Capture
) -> None:
    rows = [
        param("sys/name", "string", "baseline"),
        param("sys/tags", "string_set", ["good", "name"]),
        param("sys/group_tags", "string_set", ["march"]),
        param("sys/description", "string", "the first one"),
        param("sys/owner", "string", "ada"),
        param("sys/id", "string", "DIG-1"),
        param("sys/custom_run_id", "string", "RUN-1"),
        param("sys/creation_time", "datetime", BEGAN),
        param("sys/modification_time", "datetime", datetime(2026, 1, 1, tzinfo=UTC)),
        param("sys/ping_time", "datetime", datetime(2025, 3, 2, tzinfo=UTC)),
        param("sys/failed", "bool", True),
        param("sys/forking/parent", "string", "RUN-0"),
        param("sys/forking/step", "int", 5),
        param("sys/running_time", "float", 12.5),
        param("sys/size", "int", 3),
        param("lr", "float", 0.1),
    ]
    write_export(exports, [rows])
    write_export(exports, [[param("sys/failed", "bool", False)]], run="RUN-2")
    report = run_import(capsys, "neptune", exports, root)
    assert report["not_taken"] == {
        "facts of Neptune's own (sys/…)": 2,
        "tags with the name of another fact of the run (name, notes, user, …)": 1,
    }
    runs = {info.parent["imported"]["run"]: info for info in list_runs(Store(root))}
    first = runs[NAME]
    assert (first.project, first.status, first.params) == ("acme-digits", "failed", {"lr": 0.1})
    assert first.tags == {
        "good": "true",
        "march": "true",
        "name": "baseline",
        "notes": "the first one",
        "user": "ada",
        "id": "DIG-1",
        "custom_run_id": "RUN-1",
        "forking/parent": "RUN-0",
        "forking/step": "5",
    }
    assert (first.attempts[0].started, first.attempts[0].ended) == (
        "2025-03-01T12:00:00.005+00:00",
        "2025-03-02T00:00:00.000+00:00",
    )
    assert runs[f"{PROJECT}/RUN-2"].status == "finished"


def test_parts_are_read_by_their_numbers_and_no_value_is_lost(
    exports: Path, root: str, capsys: Capture
) -> None:
    parts = [[point("loss", part * 10 + row, part * 10 + row) for row in range(10)] for part in range(12)]
    parts[10].append(point("loss", 109, -1.0))
    folder = write_export(exports, parts)
    for source in (exports, exports / "data", folder, folder / "RUN-1-9f8e_part_7.parquet"):
        store = f"{root}-{source.name}"
        assert outcomes(run_import(capsys, "neptune", source, store)) == {NAME: ("new", 121, 0, 0)}
        assert sorted(steps_and_values(store)) == sorted(
            [("loss", 109, -1.0), *(("loss", step, step) for step in range(120))]
        )
        assert list_runs(Store(store))[0].summary == {"loss": 119.0}


def test_the_earlier_layout_has_several_runs_in_a_file(exports: Path, root: str, capsys: Capture) -> None:
    folder = exports / "data" / FOLDER
    for part in range(2):
        rows = [
            {"run_id": f"RUN-{number % 3}", **point("loss", part * 10 + number, number)}
            for number in range(10)
        ]
        write_part(
            folder / f"part_{part}.parquet", [*rows, {"run_id": f"RUN-{part}", **param("part", "int", part)}]
        )
    report = run_import(capsys, "neptune", exports, root)
    assert outcomes(report) == {
        f"{PROJECT}/RUN-{run}": ("new", 2 * count, 0, 0) for run, count in ((0, 4), (1, 3), (2, 3))
    }
    taken = {(run, step): value for run, _, step, value, _ in points(root)}
    ids = {info.parent["imported"]["run"][-1]: info.run for info in list_runs(Store(root))}
    assert taken == {
        (ids[str(number % 3)], part * 10 + number): number for part in range(2) for number in range(10)
    }
    assert sorted(str(info.params) for info in list_runs(Store(root))) == ["{'part': 0}", "{'part': 1}", "{}"]
    again = run_import(capsys, "neptune", exports, root)
    assert ({outcome for outcome, *_ in outcomes(again).values()}, again["taken"]) == ({"unchanged"}, {})


@pytest.mark.parametrize(
    ("left", "error"),
    [
        (["part_0.parquet.tmp"], "part_0.parquet.tmp is not written to its end"),
        (["part_1.parquet", "part_0.parquet.tmp"], "part_0.parquet.tmp is not written to its end"),
        (["part_1.parquet"], "part 0 of acme_digits-0a1b2c3d/bad is not there"),
        (["part_0.parquet", "part_2.parquet"], "part 1 of acme_digits-0a1b2c3d/bad is not there"),
        (
            ["part_0.parquet", "part_1.parquet", "part_2.parquet.tmp"],
            "part_2.parquet.tmp is not written to its end",
        ),
    ],
)
def test_an_export_that_is_not_whole_is_said_and_keeps_no_other_from_being_taken(
    exports: Path, root: str, capsys: Capture, left: list[str], error: str
) -> None:
    folder = write_export(exports, [[point("loss", 1, 0.5)]])
    for name in left:
        write_part(folder / f"bad_{name}", [point("loss", 1, 0.5)], run="bad")
    report = run_import(capsys, "neptune", exports, root, status=1)
    assert [(row["outcome"], row["error"] and error in row["error"]) for row in report["runs"]] == [
        ("new", None),
        ("failed", True),
    ]
    assert "run neptune-exporter again" in report["runs"][1]["error"]
    for name in left:
        (folder / f"bad_{name}").unlink()
    write_part(folder / "bad_part_0.parquet", [point("loss", 1, 0.5)], run="bad")
    assert sorted(
        outcome for outcome, *_ in outcomes(run_import(capsys, "neptune", exports, root)).values()
    ) == ["new", "unchanged"]


def test_damaged_and_foreign_files_are_said_and_keep_no_other_from_being_taken(
    exports: Path, root: str, capsys: Capture
) -> None:
    folder = write_export(exports, [[point("loss", 1, 0.5)]])
    whole = write_part(folder / "torn_part_0.parquet", [point("loss", 1, 0.5)], run="torn").read_bytes()
    (folder / "torn_part_0.parquet").write_bytes(whole[:-20])
    table = pq.read_table(folder / "RUN-1-9f8e_part_0.parquet")
    pq.write_table(table.drop_columns(["step", "file_value"]), folder / "other_part_0.parquet")
    write_part(folder / "closed_part_0.parquet", [point("loss", 1, 0.5)], run="closed")
    with deny_access(folder / "closed_part_0.parquet"):
        report = run_import(capsys, "neptune", exports, root, status=1)
    assert [row["outcome"] for row in report["runs"]] == ["new", "failed", "failed", "failed"]
    errors = {row["name"].rpartition("/")[2]: row["error"] for row in report["runs"]}
    assert (
        "other_part_0.parquet is not of neptune-exporter: it has no column step, file_value"
        in errors["other"]
    )
    assert "torn_part_0.parquet cannot be read" in errors["torn"]
    assert "closed_part_0.parquet cannot be read: Permission denied" in errors["closed"]


@pytest.mark.parametrize(
    ("steps", "kept"),
    [
        (["0.5", "1", "1.25"], [50, 100, 125]),
        (["0", "1", "2"], [0, 1, 2]),
        (["0.1", "0.2", "0.3"], [1, 2, 3]),
        (["0.000001", "1"], [1, 1_000_000]),
        (["-0.5", "0.5"], [-5, 5]),
        (["1.10", "2"], [11, 20]),
        (["0.999999", "999999"], [999_999, 999_999_000_000]),
        (["100000000000", "100000000001"], [10**11, 10**11 + 1]),
        (["-3", "12"], [-3, 12]),
        ([None, None, None], [0, 1, 2]),
        ([None, "0.5", None], [0, 5, 10]),
    ],
)
def test_steps_are_exact_and_those_with_fractions_are_multiplied(
    exports: Path, root: str, capsys: Capture, steps: list[str | None], kept: list[int]
) -> None:
    write_export(exports, [[point("loss", step, number) for number, step in enumerate(steps)]])
    report = run_import(capsys, "neptune", exports, root)
    by_step = sorted(zip(kept, range(len(kept)), strict=True))
    assert [(step, value) for _, step, value in steps_and_values(root)] == by_step
    (info,) = list_runs(Store(root))
    has_fractions = any("." in (step or "") for step in steps)
    assert ("step_scale" in info.parent["imported"]) == has_fractions
    assert [reason[:20] for reason in report["not_taken"]] == (
        ["steps with fractions"] if has_fractions else []
    )


@settings(max_examples=examples(25))
@given(st.lists(st.decimals(-(10**6), 10**6, places=6), min_size=1, max_size=8, unique=True))
def test_any_steps_stay_apart_and_in_order(
    tmp_path_factory: pytest.TempPathFactory, steps: list[Any]
) -> None:
    from halving.imports.foreign_run import Skipped
    from halving.imports.neptune import read_runs

    exports = tmp_path_factory.mktemp("exports")
    write_export(exports, [[point("loss", str(step), number) for number, step in enumerate(steps)]])
    (run,) = read_runs(str(exports), None, Skipped())
    assert isinstance(run, foreign_run.ForeignRun)
    (piece,) = run.pieces({})
    scale = run.origin.get("step_scale", 1)
    assert piece.steps == [step * scale for step in steps]
    assert scale == 1 or any(step * (scale // 10) % 1 for step in steps)


@pytest.mark.parametrize("name", ["model.pt", "a #1 of 2%.txt", "\u00fcber/deep/model", "...", "no suffix"])
@pytest.mark.parametrize("below", [f"{FOLDER}/", ""])
def test_files_are_artifacts_by_their_attributes(
    exports: Path, root: str, capsys: Capture, name: str, below: str
) -> None:
    path = exports / "files" / below / "RUN-1" / name
    path.parent.mkdir(parents=True)
    path.write_bytes(b"content")
    write_export(exports, [[file(name, f"RUN-1/{name}"), file("absent", None)]])
    assert outcomes(run_import(capsys, "neptune", exports, root)) == {NAME: ("new", 0, 0, 1)}
    assert artifacts(root) == {name: b"content"}
    assert outcomes(run_import(capsys, "neptune", exports, root)) == {NAME: ("unchanged", 0, 0, 0)}


def test_files_of_all_kinds_are_taken(exports: Path, root: str, capsys: Capture) -> None:
    for name, content in {
        "RUN-1/weights/best.pt": b"1",
        "RUN-1/code/src/main.py": b"2",
        "RUN-1/code/.DS_Store": b"",
        "RUN-1/data/files_list.json": b"[]",
        "RUN-1/samples/0.png": PNG,
        "RUN-1/samples/0.5.png": PNG[:-3],
        "RUN-1/samples/1.csv": b"a,b",
    }.items():
        write_file(exports, name, content)
    rows = [
        file("weights/best", "RUN-1/weights/best.pt"),
        file("weights/best.pt", "RUN-1/weights/best.pt"),
        file("code", "RUN-1/code", "file_set"),
        file("data", "RUN-1/data/files_list.json", "artifact"),
        file("samples", "RUN-1/samples/0.png", "file_series", 0),
        file("samples", "RUN-1/samples/0.5.png", "file_series", "0.5"),
        file("samples", "RUN-1/samples/1.csv", "file_series", 1),
        file("samples", None, "file_series", 2),
    ]
    write_export(exports, [rows])
    report = run_import(capsys, "neptune", exports, root)
    assert artifacts(root) == {
        "weights/best.pt": b"1",
        "code/src/main.py": b"2",
        "data.json": b"[]",
        "samples/0.5.png": PNG[:-3],
        "samples/1.csv": b"a,b",
    }
    assert contents(root, "image") == [("samples", 0, PNG)]
    assert sorted(report["not_taken"].values()) == [1, 1, 1, 1]
    assert sorted(reason.split(" ")[0] for reason in report["not_taken"]) == [
        "artifacts",
        "files",
        "files",
        "steps",
    ]


def test_files_that_lead_out_of_their_folder_are_not_taken(
    exports: Path, root: str, capsys: Capture, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("secret")
    write_file(exports, "RUN-1/link", b"")
    link = exports / "files" / FOLDER / "RUN-1" / "tree" / "inner"
    link.parent.mkdir()
    link.symlink_to(tmp_path / "secret")
    names = [
        "../../../secret",
        "RUN-1/../../../../secret",
        str(tmp_path / "secret"),
        "..",
        "",
        ".",
        "RUN-1/tree/inner",
        "a\0b",
    ]
    rows = [
        file(f"file{number}", name, kind)
        for number, name in enumerate(names)
        for kind in ("file", "file_series")
    ]
    write_export(exports, [[*rows, file("tree", "RUN-1/tree", "file_set")]])
    report = run_import(capsys, "neptune", exports, root)
    assert (artifacts(root), media(root)) == ({}, [])
    assert report["not_taken"] == {"files whose path leads out of the folder of files": 2 * len(names) + 1}


def test_files_may_be_elsewhere_and_come_later(
    exports: Path, root: str, capsys: Capture, tmp_path: Path
) -> None:
    rows = [
        file("model", "RUN-1/model"),
        *(file("samples", f"RUN-1/{step}.png", "file_series", step) for step in range(3)),
        point("a", 1, 2),
    ]
    write_export(exports, [rows])
    report = run_import(capsys, "neptune", exports, root)
    assert (outcomes(report), list(report["not_taken"].values())) == ({NAME: ("new", 1, 0, 0)}, [4])
    assert "--files FOLDER" in next(iter(report["not_taken"]))
    assert outcomes(run_import(capsys, "neptune", exports, root)) == {NAME: ("unchanged", 0, 0, 0)}
    write_file(tmp_path, "RUN-1/1.png", PNG)
    report = run_import(capsys, "neptune", exports, root, "--files", str(tmp_path / "files"))
    assert (outcomes(report), list(report["not_taken"].values())) == ({NAME: ("continued", 0, 1, 0)}, [3])
    for name, content in {"RUN-1/model": b"model", "RUN-1/0.png": PNG, "RUN-1/2.png": PNG}.items():
        write_file(tmp_path, name, content)
    report = run_import(capsys, "neptune", exports, root, "--files", str(tmp_path / "files"))
    assert (outcomes(report), report["not_taken"]) == ({NAME: ("continued", 0, 2, 1)}, {})
    assert outcomes(run_import(capsys, "neptune", exports, root, "--files", str(tmp_path / "files"))) == {
        NAME: ("unchanged", 0, 0, 0)
    }
    assert [(key, step) for key, step, _, _ in media(root)] == [
        ("samples", 0),
        ("samples", 1),
        ("samples", 2),
    ]


def test_what_a_run_printed_is_one_file(exports: Path, root: str, capsys: Capture) -> None:
    lines = [series("monitoring/a1b2/stdout", "string_series", step, f"line {step}") for step in range(500)]
    more = [
        series("runtime/stderr", "string_series", 0, "oh\n"),
        series("runtime/notes", "string_series", 0, "mine"),
    ]
    write_export(exports, [lines[:300], [*lines[300:], *more]])
    assert outcomes(run_import(capsys, "neptune", exports, root)) == {NAME: ("new", 0, 1, 2)}
    printed = "".join(f"line {step}\n" for step in range(500)).encode()
    assert artifacts(root) == {"monitoring/a1b2/stdout.log": printed, "runtime/stderr.log": b"oh\n"}
    assert contents(root, "text") == [("runtime/notes", 0, b"mine")]


def test_what_has_no_form_here_is_counted(exports: Path, root: str, capsys: Capture) -> None:
    rows: list[Row] = [
        {"attribute_path": "source_code/git", "attribute_type": "git_ref", "string_value": "x"},
        {"attribute_path": "sys/state", "attribute_type": "run_state"},
        {"attribute_path": "what", "attribute_type": None},
        point("loss", 1, None),
        point("", 1, 1.0),
        {**point("loss", 1, 1.0), "attribute_path": None},
        param("", "int", 1),
        series("text", "string_series", 1, None),
    ]
    write_export(exports, [rows])
    report = run_import(capsys, "neptune", exports, root)
    assert report["not_taken"] == {
        "attributes of Neptune's type 'git_ref'": 1,
        "attributes of Neptune's type 'run_state'": 1,
        "attributes of Neptune's type None": 1,
        "points of series that have a time, but no value": 2,
        "points with a name that is empty, longer than 256 characters or has control characters": 2,
        "params without a name": 1,
    }
    again = run_import(capsys, "neptune", exports, root)
    assert (outcomes(again), again["taken"]) == ({NAME: ("unchanged", 0, 0, 0)}, {})


def test_a_run_that_was_exported_again_is_said(
    exports: Path, root: str, capsys: Capture, tmp_path: Path
) -> None:
    write_export(exports, [[point("loss", 1, 0.5), point("loss", 2, 0.25)]])
    run_import(capsys, "neptune", exports, root)
    moved = exports.rename(tmp_path / "moved")
    assert outcomes(run_import(capsys, "neptune", moved, root)) == {NAME: ("unchanged", 0, 0, 0)}
    write_export(exports, [[point("loss", 2, 0.25), point("loss", 3, 0.1), point("loss", 1, 0.5)]])
    report = run_import(capsys, "neptune", exports, root)
    (reason,) = report["not_taken"]
    assert (outcomes(report), reason[:29]) == (
        {NAME: ("unchanged", 0, 0, 0)},
        "runs that were exported again",
    )
    assert outcomes(run_import(capsys, "neptune", exports, root, "--project", "anew")) == {
        NAME: ("new", 3, 0, 0)
    }


def test_an_import_that_is_stopped_anywhere_goes_on_there_and_takes_nothing_twice(
    exports: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(foreign_run, "PIECE_POINTS", 4)
    first: list[Row] = [point("loss", None, value) for value in range(10)]
    second: list[Row] = [
        series("note", "string_series", 3, "hello"),
        *(point("loss", None, value) for value in range(10, 13)),
        file("model", "model"),
    ]
    write_export(exports, [first, [*second, file("samples", "absent.png", "file_series", 1)]])
    write_file(exports, "model", b"model")
    whole = str(tmp_path / "whole")
    with small_disk() as written:
        run_import(capsys, "neptune", exports, whole)
    everything = (points(whole), media(whole), artifacts(whole))
    number = len(written)
    assert [(step, value) for _, step, value in steps_and_values(whole)] == [
        (step, step) for step in range(13)
    ]
    for stopped in range(number):
        root = str(tmp_path / f"stopped{stopped}")
        with small_disk(stopped):
            assert outcomes(run_import(capsys, "neptune", exports, root, status=1))[NAME][0] == "failed"
        assert outcomes(run_import(capsys, "neptune", exports, root))[NAME][0] == (
            "continued" if stopped else "new"
        )
        assert (points(root), media(root), artifacts(root)) == everything
        (info,) = list_runs(Store(root))
        assert [attempt.status for attempt in info.attempts] == ["finished"]
        assert outcomes(run_import(capsys, "neptune", exports, root)) == {NAME: ("unchanged", 0, 0, 0)}


def test_every_run_goes_into_the_project_that_is_named(exports: Path, root: str, capsys: Capture) -> None:
    write_export(exports, [[point("loss", 1, 0.5)]])
    write_export(exports, [[point("loss", 1, 0.5)]], run="RUN/2")
    run_import(capsys, "neptune", exports, root, "-p", "mine")
    assert {(info.project, info.run[:5]) for info in list_runs(Store(root))} == {
        ("mine", "RUN-1"),
        ("mine", "RUN-2"),
    }


def test_files_of_runs_are_not_taken_for_exports(exports: Path, root: str, capsys: Capture) -> None:
    write_export(exports, [[point("loss", 1, 0.5), file("table", "RUN-1/table_part_0.parquet")]])
    write_file(exports, "RUN-1/table_part_0.parquet", b"PAR1")
    write_file(exports, "RUN-1/table_part_1.parquet.tmp", b"")
    assert outcomes(run_import(capsys, "neptune", exports, root)) == {NAME: ("new", 1, 0, 1)}


def test_what_is_no_export_is_refused(tmp_path: Path, root: str, capsys: Capture) -> None:
    from halving.cli.main import main

    (tmp_path / "empty").mkdir()
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    write_export(tmp_path / "exports", [[point("loss", 1, 0.5)]])
    refused = [
        ["neptune", str(tmp_path / "empty")],
        ["neptune", str(tmp_path / "a.parquet")],
        ["neptune", str(tmp_path / "nowhere")],
        ["neptune", str(tmp_path / "exports"), "--files", str(tmp_path / "nowhere")],
        ["tensorboard", str(tmp_path / "exports"), "--files", str(tmp_path / "empty")],
    ]
    for arguments in refused:
        assert main(["import", *arguments, "--root", root]) == 1
        assert "is not accepted" in capsys.readouterr().err
