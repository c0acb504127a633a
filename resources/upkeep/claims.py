"""The queue of runs that wait for compaction, and the workers' claims on them, in the index of runs.

A worker claims a run by moving its ``compact_at`` a lease ahead (the visibility timeout of a queue). Until
then nobody else takes it. A living worker renews its claims, and those of a killed one can be claimed again
when their lease is over. A run leaves the queue only when its worker says that nothing is left to do, and
only if the index has not read it again meanwhile. So no run is forgotten, and none is compacted twice at
once; should two workers compact one all the same, the manifest decides
(:mod:`halving.maintenance.compaction`).
"""

from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy import ColumnElement, and_, func, literal_column, or_, select, update

from halving.maintenance.compaction import GRACE_SECONDS, Compacted
from halving.query.runs import RUNNING
from halving.records.amendments import DELETED
from resources.catalog import AHEAD_SECONDS, Catalog, RunRow

LEASE_SECONDS = 120.0
MANY_SEGMENTS = 64
"""A run that still logs is compacted only from this many segments on, since that writes all points again."""
LATER_SECONDS = 3_600.0
"""Time until a run is tried again that could not be compacted, or whose segments have a gap."""


@dataclass(frozen=True)
class Claim:
    """A run that one worker compacts; ``revision`` is that of its row in the index."""

    id: int
    project: str
    run: str
    revision: int


def claim(
    catalog: Catalog, count: int, *, project: str | None = None, many: int = MANY_SEGMENTS
) -> list[Claim]:
    """Claim runs that wait for compaction, those that wait longest first.

    Args:
        count: the largest number of runs.
        project: only runs of this project; None is all.
        many: the number of segments from which on a run that still logs is claimed.
    """
    columns = (RunRow.id, RunRow.project, RunRow.run, RunRow.revision, RunRow.compact_at)
    waiting = (
        select(*columns).order_by(RunRow.compact_at, RunRow.id).limit(count).with_for_update(skip_locked=True)
    )
    with catalog.write() as session:
        now = catalog.now()
        rows = session.execute(waiting.where(_waits(now, project, many))).all()
        if any(row.compact_at > now for row in rows):
            catalog.read_clock(session)
            now = catalog.now()
            rows = session.execute(waiting.where(_waits(now, project, many))).all()
        claims = [Claim(row.id, row.project, row.run, row.revision) for row in rows]
        taken = (
            update(RunRow)
            .where(RunRow.id.in_([claim.id for claim in claims]))
            .values(compact_at=now + LEASE_SECONDS)
        )
        session.execute(taken, execution_options={"synchronize_session": False})
    return claims


def count_waiting(catalog: Catalog, project: str | None = None, many: int = MANY_SEGMENTS) -> int:
    """The number of runs that wait, without those that a worker has claimed."""
    with catalog.read() as session:
        query = select(func.count()).select_from(RunRow).where(_waits(catalog.now(), project, many))
        return session.scalar(query) or 0


def renew(catalog: Catalog, claims: Collection[Claim]) -> None:
    """Renew claims for another lease; those whose rows are locked now are renewed by the next call."""
    with catalog.write() as session:
        ids = [claim.id for claim in claims]
        locked = session.scalars(
            select(RunRow.id).where(RunRow.id.in_(ids)).order_by(RunRow.id).with_for_update(skip_locked=True)
        ).all()
        longer = update(RunRow).where(RunRow.id.in_(locked)).values(compact_at=catalog.now() + LEASE_SECONDS)
        session.execute(longer, execution_options={"synchronize_session": False})


def settle(catalog: Catalog, claimed: Claim, done: Compacted | None) -> None:
    """End a claim, and set when the run is to be compacted again, if at all.

    Args:
        done: the compaction; None where it failed.
    """
    now = catalog.now()
    if done is None:
        left = -1
        again = now + LATER_SECONDS
    elif done.superseded:
        left = -1
        again = now
    elif done.left:
        left = done.left + len(done.gaps)
        again = now + GRACE_SECONDS + 1
    elif done.gaps:
        left = len(done.gaps)
        again = now + LATER_SECONDS
    else:
        left = 0
        again = now
    row = update(RunRow).where(RunRow.id == claimed.id)
    with catalog.write() as session:
        as_it_was = row.where(RunRow.revision == claimed.revision).values(segments=left, compact_at=again)
        if not session.execute(
            as_it_was.returning(RunRow.id), execution_options={"synchronize_session": False}
        ).first():
            # The index has read the run meanwhile, perhaps with new segments, so their number there stays.
            session.execute(row.values(compact_at=again), execution_options={"synchronize_session": False})


def _waits(now: float, project: str | None, many: int) -> ColumnElement[bool]:
    logs = and_(RunRow.status == RUNNING, RunRow.segments < many)
    # The SQL index of such rows has a literal 0 in its condition; a parameter would be another condition.
    has_segments = RunRow.segments != literal_column("0")
    # A run whose time lies further ahead than any was put off before the clock was set back.
    is_time = or_(RunRow.compact_at <= now, RunRow.compact_at > now + LATER_SECONDS + AHEAD_SECONDS)
    # A run in the trash may be removed while it is compacted, which would leave the new files for ever.
    waits = and_(has_segments, is_time, or_(~logs, RunRow.segments < 0), RunRow.lifecycle != DELETED)
    if project is not None:
        waits = and_(waits, RunRow.project == project)
    return waits
