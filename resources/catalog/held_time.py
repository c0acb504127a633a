"""For how long attempts hold resources, which costs and GPU-hours are computed from.

A worker reports for how long its trial has trained, by a monotonic clock. An attempt that ends without its
worker (its lease ran out, or a sensor ended the trial) is timed by the catalog's clock: from when the attempt
was taken until now, but not beyond the end of its last lease. So neither a scheduler that was down for a week
nor a clock that jumps makes such an attempt long.
"""

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection

from resources.catalog import statements
from resources.sweep_spec.requirements import Resources


def resource_columns(resources: Resources, granted: int) -> dict[str, Any]:
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
    """For how long an attempt has held its resources, by the catalog's clock; 0 if no worker has taken it.

    Args:
        since: when it was taken.
        now: the present, in seconds since the epoch.
        lease_until: the end of its last lease, in seconds since the epoch.
    """
    if since is None:
        return 0.0
    until = now
    if lease_until is not None:
        until = min(now, lease_until)
    return max(0.0, until - since.timestamp())


def held_interval(held_since: datetime, ended_at: datetime | None, seconds: float) -> tuple[float, float]:
    """The begin and the end of the time for which an attempt holds resources, in seconds since the epoch.

    The end of a running attempt is ``seconds`` after its begin.
    """
    since = held_since.timestamp()
    if ended_at is None:
        return since, since + seconds
    return since, ended_at.timestamp()


def month_of(now: float) -> tuple[datetime, datetime]:
    """The begin of the calendar month (UTC) of a time in seconds since the epoch, and of the next month."""
    begin = datetime.fromtimestamp(now, UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    return begin, begin.replace(year=begin.year + begin.month // 12, month=begin.month % 12 + 1)


def seconds_within(seconds: float, since: float, until: float, begin: float, end: float) -> float:
    """The part of an attempt's seconds that fall between ``begin`` and ``end``.

    The time from ``since`` to ``until`` need not be as long as ``seconds``, which another clock may have
    measured. So the part is in proportion to that time, and consecutive parts add up to ``seconds``. Times
    are in seconds since the epoch.
    """
    if until <= since and begin <= since < end:
        return seconds
    if until <= since:
        return 0.0
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


def unreported_seconds(connection: Connection, attempt: dict[str, Any], now: float) -> float:
    """The seconds of a running attempt that its worker has not reported yet.

    Args:
        attempt: the parameters ``of_sweep``, ``of_trial`` and ``of_attempt``.
        now: the present by the catalog's clock, in seconds since the epoch.
    """
    row = connection.execute(statements.HELD_TIME, attempt).one()
    return max(0.0, held_seconds(row.held_since, now, row.lease_until) - row.reported)
