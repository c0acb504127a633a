"""Which runs wait for compaction, and which worker has which: rows of the index of runs.

A worker claims a run by moving its ``compact_at`` a lease ahead (the visibility timeout of a queue). Until
then nobody else takes it; a worker that lives renews, and what a killed one had is claimed again when its
lease is over. A run leaves the line only when its worker says that nothing is left to do, and only if the
index has not read it again meanwhile. So no run is forgotten, and none is compacted twice at once; should two
workers meet all the same, the manifest decides (:mod:`halving.maintenance.compaction`).
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
"""A run that is still logging waits for compaction from so many on: each compaction writes all of its points
again.
"""
LATER_SECONDS = 3_600.0
"""Until a run that could not be compacted, or whose segments have a gap, is looked at again."""


@dataclass(frozen=True)
class Claim:
    """A run that one worker compacts; ``revision`` is of its row in the index."""

    id: int
    project: str
    run: str
    revision: int


def claim(
    catalog: Catalog, count: int, *, project: str | None = None, many: int = MANY_SEGMENTS
) -> list[Claim]:
    """Take runs that wait, those that wait longest first.

    Args:
        count: how many at most.
        project: only this one's; None is all.
        many: from how many segments on a run that is still logging is taken.
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
    """How many runs wait, without those that a worker has."""
    with catalog.read() as session:
        return (
            session.scalar(
                select(func.count()).select_from(RunRow).where(_waits(catalog.now(), project, many))
            )
            or 0
        )


def renew(catalog: Catalog, claims: Collection[Claim]) -> None:
    """Keep runs for another lease. One whose row somebody holds in this moment is kept by the next call."""
    with catalog.write() as session:
        ids = [one.id for one in claims]
        held = session.scalars(
            select(RunRow.id).where(RunRow.id.in_(ids)).order_by(RunRow.id).with_for_update(skip_locked=True)
        ).all()
        longer = update(RunRow).where(RunRow.id.in_(held)).values(compact_at=catalog.now() + LEASE_SECONDS)
        session.execute(longer, execution_options={"synchronize_session": False})


def settle(catalog: Catalog, claimed: Claim, done: Compacted | None) -> None:
    """Say how a claim ended: when the run is to be looked at again, if at all.

    Args:
        done: None: it could not be compacted.
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
    else:
        left = len(done.gaps)
        again = now + (LATER_SECONDS if done.gaps else 0.0)
    row = update(RunRow).where(RunRow.id == claimed.id)
    with catalog.write() as session:
        as_it_was = row.where(RunRow.revision == claimed.revision).values(segments=left, compact_at=again)
        if not session.execute(
            as_it_was.returning(RunRow.id), execution_options={"synchronize_session": False}
        ).first():
            # The index has read it meanwhile, perhaps with segments that came after ours: its number counts.
            session.execute(row.values(compact_at=again), execution_options={"synchronize_session": False})


def _waits(now: float, project: str | None, many: int) -> ColumnElement[bool]:
    logs = and_(RunRow.status == RUNNING, RunRow.segments < many)
    # What lies in the trash may be removed while it is compacted, which would leave the new files for ever.
    # as the index of such rows says it; a parameter would be another condition
    has_segments = RunRow.segments != literal_column("0")
    # What is to wait for longer than anything does was put off before the clock was set back.
    is_time = or_(RunRow.compact_at <= now, RunRow.compact_at > now + LATER_SECONDS + AHEAD_SECONDS)
    found = and_(has_segments, is_time, or_(~logs, RunRow.segments < 0), RunRow.lifecycle != DELETED)
    return found if project is None else and_(found, RunRow.project == project)
