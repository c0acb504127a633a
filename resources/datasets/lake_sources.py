"""Tables of a lake as sources, at a version that never changes; they need the extra ``lake``.

Delta is read by ``deltalake``, Iceberg by ``pyiceberg``.
"""

from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from halving.errors import ExtraMissing, InvalidInput
from halving.store.faults import store_faults
from resources.datasets.file_sources import READ_AHEAD, Part, batch_rows
from resources.source_files.patterns import DELTA_LOG
from resources.source_files.places import Places
from resources.sweep_spec.dataset import Source

if TYPE_CHECKING:
    from pyarrow import dataset

_BATCH_ROWS = 10_000


def open_delta(
    table: str | None, version: int | None, field: str, places: Places | None = None
) -> tuple[list[Part], dict[str, Any]]:
    """Open a version of a Delta table: one part for each of its data files.

    Args:
        places: where the table and its files must be, whatever their paths are; None is anywhere.

    Raises:
        InvalidInput: there is no such table or version, or it has a feature that cannot be read.
        ExtraMissing: ``deltalake`` is not installed.
    """
    try:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError, TableNotFoundError
    except ImportError:
        raise ExtraMissing(f"{field}.delta needs deltalake: pip install 'halving-platform[lake]'") from None
    is_bound = places is not None and "://" not in str(table)
    if places is not None and is_bound:
        places.check_links(f"{field}.delta", str(table), [str(table), f"{table}/{DELTA_LOG}"])
    try:
        with store_faults(f"cannot read {field}.delta = {table!r}"):
            opened = DeltaTable(str(table), version=version)
            fragments = list(opened.to_pyarrow_dataset().get_fragments())
            schema = opened.to_pyarrow_dataset().schema
    except TableNotFoundError:
        raise InvalidInput(f"{field}.delta = {table!r} is not accepted: there is no Delta table") from None
    except DeltaError as error:
        newest = _newest_delta(str(table))
        raise InvalidInput(
            f"{field}.version = {version} of {table!r} is not accepted: {error}; the newest is {newest}"
        ) from None
    if places is not None and is_bound:
        places.check_links(
            f"{field}.delta", str(table), (f"{table}/{fragment.path}" for fragment in fragments)
        )
    # The columns are part of the identity: when the table gets a column, its files are read again.
    columns = sha256(str(schema).encode()).hexdigest()[:16]
    parts = [
        Part(f"{fragment.path} {columns}", _reader_of_fragment(fragment, schema))
        for fragment in sorted(fragments, key=lambda fragment: fragment.path)
    ]
    return _in_order_of_commits(opened, parts), {
        "kind": "delta",
        "delta": table,
        "version": opened.version(),
        "count": len(parts),
    }


def open_iceberg(source: Source, field: str) -> tuple[list[Part], dict[str, Any]]:
    """Open a snapshot of an Iceberg table: one part for each of its data files.

    Raises:
        InvalidInput: there is no such catalog, table or snapshot.
        ExtraMissing: ``pyiceberg`` is not installed.
    """
    try:
        from pyiceberg.catalog import load_catalog
        from pyiceberg.exceptions import NoSuchTableError
        from pyiceberg.io.pyarrow import ArrowScan
        from pyiceberg.manifest import FileFormat
    except ImportError:
        raise ExtraMissing(f"{field}.iceberg needs pyiceberg: pip install 'halving-platform[lake]'") from None
    name = source.catalog or "default"
    try:
        catalog = load_catalog(name)
    except ValueError as error:
        raise InvalidInput(
            f"{field}.catalog = {name!r} is not accepted: {error}; PyIceberg reads .pyiceberg.yaml and "
            "PYICEBERG_*"
        ) from None
    try:
        table = catalog.load_table(str(source.iceberg))
    except NoSuchTableError as error:
        raise InvalidInput(f"{field}.iceberg = {source.iceberg!r} is not accepted: {error}") from None
    if source.snapshot is None or table.snapshot_by_id(source.snapshot) is None:
        snapshots = [entry.snapshot_id for entry in table.history()][-5:]
        raise InvalidInput(
            f"{field}.snapshot = {source.snapshot} is not accepted: {source.iceberg} has the snapshots "
            f"{snapshots} (newest last)"
        )
    scan = table.scan(snapshot_id=source.snapshot)
    entries = table.inspect.entries(source.snapshot)
    # Only the paths are made Python objects: the other metadata of the files is much larger.
    paths = pc.struct_field(entries["data_file"], "file_path").to_pylist()
    committed = dict(zip(paths, entries["sequence_number"].to_pylist(), strict=True))
    # Rows that were appended come last.
    tasks = sorted(
        scan.plan_files(), key=lambda task: (committed.get(task.file.file_path) or 0, task.file.file_path)
    )

    def reader(task: Any) -> Callable[[], Iterator[pa.RecordBatch]]:
        def read() -> Iterator[pa.RecordBatch]:
            with store_faults(f"cannot read {task.file.file_path}"):
                if task.file.file_format == FileFormat.PARQUET:
                    yield from _iceberg_parquet(table, scan.projection(), task)
                else:
                    yield from ArrowScan(
                        table.metadata, table.io, scan.projection(), scan.row_filter
                    ).to_record_batches([task])

        return read

    columns = sha256(str(scan.projection()).encode()).hexdigest()[:16]

    def identity(task: Any) -> str:
        deleted = sorted(file.file_path for file in task.delete_files)
        return " ".join([task.file.file_path, columns, *deleted])

    parts = [Part(identity(task), reader(task)) for task in tasks]
    return parts, {
        "kind": "iceberg",
        "iceberg": source.iceberg,
        "snapshot": source.snapshot,
        "catalog": name,
        "count": len(parts),
    }


def _iceberg_parquet(table: Any, projection: Any, task: Any) -> Iterator[pa.RecordBatch]:
    """Read a Parquet file of an Iceberg table as PyIceberg would, but in bounded memory.

    ``ArrowScan.to_record_batches`` holds all rows of a file. So its steps are called here: they map the
    file's columns to the table's by id, add those that the file lacks, and leave out deleted rows.
    """
    import pyarrow.parquet as pq
    from pyiceberg.io import pyarrow as reading
    from pyiceberg.schema import prune_columns
    from pyiceberg.types import ListType, MapType

    metadata = table.metadata
    # PyIceberg does the same, because these versions of the format have no nanoseconds.
    to_microseconds = metadata.format_version <= 2
    deletes = reading._read_all_delete_files(table.io, [task]).get(task.file.file_path)
    with (
        table.io.new_input(task.file.file_path).open() as file,
        pq.ParquetFile(file, buffer_size=READ_AHEAD, pre_buffer=False) as parquet,
    ):
        file_schema = reading.pyarrow_to_schema(
            parquet.schema_arrow,
            metadata.name_mapping(),
            to_microseconds,
            format_version=metadata.format_version,
        )
        # Lists and maps are selected by their elements, as PyIceberg does itself.
        fields = {
            number
            for number in projection.field_ids
            if not isinstance(projection.find_type(number), (ListType, MapType))
        }
        read_schema = prune_columns(file_schema, fields, select_full_types=False)
        missing = reading._get_column_projection_values(
            task.file,
            projection,
            metadata.schema(),
            metadata.specs().get(task.file.spec_id),
            file_schema.field_ids,
        )
        first_row = 0
        for batch in parquet.iter_batches(
            batch_rows(parquet.metadata), columns=[column.name for column in read_schema.columns]
        ):
            rows = batch
            if deletes:
                rows = batch.take(
                    reading._combine_positional_deletes(deletes, first_row, first_row + batch.num_rows)
                )
            first_row += batch.num_rows
            if rows.num_rows:
                yield reading._to_requested_schema(
                    projection,
                    read_schema,
                    rows,
                    downcast_ns_timestamp_to_us=to_microseconds,
                    projected_missing_fields=missing,
                    allow_timestamp_tz_mismatch=True,
                )


def _reader_of_fragment(
    fragment: "dataset.Fragment", schema: pa.Schema
) -> Callable[[], Iterator[pa.RecordBatch]]:
    from pyarrow import dataset

    options = dataset.ParquetFragmentScanOptions(
        use_buffered_stream=True, buffer_size=READ_AHEAD, pre_buffer=False
    )

    def read() -> Iterator[pa.RecordBatch]:
        with store_faults(f"cannot read {fragment.path}"):
            yield from fragment.to_batches(
                schema=schema,
                batch_size=_BATCH_ROWS,
                batch_readahead=1,
                fragment_readahead=1,
                fragment_scan_options=options,
                use_threads=False,
            )

    return read


def _in_order_of_commits(table: Any, parts: list[Part]) -> list[Part]:
    """Sort the parts by age, so that appended rows come behind those that were there."""
    actions = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    written = {PurePosixPath(action["path"]).name: action["modification_time"] for action in actions}
    return sorted(
        parts,
        key=lambda part: (written[PurePosixPath(str(part.identity).rpartition(" ")[0]).name], part.identity),
    )


def _newest_delta(table: str) -> int:
    from deltalake import DeltaTable

    return int(DeltaTable(table).version())
