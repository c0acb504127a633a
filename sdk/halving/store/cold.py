"""Adding a colder place to a store, and checking whose it is.

:mod:`halving.store.cold_roots` finds the files in them.
"""

import contextlib
import json

from halving.errors import AlreadyExists, InvalidInput, StoreError
from halving.store.cold_roots import FOLDER, MARK, check_is_there
from halving.store.json_files import to_json
from halving.store.store import Store


def named_places(store: Store) -> list[Store]:
    """The colder places that the store names, also those that are not there.

    Raises:
        StoreError: the store cannot be listed or read.
    """
    return [Store(json.loads(store.read(f"{FOLDER}/{name}"))["root"]) for name in store.names(FOLDER)]


def check_is_of(store: Store, place: Store) -> None:
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


def _root_of(store: Store) -> str:
    """The root without the options of its address, which may differ between machines."""
    return store.root.partition("?")[0]


def _resolved_root(store: Store) -> str:
    """The root with a slash at its end, so that it shows whether one root lies in another."""
    if store.folder is None:
        return f"{_root_of(store)}/"
    return f"{store.folder.resolve()}/"  # a link, or another spelling, must not hide where a folder lies


def is_absolute(root: str) -> bool:
    """Whether a root is a folder's absolute path, or an address such as ``s3://bucket/prefix``."""
    return "://" in root or root.startswith(("/", "~"))


def check_cold_root(store: Store, root: str) -> Store:
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
    cold = Store(root)
    own = _resolved_root(store)
    other = _resolved_root(cold)
    if own.startswith(other) or other.startswith(own):
        raise InvalidInput(
            f"cold.root = {root!r} is not accepted: it and the store {store.root} lie in one another; give "
            "another place"
        )
    if cold.exists(MARK):
        check_is_of(store, cold)
    return cold


def add_cold_root(store: Store, root: str) -> Store:
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
