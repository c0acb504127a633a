"""``halving journal`` and ``halving journal note``, and notes from notebooks."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import halving
from commands.journal import run_journal
from halving import InvalidInput, NotFound
from halving.cli.main import main

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Call:
    """The command's status, output and errors, on a store with the runs digits/a and digits/ab."""
    monkeypatch.setenv("HALVING_USER", "ada")
    for run in ("a", "ab"):
        halving.init("digits", {}, tmp_path, id=run, system_metrics=None).finish()

    def journal(*arguments: str, root: Path = tmp_path) -> tuple[int, str, str]:
        status = main(["journal", *arguments, "--root", str(root)])
        printed = capsys.readouterr()
        return status, printed.out, printed.err

    return journal


def data(called: tuple[int, str, str]) -> dict[str, Any]:
    status, out, err = called
    assert (status, err) == (0, ""), err
    answer: dict[str, Any] = json.loads(out)
    return answer


def test_a_note_is_written_on_what_was_named_and_shown_with_what_happened(call: Call) -> None:
    status, out, err = call("note", "digits/a", "**why**\n- [red]one[/]")
    assert (status, out, err) == (0, "noted on run digits/a, by ada\n", "")
    entries = data(call("digits/a", "--json"))["entries"]
    assert [entry["what"] for entry in entries] == ["note", "finished", "began"]
    assert (entries[0]["actor"], entries[0]["text"]) == ("ada", "**why**\n- [red]one[/]")
    _, out, _ = call("--project", "digits")
    lines = out.splitlines()
    assert lines[0].endswith(f"{entries[0]['at'][:4]}{lines[0][-6:]}")  # a day's heading
    assert lines[-3].endswith("digits/a  ada: note")
    assert [line.rstrip() for line in lines[-2:]] == ["       **why**", "       - [red]one[/]"]


def test_a_note_is_read_from_the_standard_input(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("from\na pipe\n"))
    assert data(call("note", "project:digits", "-", "--json"))["text"] == "from\na pipe"


@pytest.mark.parametrize("text", ["", " ", "x" * 20_001])
def test_a_text_that_is_no_note_is_refused_before_anything_is_opened(
    call: Call, tmp_path: Path, text: str
) -> None:
    status, _, err = call("note", "a", text, root=tmp_path / "none")
    assert (status, "is not accepted: " in err) == (1, True)
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["nothing"], "no run, sweep, model or project 'nothing'"),
        (["digits", "--kind", "run"], "no run 'digits'"),
        (["--kind", "run"], "--kind is not accepted without a SUBJECT"),
        (["--since", "yesterday"], "since = 'yesterday' is not accepted: give 30min, 12h, 2d"),
        (["--since", "1e999d"], "since = '1e999d' is not accepted"),
        (["--since", f"{'9' * 30}d"], "is not accepted: give 30min"),
        (["--limit", "0"], "limit = 0 is not accepted"),
        (["--before", "x"], "before = 'x' is not accepted"),
        (["--project", "none"], "no project 'none'"),
        (["digits/a", "--project", "none"], "no run 'digits/a' in project 'none'"),
    ],
)
def test_what_is_not_accepted_is_named(call: Call, arguments: list[str], problem: str) -> None:
    status, out, err = call(*arguments)
    assert (status, out) == (1, "")
    assert problem in err


def test_a_name_of_several_things_is_refused_with_all_of_them(call: Call) -> None:
    for run in ("b1", "b2"):
        halving.init("words", {}, Path(_root_of(call)), id=run, system_metrics=None).finish()
    status, _, err = call("b")
    assert (status, "could be run:words/b1, run:words/b2" in err) == (1, True), err
    assert data(call("run:words/b1", "--json"))["entries"][0]["subject"] == "words/b1"


def _root_of(call: Call) -> Path:
    root: Path = call.__kwdefaults__["root"]  # type: ignore[attr-defined]
    return root


def test_pages_go_on_where_the_one_before_ended(call: Call) -> None:
    everything = data(call("--json"))["entries"]
    first = data(call("--json", "--limit", "3"))
    second = data(call("--json", "--before", first["older"]))
    assert first["entries"] + second["entries"] == everything
    assert (len(everything), second["older"]) == (4, None)
    assert data(call("--json", "--since", "2099-01-01"))["entries"] == []
    assert len(data(call("--json", "--since", "2d"))["entries"]) == 4


def test_a_root_that_is_misspelt_makes_no_store(call: Call, tmp_path: Path) -> None:
    status, _, err = call(root=tmp_path / "none")
    assert (status, "there is no such folder" in err) == (1, True)
    assert not (tmp_path / "none").exists()


def test_a_notebook_writes_notes_by_the_application(call: Call, tmp_path: Path) -> None:
    assert halving.note("digits/ab", "*from* a notebook", root=tmp_path) == "note:1"
    (entry,) = data(call("digits/ab", "--notes", "--json"))["entries"]
    assert (entry["text"], entry["actor"]) == ("*from* a notebook", "ada")
    with pytest.raises(InvalidInput, match="text = '' is not accepted"):
        halving.note("ab", " ", root=tmp_path)
    with pytest.raises(NotFound, match="no run 'none'"):
        halving.note("none", "x", root=tmp_path)
    with pytest.raises(InvalidInput, match="give project/run"):
        halving.note("ab", "x", url="http://127.0.0.1:9")


def test_the_docstring_names_the_fields_of_the_json(call: Call) -> None:
    entry = data(call("--json"))["entries"][0]
    assert all(f'"{name}"' in str(run_journal.__doc__) for name in entry)
