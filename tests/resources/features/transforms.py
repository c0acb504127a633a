"""Transforms of the tests' views."""

import os

import pyarrow as pa
import pyarrow.compute as pc


def rate(rows: pa.Table) -> pa.Table:
    """Row by row, as it must be."""
    views = pc.cast(rows["seen"], pa.float64())
    hour = pc.hour(rows["ts"])
    return pa.table(
        {
            "ctr": pc.divide(pc.cast(rows["clicks"], pa.float64()), views),
            "night": pc.or_(pc.less(hour, 6), pc.greater(hour, 21)),
        }
    )


def raises_on_unlucky(rows: pa.Table) -> pa.Table:
    if 13.0 in rows["value"].to_pylist():
        raise ZeroDivisionError("unlucky")
    return rows.select(["value"])


def centred(rows: pa.Table) -> pa.Table:
    """Not row by row: a mean over the rows that happen to be there."""
    return pa.table({"value": pc.subtract(rows["value"], pc.mean(rows["value"]))})


def drops(rows: pa.Table) -> pa.Table:
    return rows.slice(1)


def gives_names(rows: pa.Table) -> list[str]:
    return rows.column_names


def renames(rows: pa.Table) -> pa.Table:
    return rows.select(["value"]).rename_columns(["worth"])


def as_text(rows: pa.Table) -> pa.Table:
    return pa.table({"value": pc.cast(rows["value"], pa.string())})


def dies(rows: pa.Table) -> pa.Table:
    os._exit(9)
