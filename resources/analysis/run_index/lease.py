"""The lease that says which of several processes refreshes the index.

Two at once do no harm; they only do the same work twice.
"""

import os
import secrets
import socket

from sqlalchemy import or_, select, update

from resources.catalog import AHEAD_SECONDS, Catalog, RunIndexRow

LEASE_SECONDS = 30.0


def new_holder() -> str:
    """A new name for this process as holder of the lease.

    By this name other processes on this machine can see whether the holder still runs.
    """
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}"


def hold_lease(catalog: Catalog, name: str) -> bool:
    """Take or renew the lease for the process of that name; return whether it has the lease now.

    The lease of a process on this machine that was killed is free at once.
    """
    now = catalog.now()
    with catalog.read() as session:
        holder, until = session.execute(select(RunIndexRow.refresher, RunIndexRow.lease_until)).one()
        if until is not None and until > _latest_end(now):
            catalog.read_clock(session)
            now = catalog.now()
    latest = _latest_end(now)
    if holder == name and until is not None and now + LEASE_SECONDS / 2 < until <= latest:
        return True  # renewed when half of it is over: each write waits for the disk
    ours = [name]
    if holder and _has_died(holder):
        ours.append(holder)
    if until is not None and now < until <= latest and holder not in ours:
        return False
    is_over = or_(
        RunIndexRow.lease_until.is_(None), RunIndexRow.lease_until <= now, RunIndexRow.lease_until > latest
    )
    free = or_(RunIndexRow.refresher.in_(ours), is_over)
    with catalog.write() as session:
        taken = (
            update(RunIndexRow)
            .where(free)
            .values(refresher=name, lease_until=now + LEASE_SECONDS)
            .returning(RunIndexRow.id)
        )
        return session.execute(taken).first() is not None


def release_lease(catalog: Catalog, name: str) -> None:
    """Give up the lease if the process of that name has it, so that the next server need not wait."""
    with catalog.write() as session:
        session.execute(update(RunIndexRow).where(RunIndexRow.refresher == name).values(lease_until=None))


def _latest_end(now: float) -> float:
    """The latest end that a lease can have; one that ends later was taken before the clock was set back."""
    return now + LEASE_SECONDS + AHEAD_SECONDS


def _has_died(holder: str) -> bool:
    """Whether a holder was a process of this machine that no longer exists."""
    host, _, rest = holder.partition(":")
    process = rest.partition(":")[0]
    if host != socket.gethostname() or not process.isdecimal():
        return False
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return True
    except OSError:  # another user's
        return False
    return False
