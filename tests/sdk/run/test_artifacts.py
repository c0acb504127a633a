"""Artifacts of a run: files by the names that people gave them, and folders with all that is in them."""

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from halving import InvalidInput, Store
from halving.cli.main import main
from halving.run.artifacts import files_of
from tests.sdk.artifact_names import NAMES
from tests.sdk.run.runs import start


def artifacts_of(store: Store, capsys: pytest.CaptureFixture[str], run: str = "p/r") -> dict[str, bytes]:
    """The contents by name, as ``halving show`` knows them."""
    capsys.readouterr()
    assert main(["show", run, "--json", "--root", store.root]) == 0
    rows: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["artifacts"]
    assert len({row["name"] for row in rows}) == len(rows)
    return {row["name"]: store.get_blob(row["digest"]) for row in rows}


def write_tree(folder: Path, *paths: str) -> None:
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(path)


def test_names_are_kept_as_they_are(store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "file"
    with start(store) as run:
        for name in NAMES:
            file.write_text(name)
            assert run.log_artifact(file, name) == run.log_artifact(file, name)
    assert artifacts_of(store, capsys) == {name: name.encode() for name in NAMES}


def test_a_file_has_its_own_name(store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = [name for name in NAMES if "/" not in name and len(name.encode()) < 256]
    with start(store) as run:
        for name in own:
            (tmp_path / name).write_text(name)
            assert run.log_artifact(tmp_path / name) is not None
    assert artifacts_of(store, capsys) == {name: name.encode() for name in own}


def test_a_folder_is_kept_with_its_tree(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = ["loss.txt", "Loss.txt", "deep/er/[1] é#?.txt", "deep/.hidden", ".cache/x", "deep-er"]
    write_tree(tmp_path / "plots", *paths)
    write_tree(tmp_path / "elsewhere", "of a link")
    (tmp_path / "plots" / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "plots" / "link.txt").symlink_to(tmp_path / "plots" / "loss.txt")
    (tmp_path / "plots" / "empty").mkdir()
    tree = {path: path.encode() for path in paths} | {"link/of a link": b"of a link", "link.txt": b"loss.txt"}
    monkeypatch.chdir(tmp_path / "plots" / "deep")
    with start(store) as run:
        assert run.log_artifact(tmp_path / "plots") is None
        assert run.log_artifact(f"{tmp_path}/plots/", "again/and again") is None
        assert run.log_artifact(tmp_path / "plots" / "empty") is None
        assert run.log_artifact("..", None) is None  # the same as the first
        run.log_artifact(".")
    expected = {
        f"{folder}/{path}": content
        for folder in ("plots", "again/and again")
        for path, content in tree.items()
    }
    deep = {path: content for path, content in tree.items() if path.startswith("deep/")}
    assert artifacts_of(store, capsys) == expected | deep


def test_of_a_folder_with_what_is_no_file_nothing_is_stored(store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "plots"
    write_tree(folder, "a/first.txt")
    odd = folder / "deep" / "odd"
    odd.parent.mkdir()
    with start(store) as run, socket.socket(socket.AF_UNIX) as listening:
        makers_of: dict[str, list[Callable[[], object]]] = {
            "it is neither a file nor a folder": [
                lambda: os.mkfifo(odd),
                lambda: odd.symlink_to("nowhere"),
                lambda: listening.bind(os.path.relpath(odd)),
            ],
            r"it is a link to '.*', in which it is itself": [
                lambda: odd.symlink_to(folder),
                lambda: odd.symlink_to("."),
            ],
            "is not accepted: give text of": [
                (odd.parent / "a\nb").touch,
                Path(os.fsdecode(os.fsencode(odd.parent) + b"/\xff")).touch,
            ],
        }
        for message, makers in makers_of.items():
            for make in makers:
                make()
                with pytest.raises(InvalidInput, match=message):
                    run.log_artifact(folder)
                for made in odd.parent.iterdir():
                    made.unlink()
        for missing in (tmp_path / "nothing", tmp_path / ("x" * 300), "a\0b", odd):
            with pytest.raises(
                InvalidInput, match=r"artifact path .* is not accepted: give an existing file or folder"
            ):
                run.log_artifact(missing)
        with pytest.raises(InvalidInput, match=r"artifact name '\.\./up/a/first\.txt' is not accepted"):
            run.log_artifact(folder, "../up")
    assert store.names("runs/project=p/r/artifacts") == []


def test_files_come_in_order(tmp_path: Path) -> None:
    write_tree(tmp_path / "f", "b", "a/2", "a/1", "c")
    assert [name for name, _ in files_of(tmp_path / "f")] == ["f/a/1", "f/a/2", "f/b", "f/c"]
