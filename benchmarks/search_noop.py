"""A trainable that does nothing, with its data and predictor, to measure what happens around trials."""

import pyarrow as pa

from halving import Run, TrainedRun


def data() -> pa.Table:
    """30 rows with a number to predict."""
    xs = [row / 30 for row in range(30)]
    return pa.table({"x": xs, "label": xs})


def train(run: Run) -> None:
    """Report and save without any work."""
    run.restore(epochs=0)
    for epoch in run.epochs():
        run.report(score=run.params["x"] + 1 / epoch)
        run.save(epochs=epoch)


def predict(run: TrainedRun, table: pa.Table) -> list[float]:
    """The number itself."""
    return [float(x) for x in table["x"].to_pylist()]
