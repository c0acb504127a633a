"""Where rows come from: a function's result, or what a spec names without code.

Each source gives its rows in parts, in a fixed order. A part with an identity (a file with its size and time,
a data file of a lake's table) is read once: a later snapshot that finds it again takes over what was made of
it.
"""

import inspect
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from halving.errors import HalvingError, InvalidInput
from halving.models.source_code import own_module
from halving.trial.import_string import import_function, where
from resources.datasets.canonical import BATCH_BYTES
from resources.datasets.file_sources import Part, open_files, open_folder
from resources.datasets.over_http import check_source
from resources.datasets.query_source import open_query
from resources.source_files.column_types import plain_type
from resources.source_files.columns import Columns, unite
from resources.source_files.listing import watch_dataset
from resources.source_files.places import Places
from resources.sweep_spec.dataset import DatasetSource

if TYPE_CHECKING:
    from pyarrow import dataset

_MAX_PENDING = 256  # batches that are joined into one; each takes some kilobytes, however small its rows are


@dataclass(frozen=True)
class OpenedSource:
    """A source that was opened: its parts, and the facts about it.

    Attributes:
        parts: all its parts in order.
        facts: facts for the lineage: its kind, place and version.
        default_group: columns that decide a row's split if the spec names none.
        check_unchanged: raises InvalidInput if the source has changed since it was opened.
    """

    parts: Sequence[Part]
    facts: dict[str, Any]
    default_group: tuple[str, ...] = ()
    check_unchanged: Callable[[], None] = field(default=lambda: None)


def open_source(source: DatasetSource, places: Places | None = None) -> OpenedSource:
    """Open a spec's source; its rows are read later, part by part.

    Args:
        places: places that may be read; None is all that this process may read.

    Raises:
        InvalidInput: there is nothing to read, or no function of the name.
    """
    name, value = source.origin
    field = f"dataset.{name}"
    if isinstance(value, str):
        return _open_function(field, value, places)
    if places is not None:
        check_source(field, value, places)
    if value.files is not None:
        return OpenedSource(*open_files(value.files, value.format, field, value.encoding, places))
    if value.folder is not None:
        return _open_folder(value.folder, value.reference, field, places)
    if value.sql is not None:
        return OpenedSource(*open_query(value.sql, field, places))
    from resources.datasets.lake_sources import open_delta, open_iceberg

    if value.delta is not None:
        return OpenedSource(*open_delta(value.delta, value.version, field, places))
    return OpenedSource(*open_iceberg(value, field))


def transform_rows(source: DatasetSource, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Apply the spec's ``transform``, if it has one, to the rows.

    Raises:
        InvalidInput: it raised, or gave something else than a table.
    """
    if source.transform is None:
        yield from batches
        return
    transform = import_function("dataset.transform", source.transform)
    for rows in batches:
        try:
            made = transform(pa.table(rows))
        except Exception as error:
            raise InvalidInput(
                f"dataset.transform = {source.transform!r} is not accepted: it raised "
                f"{type(error).__name__} at {where(error)}: {error}"
            ) from error
        if not isinstance(made, pa.Table):
            raise InvalidInput(
                f"dataset.transform = {source.transform!r} is not accepted: it returned "
                f"{type(made).__name__}; return a pyarrow.Table"
            )
        yield from made.to_batches()


def _open_function(field: str, path: str, places: Places | None) -> OpenedSource:
    from pyarrow import dataset

    load = import_function(field, path)
    facts = {"kind": "function", "function": path}
    try:
        loaded = load()
    except Exception as error:
        raise InvalidInput(_describe_failure(field, path, error)) from error
    if isinstance(loaded, str | os.PathLike):
        folder = str(loaded)
        if "://" not in folder and not Path(folder).is_dir():
            raise InvalidInput(
                f"{field} = {path!r} is not accepted: it returned {folder!r}, which is not a folder"
            )
        if places is not None and _is_own(load):
            places = None  # A folder that the project's own code names is not bound to the places.
        if places is not None:
            places.check(field, folder)
        opened = _open_folder(folder, None, field, places)
        return replace(opened, facts={**opened.facts, **facts})
    part = Part(None, lambda: _loaded_batches(field, path, loaded))
    if isinstance(loaded, dataset.FileSystemDataset):
        _refuse_other_fragments(f"{field} = {path!r}", loaded)
        return OpenedSource([part], facts, check_unchanged=watch_dataset(f"{field} = {path!r}", loaded))
    return OpenedSource([part], facts)


def _refuse_other_fragments(field: str, files: "dataset.FileSystemDataset") -> None:
    """Refuse a ``pyarrow.dataset`` that would ignore columns or types of its later files.

    It has the columns of its first file, unless it was given a schema of its own: then that is what its rows
    are meant to have.
    """
    from pyarrow import dataset

    fragments = list(files.get_fragments())
    if not fragments:
        return
    partitions = dataset.get_partition_keys(fragments[0].partition_expression)
    of_first = pa.schema([column for column in files.schema if column.name not in partitions])
    if not of_first.equals(fragments[0].physical_schema):
        return
    first = fragments[0]
    for later in fragments[1:]:
        union = unite(
            field, ((fragment.path, Columns(fragment.physical_schema)) for fragment in (first, later))
        )
        for column in union:
            kind = plain_type(of_first.field(column.name).type)
            if column.type != kind:
                raise InvalidInput(
                    f"{field} is not accepted: the column {column.name!r} is {kind} in {first.path}, "
                    "whose columns the pyarrow.dataset has, "
                    f"and {later.physical_schema.field(column.name).type} in {later.path}; "
                    "give pyarrow.dataset.dataset a schema"
                )


def _is_own(function: Callable[..., Any]) -> bool:
    """Whether a function is of the project's code, and not of an installed package."""
    return own_module(str(getattr(inspect.unwrap(function), "__module__", ""))) is not None


def _open_folder(place: str, reference: str | None, field: str, places: Places | None = None) -> OpenedSource:
    parts, facts, check = open_folder(place, reference, field, places)
    # Grouped by content, copies of a file are in one split.
    content = "etag"
    if reference in (None, "digest"):
        content = "sha256"
    return OpenedSource(parts, facts, (content,), check)


def _loaded_batches(field: str, path: str, loaded: Any) -> Iterator[pa.RecordBatch]:
    """The record batches of a function's result."""
    if hasattr(loaded, "to_batches"):  # It is a table or a pyarrow.dataset.
        loaded = loaded.to_batches()
    if isinstance(loaded, str | bytes) or not isinstance(loaded, Iterable):
        raise InvalidInput(
            f"{field} = {path!r} is not accepted: it returned {type(loaded).__name__}; "
            "return a pyarrow.Table (pyarrow.Table.from_pandas for a DataFrame), "
            "an iterator of record batches, or a folder's path"
        )
    batches = iter(loaded)
    while True:
        try:
            rows = next(batches, None)
        except HalvingError:
            raise
        except Exception as error:
            raise InvalidInput(_describe_failure(field, path, error)) from error
        if rows is None:
            return
        if not isinstance(rows, pa.RecordBatch | pa.Table):
            raise InvalidInput(
                f"{field} = {path!r} is not accepted: it gave {type(rows).__name__} among its rows; give "
                "pyarrow record batches"
            )
        if isinstance(rows, pa.Table):
            yield from rows.to_batches()
        else:
            yield rows


def _describe_failure(field: str, path: str, error: Exception) -> str:
    return f"{field} = {path!r} is not accepted: it raised {type(error).__name__} at {where(error)}: {error}"


def resize_batches(
    batches: Iterable[pa.RecordBatch], max_bytes: int = 2 * BATCH_BYTES
) -> Iterator[pa.RecordBatch]:
    """Regroup rows into batches of about 4 to 8 MiB: split large ones, and join small ones."""
    pending: list[pa.RecordBatch] = []
    size = 0
    for rows in batches:
        if not rows.num_rows:
            continue
        if pending and not rows.schema.equals(pending[0].schema):
            yield _concat(pending)
            pending = []
            size = 0
        step = rows.num_rows
        if rows.nbytes > max_bytes:
            step = max(1, rows.num_rows * BATCH_BYTES // rows.nbytes)
        for begin in range(0, rows.num_rows, step):
            part = rows.slice(begin, step)
            pending.append(part)
            size += part.nbytes
            if size >= BATCH_BYTES or len(pending) >= _MAX_PENDING:
                yield _concat(pending)
                pending = []
                size = 0
    if pending:
        yield _concat(pending)


def _concat(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:  # concat_batches would copy it.
        return batches[0]
    return pa.concat_batches(batches)
