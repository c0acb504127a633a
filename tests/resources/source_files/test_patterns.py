"""An existing path is taken literally, a pattern matches segments, and files of tools are no data."""

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import fs

from halving import InvalidInput, Store
from resources.source_files.listing import find_files, watch_files
from resources.source_files.patterns import fits, is_data, is_file_of_a_folder, split_pattern
from tests.properties import examples

SPARK = [
    "_SUCCESS",
    ".part-0.csv.crc",
    "_temporary/0/x.csv",
    "_metadata/0.json",
    ".ipynb_checkpoints/x-checkpoint.csv",
    ".git/x.csv",
]


def make(folder: Path, names: list[str]) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


def find(folder: Path, pattern: str, hidden: bool = False) -> list[str]:
    return [
        os.path.relpath(file.path, folder)
        for file in find_files("files", f"{folder}/{pattern}".rstrip("/"), hidden=hidden)
    ]


@pytest.mark.parametrize(
    ("there", "pattern", "files"),
    [
        (["[2024] sales.csv", "2 sales.csv"], "[2024] sales.csv", ["[2024] sales.csv"]),
        (["what?.csv", "whats.csv"], "what?.csv", ["what?.csv"]),
        (["a*b.csv", "axb.csv"], "a*b.csv", ["a*b.csv"]),
        (["[ab].csv", "a.csv"], "[ab].csv", ["[ab].csv"]),
        (["a.csv", "b.csv", "c.csv"], "[ab].csv", ["a.csv", "b.csv"]),
        (["exports [final]/a.csv", "exports f/a.csv"], "exports [final]/*.csv", ["exports [final]/a.csv"]),
        (["exports [final]/a.csv", "exports f/a.csv"], "exports [final]", ["exports [final]/a.csv"]),
        (["exports [final]/a.csv", "exports f/a.csv"], "exports [final]/a.csv", ["exports [final]/a.csv"]),
        (["exports f/a.csv"], "exports [final]/*.csv", ["exports f/a.csv"]),
        (["[x]/[y]/a.csv", "x/y/a.csv"], "[x]/[y]/**/*.csv", ["[x]/[y]/a.csv"]),
        (
            ["one/[2024] sales.csv", "two/[2024] sales.csv"],
            "*/[2024] sales.csv",
            ["one/[2024] sales.csv", "two/[2024] sales.csv"],
        ),
        (["2024 #1.csv"], "2024 #1.csv", ["2024 #1.csv"]),
        (["déjà vu.csv"], "déjà vu.csv", ["déjà vu.csv"]),
        (["100%.csv", "100%25.csv"], "100%25.csv", ["100%25.csv"]),
        (["a/part.csv", "a/old-part.csv", "part.csv"], "**/part.csv", ["a/part.csv", "part.csv"]),
        (["a/b/c.csv"], "**", ["a/b/c.csv"]),
        (["a/b/c.csv", "b.csv"], "a/**", ["a/b/c.csv"]),
        (["a/b/c.csv", "b/c.csv", "a/bb/c.csv"], "**/b/**/c.csv", ["a/b/c.csv", "b/c.csv"]),
        (["a/b/c.csv", "a/c.csv"], "a/*/*.csv", ["a/b/c.csv"]),
        (["a/b/c.csv", "a/c.csv", "d.csv"], "*/*.csv", ["a/c.csv"]),
        (["a/b/c.csv", "d.csv"], "", ["a/b/c.csv", "d.csv"]),
        (["_raw.csv", ".h.csv", "x.csv"], "*.csv", ["x.csv"]),
        (["_raw.csv", ".h.csv", "x.csv"], "_*.csv", ["_raw.csv"]),
        (["_raw.csv", ".h.csv", "x.csv"], "_raw.csv", ["_raw.csv"]),
        (["_raw.csv", ".h.csv", "x.csv"], ".*.csv", [".h.csv"]),
        (["_raw/x.csv", "_raw/_y.csv", "x.csv"], "**/*.csv", ["x.csv"]),
        (["_raw/x.csv", "_raw/_y.csv", "x.csv"], "_raw", ["_raw/x.csv"]),
        (["_raw/x.csv", "_raw/_y.csv", "x.csv"], "_r*/*.csv", ["_raw/x.csv"]),
        (["deep/_raw/x.csv", "x.csv"], "**/_raw/*.csv", ["deep/_raw/x.csv"]),
        (["_day=1/x.csv", "_metadata/x.csv"], "**/*.csv", ["_day=1/x.csv"]),
        (["x.csv", "Thumbs.db", "desktop.ini", "__MACOSX/._x.csv", ".DS_Store", "._x.csv"], "", ["x.csv"]),
        (["x.csv", *SPARK], "", ["x.csv"]),
        (["deep/x.csv", *(f"deep/{name}" for name in SPARK)], "**/*", ["deep/x.csv"]),
        (["deep/x.csv", *(f"deep/{name}" for name in SPARK)], "*/*", ["deep/x.csv"]),
        (["t/_delta_log/0.json", "t/x.parquet", "u/x.csv"], "**/*.csv", ["u/x.csv"]),
        (["t/_delta_log/0.json", "t/x.parquet"], "t/_delta_log/*.json", ["t/_delta_log/0.json"]),
        (["t/_delta_log/0.json", "t/x.parquet"], "*/_delta_log/*.json", ["t/_delta_log/0.json"]),
        (["t/_delta_log/0.json", "t/x.parquet"], "t/x.parquet", ["t/x.parquet"]),
    ],
)
def test_a_pattern_names_what_it_says(
    tmp_path: Path, there: list[str], pattern: str, files: list[str]
) -> None:
    make(tmp_path, there)
    assert find(tmp_path, pattern) == files


@pytest.mark.parametrize(
    ("there", "pattern", "says"),
    [
        (
            ["_SUCCESS", ".a.crc", "_temporary/0/x.csv"],
            "",
            r"no file has such a name \(3 of them or their folders begin with _ or ., which is no data\)$",
        ),
        (["_a.csv", "b.txt"], "*.csv", r"no file has such a name \(1 of them"),
        (["a.csv"], "*.parquet", "no file has such a name$"),
        (["a.csv"], "**.csv", r"'\*\*' stands for folders: write .*/\*\*/\*.csv$"),
        (["a/part-1.csv"], "a/part**.csv", r"'\*\*' stands for folders: write .*/a/\*\*/part\*.csv$"),
        (
            ["_delta_log/0.json", "x.parquet"],
            "",
            (
                ".* is a Delta table, whose files hold rows that were deleted, too; give delta: … and "
                "version: "
                "…$"
            ),
        ),
        (["_delta_log/0.json", "x.parquet"], "*.parquet", ".* is a Delta table"),
        (["_delta_log/0.json", "day=1/x.parquet"], "day=1/*.parquet", ".* is a Delta table"),
        (
            ["lake/t/_delta_log/0.json", "lake/t/x.parquet", "lake/y.parquet"],
            "lake",
            ".*/lake/t is a Delta table",
        ),
        (
            ["lake/t/_delta_log/0.json", "lake/t/x.parquet", "lake/y.parquet"],
            "lake/**/*.parquet",
            ".*/lake/t is a Delta table",
        ),
        (
            ["lake/t/_delta_log/0.json", "lake/t/a=1/x.parquet"],
            "lake/*/*/*.parquet",
            ".*/lake/t is a Delta table",
        ),
        (["_delta_log/0.json", "day=1/x.parquet"], "**/*.parquet", ".* is a Delta table"),
        ([], "none", "there is no folder .*/none$"),
        ([], "none/*.csv", "there is no folder .*/none$"),
        ([], "[none].csv", "no file has such a name$"),
    ],
)
def test_a_pattern_that_names_nothing_or_something_else_is_refused(
    tmp_path: Path, there: list[str], pattern: str, says: str
) -> None:
    make(tmp_path, there)
    with pytest.raises(InvalidInput, match=rf"(?s)^files = '.*' is not accepted: {says}"):
        find(tmp_path, pattern)


@pytest.mark.parametrize(
    "name", ["2024 #1.csv", "100%.csv", "déjà vu.csv", "[2024] sales.csv", "a*b.csv", "a+b&c=d.csv"]
)
def test_a_name_with_signs_is_that_name_in_a_folder_and_on_s3(any_store: Store, name: str) -> None:
    any_store.create(f"raw [x]/{name}", b"x\n1\n")
    base, mark, options = any_store.root.partition("?")
    (file,) = find_files("files", f"{base}/raw [x]/{name}{mark}{options}")
    assert file.path.endswith(f"/raw [x]/{name}")
    (file,) = find_files("files", f"{base}/raw [x]/*.csv{mark}{options}")
    assert file.path.endswith(f"/raw [x]/{name}")
    (file,) = find_files("files", f"{base}/raw [x]{mark}{options}")
    assert file.path.endswith(f"/raw [x]/{name}")


def test_what_spark_leaves_on_s3_is_no_data(any_store: Store) -> None:
    for name in ("part-0.csv", *SPARK):
        any_store.create(f"out/deep/{name}", b"x\n1\n")
    base, mark, options = any_store.root.partition("?")
    for pattern in ("out", "out/**/*", "out/*/*", "**/part*.csv"):
        (file,) = find_files("files", f"{base}/{pattern}{mark}{options}")
        assert file.path.endswith("out/deep/part-0.csv")


def test_files_of_a_delta_table_on_s3_are_refused(any_store: Store) -> None:
    for name in ("_delta_log/0.json", "day=1/x.parquet"):
        any_store.create(f"lake/t/{name}", b"x")
    base, mark, options = any_store.root.partition("?")
    for pattern in ("lake", "lake/t", "lake/**/*.parquet", "lake/*/*/*.parquet", "lake/t/day=1/*.parquet"):
        with pytest.raises(
            InvalidInput,
            match=r"lake/t is a Delta table, whose files hold rows that were deleted, too; give delta: ",
        ):
            find_files("files", f"{base}/{pattern}{mark}{options}")


def test_what_a_query_may_read_is_watched_hidden_or_not(tmp_path: Path) -> None:
    make(tmp_path, ["_raw/a.csv", ".b.csv", "c.csv"])
    assert find(tmp_path, "**/*.csv", hidden=True) == [".b.csv", "_raw/a.csv", "c.csv"]
    check = watch_files("sql", [f"{tmp_path}/**/*.csv"])
    check()
    (tmp_path / "_raw" / "a.csv").write_text("changed")
    with pytest.raises(InvalidInput, match=r"a.csv'\] changed"):
        check()


def test_folders_that_are_no_data_are_not_looked_into(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path, ["a/x.csv", ".git/objects/x.csv", "_temporary/0/x.csv"])
    listed: list[str] = []
    original = fs.FileSelector

    def selector(base: str, recursive: bool) -> fs.FileSelector:
        listed.append(os.path.relpath(base, tmp_path))
        return original(base, recursive=recursive)

    monkeypatch.setattr("pyarrow.fs.FileSelector", selector)
    assert find(tmp_path, "**/*.csv") == ["a/x.csv"]
    assert sorted(listed) == [".", "a"]


@pytest.mark.parametrize(
    ("name", "in_files", "in_a_folder"),
    [
        ("part-0.parquet", True, True),
        ("_DSC0001.JPG", False, True),
        ("_background_noise_", False, True),
        ("_SUCCESS", False, False),
        ("_temporary", False, False),
        ("__MACOSX", False, False),
        (".DS_Store", False, False),
        ("._a.jpg", False, False),
        (".ipynb_checkpoints", False, False),
        ("Thumbs.db", False, False),
        ("desktop.ini", False, False),
        ("_year=2024", True, True),
        ("a_b.c", True, True),
    ],
)
def test_what_is_data_goes_by_the_name(name: str, in_files: bool, in_a_folder: bool) -> None:
    assert is_data(name) is in_files
    assert is_file_of_a_folder(name) is in_a_folder


@pytest.mark.parametrize(
    ("path", "base", "wanted"),
    [
        ("a.csv", "a.csv", []),
        ("none.csv", "none.csv", []),
        ("[x]/a.csv", "[x]/a.csv", []),
        ("[x]/*.csv", "[x]", ["*.csv"]),
        ("*/[x].csv", "", ["*", "[x].csv"]),
        ("[x]/**/[x]/a.csv", "[x]", ["**", "[x]", "a.csv"]),
        ("a.csv/[x]", "a.csv", ["[x]"]),
    ],
)
def test_a_path_is_divided_where_a_mark_has_to_stand_for_something(
    tmp_path: Path, path: str, base: str, wanted: list[str]
) -> None:
    make(tmp_path, ["a.csv", "[x]/a.csv"])
    assert split_pattern(fs.LocalFileSystem(), f"{tmp_path}/{path}") == (
        f"{tmp_path}/{base}".rstrip("/"),
        wanted,
    )


def test_a_pattern_of_the_whole_disk_begins_at_its_root() -> None:
    assert split_pattern(fs.LocalFileSystem(), "/*/none.csv") == ("/", ["*", "none.csv"])


segments = st.lists(
    st.text(st.characters(exclude_characters="*?[/", codec="utf-8"), min_size=1), min_size=1, max_size=6
)


@given(names=segments)
@settings(max_examples=examples(100))
def test_a_path_without_marks_names_itself_and_nothing_longer(names: list[str]) -> None:
    assert fits(names, names)
    assert not fits([*names, "x"], names)
    assert fits(names, ["**"], hidden=True)
    assert fits(names, ["*"] * len(names), hidden=True)
    assert not fits(names, ["*"] * (len(names) + 1), hidden=True)
    assert fits(names, ["**", names[-1]], hidden=True)
    assert fits(names, ["**"]) == all(map(is_data, names))
