"""A run of W&B's that is copied while it is written."""

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

from halving.imports.copying import CopyOutcome, copy_run
from halving.imports.foreign_run import Piece, PieceBuilder, Position, Skipped
from halving.imports.reading import reading
from halving.imports.wandb_facts import Facts
from halving.imports.wandb_run import Log, describe, learn, read_pieces
from halving.store.store import Store

SETTLE_SECONDS = 0.4
"""From the last that a run's log has to its end: W&B writes the run's files beside the log until then."""


class Copied(NamedTuple):
    """What one look has copied of a run.

    Attributes:
        status: how the run ended, if its end was copied.
        ending: whether the log has the run's end, which is copied when the files have settled.
        skipped: counts of this look.
    """

    project: str
    run: str
    name: str
    outcome: CopyOutcome
    status: str | None
    ending: bool
    skipped: Skipped


@dataclass
class FollowedRun:
    """What is remembered of a run from one look to the next.

    Only one thread uses it at a time: ``busy`` says whether another one copies it at this moment.

    Attributes:
        row: what was copied so far, as ``halving import --json`` has it.
        logs: its logs in the order of their times, each with the place up to which its facts were learned.
        arrived: logs that were met since the last copy.
        facts: what the logs say so far; None before the first look, and after the end.
        reached: how far the points were copied by this process.
        fresh: whether the logs have more than was copied.
        ending: whether they have the run's end.
        touched: when they last grew, by the monotonic clock; ``written`` by the disk's.
        next_copy: when it may be copied again, by the monotonic clock.
        failures: how often copying failed since it last did not.
        segments: how many were written since the run was compacted; ``next_compaction``: when it may be
            again, by the monotonic clock.
        uncounted: what was not taken, of records after the last that was copied: they are read again.
    """

    row: dict[str, Any]
    logs: list[Log] = field(default_factory=list)
    arrived: list[Log] = field(default_factory=list)
    facts: Facts | None = None
    reached: Position = field(default_factory=dict)
    fresh: bool = False
    ending: bool = False
    ended: bool = False
    busy: bool = False
    touched: float = 0.0
    written: float = 0.0
    began: float = field(default_factory=time.monotonic)
    next_copy: float = 0.0
    failures: int = 0
    segments: int = 0
    next_compaction: float = 0.0
    uncounted: Skipped = field(default_factory=Skipped)

    def copy(self, store: Store, project: str | None, taken: Counter[str], *, settled: bool) -> Copied:
        """Copy what is new.

        Args:
            taken: what is copied is added to it, as by :func:`halving.imports.copying.copy_run`.
            settled: whether the run's end is copied, too, if the logs have it.

        Raises:
            AlreadyExists, SourceUnreadable, StoreError: as :func:`halving.imports.copying.copy_run` raises
                them. The next call goes on.
        """
        with reading(self.logs[0].path if self.logs else self.arrived[0].path):
            facts = self._learn()
        skipped = Skipped()
        counted = Skipped()
        run = describe(self.logs, facts, project, skipped)
        status = run.status
        ending = settled and status is not None
        if not ending:
            run = replace(run, status=None)
        run = replace(run, pieces=partial(self._pieces, facts.started, counted, ending=ending))
        outcome = copy_run(store, run, skipped, taken, following=True)
        if ending:
            self.facts = None
            counted.reasons.update(skipped.reasons)
        if not ending and not outcome.points + outcome.media:
            # The records that were counted come again with the next points.
            self.uncounted = counted
            counted = Skipped()
        else:
            self.uncounted = Skipped()
        return Copied(
            run.project, run.run, run.origin["run"], outcome, run.status, status is not None, counted
        )

    def _learn(self) -> Facts:
        """Learn what the logs say of the run since the last look."""
        if self.arrived or self.facts is None:
            # A log may have come that is older than others: all are learned anew, in their order.
            latest = {log.mark: log for log in [*self.logs, *self.arrived]}
            self.arrived = []
            self.facts = Facts()
            self.logs = sorted((log._replace(until=0) for log in latest.values()), key=lambda log: log.order)
        for place, log in enumerate(self.logs):
            if not log.until or log.path.stat().st_size > log.until:
                self.logs[place] = learn(self.facts, log)
        return self.facts

    def _pieces(self, started: int, counted: Skipped, position: Position, *, ending: bool) -> Iterator[Piece]:
        """The points after a position, and after what this process has copied.

        A position is kept with points and with an end. So where the last that was copied is media, this
        process alone knows that they were.
        """
        reached = {
            part: max(position.get(part, []), self.reached.get(part, [])) for part in position | self.reached
        }
        several = False
        for piece in read_pieces(self.logs, started, counted, reached):
            yield piece
            several = True
            if piece.values or piece.media:
                self.reached = piece.position
        if ending and not several and reached != position:
            yield PieceBuilder(counted, reached).take()


def new_row(name: str) -> dict[str, Any]:
    """The row of a run of which nothing is copied; ``name`` is what W&B calls it."""
    counts = {"outcome": None, "points": 0, "media": 0, "artifacts": 0}
    return {"project": None, "run": None, "name": name, **counts, "error": None}


def summed(row: dict[str, Any], copied: Copied) -> dict[str, Any]:
    """A run's row with what another look has copied."""
    counts = {kind: row[kind] + getattr(copied.outcome, kind) for kind in ("points", "media", "artifacts")}
    outcome = row["outcome"]
    if outcome in (None, "unchanged"):
        outcome = copied.outcome.outcome
    whose = {"project": copied.project, "run": copied.run, "name": copied.name}
    return {**whose, **counts, "outcome": outcome, "error": None}
