"""Files as sources: Parquet, CSV and JSON by their rows, and folders in which each file is a row.

They lie in a folder of this machine or on an object store.
"""

import tarfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from io import BytesIO
from typing import TYPE_CHECKING, Any, overload

import pyarrow as pa

from halving.data.referenced_files import location_of, object_facts
from halving.errors import InvalidInput
from halving.store.faults import store_faults
from resources.datasets.canonical import BATCH_BYTES
from resources.datasets.csv_files import csv_columns, csv_rows
from resources.datasets.json_files import json_columns, json_rows
from resources.source_files.columns import Columns, bring_to_union
from resources.source_files.listing import (
    SourceFile,
    SourceFiles,
    find_files_of_all,
    list_files,
    open_place,
    refuse_changes,
)
from resources.source_files.partitions import Partitions, find_partitions
from resources.source_files.patterns import is_file_of_a_folder
from resources.source_files.places import Places
from resources.sweep_spec.dataset import TEXT_FORMATS

if TYPE_CHECKING:
    from pyarrow import parquet

_FORMATS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".csv.gz": "csv",
    ".tsv": "csv",
    ".tsv.gz": "csv",
}
_FORMATS |= {".tar": "tar", ".tar.gz": "tar", ".tgz": "tar"}
_FORMATS |= {".json": "json", ".jsonl": "json", ".ndjson": "json", ".json.gz": "json", ".jsonl.gz": "json"}
_CHUNK = 1 << 20
READ_AHEAD = 1 << 20
"""Bytes that are read at a time from each column of a Parquet file."""
_READ_AHEAD_REMOTE = 8 * READ_AHEAD
_BUFFERS = 256 * 2**20  # bytes of the buffers of all columns
_WHOLE_ROW_GROUP = 64 * 2**20  # bytes of a row group that is fetched as a whole


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a source's rows, such as one file.

    Attributes:
        identity: a text that changes whenever the rows do, known without reading them; None if there is none.
        read: reads its rows. A part with ``columns`` takes the union of all parts' columns, and casts to it;
            any other part gives rows with its own types.
        columns: finds its columns before a row is read; None where all parts have the same ones.
        name: its name in messages.
    """

    identity: str | None
    read: Callable[..., Iterator[pa.RecordBatch]]
    columns: Callable[[], Columns] | None = None
    name: str = ""


@dataclass(frozen=True, slots=True)
class Format:
    """How files of a format are read.

    Attributes:
        name: its name in a spec.
        read: reads a file's rows; the schema is the one to which they are cast afterwards, if it is known.
        columns: finds the columns of a file; None if the format cannot say them beforehand.
        optional: whether a column that a file lacks is null.
    """

    name: str
    read: Callable[[SourceFile, pa.Schema | None], Iterator[pa.RecordBatch]]
    columns: Callable[[SourceFile], Columns] | None = None
    optional: bool = False


class FileParts(Sequence[Part]):
    """One part for each file, made on access: a million part objects would take a gigabyte."""

    def __init__(self, files: SourceFiles, part_of: Callable[[SourceFile], Part]) -> None:
        self._files = files
        self._make_part = part_of

    def __len__(self) -> int:
        return len(self._files)

    def __iter__(self) -> Iterator[Part]:
        return map(self._make_part, self._files)

    @overload
    def __getitem__(self, number: int) -> Part: ...
    @overload
    def __getitem__(self, number: slice) -> list[Part]: ...
    def __getitem__(self, number: int | slice) -> Part | list[Part]:
        if isinstance(number, slice):
            return [self._make_part(file) for file in self._files[number]]
        return self._make_part(self._files[number])


def open_files(
    files_or_patterns: str | list[str],
    form: str | None,
    field: str,
    encoding: str | None = None,
    places: Places | None = None,
) -> tuple[Sequence[Part], dict[str, Any], tuple[str, ...], Callable[[], None]]:
    """Open the files that paths and patterns name, sorted by path.

    Args:
        encoding: encoding of CSV and JSON; None is UTF-8, or what a byte order mark says.
        places: where the files must be, whatever their paths are; None is anywhere.

    Returns:
        The parts, the facts for the lineage, the default group, and the check that no file has changed.

    Raises:
        InvalidInput: a pattern names no file, or a file's format is not known or has no encoding.
    """
    patterns = files_or_patterns
    if isinstance(patterns, str):
        patterns = [patterns]

    def find() -> SourceFiles:
        files = find_files_of_all(f"{field}.files", patterns)
        if places is not None:
            places.check_files(f"{field}.files", ", ".join(patterns), files)
        return files

    files = find()
    if form is None:
        for file in files:
            _format_of(field, file.address, encoding)
    partitions = find_partitions(f"{field}.files", files)

    def part_of(file: SourceFile) -> Part:
        reader = _find_format(form or _format_of(field, file.address), encoding)
        return _make_part(field, file, reader, partitions)

    facts = {"kind": "files", "files": patterns, "count": len(files)}
    return FileParts(files, part_of), facts, (), refuse_changes(f"{field}.files", files, find)


def open_folder(
    place: str, reference: str | None, field: str, places: Places | None = None
) -> tuple[Sequence[Part], dict[str, Any], Callable[[], None]]:
    """Open a folder in which each file is a row: ``path, label, bytes, sha256, content``.

    By reference a row has ``location`` in place of ``content``.

    Args:
        reference: None, ``digest``, or ``etag`` or ``version``: then rows have these of S3 in place of
            ``sha256``.
        places: where the files must be, whatever their paths are; None is anywhere.

    Returns:
        The parts, the facts for the lineage, and the check that no file has changed.

    Raises:
        InvalidInput: there is no such folder, or no file in it.
    """
    filesystem, base = open_place(f"{field}.folder", place)

    def find() -> SourceFiles:
        files = list_files(f"{field}.folder", place, filesystem, base, is_file_of_a_folder)
        if places is not None:
            places.check_files(f"{field}.folder", place, files)
        return files

    files = find()
    if not files:
        raise InvalidInput(f"{field}.folder = {place!r} is not accepted: the folder holds no files")

    def part_of(file: SourceFile) -> Part:
        path = file.path[len(base) :].lstrip("/")
        if reference in ("etag", "version"):
            return Part(
                file.identity, partial(_object_row, f"{field}.reference", reference, place, file, path)
            )
        return Part(file.identity, partial(_file_row, reference is not None, place, file, path))

    facts: dict[str, Any] = {"kind": "folder", "folder": place}
    if reference:
        facts["reference"] = reference
    facts["count"] = len(files)
    return FileParts(files, part_of), facts, refuse_changes(f"{field}.folder", files, find)


def _format_of(field: str, path: str, encoding: str | None = None) -> str:
    for ending, form in _FORMATS.items():
        if path.lower().endswith(ending):
            if encoding is not None and form not in TEXT_FORMATS:
                raise InvalidInput(
                    f"{field}.encoding = {encoding!r} is not accepted: {path} is {form}; only csv and json "
                    "have an encoding"
                )
            return form
    raise InvalidInput(
        f"{field}.files = {path!r} is not accepted: its name does not say what it is; give format: "
        "parquet, csv, json or tar"
    )


def _find_format(form: str, encoding: str | None) -> Format:
    if form == "csv":
        return Format(form, partial(csv_rows, encoding=encoding), partial(csv_columns, encoding=encoding))
    if form == "json":
        return Format(
            form,
            partial(json_rows, encoding=encoding),
            partial(json_columns, encoding=encoding),
            optional=True,
        )
    if form == "parquet":
        return Format(form, _read_parquet, _read_parquet_columns)
    return Format(form, _read_tar)


def _make_part(field: str, file: SourceFile, reader: Format, partitions: Partitions) -> Part:
    columns = None
    if reader.columns:
        columns = partial(_read_columns, field, file, reader, partitions)
    return Part(file.identity, partial(_read_file, field, file, reader, partitions), columns, file.address)


def _read_columns(field: str, file: SourceFile, reader: Format, partitions: Partitions) -> Columns:
    if _is_empty(file, reader):
        return Columns(pa.schema([]), optional=True)
    assert reader.columns is not None
    with _name_in_errors(field, file, reader):
        of_file = reader.columns(file)
    return replace(of_file, types=partitions.added_types(of_file.types))


def _read_file(
    field: str, file: SourceFile, reader: Format, partitions: Partitions, wanted: pa.Schema | None = None
) -> Iterator[pa.RecordBatch]:
    if _is_empty(file, reader):
        return
    with _name_in_errors(field, file, reader):
        for rows in reader.read(file, wanted):
            if wanted is None:
                yield partitions.add_to(rows, file)
            elif rows.num_rows:
                yield bring_to_union(
                    rows,
                    wanted,
                    partitions.scalars_of(file),
                    file.address,
                    field=f"{field}.files",
                    optional=reader.optional,
                )


def _is_empty(file: SourceFile, reader: Format) -> bool:
    """Whether it is an empty text file, which Spark writes for a partition without rows."""
    return reader.name in TEXT_FORMATS and not file.size


@contextmanager
def _name_in_errors(field: str, file: SourceFile, reader: Format) -> Iterator[None]:
    """Turn errors of reading a file into those that name it and its format."""
    try:
        with store_faults(f"cannot read {file.address}"):
            yield
    except InvalidInput:
        raise
    except (pa.ArrowInvalid, tarfile.TarError, ValueError) as error:
        raise InvalidInput(
            f"{field}.files: {file.address!r} is not accepted: as {reader.name} it cannot be read: {error}"
        ) from None


def _read_parquet_columns(file: SourceFile) -> Columns:
    import pyarrow.parquet as pq

    with file.filesystem.open_input_file(file.path) as handle:
        metadata = pq.read_metadata(handle)
    if not metadata.num_rows:
        return Columns(pa.schema([]), optional=True)
    return Columns(metadata.schema.to_arrow_schema())


def _read_parquet(file: SourceFile, wanted: pa.Schema | None) -> Iterator[pa.RecordBatch]:
    """Read a file's rows in bounded memory; Arrow's own read-ahead would hold the whole file."""
    import pyarrow.parquet as pq
    from pyarrow import fs

    is_local = isinstance(file.filesystem, fs.LocalFileSystem)
    with file.filesystem.open_input_file(file.path) as handle:
        metadata = pq.read_metadata(handle)
        rows = batch_rows(metadata)
        if not is_local and _largest_row_group(metadata) <= _WHOLE_ROW_GROUP:
            # A request to an object store takes long, so Arrow fetches all columns of a row group at once.
            with pq.ParquetFile(handle, metadata=metadata, pre_buffer=True) as parquet:
                for number in range(metadata.num_row_groups):
                    yield from parquet.iter_batches(rows, row_groups=[number], use_threads=False)
        else:
            buffer = READ_AHEAD
            if not is_local:
                buffer = max(READ_AHEAD // 16, min(_READ_AHEAD_REMOTE, _BUFFERS // metadata.num_columns))
            with pq.ParquetFile(handle, metadata=metadata, buffer_size=buffer, pre_buffer=False) as parquet:
                yield from parquet.iter_batches(rows, use_threads=False)


def _largest_row_group(metadata: "parquet.FileMetaData") -> int:
    """Stored bytes of a file's largest row group."""
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    return max(
        (
            sum(group.column(number).total_compressed_size for number in range(group.num_columns))
            for group in groups
        ),
        default=0,
    )


def batch_rows(metadata: "parquet.FileMetaData") -> int:
    """How many rows of a Parquet file are read at a time."""
    size = sum(metadata.row_group(number).total_byte_size for number in range(metadata.num_row_groups))
    return max(1, min(65_536, metadata.num_rows * BATCH_BYTES // max(1, size)))


def _read_tar(file: SourceFile, wanted: pa.Schema | None) -> Iterator[pa.RecordBatch]:
    """Read a WebDataset: consecutive members with the same name up to its first dot are one row."""
    with (
        file.filesystem.open_input_stream(file.path, compression=None) as stream,
        tarfile.open(fileobj=stream, mode="r|*") as tar,
    ):
        sample: dict[str, Any] = {}
        for member in tar:
            if not member.isfile():
                continue
            folder, _, name = member.name.rpartition("/")
            key, _, ending = name.partition(".")
            if folder:
                key = f"{folder}/{key}"
            if sample and sample["key"] != key:
                yield _sample_row(sample)
                sample = {}
            content = tar.extractfile(member) or BytesIO()
            sample |= {"key": key, ending.lower(): content.read()}
        if sample:
            yield _sample_row(sample)


def _sample_row(sample: dict[str, Any]) -> pa.RecordBatch:
    """The row of a sample; as in WebDataset ``cls`` is a number, ``txt`` a text, anything else bytes."""
    columns = {}
    for ending, content in sample.items():
        if ending == "key":
            columns[ending] = pa.array([content])
        elif ending == "cls":
            columns[ending] = pa.array([int(content)], pa.int64())
        elif ending == "txt":
            columns[ending] = pa.array([content.decode()])
        else:
            columns[ending] = pa.array([content], pa.large_binary())
    return pa.RecordBatch.from_pydict(columns)


def _file_row(by_reference: bool, place: str, file: SourceFile, path: str) -> Iterator[pa.RecordBatch]:
    with (
        store_faults(f"cannot read {file.address}"),
        file.filesystem.open_input_stream(file.path, compression=None) as stream,
    ):
        digest = sha256()
        chunks = []
        size = 0
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
            size += len(chunk)
            if not by_reference:
                chunks.append(chunk)
    columns = {
        "path": pa.array([path]),
        "label": pa.array([_label(path)]),
        "bytes": pa.array([size]),
        "sha256": pa.array([digest.hexdigest()]),
    }
    if by_reference:
        columns["location"] = pa.array([location_of(place, file.path)])
    else:
        columns["content"] = pa.array([b"".join(chunks)], pa.large_binary())
    yield pa.RecordBatch.from_pydict(columns)


def _object_row(
    field: str, reference: str, place: str, file: SourceFile, path: str
) -> Iterator[pa.RecordBatch]:
    """The row of a file that S3's metadata identifies; it takes one small request."""
    with (
        store_faults(f"cannot read {file.address}"),
        file.filesystem.open_input_stream(file.path, compression=None) as stream,
    ):
        facts = object_facts(stream)
    if reference not in facts:
        remedy = "give digest"
        if reference == "version":
            remedy = "give etag, or have its bucket keep versions and write the files again"
        raise InvalidInput(f"{field} = {reference!r} is not accepted: {file.address} has none; {remedy}")
    identities = {"etag": facts.get("etag")}
    if reference == "version":
        identities["version"] = facts.get("version")
    row = {
        "path": path,
        "label": _label(path),
        "bytes": file.size,
        **identities,
        "location": location_of(place, file.path),
    }
    types = dict.fromkeys(row, pa.string()) | {"bytes": pa.int64()}
    yield pa.RecordBatch.from_pylist([row], pa.schema(types))


def _label(path: str) -> str:
    """The name of the topmost folder that a file is in; empty if it is in none."""
    folder, separator, _ = path.partition("/")
    if not separator:
        return ""
    return folder
