"""Materialising a feature view: a day of its source, transformed and checked, becomes an immutable file.

A day keeps its old file until the new one is complete, and also if anything is refused. Doing it again
changes nothing.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from halving import Store
from halving.errors import HalvingError, InvalidInput
from halving.features.definition import Definition, arrow_type, schema_text
from halving.features.packing import entity_column
from halving.features.transform import Transform, check_row_by_row, features_of
from halving.trial.import_string import import_function
from resources.features.engine import MEMORY, columns, engine, text
from resources.features.partitions import Partition, partitions, publish
from resources.features.staging import check_backfill, check_times, check_unique, days_of, stage, staged_rows
from resources.features.view import EVENT, KNOWN_AT, FeatureView, check_functions, code_of_view

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

_BATCH = 1 << 16  # rows that the transform is given at once
_ROW_GROUP = 1 << 17


@dataclass(frozen=True)
class Materialized:
    """The result for one day: its partition, and whether that is new."""

    partition: Partition
    new: bool


@dataclass(frozen=True)
class Backfill:
    """The result for all days: those that are materialised, and why others are not."""

    days: dict[date, Materialized] = field(default_factory=dict)
    failed: dict[date, HalvingError] = field(default_factory=dict)


def materialize_day(
    store: Store, view: FeatureView, day: date, *, late: bool = False, memory: str = MEMORY
) -> Materialized:
    """Materialise the rows whose events are of one day, in UTC; a day without rows is an empty file.

    Args:
        late: whether rows of new days really became known as late as they say;
            :func:`resources.features.staging.check_backfill` is left out then.
        memory: DuckDB's memory limit; a larger day is spilled to the temporary disk.

    Raises:
        InvalidInput: the source, the transform or a row is not accepted; the message says why, and quotes
            rows.
        StoreError: the store refused.
    """
    with _stage_checked(store, view, day, late, memory) as (connection, folder, entity):
        return _materialize(store, view, day, connection, folder, entity)


def materialize_all(store: Store, view: FeatureView, *, late: bool = False, memory: str = MEMORY) -> Backfill:
    """Materialise all days of which the source has rows, reading it once.

    If one day is refused, the others are made all the same.

    Args:
        late, memory: as for :func:`materialize_day`.

    Raises:
        InvalidInput: the source as a whole is not accepted.
        StoreError: the store refused.
    """
    with _stage_checked(store, view, None, late, memory) as (connection, folder, entity):
        done = Backfill()
        for day in days_of(connection):
            try:
                done.days[day] = _materialize(store, view, day, connection, folder, entity)
            except InvalidInput as error:
                done.failed[day] = error
        return done


def file_schema(definition: Definition) -> "pa.Schema":
    """The columns of a materialised file: the entity's, ``_event``, ``_known``, then the features."""
    import pyarrow as pa

    time_type = arrow_type("timestamp")
    return pa.schema(
        [
            *(pa.field(name, arrow_type(kind), nullable=False) for name, kind in definition.entity.items()),
            pa.field(EVENT, time_type, nullable=False),
            pa.field(KNOWN_AT, time_type, nullable=False),
            *(pa.field(name, arrow_type(kind)) for name, kind in definition.features.items()),
        ]
    )


@contextmanager
def _stage_checked(
    store: Store, view: FeatureView, day: date | None, late: bool, memory: str
) -> "Iterator[tuple[duckdb.DuckDBPyConnection, Path, dict[str, str]]]":
    """Stage and check the rows of a day, or of all days.

    Yields:
        The connection with the rows, a folder for files, and the types of the entity's columns.
    """
    check_functions(view)
    materialized = partitions(store, view.name, view.version)
    with engine(f"materialising the feature view {view.key}", memory) as (connection, folder):
        entity = stage(connection, view, day)
        _check_entity(view, entity, materialized)
        if not late:
            check_backfill(connection, view, materialized)
        yield connection, folder, entity


def _materialize(
    store: Store,
    view: FeatureView,
    day: date,
    connection: "duckdb.DuckDBPyConnection",
    folder: Path,
    entity: dict[str, str],
) -> Materialized:
    check_times(connection, view, day)
    function = None
    if view.transform:
        function = import_function("transform", view.transform)
    made = folder / f"{day}.made.parquet"
    sorted_file = folder / f"{day}.parquet"
    try:
        definition = _transform(view, function, staged_rows(connection, day, _BATCH), entity, made)
        relation = f"read_parquet({text(str(made))})"
        check_unique(connection, view, relation)
        _check_required(connection, view, day, relation)
        rows, times = _sort(connection, definition, relation, sorted_file)
        spec = {"view": view.as_dict(), "code": code_of_view(view)}
        return Materialized(*publish(store, definition, day, sorted_file, rows, times, spec))
    finally:
        for file in (made, sorted_file):
            file.unlink(missing_ok=True)


def _transform(
    view: FeatureView,
    function: Transform | None,
    rows: "pa.RecordBatchReader",
    entity: dict[str, str],
    target: Path,
) -> Definition:
    """Write entity, times and features of the rows to a file, batch by batch."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    inputs = pa.schema([item for item in rows.schema if item.name not in (EVENT, KNOWN_AT)])
    definition = view.definition(entity, schema_text(inputs))
    schema = file_schema(definition)
    checked = False
    writing = pq.ParquetWriter(
        target, schema, compression="none", use_dictionary=False, write_statistics=False
    )
    with rows, writing as writer:
        # The reader is closed even if the transform raises, as DuckDB answers nothing else before.
        for batch in rows:
            if not batch.num_rows:
                continue
            table = pa.Table.from_batches([batch])
            source_rows = table.drop_columns([EVENT, KNOWN_AT])
            features = features_of(definition, function, source_rows)
            if function is not None and not checked:
                check_row_by_row(definition, function, source_rows, features)
                checked = True
            times = [table[name].cast("int64").cast(arrow_type("timestamp")) for name in (EVENT, KNOWN_AT)]
            keys = [entity_column(definition, table, name) for name in definition.entity]
            writer.write_table(pa.Table.from_arrays([*keys, *times, *features.columns], schema=schema))
    return definition


def _sort(
    connection: "duckdb.DuckDBPyConnection", definition: Definition, relation: str, target: Path
) -> tuple[int, tuple[int, int, int]]:
    """Write the rows by entity and time, in row groups of one size, so that equal rows are equal files.

    Returns:
        The number of rows; the first and last event, and the last known time.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = file_schema(definition)
    rows = 0
    order = columns([*definition.entity, EVENT, KNOWN_AT])
    reader = connection.sql(f"SELECT * FROM {relation} ORDER BY {order}").to_arrow_reader(_ROW_GROUP)
    with pq.ParquetWriter(target, schema, compression="zstd") as writer:
        for table in _in_groups(reader):
            writer.write_table(
                pa.Table.from_arrays(
                    [table[name].cast(schema.field(name).type) for name in schema.names], schema=schema
                )
            )
            rows += table.num_rows
    query = (
        f"SELECT epoch_us(min({EVENT})), epoch_us(max({EVENT})), epoch_us(max({KNOWN_AT})) FROM {relation}"
    )
    first, last, last_known = connection.execute(query).fetchall()[0]
    return rows, (first or 0, last or 0, last_known or 0)


def _in_groups(reader: "pa.RecordBatchReader") -> "Iterator[pa.Table]":
    """Regroup batches into tables of one row group each."""
    import pyarrow as pa

    kept: list[Any] = []
    count = 0
    for batch in reader:
        kept.append(batch)
        count += batch.num_rows
        while count >= _ROW_GROUP:
            table = pa.Table.from_batches(kept)
            yield table.slice(0, _ROW_GROUP)
            rest = table.slice(_ROW_GROUP)
            kept = rest.to_batches()
            count = rest.num_rows
    if count:
        yield pa.Table.from_batches(kept)


def _check_required(
    connection: "duckdb.DuckDBPyConnection", view: FeatureView, day: date, relation: str
) -> None:
    for name in view.required:
        column = columns([name])
        what = "null"
        is_missing = f"{column} IS NULL"
        if view.types[name] in ("double", "float"):
            what = "null or NaN"
            is_missing = f"({column} IS NULL OR isnan({column}))"
        count = connection.execute(f"SELECT count(*) FROM {relation} WHERE {is_missing}").fetchall()[0][0]
        if count:
            raise InvalidInput(
                f"schema.{name} of the feature view {view.key} is not null, but of {day} it is {what} in "
                f"{count:,} rows; mend the source, or declare it {view.types[name]}"
            )


def _check_entity(view: FeatureView, entity: dict[str, str], materialized: list[Partition]) -> None:
    if not materialized:
        return
    last = materialized[-1]
    before = dict(last.definition.entity)
    if before != entity:
        raise InvalidInput(
            f"the entity of the feature view {view.key} is not accepted: it is {entity}, and was {before} in "
            f"the partition of {last.day}; give version: {view.version + 1}, or mend the source"
        )
