"""Predictors of small sweeps, and a dataset whose rows give the target away."""

import pyarrow as pa

from tests import trainables

GOOD = "tests.trainables:predict"
BAD = "tests.trainables:predict_badly"


def planted_table() -> pa.Table:
    """As the small dataset, with a copy of the target and a customer who is in all three."""
    table = trainables.data()
    parts = pa.array(["train"] * 45 + ["validation"] * 15 + ["test"] * 30)
    customers = pa.array([row % 30 for row in range(90)])
    return (
        table.append_column("paid", table.column("label"))
        .append_column("customer", customers)
        .append_column("part", parts)
    )
