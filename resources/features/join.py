"""The point-in-time join: labels with the features that were known at their time, by DuckDB's ASOF join.

A row of a view counts from ``_known`` on, the later of its event and its creation. Of the rows that are known
at a label's time, the one with the latest event counts, and of equal events the one that was known last. So a
row never counts that becomes known after a later event of its entity. In the order of ``_known`` only the
rows that set a new latest event matter, and the last of those before a label's time is its row: an ASOF join.
The row counts for the view's ``ttl`` from its event, and is null after that.

Every label comes back once, in order, with its own columns unchanged. Memory is bounded: labels and features
are spooled to the temporary disk, and the views are joined one after the other.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from halving import Store
from halving.errors import NotFound, StoreError
from halving.features.definition import Definition, arrow_type
from halving.features.reference import Reference, parse_references
from halving.query.duckdb_paths import duckdb_paths
from resources.features.engine import MEMORY, columns, engine, identifier, select_exactly, text
from resources.features.labels import BATCH, Spooled, day_of, spool
from resources.features.partitions import Partition, digest_of_partitions, partitions
from resources.features.view import EVENT, KNOWN_AT, FeatureView, view_of

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

_SQL_TYPES = {
    "binary": "BLOB",
    "bool": "BOOLEAN",
    "double": "DOUBLE",
    "float": "FLOAT",
    "int32": "INTEGER",
    "int64": "BIGINT",
    "string": "VARCHAR",
    "timestamp": "TIMESTAMPTZ",
}


@dataclass(frozen=True)
class Joined:
    """Labels with features.

    Attributes:
        reader: the labels' columns, then one for each feature; to be read once, within the ``with`` block.
        partitions: the days of the views that were read.
    """

    reader: "pa.RecordBatchReader"
    partitions: list[Partition]

    @property
    def digest(self) -> str:
        """``sha256:…`` of the partitions that the features are from."""
        return digest_of_partitions(self.partitions)


@dataclass
class _View:
    """One view's part in a join."""

    view: FeatureView
    definition: Definition
    days: list[Partition]
    references: list[Reference] = field(default_factory=list)

    def in_reach(self, first: date, last: date) -> "list[Partition]":
        return [day for day in self.days if first <= day.day <= last and day.rows]


@contextmanager
def join_features(
    store: Store,
    labels: "pa.Table | pa.RecordBatchReader",
    features: Sequence[str],
    views: Mapping[str, FeatureView],
    *,
    time: str,
    timezone: str | None = None,
    memory: str = MEMORY,
    threads: int | None = None,
) -> Iterator[Joined]:
    """Join labels with the features that were known at their time.

    Args:
        labels: rows with the entities' columns of all views, and ``time``; a reader is read once.
        features: references, ``clicks@1:ctr``; each becomes a column named as the feature, or as ``as`` says.
        views: by ``name@version``, as :func:`resources.features.view.load_views` gives them.
        time: the labels' column with the time at which the features are wanted: timestamps, dates or texts by
            ISO 8601.
        timezone: the time zone of times without one; such labels are refused if it is not given.
        memory: DuckDB's memory limit, in its notation; the rest takes some batches of 65,536 rows.
        threads: the number of threads (default: one for each core).

    Raises:
        InvalidInput: a reference, a column or a time is not accepted.
        NotFound: a view has not been materialised.
        StoreError: the store cannot be read.
    """
    references = parse_references(features, labels.schema.names)
    parts = _parts(store, references, dict(views))
    with engine("the join of features", memory, threads) as (connection, folder):
        spooled = spool(labels, time, [part.definition for part in parts], folder, timezone)
        connection.execute(f"CREATE TABLE labels AS SELECT * FROM read_parquet({text(str(spooled.keys))})")
        used = []
        files = []
        for place, part in enumerate(parts):
            ttl = part.view.ttl_micros
            first = date.min
            if ttl is not None and spooled.rows:
                first = day_of(spooled.first - ttl)
            days = part.in_reach(first, spooled.last_day)
            files.append(folder / f"{place}.arrows")
            _join_view(connection, store, part, days, spooled, files[-1])
            used += days
        connection.execute("DROP TABLE labels")
        part_of = {part.view.key: place for place, part in enumerate(parts)}
        schema = spooled.schema
        for reference in references:
            schema = schema.append(
                _field(reference.column, parts[part_of[reference.key]].definition.features[reference.feature])
            )
        order = [
            (part_of[reference.key], parts[part_of[reference.key]].references.index(reference))
            for reference in references
        ]
        yield Joined(_combine(spooled, files, order, schema), used)


def _parts(store: Store, references: Sequence[Reference], views: dict[str, FeatureView]) -> list[_View]:
    parts: dict[str, _View] = {}
    for reference in references:
        view = view_of(reference, views)
        if reference.key not in parts:
            days = partitions(store, view.name, view.version)
            if not days:
                raise NotFound(
                    f"the feature view {view.key} has not been materialised in {store.root}; halving "
                    "features materialize does it"
                )
            parts[reference.key] = _View(view, view.definition(dict(days[-1].definition.entity)), days)
        parts[reference.key].references.append(reference)
    return list(parts.values())


def _join_view(
    connection: "duckdb.DuckDBPyConnection",
    store: Store,
    part: _View,
    days: list[Partition],
    labels: Spooled,
    target: Path,
) -> None:
    """Write a view's features for each label, in the order of the labels."""
    import pyarrow as pa

    chosen = [f"f.{identifier(reference.feature)}" for reference in part.references]
    if (ttl := part.view.ttl_micros) is not None:
        is_live = f"epoch_us(l.time) - epoch_us(f.{EVENT}) <= {ttl}"
        chosen = [f"CASE WHEN {is_live} THEN {column} END" for column in chosen]
    same = " AND ".join(f"l.{labels.keys_of[name]} = f.{identifier(name)}" for name in part.definition.entity)
    # Columns are numbered, because in SQL names that differ by case alone are the same.
    query = f"""
        SELECT l.row, {", ".join(f"{value} AS feature_{place}" for place, value in enumerate(chosen))}
        FROM labels l
        ASOF LEFT JOIN ({_rows(connection, store, part, days, labels)}) f ON {same} AND l.time >= f.{KNOWN_AT}
        ORDER BY l.row"""
    reader = connection.sql(query).to_arrow_reader(BATCH)
    with pa.OSFile(str(target), "wb") as file, pa.ipc.new_stream(file, reader.schema) as writer:
        for batch in reader:
            writer.write_batch(batch)


def _rows(
    connection: "duckdb.DuckDBPyConnection", store: Store, part: _View, days: list[Partition], labels: Spooled
) -> str:
    """SQL for the rows of a view that can count: at most one for each entity and known time."""
    wanted = list(dict.fromkeys(reference.feature for reference in part.references))
    entity = list(part.definition.entity)
    # Features that were added after these days were made are null.
    had = [name for name in wanted if any(name in day.definition.features for day in days)]
    selected = [identifier(name) for name in (*entity, EVENT, KNOWN_AT)]
    for name in wanted:
        kind = part.definition.features[name]
        if name in had:
            selected.append(select_exactly(name, kind))
        else:
            selected.append(_null(kind, name))
    if not days:
        empty = [_null(part.definition.entity[name], name) for name in entity]
        empty += [f"NULL::TIMESTAMPTZ AS {name}" for name in (EVENT, KNOWN_AT)]
        return f"SELECT {', '.join([*empty, *selected[len(empty) :]])} WHERE false"
    paths = ", ".join(map(text, duckdb_paths(connection, store, [day.name for day in days])))
    by_name = ""
    if any(set(had) - set(day.definition.features) for day in days):
        by_name = ", union_by_name = true"
    keys = ", ".join(labels.keys_of[name] for name in entity)
    rows = f"""
        SELECT {", ".join(selected)} FROM read_parquet([{paths}], hive_partitioning = false{by_name})
        WHERE {KNOWN_AT} <= make_timestamptz({labels.last})
            AND ({columns(entity)}) IN (SELECT DISTINCT ({keys}) FROM labels)"""
    if part.view.delay is not None:
        return rows  # rows are known in the order of their events, so no row is overtaken
    return f"""
        SELECT * FROM (
            SELECT *, max({EVENT}) OVER arrivals AS _newest, lead({KNOWN_AT}) OVER arrivals AS _next_known
            FROM ({rows})
            WINDOW arrivals AS (
                PARTITION BY {columns(entity)} ORDER BY {KNOWN_AT}, {EVENT} ROWS UNBOUNDED PRECEDING
            )
        ) WHERE {EVENT} = _newest AND _next_known IS DISTINCT FROM {KNOWN_AT}"""


def _null(kind: str, name: str) -> str:
    return f"NULL::{_SQL_TYPES[kind]} AS {identifier(name)}"


def _combine(
    labels: Spooled, files: Sequence[Path], order: Sequence[tuple[int, int]], schema: "pa.Schema"
) -> "pa.RecordBatchReader":
    """The labels' batches with the features of the same rows from the views' files.

    Args:
        order: for each feature, the number of its file and its place there.
    """
    import pyarrow as pa

    def batches() -> "Iterator[pa.RecordBatch]":
        with ExitStack() as opened:
            takers = [_taker(opened.enter_context(pa.OSFile(str(file)))) for file in files]
            row = 0
            for batch in labels.batches():
                taken = [take(row, batch.num_rows) for take in takers]
                row += batch.num_rows
                added = [taken[file][place] for file, place in order]
                kinds = schema.types[len(batch.columns) :]
                yield pa.RecordBatch.from_arrays(
                    [*batch.columns, *(array.cast(kind) for array, kind in zip(added, kinds, strict=True))],
                    schema=schema,
                )

    return pa.RecordBatchReader.from_batches(schema, batches())


def _taker(file: "pa.NativeFile") -> "Callable[[int, int], list[pa.Array]]":
    """A function that takes the features of the next rows, by the first row's number and the count."""
    import numpy as np
    import pyarrow as pa

    reader = pa.ipc.open_stream(file)
    kept = pa.Table.from_batches([], reader.schema)

    def take(row: int, count: int) -> "list[pa.Array]":
        nonlocal kept
        while kept.num_rows < count:
            kept = pa.concat_tables([kept, pa.Table.from_batches([reader.read_next_batch()])])
        some = kept.slice(0, count).combine_chunks()
        kept = kept.slice(count)
        if not np.array_equal(some["row"].to_numpy(), np.arange(row, row + count)):
            # DuckDB's ORDER BY should make this impossible.
            raise StoreError(f"the join lost the order of the labels at row {row}")
        return [column.combine_chunks() for column in some.columns[1:]]

    return take


def _field(name: str, kind: str) -> "pa.Field":
    import pyarrow as pa

    return pa.field(name, arrow_type(kind))
