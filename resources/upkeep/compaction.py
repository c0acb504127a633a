"""A worker that compacts the runs that wait, several at once.

Any number of workers may run, in any processes on any machines. On an object store a compaction is mostly
waiting, so a worker compacts several runs at once. In a folder it is computing, so only more workers help.
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
"""Runs that a worker compacts at once on an object store."""
_log = logging.getLogger(__name__)


@dataclass
class Worked:
    """The result of a worker's compactions.

    Attributes:
        runs: the number of runs that got new points into their file.
        cleaned: the number of runs of which only replaced files were deleted.
        saved: bytes of segments, less the bytes of the files that replace them.
        gaps: the first segment after a missing one, by ``project/run``.
        failed: why a run could not be compacted, by ``project/run``; it is tried again after an hour.
    """

    runs: int = 0
    cleaned: int = 0
    points: int = 0
    saved: int = 0
    gaps: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def add(self, done: Compacted) -> None:
        """Count the compaction of one run."""
        self.runs += bool(done.points)
        self.cleaned += bool(done.deleted and not done.points)
        self.points += done.points
        self.saved += done.bytes_before - done.bytes_after
        if done.gaps:
            self.gaps[f"{done.project}/{done.run}"] = done.gaps[0]


def compact_waiting(
    store: Store,
    catalog: Catalog,
    *,
    project: str | None = None,
    many: int = MANY_SEGMENTS,
    at_once: int | None = None,
    on_run: Callable[[Claim, Compacted | str], None] | None = None,
) -> Worked:
    """Compact runs until none waits that no other worker has claimed.

    A run that fails does not keep the others from being compacted. It may be killed anywhere: another worker
    claims its runs when their lease is over.

    Args:
        project: only runs of this project; None is all.
        many: see :func:`~resources.upkeep.claims.claim`.
        at_once: runs to compact at once (default: 8 on an object store, 1 in a folder).
        on_run: called with each run and its compaction, or why it failed.
    """
    if not at_once:
        at_once = RUNS_AT_ONCE if store.folder is None else 1
    worked = Worked()
    renewed = time.monotonic()
    in_hand: dict[Future[Compacted], Claim] = {}
    with ThreadPoolExecutor(at_once, thread_name_prefix="halving-compaction") as pool:
        while True:
            if len(in_hand) <= at_once // 2:
                for run in claim(catalog, at_once - len(in_hand), project=project, many=many):
                    in_hand[pool.submit(compact, store, run.project, run.run, delete_at_once)] = run
            if not in_hand:
                return worked
            for future in wait(in_hand, timeout=LEASE_SECONDS / 3, return_when=FIRST_COMPLETED).done:
                _end(catalog, in_hand.pop(future), future, worked, on_run)
            if time.monotonic() >= renewed + LEASE_SECONDS / 3:
                renew(catalog, in_hand.values())
                renewed = time.monotonic()


def _end(
    catalog: Catalog,
    claim: Claim,
    future: "Future[Compacted]",
    worked: Worked,
    on_run: Callable[[Claim, Compacted | str], None] | None,
) -> None:
    name = f"{claim.project}/{claim.run}"
    try:
        done = future.result()
    except (HalvingError, OSError, ValueError) as error:  # a damaged file is a ValueError of Arrow's
        _log.warning("run %s was not compacted: %s: %s", name, type(error).__name__, error)
        worked.failed[name] = str(error)
        settle(catalog, claim, None)
        if on_run:
            on_run(claim, str(error))
        return
    worked.add(done)
    settle(catalog, claim, done)
    if on_run:
        on_run(claim, done)
