"""Colder places of a store: other roots to which old blobs were moved, under their own names.

``cold/NNNN.json`` in the store names each root and is written before anything is moved there. So every reader
finds it without any setting of its own. A blob is looked for in its own place first; only where it is not
there the colder ones are asked, which costs a listing of that folder and a request.

Points and records never move: they are read in parts and by name, and are small beside checkpoints.
"""

import contextlib
import json
from typing import TYPE_CHECKING

from halving.errors import AlreadyExists, InvalidInput, StoreError
from halving.store.json_files import to_json

if TYPE_CHECKING:
    from halving.store.store import Store

FOLDER = "cold"
BLOBS = "artifacts/sha256/"
"""The folder of the files that may lie in a colder place."""

MARK = "cold-place.json"
"""A file that marks a colder place, and names its store."""


class ColdRoots:
    """The colder places of a store; each is opened once."""

    def __init__(self) -> None:
        self._places: dict[str, Store] = {}

    def holding(self, store: "Store", name: str) -> "Store | None":
        """The colder place that has a file, or None.

        Raises:
            StoreError: one of them does not say, or is not there, so that it may have the file.
        """
        if not name.startswith(BLOBS):
            return None
        before = list(self._places.values())
        for place in before:
            if place.exists(name):
                return place
        every = self._read_places(store)
        for place in every:
            if place not in before and place.exists(name):
                return place
        for place in every:
            check_is_there(place)
        return None

    def all(self, store: "Store") -> "list[Store]":
        """All colder places that the store names now.

        Raises:
            StoreError: the store cannot be listed or read, or one of the places is not there: nobody knows
                what lies in it.
        """
        every = self._read_places(store)
        for place in every:
            check_is_there(place)
        return every

    def _read_places(self, store: "Store") -> "list[Store]":
        for file in store.names(FOLDER):
            if file not in self._places:
                from halving.store.store import Store  # It imports this module.

                self._places[file] = Store(json.loads(store.read(f"{FOLDER}/{file}"))["root"])
        return list(self._places.values())


def named_places(store: "Store") -> "list[Store]":
    """The colder places that the store names, also those that are not there.

    Raises:
        StoreError: the store cannot be listed or read.
    """
    from halving.store.store import Store  # It imports this module.

    return [Store(json.loads(store.read(f"{FOLDER}/{name}"))["root"]) for name in store.names(FOLDER)]


def check_is_there(place: "Store") -> None:
    """Refuse a colder place that is not there.

    A disk that is not mounted looks like a place that has nothing; what is written there would be lost behind
    it.

    Raises:
        StoreError: it is not there, or does not say.
    """
    if not place.exists(MARK):
        raise StoreError(
            f"the colder place {place.root} is not there: it has no {MARK}, which was written when it was "
            "added"
        )


def check_is_of(store: "Store", place: "Store") -> None:
    """Refuse to write to a colder place, or delete in it, for another store than the one that added it.

    The other store may be a copy of that one.

    Raises:
        StoreError: it is another store's, it is not there, or it cannot be read.
    """
    check_is_there(place)
    owner = json.loads(place.read(MARK))["store"]
    own = _root_of(store)
    if owner != own:
        raise StoreError(
            f"the colder place {place.root} is of the store {owner}, and {own} is another one or a copy: "
            "nothing is moved there or deleted "
            f'there. If the store was moved, put its root into {place.address(MARK)}: {{"store": '
            f'"{own}"}}. If it was copied, copy the '
            f"colder place as well and name that copy in {store.address(FOLDER)}"
        )


def _root_of(store: "Store") -> str:
    """The root without the options of its address, which may differ between machines."""
    return store.root.partition("?")[0]


def is_absolute(root: str) -> bool:
    """Whether a root is a folder's absolute path, or an address such as ``s3://bucket/prefix``."""
    return "://" in root or root.startswith(("/", "~"))


def check_cold_root(store: "Store", root: str) -> "Store":
    """Open a root that is, or may become, a colder place of the store. Nothing is written.

    Args:
        root: a folder's absolute path, or an address such as ``s3://bucket/prefix``.

    Raises:
        InvalidInput: it is the store's own root or lies in it, has it in itself, or is a relative path, which
            others would not find.
        StoreError: it is the colder place of another store, or cannot be read.
    """
    if not is_absolute(root):
        raise InvalidInput(
            f"cold.root = {root!r} is not accepted: give a folder's absolute path, or an address such as "
            "s3://bucket/prefix"
        )
    from halving.store.store import Store

    cold = Store(root)
    # A link, or another spelling, must not hide that a folder lies in the other.
    own, other = (
        f"{place.folder.resolve() if place.folder else _root_of(place)}/" for place in (store, cold)
    )
    if own.startswith(other) or other.startswith(own):
        raise InvalidInput(
            f"cold.root = {root!r} is not accepted: it and the store {store.root} lie in one another; give "
            "another place"
        )
    if cold.exists(MARK):
        check_is_of(store, cold)
    return cold


def add_cold_root(store: "Store", root: str) -> "Store":
    """Make a root a colder place of the store, once, and return it.

    Raises:
        InvalidInput: as :func:`check_cold_root`.
        AlreadyExists: it has just become the colder place of another store.
        StoreError: one of both cannot be written, or the place was added before and is not there now, or is
            another store's.
    """
    cold = check_cold_root(store, root)
    while True:
        places = named_places(store)
        if cold.root in [place.root for place in places]:
            check_is_of(store, cold)
            return cold
        cold.create(MARK, to_json({"store": _root_of(store)}))
        with contextlib.suppress(AlreadyExists):  # somebody has just added another one
            store.create(f"{FOLDER}/{len(places) + 1:04d}.json", to_json({"root": cold.root}))
            return cold
