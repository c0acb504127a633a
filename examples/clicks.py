"""Clicks of a small shop, made up: who clicked what they were shown, hour by hour, and the orders that are to be predicted.

``features/clicks.yaml`` is the view of them. A user's taste drifts from day to day, and orders follow it: a model learns what
can be learned from the click rate that was known at the time, and nothing from the future.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

USERS, DAYS = 200, 14
START = np.datetime64("2026-03-01T00:00:00", "us")
_SEED = 16
_HOURS = 24 * DAYS
_MICROS = pa.timestamp("us", tz="UTC")


def hourly() -> pa.Table:
    """One row for each user and hour with visits: ``user_id``, ``ts``, ``loaded_at``, ``shown``, ``clicked``.

    An hour is loaded five minutes to three hours after its end, so that some arrive after later ones.
    """
    source = np.random.default_rng(_SEED)
    taste = _taste()
    users, hours = (axis.ravel() for axis in np.meshgrid(np.arange(USERS), np.arange(_HOURS), indexing="ij"))
    shown = source.poisson(np.where(hours % 24 < 6, 0.3, 2.0))
    clicked = source.binomial(shown, taste[users, hours // 24])
    event = START + (hours + 1) * np.timedelta64(3600, "s")
    late = source.integers(5 * 60, 3 * 3600, len(users)) * np.timedelta64(1, "s")
    there = shown > 0
    return pa.table(
        {
            "user_id": pa.array(users[there]),
            "ts": pa.array(event[there]).cast(_MICROS),
            "loaded_at": pa.array((event + late)[there]).cast(_MICROS),
            "shown": pa.array(shown[there].astype("int32")),
            "clicked": pa.array(clicked[there].astype("int32")),
        }
    )


def transform(rows: pa.Table) -> pa.Table:
    """Row by row: ``ctr`` (the share of what was shown that was clicked) and ``night`` (the hour ends by 6 o'clock, UTC)."""
    shown, clicked = (pc.cast(rows[name], pa.float64()) for name in ("shown", "clicked"))
    return pa.table({"ctr": pc.divide(clicked, shown), "night": pc.less_equal(pc.hour(rows["ts"]), 6)})


def labels() -> pa.Table:
    """Visits to predict: ``user_id``, ``visited_at``, and ``ordered`` (0 or 1), 4,000 rows in the order of time."""
    source = np.random.default_rng(_SEED + 1)
    seconds = np.sort(source.integers(0, DAYS * 86_400, 4_000))
    users = source.integers(0, USERS, len(seconds))
    ordered = source.random(len(seconds)) < _taste()[users, seconds // 86_400]
    return pa.table(
        {
            "user_id": pa.array(users),
            "visited_at": pa.array(START + seconds * np.timedelta64(1, "s")).cast(_MICROS),
            "ordered": pa.array(ordered.astype("int64")),
        }
    )


def _taste() -> np.ndarray:
    """How likely each user is to click on each day, shape (users, days): a random walk on the log-odds."""
    steps = np.random.default_rng(_SEED + 2).normal(0, [[1.5] + [0.4] * (DAYS - 1)], (USERS, DAYS))
    return 1 / (1 + np.exp(1.0 - np.cumsum(steps, axis=1)))
