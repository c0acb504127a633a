"""CSV files as sources. Each is read twice: all of it says the types of its columns, and then its rows are read with them."""

import codecs
import re
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from resources.datasets import text_files
from resources.datasets.text_files import UTF_8, TextFile, not_in_encoding, open_text
from resources.datasets.text_numbers import Numbers, wider
from resources.source_files.columns import Columns
from resources.source_files.listing import SourceFile
from resources.source_files.texts import types_of_texts

_NULLS = csv.ConvertOptions().null_values
_NUMBERS = (pa.int64(), pa.uint64(), pa.float64())
_LEADING_ZERO = r"^\s*[+-]?0[0-9]"
_PLACE = re.compile(r"In CSV column #(\d+)")
_HEADER = 64 * 2**10
"""Bytes in which the names of columns are looked for first."""


def csv_columns(file: SourceFile, encoding: str | None = None) -> Columns:
    """The columns of a CSV file, whose types hold every value of it exactly; of one without rows none.

    Raises:
        ValueError: it is not in that encoding, is no CSV, or has a number that no type holds.
    """
    columns: dict[str, _Column] = {}
    for rows in _read(file, encoding, None):
        for name, values in zip(rows.schema.names, rows.columns, strict=True):
            try:
                texts = values.cast(pa.string())
            except pa.ArrowInvalid:
                raise not_in_encoding(f"its column {name!r}", "utf-8") from None
            columns.setdefault(name, _Column()).see(texts)
    for name, column in columns.items():
        try:
            column.numbers.check(column.kind)
        except ValueError as error:
            query = f"SELECT * FROM read_csv({_quoted(file.shown)}, types = {{{_quoted(name)}: 'VARCHAR'}})"
            raise ValueError(f"its column {name!r} {error}; to have texts of it, give sql: {query}") from None
    types = pa.schema([(name, column.kind) for name, column in columns.items()])
    large = frozenset(name for name, column in columns.items() if column.numbers.inexact)
    return Columns(types, large, optional=not columns)


def csv_rows(file: SourceFile, wanted: pa.Schema | None = None, encoding: str | None = None) -> Iterator[pa.RecordBatch]:
    """The rows of a CSV file, with these types or its own.

    Raises:
        ValueError: it is not in that encoding, is no CSV, or has a value that is not of the type.
    """
    yield from _read(file, encoding, csv_columns(file, encoding).types if wanted is None else wanted)


class _Column:
    """The type of a column, as far as it has been seen."""

    def __init__(self) -> None:
        self.kind: pa.DataType = pa.null()
        self.numbers = Numbers()

    def see(self, texts: pa.Array) -> None:
        """Take in the values of one more block."""
        if self.kind != pa.string():
            kind = self._seen_type(texts)
            self.kind = wider(self.kind, kind) or pa.string()
            if self.kind == pa.string():
                self.numbers = Numbers()

    def _seen_type(self, texts: pa.Array) -> pa.DataType:
        """The type of a block's values: the one before if that will do, since to look for another takes longer."""
        if self.kind not in (pa.null(), pa.bool_()) and (values := _cast(texts, self.kind)) is not None:
            return self._of_numbers(values, texts)
        texts = pc.if_else(pc.is_in(texts, pa.array(_NULLS)), None, texts)
        if texts.null_count == len(texts):
            return pa.null()
        trimmed = pc.utf8_trim(texts, " \t")
        for kind in _NUMBERS:
            if (values := _cast(trimmed, kind)) is not None:
                return self._of_numbers(values, trimmed)
        if self.kind not in (pa.null(), pa.bool_()) and _cast(texts, self.kind) is not None:
            return self.kind
        kind = types_of_texts(pa.record_batch({"": texts})).field(0).type
        # Arrow takes 1 for true, but only beside one that is written in letters, which may be in another block.
        return pa.string() if pa.types.is_boolean(kind) and pc.any(pc.is_in(trimmed, pa.array(["0", "1"]))).as_py() else kind

    def _of_numbers(self, values: pa.Array, texts: pa.Array) -> pa.DataType:
        kind = values.type
        if kind not in _NUMBERS:
            return kind
        if pc.any(pc.match_substring_regex(texts, _LEADING_ZERO)).as_py():
            return pa.string()
        if pa.types.is_floating(kind):
            self.numbers.see_doubles(values, texts)
        else:
            self.numbers.see_whole(values)
        return kind


def _read(file: SourceFile, encoding: str | None, types: pa.Schema | None) -> Iterator[pa.RecordBatch]:
    """The rows of a file; without types each column is its bytes in UTF-8."""
    delimiter = "\t" if file.path.lower().endswith((".tsv", ".tsv.gz")) else ","
    with open_text(file, encoding) as text:
        if text.is_empty:
            return
        try:
            names = _names(text, delimiter)
            kinds = dict.fromkeys(names, pa.binary()) if types is None else {column.name: column.type for column in types}
            encoding_of_arrow = "utf8" if text.encoding in UTF_8 else text.encoding
            reader = csv.open_csv(
                text,
                csv.ReadOptions(use_threads=False, block_size=text_files.BLOCK, encoding=encoding_of_arrow),
                csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
                csv.ConvertOptions(column_types=kinds),
            )
            yield from reader
        except UnicodeError:
            raise not_in_encoding("it", text.encoding) from None
        except pa.ArrowInvalid as error:
            if "straddling" in str(error):
                raise ValueError(f"a row of it is longer than {text_files.BLOCK >> 20} MiB; give it as Parquet") from None
            if types is not None and (place := _PLACE.match(str(error))):
                name = names[int(place[1])]
                kind = kinds.get(name)
                raise ValueError(f"its column {name!r} does not become {kind}, which it is with the other files: {error}") from None
            raise


def _names(text: TextFile, delimiter: str) -> Sequence[str]:
    """The names in a file's first row."""
    beginning = text.head[:_HEADER] if b"\n" in text.head[:_HEADER] else text.head
    content = codecs.getincrementaldecoder(text.encoding)("replace").decode(beginning).encode()
    options = csv.ParseOptions(delimiter=delimiter, newlines_in_values=True, invalid_row_handler=lambda row: "skip")
    names = csv.open_csv(pa.BufferReader(content), csv.ReadOptions(use_threads=False, block_size=len(content) + 1), options).schema.names
    if any("\N{REPLACEMENT CHARACTER}" in name for name in names):
        raise not_in_encoding("its header", text.encoding)
    others = [mark for mark in ",;\t|" if len(names) == 1 and mark in names[0]]
    if others:
        decimal = ", decimal_separator = ','" if others[0] == ";" else ""
        mark = "\\t" if others[0] == "\t" else others[0]
        query = f"SELECT * FROM read_csv({_quoted(text.shown)}, delim = {_quoted(mark)}{decimal})"
        raise ValueError(f"its header has no {'tab' if delimiter != ',' else 'comma'} but {others[0]!r}; give sql: {query}")
    if "" in names:
        raise ValueError(
            f"its column {names.index('') + 1} has no name; a CSV that pandas wrote has its index there: "
            "write it with index=False, or name it"
        )
    if len(set(names)) < len(names):
        raise ValueError(f"its columns are {names}; give each a name of its own")
    return names


def _cast(texts: pa.Array, kind: pa.DataType) -> pa.Array | None:
    """The values that texts are as Arrow reads them; None: not all are of that type."""
    try:
        return texts.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None


def _quoted(text: str) -> str:
    """As SQL writes a text."""
    return "'" + text.replace("'", "''") + "'"
