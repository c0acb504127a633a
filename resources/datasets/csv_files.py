"""CSV files as sources.

Each file is read twice: once to find the types of its columns, and once for its rows with these types.
"""

import codecs
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from resources.datasets import text_files
from resources.datasets.csv_quotes import Quotes, check_quotes
from resources.datasets.text_files import UTF_8, TextFile, not_in_encoding, open_text
from resources.datasets.text_numbers import Numbers
from resources.source_files.columns import Columns
from resources.source_files.listing import SourceFile
from resources.source_files.texts import LEADING_ZERO, types_of_texts, wider

_NULLS = csv.ConvertOptions().null_values
_NUMBERS = (pa.int64(), pa.uint64(), pa.float64())
_PLACE = re.compile(r"In CSV column #(\d+)")
_PLUS = re.compile(r"invalid value '[ \t]*\+[0-9]")
_RAGGED = re.compile(r"Expected \d+ columns, got \d+")
_NAMES = {",": "comma", "\t": "tab"}
_HEADER = 64 * 2**10
"""The names of columns are looked for in this many bytes first."""


def csv_columns(file: SourceFile, encoding: str | None = None) -> Columns:
    """Find the columns of a CSV file, with types that hold every value exactly; none if it has no rows.

    Raises:
        ValueError: it is not in that encoding, is no CSV, or has a number that no type holds.
    """
    columns: dict[str, _Column] = {}
    watches: list[Quotes] = []
    for rows in _read(file, encoding, None, watches):
        for name, values in zip(rows.schema.names, rows.columns, strict=True):
            try:
                texts = values.cast(pa.string())
            except pa.ArrowInvalid:
                raise not_in_encoding(f"its column {name!r}", "utf-8") from None
            columns.setdefault(name, _Column()).add(texts)
        _refuse_second_header(rows, file.address)
    for quotes in watches:
        quotes.end()
        if quotes.is_suspect:
            check_quotes(file, encoding, _delimiter(file))
    for name, column in columns.items():
        try:
            column.numbers.check(column.kind)
        except ValueError as error:
            query = (
                f"SELECT * FROM read_csv({_sql_text(file.address)}, types = {{{_sql_text(name)}: 'VARCHAR'}})"
            )
            raise ValueError(f"its column {name!r} {error}; to have texts of it, give sql: {query}") from None
    types = pa.schema([(name, column.kind) for name, column in columns.items()])
    large = frozenset(name for name, column in columns.items() if column.numbers.inexact)
    return Columns(types, large, optional=not columns, texts=frozenset(columns))


def csv_rows(
    file: SourceFile, wanted: pa.Schema | None = None, encoding: str | None = None
) -> Iterator[pa.RecordBatch]:
    """Read the rows of a CSV file with the given types, or with its own.

    Raises:
        ValueError: it is not in that encoding, is no CSV, or has a value that is not of the type.
    """
    if wanted is None:
        wanted = csv_columns(file, encoding).types
    batches = 0
    try:
        for rows in _read(file, encoding, wanted):
            yield rows
            batches += 1
    except _PlusSign:
        yield from islice(_read(file, encoding, wanted, takes_plus=True), batches, None)


class _PlusSign(Exception):
    """A whole number has a plus sign, which Arrow's reader accepts before fractions only."""


class _Column:
    """The type of a column, as far as its blocks have been read."""

    def __init__(self) -> None:
        self.kind: pa.DataType = pa.null()
        self.numbers = Numbers()

    def add(self, texts: pa.Array) -> None:
        """Take in the values of one more block."""
        if self.kind != pa.string():
            kind = self._type_of_block(texts)
            self.kind = wider(self.kind, kind) or pa.string()
            if self.kind == pa.string():
                self.numbers = Numbers()

    def _type_of_block(self, texts: pa.Array) -> pa.DataType:
        """Find the type of a block's values; the column's type so far is tried first, which is faster."""
        if self.kind not in (pa.null(), pa.bool_()) and (values := _cast(texts, self.kind)) is not None:
            return self._add_numbers(values, texts)
        texts = _with_nulls(texts)
        if texts.null_count == len(texts):
            return pa.null()
        trimmed = _without_plus(texts)
        for kind in _NUMBERS:
            if (values := _cast(trimmed, kind)) is not None:
                return self._add_numbers(values, trimmed)
        if self.kind not in (pa.null(), pa.bool_()) and _cast(texts, self.kind) is not None:
            return self.kind
        kind = types_of_texts(pa.record_batch({"": texts})).field(0).type
        # Arrow takes 1 for true only beside a truth value in letters, which may be in another block.
        if pa.types.is_boolean(kind) and pc.any(pc.is_in(trimmed, pa.array(["0", "1"]))).as_py():
            return pa.string()
        return kind

    def _add_numbers(self, values: pa.Array, texts: pa.Array) -> pa.DataType:
        """Take in the values of a block, and return their type: that of texts if zeros lead a number."""
        kind = values.type
        if kind not in _NUMBERS:
            return kind
        if pc.any(pc.match_substring_regex(texts, LEADING_ZERO)).as_py():
            return pa.string()
        if pa.types.is_floating(kind):
            self.numbers.add_doubles(values, texts)
        else:
            self.numbers.add_whole(values)
        return kind


def _refuse_second_header(rows: pa.RecordBatch, address: str) -> None:
    """Refuse a row that repeats the header: it would turn each column of numbers into texts."""
    if rows.num_columns < 2:  # In a single column it may be a value.
        return
    first, *others = rows.schema.names
    beginnings = [mark + first.encode() for mark in (b"", codecs.BOM_UTF8)]
    rows = rows.filter(pc.is_in(rows.column(0), pa.array(beginnings, pa.binary())))
    for name in others:
        rows = rows.filter(pc.equal(rows.column(name), name.encode()))
    if rows.num_rows:
        raise ValueError(
            "its header is repeated among its rows, as in concatenated files; "
            "delete those lines, or, if they are rows, "
            f"give sql: SELECT * FROM read_csv({_sql_text(address)}, header = true, all_varchar = true)"
        )


def _delimiter(file: SourceFile) -> str:
    if file.path.lower().endswith((".tsv", ".tsv.gz")):
        return "\t"
    return ","


def _read(
    file: SourceFile,
    encoding: str | None,
    types: pa.Schema | None,
    watches: list[Quotes] | None = None,
    *,
    takes_plus: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Read the rows of a file, in the same batches each time.

    Args:
        types: types of the columns; None reads each as its bytes in UTF-8.
        watches: list to which the watch of the file's quotes is added.
        takes_plus: whether whole numbers may have a plus sign, which takes longer.

    Raises:
        _PlusSign: a number has a plus sign, and ``takes_plus`` is false.
    """
    delimiter = _delimiter(file)
    with open_text(file, encoding) as text:
        if text.is_empty:
            return
        if watches is not None:
            watches.append(Quotes(text, delimiter))
            text.watch = watches[-1].add
        try:
            names = _read_names(text, delimiter)
            if types is None:
                kinds = dict.fromkeys(names, pa.binary())
            else:
                kinds = {column.name: column.type for column in types}
            signed_types = {
                name: kind for name, kind in kinds.items() if takes_plus and pa.types.is_integer(kind)
            }
            encoding_of_arrow = text.encoding
            if text.encoding in UTF_8:
                encoding_of_arrow = "utf8"
            reader = csv.open_csv(
                text,
                csv.ReadOptions(use_threads=False, block_size=text_files.BLOCK, encoding=encoding_of_arrow),
                csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
                csv.ConvertOptions(column_types=kinds | dict.fromkeys(signed_types, pa.string())),
            )
            for rows in reader:
                yield _with_whole_numbers(rows, signed_types)
        except UnicodeError:
            raise not_in_encoding("it", text.encoding) from None
        except pa.ArrowInvalid as error:
            if "straddling" in str(error):
                raise ValueError(
                    f"a row of it is longer than {text_files.BLOCK >> 20} MiB; give it as Parquet"
                ) from None
            if types is not None and (place := _PLACE.match(str(error))):
                name = names[int(place[1])]
                kind = kinds.get(name)
                if not takes_plus and pa.types.is_integer(kind) and _PLUS.search(str(error)):
                    raise _PlusSign from None
                raise _unlike(name, kind, error) from None
            if _RAGGED.search(str(error)):
                raise ValueError(f"{error}; {_ways_of_ragged(names, text.address, delimiter)}") from None
            raise


def _with_whole_numbers(rows: pa.RecordBatch, kinds: Mapping[str, pa.DataType]) -> pa.RecordBatch:
    """Replace the texts of whole numbers by the numbers."""
    for place, name in enumerate(rows.schema.names):
        if name in kinds:
            try:
                values = _without_plus(_with_nulls(rows.column(place))).cast(kinds[name])
            except pa.ArrowInvalid as error:
                raise _unlike(name, kinds[name], error) from None
            rows = rows.set_column(place, name, values)
    return rows


def _with_nulls(texts: pa.Array) -> pa.Array:
    return pc.if_else(pc.is_in(texts, pa.array(_NULLS)), None, texts)


def _without_plus(texts: pa.Array) -> pa.Array:
    """Texts as Arrow reads numbers: without the plus sign."""
    return pc.replace_substring_regex(pc.utf8_trim(texts, " \t"), r"^\+([0-9])", r"\1")


def _unlike(name: str, kind: pa.DataType, error: pa.ArrowInvalid) -> ValueError:
    return ValueError(
        f"its column {name!r} does not become {kind}, which it is with the other files: {error}"
    )


def _read_names(text: TextFile, delimiter: str) -> Sequence[str]:
    """The column names in a file's first row."""
    beginning = text.head[:_HEADER]
    if b"\n" not in beginning:
        beginning = text.head
    content = codecs.getincrementaldecoder(text.encoding)("replace").decode(beginning).encode()
    options = csv.ParseOptions(
        delimiter=delimiter, newlines_in_values=True, invalid_row_handler=lambda row: "skip"
    )
    names = csv.open_csv(
        pa.BufferReader(content), csv.ReadOptions(use_threads=False, block_size=len(content) + 1), options
    ).schema.names
    if any("\N{REPLACEMENT CHARACTER}" in name for name in names):
        raise not_in_encoding("its header", text.encoding)
    others = [mark for mark in ",;\t|" if len(names) == 1 and mark in names[0]]
    if others:
        query = _query(text.address, others[0])
        raise ValueError(f"its header has no {_NAMES[delimiter]} but {others[0]!r}; give sql: {query}")
    if (mark := _other_mark(names, delimiter)) and _is_whole(content, mark):
        raise ValueError(
            f"its header has commas and {mark!r}, and its first rows have as many fields by {mark!r} as it "
            f"has; give sql: {_query(text.address, mark)}, or with delim = ','"
        )
    if "" in names:
        raise ValueError(
            f"its column {names.index('') + 1} has no name; a CSV that pandas wrote has its index there: "
            "write it with index=False, or name it"
        )
    if len(set(names)) < len(names):
        raise ValueError(f"its columns are {names}; give each a name of its own")
    return names


def _other_mark(names: Sequence[str], delimiter: str) -> str | None:
    """A mark in the column names that may be the real separator, beside decimal commas."""
    if delimiter != ",":
        return None
    return next((mark for mark in ";\t|" if any(mark in name for name in names)), None)


def _is_whole(content: bytes, delimiter: str) -> bool:
    """Whether all rows have as many fields as the header, and more than one; the last may be cut off."""
    rows = content[: content.rfind(b"\n") + 1] or content
    ragged: list[csv.InvalidRow] = []

    def skip(row: csv.InvalidRow) -> str:
        ragged.append(row)
        return "skip"

    options = csv.ParseOptions(delimiter=delimiter, newlines_in_values=True, invalid_row_handler=skip)
    reading = csv.ReadOptions(use_threads=False, block_size=len(rows) + 1)
    try:
        names = csv.read_csv(pa.BufferReader(rows), reading, options).schema.names
    except pa.ArrowInvalid:  # A line break in quotes was cut.
        return False
    return len(names) > 1 and not ragged


def _ways_of_ragged(names: Sequence[str], address: str, delimiter: str) -> str:
    """What to do about rows that have more or fewer fields than the header."""
    if mark := _other_mark(names, delimiter):
        query = _query(address, mark)
        return f"its header has {mark!r}, too: where that separates its fields, give sql: {query}"
    return (
        f"put a field that holds a {_NAMES[delimiter]} in quotes; or, where rows are short, give sql: "
        f"{_query(address, delimiter, ', null_padding = true')}, which fills with null"
    )


def _query(address: str, delimiter: str, options: str = "") -> str:
    """A DuckDB query for the rows of a file; with semicolons, numbers have decimal commas."""
    if delimiter == ";":
        options = f", decimal_separator = ','{options}"
    mark = _sql_text(delimiter.replace("\t", "\\t"))
    return f"SELECT * FROM read_csv({_sql_text(address)}, delim = {mark}{options})"


def _cast(texts: pa.Array, kind: pa.DataType) -> pa.Array | None:
    """Cast texts as Arrow reads them; None if not all are values of the type."""
    try:
        return texts.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None


def _sql_text(text: str) -> str:
    """A text as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"
