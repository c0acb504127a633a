"""Which of several processes refreshes the index. Two at once do no harm; they only do the same work twice."""

from sqlalchemy import or_, select, update

from resources.catalog import Catalog, RunIndexRow

LEASE_SECONDS = 30.0


def hold_lease(catalog: Catalog, name: str) -> bool:
    """Take or renew the lease; whether the process of that name has it now."""
    now = catalog.now()
    with catalog.read() as session:
        holder, until = session.execute(select(RunIndexRow.refresher, RunIndexRow.lease_until)).one()
    if until is not None and holder != name and until > now:
        return False
    if holder == name and until is not None and until > now + LEASE_SECONDS / 2:
        return True  # renewed when half of it is over: each write waits for the disk
    free = or_(RunIndexRow.refresher == name, RunIndexRow.lease_until.is_(None), RunIndexRow.lease_until <= now)
    with catalog.write() as session:
        taken = update(RunIndexRow).where(free).values(refresher=name, lease_until=now + LEASE_SECONDS).returning(RunIndexRow.id)
        return session.execute(taken).first() is not None
