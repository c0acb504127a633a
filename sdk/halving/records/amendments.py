"""Changes of a run since it began: its tags, and whether it is archived or deleted.

A tracked run may also change its params and status, and a run by W&B's
names its params. ``runs/project=P/RUN/amend-NNNNNN.json`` has everything
that may change, so that only the newest file counts. An amendment takes the next number, and the store can
create a file of that name only once: of two writers at the same time, the second one reads again and amends
the result of the first. So nothing is lost, and no lock is needed. The index of runs can be rebuilt from
them.
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
"""Listed only on request; nothing of it is deleted."""
DELETED: Lifecycle = "deleted"
"""In the trash: not listed, can be restored, and removed with its files when the policy's days are over."""
REMOVED: Lifecycle = "removed"
"""Its files are being deleted, and it can not be restored any more."""

PREFIX = "amend-"
_LISTINGS = 10  # tries at reading the newest while others are written
Amendment = dict[str, Any]
"""``lifecycle`` with ``since`` and ``by``; ``tags``; for a tracked run ``params, status, attempt, facts``;
for a run by W&B's names ``params, defined_metrics, summary`` (with its ``attempt`` and ``values``)."""


def newest_amendment(store: Store, folder: str, names: Iterable[str]) -> Amendment:
    """Read the amendment that counts; empty if nothing has changed.

    Args:
        folder: the run's, ``runs/project=P/RUN``.
        names: a listing of the folder.

    Raises:
        StoreError: it cannot be read, or is damaged.
    """
    for _ in range(_LISTINGS):
        amendments = [name for name in names if name.startswith(PREFIX)]
        if not amendments:
            return {}
        newest = f"{folder}/{max(amendments, key=number_of)}"
        with contextlib.suppress(NotFound):
            # NotFound: since the listing newer ones were written and this one was deleted.
            try:
                amendment: Amendment = json.loads(store.read(newest))
            except ValueError as error:
                raise Damaged(f"{store.address(newest)} is damaged: {error}") from None
            return amendment
        names = store.names(folder)
    raise StoreError(f"the amendments of {store.address(folder)} are missing each time they are opened")


def amend(store: Store, folder: str, change: Callable[[Amendment], Amendment]) -> Amendment:
    """Amend a run, and return the amendment that counts from then on.

    Args:
        folder: the run's, ``runs/project=P/RUN``.
        change: returns the new amendment for the newest one, which may be empty; if they are equal, nothing
            is written. It is called again where another writer was first.

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


def with_lifecycle(before: Amendment, lifecycle: Lifecycle, by: str) -> Amendment:
    """The amendment with another lifecycle, which begins now."""
    return {**before, "lifecycle": lifecycle, "since": now(), "by": by}


def number_of(name: str) -> int:
    """The number in a record's name: ``amend-000003.json``, ``end-0001.json``."""
    return int(name.partition("-")[2].removesuffix(".json"))
