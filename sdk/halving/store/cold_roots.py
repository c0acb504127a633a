"""Finding files in the colder places of a store: other roots to which old blobs were moved.

A blob has the same name there. ``cold/NNNN.json`` in the store names each root and is written before anything
is moved there, so every reader finds it without any setting of its own. A blob is looked for in its own place
first. Only where it is missing, the colder ones are searched, which costs a listing of that folder and a
request.

Points and records never move: they are read in parts and by name, and are small beside checkpoints.
"""

import json
from collections.abc import Callable
from typing import Generic, TypeVar

from halving.errors import StoreError
from halving.store.files import Files

FOLDER = "cold"
"""The folder with a file for each colder place."""

BLOBS = "artifacts/sha256/"
"""The folder of the files that may lie in a colder place."""

MARK = "cold-place.json"
"""A file that marks a colder place, and names its store."""

_Place = TypeVar("_Place", bound=Files)


class ColdRoots(Generic[_Place]):
    """The colder places of a store; each is opened once.

    Args:
        open_place: opens a place by its root.
    """

    def __init__(self, open_place: Callable[[str], _Place]) -> None:
        self._open_place = open_place
        self._places: dict[str, _Place] = {}  # by the name of the file in the store

    def holding(self, store: Files, name: str) -> _Place | None:
        """The colder place that has a file, or None.

        Raises:
            StoreError: one of them does not say, or is not there, so that it may have the file.
        """
        if not name.startswith(BLOBS):
            return None
        opened = list(self._places.values())
        for place in opened:
            if place.exists(name):
                return place
        places = self._read_places(store)
        for place in places:
            if place not in opened and place.exists(name):
                return place
        for place in places:
            check_is_there(place)
        return None

    def all(self, store: Files) -> list[_Place]:
        """All colder places that the store names now.

        Raises:
            StoreError: the store cannot be listed or read, or one of the places is not there: nobody knows
                what lies in it.
        """
        places = self._read_places(store)
        for place in places:
            check_is_there(place)
        return places

    def _read_places(self, store: Files) -> list[_Place]:
        """Open the places that the store names and that are not open yet, and return all."""
        for file in store.names(FOLDER):
            if file not in self._places:
                self._places[file] = self._open_place(json.loads(store.read(f"{FOLDER}/{file}"))["root"])
        return list(self._places.values())


def check_is_there(place: Files) -> None:
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
