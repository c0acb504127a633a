"""Clicks of a made-up small shop: who clicked what they were shown, and the orders to predict.

``features/clicks.yaml`` is the view of them, and ``sweeps/clicks.yaml`` the sweep. A user's taste drifts from
day to day, and orders follow it: a model learns from the click rate that was known at the time, and nothing
from the future.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from halving import Run, TrainedRun

USERS = 200
DAYS = 14
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
    impressions = source.poisson(np.where(hours % 24 < 6, 0.3, 2.0))
    clicks = source.binomial(impressions, taste[users, hours // 24])
    event = START + (hours + 1) * np.timedelta64(3600, "s")
    late = source.integers(5 * 60, 3 * 3600, len(users)) * np.timedelta64(1, "s")
    has_impressions = impressions > 0
    return pa.table(
        {
            "user_id": pa.array(users[has_impressions]),
            "ts": pa.array(event[has_impressions]).cast(_MICROS),
            "loaded_at": pa.array((event + late)[has_impressions]).cast(_MICROS),
            "shown": pa.array(impressions[has_impressions].astype("int32")),
            "clicked": pa.array(clicks[has_impressions].astype("int32")),
        }
    )


def transform(rows: pa.Table) -> pa.Table:
    """``ctr``, the share of what was shown that was clicked, and ``night``, for each row.

    It is night if the hour ends by 6 o'clock, UTC.
    """
    impressions, clicks = (pc.cast(rows[name], pa.float64()) for name in ("shown", "clicked"))
    return pa.table({"ctr": pc.divide(clicks, impressions), "night": pc.less_equal(pc.hour(rows["ts"]), 6)})


def labels() -> pa.Table:
    """Visits to predict: ``user_id``, ``visited_at`` and ``ordered`` (0 or 1).

    There are 4,000 rows in the order of time.
    """
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


def train(run: Run) -> None:
    """Train a logistic regression by full-batch gradient descent.

    It reports ``val_loss`` (log loss) and ``val_accuracy`` after every epoch.
    """
    inputs = _inputs(run.dataset.read("train"))
    labels = _labels_of(run.dataset.read("train"))
    val_inputs = _inputs(run.dataset.read("validation"))
    val_labels = _labels_of(run.dataset.read("validation"))
    weights = np.asarray(run.restore(weights=[0.0] * inputs.shape[1])["weights"])
    for _ in run.epochs():
        for _ in range(20):
            error = _chance(inputs, weights) - labels
            weights = weights - run.params["lr"] * (
                inputs.T @ error / len(labels) + run.params["l2"] * weights
            )
        chance = np.clip(_chance(val_inputs, weights), 1e-6, 1 - 1e-6)
        loss = -np.mean(val_labels * np.log(chance) + (1 - val_labels) * np.log(1 - chance))
        run.report(val_loss=float(loss), val_accuracy=float(np.mean((chance > 0.5) == val_labels)))
        run.save(weights=weights.tolist())


def predict(run: TrainedRun, table: pa.Table) -> np.ndarray:
    """Whether each visit ends with an order, 0 or 1."""
    weights = np.asarray(run.restore(weights=None)["weights"])
    return (_chance(_inputs(table), weights) > 0.5).astype("int64")


def _inputs(table: pa.Table) -> np.ndarray:
    """The inputs of the model, shape (rows, 4).

    They are 1, the click rate, whether the hour is of the night, both 0 if they were not known, and whether
    they were.
    """
    has_rate = pc.is_valid(table["ctr"])
    columns = [
        pc.fill_null(table["ctr"], 0.0),
        pc.cast(pc.fill_null(table["night"], False), pa.float64()),
        pc.cast(has_rate, pa.float64()),
    ]
    return np.column_stack([np.ones(table.num_rows), *(column.to_numpy() for column in columns)])


def _labels_of(table: pa.Table) -> np.ndarray:
    return table["ordered"].to_numpy()


def _chance(inputs: np.ndarray, weights: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-inputs @ weights))


def _taste() -> np.ndarray:
    """How likely each user is to click on each day, shape (users, days): a random walk on the log-odds."""
    steps = np.random.default_rng(_SEED + 2).normal(0, [[1.5] + [0.4] * (DAYS - 1)], (USERS, DAYS))
    return 1 / (1 + np.exp(1.0 - np.cumsum(steps, axis=1)))
