"""Rows of a view for the online store: the latest of each entity, and their bytes."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from halving import Store
from halving.features.definition import Definition, arrow_type
from halving.features.packing import Layout, entity_keys
from halving.query.duckdb_paths import duckdb_paths
from resources.features.engine import columns, select_exactly, text
from resources.features.labels import BATCH
from resources.features.partitions import Partition
from resources.features.view import EVENT, KNOWN_AT

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

GENERATION = "_generation"


def pack_rows(definition: Definition, layout: Layout, rows: "pa.Table") -> list[tuple[bytes, bytes]]:
    """Pack rows of :func:`latest_rows` into entity keys and values."""
    import pyarrow as pa

    features = {}
    for name, kind in definition.features.items():
        if name in rows.column_names:
            features[name] = rows[name].cast(arrow_type(kind))
        else:
            features[name] = pa.chunked_array([pa.nulls(rows.num_rows, arrow_type(kind))])
    event_times, known_times = (rows[name].cast("int64").to_numpy() for name in (EVENT, KNOWN_AT))
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
    """The latest row of each entity that is known by ``until``; of equal events the one that was known last.

    Args:
        among: a table of entities; other entities are left out.
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
    features = [select_exactly(name, definition.features[name], "f") for name in had]
    entity = columns(definition.entity, "f")
    chosen = ""
    if among:
        chosen = f"AND ({entity}) IN (SELECT DISTINCT ({columns(definition.entity)}) FROM {among})"
    query = f"""
        SELECT {", ".join([columns([*definition.entity, EVENT, KNOWN_AT], "f"), *features])}, g.{GENERATION}
        FROM read_parquet(
            [{", ".join(map(text, paths))}],
            hive_partitioning = false, union_by_name = true, filename = '_filename'
        ) f
        JOIN generations g ON f._filename = g.filename
        WHERE f.{KNOWN_AT} <= make_timestamptz({until}) {chosen}
        QUALIFY row_number() OVER (PARTITION BY {entity} ORDER BY f.{EVENT} DESC, f.{KNOWN_AT} DESC) = 1"""
    for batch in connection.sql(query).to_arrow_reader(BATCH):
        yield pa.Table.from_batches([batch])
