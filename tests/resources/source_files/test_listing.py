"""Files that patterns name are listed in little memory, each once, and changes are noticed."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from pyarrow import fs

from halving import InvalidInput
from resources.source_files.listing import SourceFiles, find_files, find_files_of_all, refuse_changes


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in (
        "b.csv",
        "a.csv",
        "deep/c.csv",
        "deep/er/d.csv",
        "deep.csv",
        "notes.txt",
        ".hidden.csv",
        "é.csv",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    return tmp_path


def names(files: SourceFiles, folder: Path) -> list[str]:
    return [os.path.relpath(file.path, folder) for file in files]


def test_files_are_sorted_by_path_and_read_like_a_list(folder: Path) -> None:
    files = find_files("files", f"{folder}/**/*.csv")
    assert names(files, folder) == ["a.csv", "b.csv", "deep.csv", "deep/c.csv", "deep/er/d.csv", "é.csv"]
    assert [file.path for file in files] == [files[number].path for number in range(len(files))]
    assert files[-1] == list(files)[-1]
    assert files[1:3] == list(files)[1:3]
    with pytest.raises(IndexError):
        files[len(files)]
    (file,) = find_files("files", f"{folder}/a.csv")
    status = (folder / "a.csv").stat()
    assert file.identity == f"{folder}/a.csv {status.st_size} {status.st_mtime_ns}"


def test_a_file_that_two_patterns_name_is_there_once_where_the_first_has_it(folder: Path) -> None:
    files = find_files_of_all("files", [f"{folder}/deep/*.csv", f"{folder}/*.csv", f"{folder}/**/*.csv"])
    assert names(files, folder) == ["deep/c.csv", "a.csv", "b.csv", "deep.csv", "é.csv", "deep/er/d.csv"]
    assert [files[number].address for number in range(6)] == [file.address for file in files]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            lambda folder: (folder / "deep" / "c.csv").write_text("longer than it was"),
            r"\['.*/deep/c.csv'\] changed",
        ),
        (lambda folder: os.utime(folder / "a.csv", ns=(1, 1)), r"\['.*/a.csv'\] changed"),
        (lambda folder: (folder / "b.csv").unlink(), r"\['.*/b.csv'\] changed"),
        (lambda folder: (folder / "b.csv").rename(folder / "c.csv"), r"\['.*/b.csv'\] changed"),
        (lambda folder: (folder / "new.csv").touch(), "1 files were added"),
    ],
    ids=["written", "touched", "deleted", "renamed", "added"],
)
def test_a_change_is_named(folder: Path, change: Callable[[Path], object], says: str) -> None:
    patterns = [f"{folder}/*.csv", f"{folder}/deep"]
    check = refuse_changes(
        "files", find_files_of_all("files", patterns), lambda: find_files_of_all("files", patterns)
    )
    check()
    change(folder)
    with pytest.raises(InvalidInput, match=rf"^files is not accepted: {says} while it was read"):
        check()


def test_a_folder_deleted_while_it_is_listed_is_told_from_one_that_never_was(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InvalidInput, match=f"there is no folder {folder}/nowhere$"):
        find_files("files", f"{folder}/nowhere/*.csv")
    original = fs.FileSelector

    def deleting(base: str, recursive: bool) -> fs.FileSelector:
        if base.endswith("/deep"):
            shutil.rmtree(base)
        return original(base, recursive=recursive)

    monkeypatch.setattr("pyarrow.fs.FileSelector", deleting)
    with pytest.raises(InvalidInput, match=r"a folder went away while it was listed: .*/deep"):
        find_files("files", f"{folder}/**/*.csv")


@pytest.mark.parametrize(
    ("links", "pattern", "files"),
    [
        ({"latest": "2024"}, "**/*.csv", ["2023/a.csv", "2024/a.csv", "2024/b.csv"]),
        ({"2022": "2024"}, "*/*.csv", ["2023/a.csv", "2024/a.csv", "2024/b.csv"]),
        ({"latest": "2024"}, "lat*/*.csv", ["latest/a.csv", "latest/b.csv"]),
        ({"latest": "2024"}, "latest", ["latest/a.csv", "latest/b.csv"]),
        ({"2023/b.csv": "../2024/b.csv"}, "", ["2023/a.csv", "2024/a.csv", "2024/b.csv"]),
        ({"2023/b.csv": "../2024/b.csv"}, "2023/*.csv", ["2023/a.csv", "2023/b.csv"]),
        ({"x.csv": "../other/o.csv", "y.csv": "../other/o.csv"}, "*.csv", ["x.csv", "y.csv"]),
        ({"x": "../other", "2023/y": "../../other"}, "**/o.csv", ["2023/y/o.csv", "x/o.csv"]),
        ({"x": "../other"}, "**/*.csv", ["2023/a.csv", "2024/a.csv", "2024/b.csv", "x/o.csv"]),
        ({"2023/self": ".", "up": ".."}, "**/a.csv", ["2023/a.csv", "2024/a.csv"]),
        ({"2023/x": "../2024", "2024/y": "../2023"}, "**/a.csv", ["2023/a.csv", "2024/a.csv"]),
        ({"2023/gone.csv": "nowhere.csv"}, "2023", ["2023/a.csv"]),
        (
            {
                "k=1/a.csv": "../../other/o.csv",
                "k=2/a.csv": "../../other/o.csv",
                "k=2/b.csv": "../../other/o.csv",
            },
            "k*/*.csv",
            ["k=1/a.csv", "k=2/a.csv", "k=2/b.csv"],
        ),
        ({"2023/k=1": "..", "2023/k=2": "../2024"}, "2023/k*/a.csv", ["2023/k=2/a.csv"]),
        ({"2024/k=1/a.csv": "../a.csv"}, "2024", ["2024/a.csv", "2024/b.csv", "2024/k=1/a.csv"]),
        ({"2024/k=1": "."}, "2024", ["2024/a.csv", "2024/b.csv"]),
    ],
)
def test_a_file_that_a_link_leads_to_is_there_once(
    tmp_path: Path, links: dict[str, str], pattern: str, files: list[str]
) -> None:
    for name in ("data/2023/a.csv", "data/2024/a.csv", "data/2024/b.csv", "other/o.csv"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    for name, target in links.items():
        (tmp_path / "data" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "data" / name).symlink_to(target)
    place = tmp_path / "data"
    assert names(find_files("files", f"{place}/{pattern}".rstrip("/")), place) == files


def test_a_file_that_a_link_of_another_pattern_leads_to_is_there_once(tmp_path: Path) -> None:
    (tmp_path / "2024").mkdir()
    for name in "ab":
        (tmp_path / "2024" / f"{name}.csv").touch()
    (tmp_path / "latest").symlink_to("2024")
    (tmp_path / "b.csv").symlink_to("2024/b.csv")
    for patterns in (
        ["2024/*.csv", "latest/*.csv"],
        ["2024", "latest", "b.csv"],
        ["2024/a.csv", "2024/b.csv", "b.csv"],
    ):
        assert names(
            find_files_of_all("files", [f"{tmp_path}/{pattern}" for pattern in patterns]), tmp_path
        ) == [
            "2024/a.csv",
            "2024/b.csv",
        ]


def test_a_name_that_is_not_utf_8_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/deep/caf\xe9.csv")).touch()
    with pytest.raises(
        InvalidInput,
        match=r"^files = '.*' is not accepted: the name b'caf\\xe9.csv' is not UTF-8; rename it$",
    ):
        find_files("files", f"{tmp_path}/**/*.csv")
