"""What has changed of a run since it began: its tags and whether it is archived or deleted; of a tracked run
params and status, too.

``runs/project=P/RUN/amend-NNNNNN.json`` has all that may change as it is from then on, so that only the
newest counts. Who amends a run takes the next number, which a file of the store can be created with only
once: of two who do it at once the second one reads again and amends what the first one has made of it. So
nothing is lost, and nobody needs a lock. The index of runs can be made again from them.
"""

import contextlib
import json
from collections.abc import Callable, Iterable
from typing import Any, Literal

from halving.errors import AlreadyExists, Damaged, NotFound, StoreError
from halving.store.json_files import now, to_json
from halving.store.store import Store

Lifecycle = Literal["active", "archived", "deleted", "removed"]
ACTIVE: Lifecycle = "active"
ARCHIVED: Lifecycle = "archived"
"""Out of the lists until somebody asks for it; nothing of it goes away."""
DELETED: Lifecycle = "deleted"
"""In the trash: out of the lists, to be restored, and removed with all that is its own when the policy's days
are over.
"""
REMOVED: Lifecycle = "removed"
"""Its files are being deleted: it can not be restored any more."""

PREFIX = "amend-"
_LISTINGS = 10  # tries at reading the newest while others are written
Amendment = dict[str, Any]
"""``lifecycle`` with ``since`` and ``by``; ``tags``; of a tracked run also ``params``, ``status``,
``attempt``, ``facts``.
"""


def newest_amendment(store: Store, folder: str, names: Iterable[str]) -> Amendment:
    """The amendment that counts; empty: nothing of the run has changed.

    Args:
        folder: the run's, ``runs/project=P/RUN``.
        names: what it has been listed to have.

    Raises:
        StoreError: it cannot be read, or is damaged.
    """
    for _ in range(_LISTINGS):
        found = [name for name in names if name.startswith(PREFIX)]
        if not found:
            return {}
        newest = f"{folder}/{max(found, key=number_of)}"
        with contextlib.suppress(NotFound):
            # newer ones were written, and this one deleted, since the folder was listed
            try:
                amendment: Amendment = json.loads(store.read(newest))
            except ValueError as error:
                raise Damaged(f"{store.address(newest)} is damaged: {error}") from None
            return amendment
        names = store.names(folder)
    raise StoreError(f"the amendments of {store.address(folder)} are missing each time they are opened")


def amend(store: Store, folder: str, change: Callable[[Amendment], Amendment]) -> Amendment:
    """Amend a run, and give what counts from then on.

    Args:
        folder: the run's, ``runs/project=P/RUN``.
        change: gives what the run is to be, given what it is (the newest amendment, or empty); the same:
            nothing is written. It is called again where somebody else was first.

    Raises:
        StoreError: the store cannot be read or written.
    """
    while True:
        names = store.names(folder)
        before = newest_amendment(store, folder, names)
        after = change(before)
        if after == before:
            return before
        number = max((number_of(name) for name in names if name.startswith(PREFIX)), default=-1) + 1
        with contextlib.suppress(AlreadyExists):
            store.create(f"{folder}/{PREFIX}{number:06d}.json", to_json(after))
            return after


def staged(before: Amendment, lifecycle: Lifecycle, by: str) -> Amendment:
    """An amendment with another lifecycle, since now."""
    return {**before, "lifecycle": lifecycle, "since": now(), "by": by}


def number_of(name: str) -> int:
    """The number in a record's name: ``amend-000003.json``, ``end-0001.json``."""
    return int(name.partition("-")[2].removesuffix(".json"))
