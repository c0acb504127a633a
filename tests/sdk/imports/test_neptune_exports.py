"""Files of Neptune's runs, and exports that are incomplete, damaged or made again."""

from pathlib import Path

import numpy as np
import pytest

from halving import Image, Store
from halving.imports import foreign_run
from halving.query.runs import list_runs
from tests.sdk.imports.copies import media, outcomes, points, run_import, small_disk
from tests.sdk.imports.neptune_files import (
    FOLDER,
    NAME,
    Capture,
    Row,
    artifacts,
    contents,
    file,
    point,
    series,
    steps_and_values,
    write_export,
    write_file,
)

PNG = Image(np.zeros((2, 3), np.uint8)).encode()


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path / "store")


@pytest.fixture
def exports(tmp_path: Path) -> Path:
    return tmp_path / "exports"


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
