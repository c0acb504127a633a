"""What an attempt holds, and for how long: what the ledger counts.

A worker tells for how long its trial has trained, by a clock of its own that only goes forward. Of an attempt that ends without its worker
(a lease that ran out, a trial that a sensor ends) the catalog's clock has to do: from when the attempt was taken to now, but not beyond the
end of its last lease, so that neither a scheduler that was away for a week nor a clock that jumps makes such an attempt long.
"""

from datetime import datetime
from typing import Any

from sqlalchemy import Connection

from resources.catalog import statements
from resources.sweep_spec.requirements import Resources


def held_by(resources: Resources, granted: int) -> dict[str, Any]:
    """The columns of ``attempts`` that say what an attempt is given that trains up to ``granted`` epochs."""
    given = resources.at(granted)
    return {"nodes": given.nodes, "gpus": given.gpus, "cpus": given.cpus, "gpu_type": given.gpu_type, "spot": given.spot}


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


def untold_seconds(connection: Connection, of: dict[str, Any], now: float) -> float:
    """The seconds of a running attempt that its worker has not told of.

    Args:
        of: the parameters ``of_sweep``, ``of_trial`` and ``of_attempt``.
        now: by the catalog's clock.
    """
    row = connection.execute(statements.HELD, of).one()
    return max(0.0, held_seconds(row.held_since, now, row.lease_until) - row.told)
