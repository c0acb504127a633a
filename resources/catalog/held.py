"""What an attempt holds, and for how long: what the ledger counts.

A worker tells for how long its trial has trained, by a clock of its own that only goes forward. Of an attempt
that ends without its worker (a lease that ran out, a trial that a sensor ends) the catalog's clock has to do:
from when the attempt was taken to now, but not beyond the end of its last lease, so that neither a scheduler
that was away for a week nor a clock that jumps makes such an attempt long.
"""

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection

from resources.catalog import statements
from resources.sweep_spec.requirements import Resources


def held_by(resources: Resources, granted: int) -> dict[str, Any]:
    """The columns of ``attempts`` that say what an attempt is given that trains up to ``granted`` epochs."""
    given = resources.at(granted)
    return {
        "nodes": given.nodes,
        "gpus": given.gpus,
        "cpus": given.cpus,
        "gpu_type": given.gpu_type,
        "spot": given.spot,
    }


def held_seconds(since: datetime | None, now: float, lease_until: float | None) -> float:
    """For how long an attempt has held what it has, by the catalog's clock; 0 where nobody has taken it.

    Args:
        since: when it was taken.
        now, lease_until: seconds since the epoch.
    """
    if since is None:
        return 0.0
    until = now if lease_until is None else min(now, lease_until)
    return max(0.0, until - since.timestamp())


def held_between(held_since: datetime, ended_at: datetime | None, seconds: float) -> tuple[float, float]:
    """From when until when an attempt has held what it has, in seconds since the epoch; one that runs for as
    long as ``seconds``.
    """
    since = held_since.timestamp()
    return since, since + seconds if ended_at is None else ended_at.timestamp()


def month_of(now: float) -> tuple[datetime, datetime]:
    """The calendar month by UTC of a moment in seconds since the epoch: when it begins, and when the next one
    does.
    """
    begin = datetime.fromtimestamp(now, UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    return begin, begin.replace(year=begin.year + begin.month // 12, month=begin.month % 12 + 1)


def seconds_within(seconds: float, since: float, until: float, begin: float, end: float) -> float:
    """Those of an attempt's seconds that are between ``begin`` and ``end``: as large a part of them as of the
    time that it was held.

    The time from ``since`` to ``until`` need not be as long as ``seconds``, which another clock may have
    told. So parts of that time that follow each other add up to all seconds. All arguments are in seconds,
    moments since the epoch.
    """
    if until <= since:
        return seconds if begin <= since < end else 0.0
    return seconds * max(0.0, min(until, end) - max(since, begin)) / (until - since)


def seconds_by_month(seconds: float, since: float, until: float) -> dict[str, float]:
    """An attempt's seconds by the calendar months (UTC) from ``since`` to ``until``, in their order:
    ``{"2026-10": 86400.0, …}``.
    """
    begin, end = month_of(since)
    shares = {_name_of(begin): seconds_within(seconds, since, until, begin.timestamp(), end.timestamp())}
    while end.timestamp() < until:
        begin, end = month_of(end.timestamp())
        shares[_name_of(begin)] = seconds_within(seconds, since, until, begin.timestamp(), end.timestamp())
    return shares


def _name_of(month: datetime) -> str:
    return month.isoformat()[:7]


def untold_seconds(connection: Connection, of: dict[str, Any], now: float) -> float:
    """The seconds of a running attempt that its worker has not told of.

    Args:
        of: the parameters ``of_sweep``, ``of_trial`` and ``of_attempt``.
        now: by the catalog's clock.
    """
    row = connection.execute(statements.HELD, of).one()
    return max(0.0, held_seconds(row.held_since, now, row.lease_until) - row.told)
