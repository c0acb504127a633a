"""Blobs in a colder place are read all the same; moving them loses nothing. On a disk and on S3."""

import pickle
import time
from pathlib import Path

import pytest

from halving import InvalidInput, NotFound, Store, StoreError
from halving.maintenance.cold_tier import Movable, find_movable, move_blob, move_blobs
from halving.store.cold import add_cold_root
from halving.store.files import Files
from halving.store.store import blob_name

LATER = time.time() + 100 * 86_400
CONTENT = bytes(range(256)) * 100


@pytest.fixture
def cold_place(any_store: Store, tmp_path: Path) -> Store:
    """A colder place of the store, of the same kind."""
    root, question, options = any_store.root.partition("?")
    return add_cold_root(any_store, f"{root}-cold{question}{options}")


def is_here(store: Store, digest: str) -> bool:
    return Files.exists(store, blob_name(digest))


def test_a_moved_blob_is_read_as_before_and_lies_in_one_place(any_store: Store, cold_place: Store) -> None:
    digest = any_store.put_blob(CONTENT)
    other = any_store.put_blob(b"stays")
    reader = pickle.loads(pickle.dumps(any_store))  # has looked for nothing yet
    early = Store(any_store.root)
    assert early.has_blob(digest)
    (movable,) = find_movable(any_store, {bytes.fromhex(digest[7:])}, LATER)
    assert movable == Movable(digest, len(CONTENT))
    assert list(move_blobs(any_store, cold_place, [movable], LATER)) == [movable]
    assert (is_here(any_store, digest), is_here(cold_place, digest), is_here(cold_place, other)) == (
        False,
        True,
        False,
    )
    for store in (any_store, reader, early):
        name = blob_name(digest)
        assert store.has_blob(digest)
        assert store.get_blob(digest) == CONTENT
        assert store.sizes([name, blob_name(other)]) == {name: len(CONTENT), blob_name(other): 5}
        with (
            store.blob_file(digest) as path,
            store.open_file(name) as file,
            store.open_stream(name) as stream,
        ):
            assert (
                path.read_bytes()
                == bytes(file.read())
                == bytes(stream.read())
                == b"".join(store.parts(name))
                == CONTENT
            )
        assert store.holder(name).root == cold_place.root
    assert any_store.holder(blob_name(other)) is any_store
    assert list(find_movable(any_store, {bytes.fromhex(digest[7:])}, LATER)) == []
    assert not move_blob(any_store, cold_place, digest, LATER)


def test_what_no_place_has_is_not_found(any_store: Store, cold_place: Store) -> None:
    digest = "sha256:" + "0" * 64
    assert not any_store.has_blob(digest)
    with pytest.raises(NotFound):
        any_store.get_blob(digest)
    with pytest.raises(NotFound), any_store.blob_file(digest):
        pass
    with pytest.raises(NotFound):
        any_store.read("runs/project=p/a/record.json")


def test_bytes_put_again_are_here_again_and_a_move_beside_the_put_leaves_them(
    any_store: Store, cold_place: Store
) -> None:
    digest = any_store.put_blob(CONTENT)
    now = time.time()
    assert not move_blob(
        any_store, cold_place, digest, now - 86_400
    )  # put after that: a run is about to record it
    assert is_here(any_store, digest)
    assert move_blob(any_store, cold_place, digest, LATER)
    assert any_store.put_blob(CONTENT) == digest
    assert is_here(any_store, digest)
    assert move_blob(any_store, cold_place, digest, LATER)
    assert any_store.get_blob(digest) == CONTENT


@pytest.mark.parametrize("step", ["put_hashed_blob", "blob_file", "collect"])
def test_whoever_is_killed_while_a_blob_moves_loses_nothing(
    any_store: Store, cold_place: Store, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = any_store.put_blob(CONTENT)

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(any_store if step == "collect" else cold_place, step, die)
        with pytest.raises(KeyboardInterrupt):
            move_blob(any_store, cold_place, digest, LATER)
    assert any_store.get_blob(digest) == CONTENT
    assert move_blob(any_store, cold_place, digest, LATER)
    assert any_store.get_blob(digest) == CONTENT


@pytest.mark.folder
def test_a_damaged_copy_is_never_the_only_one(any_store: Store, cold_place: Store) -> None:
    digest = any_store.put_blob(CONTENT)
    place = Path(cold_place.path(blob_name(digest)))
    place.parent.mkdir(parents=True)
    place.write_bytes(b"x" * len(CONTENT))  # as large, and young: a put leaves it alone
    with pytest.raises(StoreError, match="is damaged"):
        move_blob(any_store, cold_place, digest, LATER)
    assert any_store.get_blob(digest) == CONTENT


def test_a_colder_place_that_is_not_there_is_not_taken_for_one_that_has_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    place = add_cold_root(store, str(tmp_path / "cold"))
    digest = store.put_blob(CONTENT)
    assert move_blob(store, place, digest, LATER)
    (tmp_path / "cold").rename(tmp_path / "not-mounted")
    for reader in (store, Store(store.root)):
        with pytest.raises(StoreError, match="cold is not there"):
            reader.has_blob(digest)
        with pytest.raises(StoreError, match="cold is not there"):
            reader.get_blob(digest)
        with pytest.raises(StoreError, match="cold is not there"):
            _ = reader.colder_places
    (tmp_path / "not-mounted").rename(tmp_path / "cold")
    assert store.get_blob(digest) == CONTENT


def test_a_colder_place_is_named_once_and_never_lies_in_the_store(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    for _ in range(2):
        assert add_cold_root(store, str(tmp_path / "cold")).root == str(tmp_path / "cold")
    add_cold_root(store, str(tmp_path / "colder"))
    assert [place.root for place in store.colder_places] == [str(tmp_path / "cold"), str(tmp_path / "colder")]
    (tmp_path / "cold").rename(tmp_path / "not-mounted")
    with pytest.raises(StoreError, match=r"cold is not there: it has no cold-place\.json"):
        add_cold_root(store, str(tmp_path / "cold"))
    with pytest.raises(
        StoreError, match=r"colder is of the store .*store, and .*other is another one or a copy"
    ):
        add_cold_root(Store(tmp_path / "other"), str(tmp_path / "colder"))
    for wrong in (str(tmp_path / "store" / "cold"), str(tmp_path), "cold", "s3:/bucket"):
        with pytest.raises(InvalidInput, match=r"is not accepted"):
            add_cold_root(store, wrong)
