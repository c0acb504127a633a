"""A cache of the records in runs' folders, which also finds a record by the digest that it names.

A record never changes, so each is read once.
"""

import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from halving.checkpoints.sharded.manifest import Manifest
from halving.errors import NotFound
from halving.query.runs import in_threads, read_json
from halving.store.store import Store

MAX_ROWS = 50_000
_AT_ONCE = 256

Row = dict[str, Any]


@dataclass
class _Folder:
    """What was read of a folder: records by name, and for each digest the first record that names it."""

    rows: dict[str, Row] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)


class RecordCache:
    """A bounded cache of records; the least recently used folder goes first.

    Args:
        max_rows: one folder that has more is kept nevertheless while it is the last that was asked for.
    """

    def __init__(self, store: Store, max_rows: int = MAX_ROWS) -> None:
        self._store = store
        self._max_rows = max_rows
        self._folders: OrderedDict[str, _Folder] = OrderedDict()
        # The parts of sharded checkpoints, by their manifests.
        self._parts: OrderedDict[str, frozenset[str]] = OrderedDict()
        self._lock = threading.Lock()

    def rows(self, path: str) -> Iterator[Row]:
        """The records of a folder in the order of their names; they are read in batches as they are taken."""
        folder = self._folder(path)
        names = [name for name in self._store.names(path) if name.endswith(".json")]
        for first in range(0, len(names), _AT_ONCE):
            part = names[first : first + _AT_ONCE]
            new = [name for name in part if name not in folder.rows]
            for name, row in zip(
                new, in_threads(lambda name: read_json(self._store, f"{path}/{name}"), new), strict=True
            ):
                folder.rows[name] = row
                folder.names.setdefault(row.get("digest", ""), name)
            yield from [folder.rows[name] for name in part]

    def find_read(self, path: str, digest: str) -> Row | None:
        """The record in a folder that names a digest, among those that were read before and still exist."""
        folder = self._folder(path)
        name = folder.names.get(digest)
        if name is not None and self._store.exists(f"{path}/{name}"):
            return folder.rows[name]
        return None

    def is_part(self, manifests: Iterable[str], digest: str) -> bool:
        """Whether a blob is part of a sharded checkpoint; manifests are read only until it is found."""
        return any(digest in self._parts_of(manifest) for manifest in manifests)

    def _parts_of(self, manifest: str) -> frozenset[str]:
        with self._lock:
            if manifest in self._parts:
                self._parts.move_to_end(manifest)
                return self._parts[manifest]
        try:
            parts = frozenset(Manifest.parse(self._store.get_blob(manifest)).blobs)
        except NotFound:  # it is superseded, and deleted
            return frozenset()
        with self._lock:
            self._parts[manifest] = parts
            while len(self._parts) > 1 and sum(map(len, self._parts.values())) > self._max_rows:
                self._parts.popitem(last=False)
        return parts

    def _folder(self, path: str) -> _Folder:
        with self._lock:
            folder = self._folders.setdefault(path, _Folder())
            self._folders.move_to_end(path)
            rows = sum(len(each.rows) for each in self._folders.values())
            while len(self._folders) > 1 and (rows > self._max_rows or len(self._folders) > self._max_rows):
                rows -= len(self._folders.popitem(last=False)[1].rows)
            return folder
