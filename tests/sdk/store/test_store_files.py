"""Whole files in the store are published once, sized and deleted, in a folder and through Arrow."""

import os
from pathlib import Path

import pytest

from halving import Store
from halving.errors import AlreadyExists, StoreError


def test_a_file_is_published_once_and_the_same_content_is_accepted_again(
    any_store: Store, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"x" * 3_000_000)
    for _ in range(2):
        any_store.create("a/b", source)
    assert any_store.read("a/b") == source.read_bytes()
    assert any_store.sizes(["a/b", "a/none", "a"]) == {"a/b": 3_000_000}
    source.write_bytes(b"y")
    with pytest.raises(AlreadyExists, match="a/b"):
        any_store.create("a/b", source)
    assert any_store.names("a") == ["b"]


def test_a_deleted_file_is_gone_and_may_be_deleted_again(any_store: Store) -> None:
    any_store.create("a/b", b"1")
    for _ in range(2):
        any_store.delete("a/b")
    assert not any_store.exists("a/b")
    any_store.create("a/b", b"2")
    assert any_store.read("a/b") == b"2"


def test_what_cannot_be_deleted_is_an_error_that_names_it(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.create("folder/b", b"1")
    with pytest.raises(StoreError, match=r"cannot delete .*/folder"):
        store.delete("folder")


def test_only_unfinished_files_that_are_old_are_cleared(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for name in (".old", ".new", "published"):
        (tmp_path / name).write_bytes(b"")
    for name in (".old", "published"):
        os.utime(tmp_path / name, (0, 0))
    store.clear_abandoned("")
    store.clear_abandoned("nowhere")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [".new", "published"]
