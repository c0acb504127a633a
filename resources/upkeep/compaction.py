"""A worker that compacts the runs that wait: many at once, each into files of its own.

Any number of workers may be at it, in any processes on any machines. On an object store a run's compaction is
mostly waiting, so a worker has several runs in hand; in a folder it is computing, and more workers are what
helps.
"""

import logging
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

from halving.errors import HalvingError
from halving.maintenance.compaction import Compacted, compact
from halving.store.store import Store
from resources.catalog import Catalog
from resources.upkeep.bulk_delete import delete_at_once
from resources.upkeep.claims import LEASE_SECONDS, MANY_SEGMENTS, Claim, claim, renew, settle

RUNS_AT_ONCE = 8
"""Runs that a worker has in hand on an object store."""
_log = logging.getLogger(__name__)


@dataclass
class Worked:
    """What a worker did.

    Attributes:
        runs: that got new points into their file.
        cleaned: runs of which only replaced files were deleted.
        saved: bytes of segments less those of the files that they went into.
        gaps: by ``project/run`` the first segment behind a missing one.
        failed: by ``project/run`` why it could not be compacted; it is tried again after an hour.
    """

    runs: int = 0
    cleaned: int = 0
    points: int = 0
    saved: int = 0
    gaps: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def add(self, done: Compacted) -> None:
        self.runs = self.runs + bool(done.points)
        self.cleaned = self.cleaned + bool(done.deleted and not done.points)
        self.points = self.points + done.points
        self.saved = self.saved + done.bytes_before - done.bytes_after
        if done.gaps:
            self.gaps[f"{done.project}/{done.run}"] = done.gaps[0]


def compact_waiting(
    store: Store,
    catalog: Catalog,
    *,
    project: str | None = None,
    many: int = MANY_SEGMENTS,
    at_once: int | None = None,
    each: Callable[[Claim, Compacted | str], None] | None = None,
) -> Worked:
    """Compact runs until none waits that no other worker has.

    A run that fails does not keep the others from being compacted.

    May be killed anywhere: what it had in hand is taken by another worker when its lease is over.

    Args:
        project: only this one's runs; None is all.
        many: see :func:`~resources.upkeep.claims.claim`.
        at_once: runs in hand (default: 8 on an object store, 1 in a folder).
        each: called with each run and what was done, or why nothing could be.
    """
    at_once = at_once or (1 if store.folder is not None else RUNS_AT_ONCE)
    worked = Worked()
    renewed = time.monotonic()
    in_hand: dict[Future[Compacted], Claim] = {}
    with ThreadPoolExecutor(at_once, thread_name_prefix="halving-compaction") as pool:
        while True:
            if len(in_hand) <= at_once // 2:
                for one in claim(catalog, at_once - len(in_hand), project=project, many=many):
                    in_hand[pool.submit(compact, store, one.project, one.run, delete_at_once)] = one
            if not in_hand:
                return worked
            for future in wait(in_hand, timeout=LEASE_SECONDS / 3, return_when=FIRST_COMPLETED).done:
                _end(catalog, in_hand.pop(future), future, worked, each)
            if time.monotonic() >= renewed + LEASE_SECONDS / 3:
                renew(catalog, in_hand.values())
                renewed = time.monotonic()


def _end(
    catalog: Catalog,
    one: Claim,
    future: "Future[Compacted]",
    worked: Worked,
    each: Callable[[Claim, Compacted | str], None] | None,
) -> None:
    name = f"{one.project}/{one.run}"
    try:
        done = future.result()
    except (HalvingError, OSError, ValueError) as error:  # a damaged file is a ValueError of Arrow's
        _log.warning("run %s was not compacted: %s: %s", name, type(error).__name__, error)
        worked.failed[name] = str(error)
        settle(catalog, one, None)
        if each:
            each(one, str(error))
        return
    worked.add(done)
    settle(catalog, one, done)
    if each:
        each(one, done)
