"""What an attempt holds and for how long, which the ledger counts.

A worker reports for how long its trial has trained, by a clock of its own that only goes forward. For an
attempt that ends without its worker (a lease that ran out, a trial that a sensor ends) the catalog's clock
counts: from when the attempt was taken to now, but not beyond the end of its last lease. So neither a
scheduler that was away for a week nor a clock that jumps makes such an attempt long.
"""

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection

from resources.catalog import statements
from resources.sweep_spec.requirements import Resources


def held_by(resources: Resources, granted: int) -> dict[str, Any]:
    """The columns of ``attempts`` with the resources of an attempt that trains up to ``granted`` epochs."""
    resources_of_trial = resources.at(granted)
    return {
        "nodes": resources_of_trial.nodes,
        "gpus": resources_of_trial.gpus,
        "cpus": resources_of_trial.cpus,
        "gpu_type": resources_of_trial.gpu_type,
        "spot": resources_of_trial.spot,
    }


def held_seconds(since: datetime | None, now: float, lease_until: float | None) -> float:
    """For how long an attempt has held its resources, by the catalog's clock; 0 if nobody has taken it.

    Args:
        since: when it was taken.
        now, lease_until: seconds since the epoch.
    """
    if since is None:
        return 0.0
    until = now if lease_until is None else min(now, lease_until)
    return max(0.0, until - since.timestamp())


def held_between(held_since: datetime, ended_at: datetime | None, seconds: float) -> tuple[float, float]:
    """When an attempt began and ended to hold its resources, in seconds since the epoch.

    A running one holds them for ``seconds``.
    """
    since = held_since.timestamp()
    return since, since + seconds if ended_at is None else ended_at.timestamp()


def month_of(now: float) -> tuple[datetime, datetime]:
    """The calendar month (UTC) of a time in seconds since the epoch: its begin, and that of the next one."""
    begin = datetime.fromtimestamp(now, UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    return begin, begin.replace(year=begin.year + begin.month // 12, month=begin.month % 12 + 1)


def seconds_within(seconds: float, since: float, until: float, begin: float, end: float) -> float:
    """The share of an attempt's seconds between ``begin`` and ``end``, in proportion to the time it was held.

    The time from ``since`` to ``until`` need not be as long as ``seconds``, which another clock may have
    measured. By the proportion, consecutive parts add up to all seconds. All arguments are in seconds, times
    since the epoch.
    """
    if until <= since:
        return seconds if begin <= since < end else 0.0
    return seconds * max(0.0, min(until, end) - max(since, begin)) / (until - since)


def seconds_by_month(seconds: float, since: float, until: float) -> dict[str, float]:
    """An attempt's seconds by calendar month (UTC), in order: ``{"2026-10": 86400.0, …}``."""
    begin, end = month_of(since)
    shares = {_name_of(begin): seconds_within(seconds, since, until, begin.timestamp(), end.timestamp())}
    while end.timestamp() < until:
        begin, end = month_of(end.timestamp())
        shares[_name_of(begin)] = seconds_within(seconds, since, until, begin.timestamp(), end.timestamp())
    return shares


def _name_of(month: datetime) -> str:
    return month.isoformat()[:7]


def untold_seconds(connection: Connection, of: dict[str, Any], now: float) -> float:
    """The seconds of a running attempt that its worker has not reported.

    Args:
        of: the parameters ``of_sweep``, ``of_trial`` and ``of_attempt``.
        now: by the catalog's clock.
    """
    row = connection.execute(statements.HELD, of).one()
    return max(0.0, held_seconds(row.held_since, now, row.lease_until) - row.reported)
