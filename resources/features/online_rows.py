"""Rows of a view as they are pushed online: the latest of each entity, and the bytes of them."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from halving import Store
from halving.features.definition import Definition, arrow_type
from halving.features.packing import Layout, entity_keys
from halving.query.duckdb_paths import duckdb_paths
from resources.features.engine import carried, columns, text
from resources.features.labels import BATCH
from resources.features.partitions import Partition
from resources.features.view import EVENT, KNOWN

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

GENERATION = "_generation"


def packed(definition: Definition, layout: Layout, rows: "pa.Table") -> list[tuple[bytes, bytes]]:
    """Entity keys and values of rows with the entity's columns, ``_event``, ``_known``, ``_generation`` and
    the features.
    """
    import pyarrow as pa

    features = {
        name: rows[name].cast(arrow_type(kind))
        if name in rows.column_names
        else pa.chunked_array([pa.nulls(rows.num_rows, arrow_type(kind))])
        for name, kind in definition.features.items()
    }
    event_times, known_times = (rows[name].cast("int64").to_numpy() for name in (EVENT, KNOWN))
    values = layout.pack(pa.table(features), event_times, known_times, rows[GENERATION].to_numpy())
    return [
        (key, value)
        for key, value in zip(entity_keys(definition, rows), values, strict=True)
        if key is not None
    ]


def latest_rows(
    connection: "duckdb.DuckDBPyConnection",
    store: Store,
    definition: Definition,
    days: Sequence[Partition],
    until: int,
    among: str | None = None,
) -> "Iterator[pa.Table]":
    """The latest row of each entity that is known by ``until``: of the latest event, and of equal ones the
    one known last.

    Args:
        among: a table of entities; of others no row is given.
    """
    import pyarrow as pa

    days = [day for day in days if day.rows]
    if not days:
        return
    paths = duckdb_paths(connection, store, [day.name for day in days])
    generations = pa.table(
        {"filename": paths, GENERATION: pa.array([day.generation for day in days], pa.uint32())}
    )
    connection.register("generations", generations)
    had = [name for name in definition.features if any(name in day.definition.features for day in days)]
    features = [carried(name, definition.features[name], "f") for name in had]
    entity = columns(definition.entity, "f")
    chosen = (
        f"AND ({entity}) IN (SELECT DISTINCT ({columns(definition.entity)}) FROM {among})" if among else ""
    )
    query = f"""
        SELECT {", ".join([columns([*definition.entity, EVENT, KNOWN], "f"), *features])}, g.{GENERATION}
        FROM read_parquet(
            [{", ".join(map(text, paths))}],
            hive_partitioning = false, union_by_name = true, filename = '_filename'
        ) f
        JOIN generations g ON f._filename = g.filename
        WHERE f.{KNOWN} <= make_timestamptz({until}) {chosen}
        QUALIFY row_number() OVER (PARTITION BY {entity} ORDER BY f.{EVENT} DESC, f.{KNOWN} DESC) = 1"""
    for batch in connection.sql(query).to_arrow_reader(BATCH):
        yield pa.Table.from_batches([batch])
