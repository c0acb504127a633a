"""Reading the metric points: DuckDB over the store's Parquet segments."""

from typing import TYPE_CHECKING

from halving import Store
from halving.segments import COLUMNS

if TYPE_CHECKING:
    import pyarrow as pa


def curves(store: Store, project: str, runs: list[str], key: str) -> "pa.Table":
    """One metric of several runs, stitched over resumes: at a step the highest attempt counts, and its last point.

    Returns:
        A table ``run: string, step: int64, value: double``, sorted by run and step; empty for runs without points.
    """
    import duckdb
    import pyarrow as pa

    points = _points(store, project, runs)
    if points is None:
        return pa.table({"run": pa.array([], pa.string()), "step": pa.array([], pa.int64()), "value": pa.array([], pa.float64())})
    with duckdb.connect() as connection:
        connection.register("points", points)
        return connection.sql(
            """
            SELECT run::VARCHAR AS run, step, arg_max(value, (attempt, wall_time)) AS value
            FROM points WHERE key = ? GROUP BY run, step ORDER BY run, step
            """,
            params=[key],
        ).to_arrow_table()


def _points(store: Store, project: str, runs: list[str]) -> "pa.dataset.Dataset | None":
    import pyarrow as pa
    from pyarrow import dataset

    files = []
    for run in runs:
        folder = f"metrics/project={project}/run={run}/live"
        files += [store.path(f"{folder}/{name}") for name in store.names(folder)]
    if not files:
        return None
    types = {"run": pa.string(), "attempt": pa.int32(), "key": pa.string(), "step": pa.int64(), "value": pa.float64()}
    schema = pa.schema([(name, types.get(name, pa.timestamp("ms", tz="UTC"))) for name in COLUMNS])
    return dataset.dataset(files, schema=schema, format="parquet", filesystem=store.filesystem)
