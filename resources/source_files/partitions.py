"""Columns that only the names of folders give: ``country=de/day=2024-01-02/part.parquet``.

Hive and Spark write files so.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from halving.errors import InvalidInput
from resources.source_files.listing import SourceFile
from resources.source_files.patterns import names_below, partition_of
from resources.source_files.texts import types_of_texts, values_of_texts

_WAYS = "give files whose folders have the same names, or sql with hive_partitioning = false"
_NULL = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True)
class Partitions:
    """The partition columns of some files.

    Attributes:
        types: types of the columns that the names of folders give; the order of files has no effect on them.
        values: the value of each text, by column.
    """

    types: pa.Schema
    values: Mapping[str, Mapping[str, Any]]

    def values_in(self, file: SourceFile) -> dict[str, Any]:
        """The values of the partition columns for a file."""
        return {
            name: self.values[name][text] for name, text in _texts_of(file).items() if name in self.values
        }

    def scalars_of(self, file: SourceFile) -> dict[str, pa.Scalar]:
        """The values of the partition columns for a file, as Arrow scalars of their types."""
        return {
            name: pa.scalar(value, self.types.field(name).type)
            for name, value in self.values_in(file).items()
        }

    def add_to(self, rows: pa.RecordBatch, file: SourceFile) -> pa.RecordBatch:
        """Append these columns to rows of a file; one that the file has itself stays as it is."""
        values = self.scalars_of(file)
        for column in self.types:
            if column.name not in rows.schema.names:
                rows = rows.append_column(column, pa.repeat(values[column.name], rows.num_rows))
        return rows

    def added_types(self, types: pa.Schema) -> pa.Schema:
        """The columns of a file, with these columns behind them."""
        for column in self.types:
            if column.name not in types.names:
                types = types.append(column)
            elif pa.types.is_null(types.field(column.name).type):
                types = types.set(types.names.index(column.name), column)
        return types


NO_PARTITIONS = Partitions(pa.schema([]), {})


def find_partitions(field: str, files: Iterable[SourceFile], *, ways: str = _WAYS) -> Partitions:
    """Find the columns in the names of files' folders, each of the type that fits all of its values.

    Args:
        ways: advice about files in folders of other columns, for the message.

    Raises:
        InvalidInput: two files are in folders of other columns; both are named.
    """
    texts: dict[str, dict[str, None]] = {}
    first: SourceFile | None = None
    folder: str | None = None
    for file in files:
        last = folder
        folder = file.path.rpartition("/")[0]
        if folder == last:
            continue
        texts_of_file = _texts_of(file)
        _refuse_double_names(field, file)
        if first is None:
            first = file
            texts = {name: {} for name in texts_of_file}
        if set(texts_of_file) != set(texts):
            raise InvalidInput(
                f"{field} is not accepted: {first.address} is in folders of {_spell_names(texts)}, "
                f"and {file.address} in those of {_spell_names(texts_of_file)}; {ways}"
            )
        for name, text in texts_of_file.items():
            texts[name][text] = None
    if not texts:
        return NO_PARTITIONS
    columns = {name: _type_and_values(list(of_column)) for name, of_column in texts.items()}
    types = pa.schema([(name, kind) for name, (kind, _) in columns.items()])
    return Partitions(types, {name: values for name, (_, values) in columns.items()})


def _refuse_double_names(field: str, file: SourceFile) -> None:
    names = [name for name, _ in _pairs_of(file)]
    for name in names:
        if names.count(name) > 1:
            raise InvalidInput(
                f"{field} is not accepted: {file.address} is in {names.count(name)} folders of {name}=…; "
                "give each its own name"
            )


def _texts_of(file: SourceFile) -> dict[str, str]:
    """The partition texts in the names of a file's folders, as they are written."""
    return dict(_pairs_of(file))


def _pairs_of(file: SourceFile) -> list[tuple[str, str]]:
    pairs = [partition_of(name) for name in names_below(file.base, file.path)[:-1]]
    return [pair for pair in pairs if pair is not None]


def _type_and_values(texts: list[str]) -> tuple[pa.DataType, dict[str, Any]]:
    """The type of a column, and the value of each text."""
    written = [text for text in texts if text != _NULL]
    decoded = pa.array([unquote(text) for text in written], pa.string())
    kind = types_of_texts(pa.record_batch({"": decoded})).field(0).type
    if written and pa.types.is_null(kind):  # Alone, NA may be a country.
        kind = pa.string()
    values = decoded
    if not pa.types.is_string(kind):
        values = values_of_texts(pa.record_batch({"": decoded}), pa.schema([("", kind)])).column(0)
    # Different texts must stay different: 1.1 and 1.10 may be two releases.
    if len(values.unique()) < len(values):
        kind = pa.string()
        values = decoded
    return kind, {**dict(zip(written, values.to_pylist(), strict=True)), _NULL: None}


def _spell_names(names: Iterable[str]) -> str:
    return " and ".join(f"{name}=…" for name in names) or "no such name"
