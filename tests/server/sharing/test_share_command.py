"""``halving share``: the file that it writes, and what it refuses."""

import json
from pathlib import Path

import pytest

from halving.cli.main import main
from resources.backend import Backend
from server.sharing.page import MAX_BYTES
from tests.server.sharing.shared import fill, read_page


def test_a_page_is_written_once_and_overwritten_only_by_force(
    backend: Backend, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(backend, 3)
    file = tmp_path / "page.html"
    command = ["share", "project = demo order by metrics.loss", "-o", str(file), "--root", backend.store.root]
    assert main(command) == 0
    said = capsys.readouterr().err
    assert f"{file} has 3 runs with 6 curves of at most 1000 rows, in " in said
    assert read_page(file.read_bytes()).runs == ["r0", "r1", "r2"]
    first = file.stat().st_ino
    assert main([*command, "--metrics", "loss"]) == 1
    assert f"-o {file} exists already: give another file, or --force" in capsys.readouterr().err
    assert file.stat().st_ino == first
    assert main([*command, "--metrics", "loss", "--force", "--by", "ann", "--title", "Baselines"]) == 0
    said = capsys.readouterr().err
    assert "not in it: curves of val/accuracy\n  --metrics A,B chooses the curves" in said
    page = read_page(file.read_bytes())
    assert (page.facts["metrics"], page.facts["by"], page.facts["title"]) == (["loss"], "ann", "Baselines")
    assert "<title>Baselines · Halving</title>" in page.html
    assert not list(tmp_path.glob(".page*")), "no half file is left"


def test_the_json_says_what_the_page_holds(
    backend: Backend, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(backend, 1)
    file = tmp_path / "page.html"
    assert main(["share", "r0", "-o", str(file), "--root", backend.store.root, "--json"]) == 0
    described = json.loads(capsys.readouterr().out)
    assert described == {
        "file": str(file),
        "bytes": file.stat().st_size,
        "title": "demo/r0",
        "runs": 1,
        "curves": 2,
        "rows": 1000,
        "left_out": [],
        "unread": 0,
    }
    assert described["bytes"] < MAX_BYTES


def test_the_standard_output_has_the_page_alone(
    backend: Backend, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    fill(backend, 1)
    assert main(["share", "demo/r0", "-o", "-", "--root", backend.store.root]) == 0
    assert capfdbinary.readouterr().out.startswith(b"<!doctype html>")


@pytest.mark.parametrize(
    ("view", "message"),
    [
        ("nowhere", "nor is there a sweep 'nowhere': give a filter such as"),
        ("status >< 1", "column 9"),
        ("project = nobody", "no run is shown by 'project = nobody'"),
        ("http://halving.example/models/digits", "shows no curves: give a filter such as"),
    ],
)
def test_a_wrong_view_is_refused_in_one_line_and_no_file_is_left(
    backend: Backend, tmp_path: Path, capsys: pytest.CaptureFixture[str], view: str, message: str
) -> None:
    fill(backend, 1)
    file = tmp_path / "page.html"
    assert main(["share", view, "-o", str(file), "--root", backend.store.root]) == 1
    said = capsys.readouterr().err
    assert said.startswith("halving share: ")
    assert message in said
    assert not file.exists()


def test_json_beside_a_page_on_the_standard_output_is_refused(
    backend: Backend, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["share", "r0", "-o", "-", "--json", "--root", backend.store.root]) == 1
    assert "--json is not accepted with -o -" in capsys.readouterr().err


def test_a_store_without_runs_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["share", "", "--root", str(tmp_path / "nothing")]) == 1
    assert "there are no runs in" in capsys.readouterr().err
    assert not (tmp_path / "nothing" / "catalog.db").exists()
