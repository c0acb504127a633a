"""The parts of a source as one: the union of their columns, found before a row is read, and their rows
brought to it.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain

import pyarrow as pa

from halving.errors import InvalidInput
from resources.datasets.ahead import map_ahead
from resources.datasets.file_sources import Part
from resources.source_files.columns import Columns, unite, without_index

# parts that are asked for their columns: of a text file that reads it, some blocks of 8 MiB at a time
_AT_ONCE = 4


def unite_columns(field: str, parts: Sequence[Part]) -> pa.Schema | None:
    """Unite the columns of all parts; None where one does not say which it has.

    Args:
        field: of the spec that names the files, for messages.

    Raises:
        InvalidInput: two parts do not go together, or one cannot be read.
        StoreError: the object store cannot be read.
    """
    if not all(part.columns for part in parts):
        return None
    return unite(field, map_ahead(_columns_of, parts, _AT_ONCE))


def extends(previous: pa.Schema | None, parts: Sequence[Part]) -> bool:
    """Whether parts that came later have columns that leave the union of the former ones as it is.

    Args:
        former: that union; None: these did not say which they have.
    """
    if not all(part.columns for part in parts):
        return previous is None
    if previous is None:
        return False
    with suppress(InvalidInput):  # which is said of the files by their names, when all are united
        return (
            unite(
                "", chain([("", Columns(previous, optional=True))], map_ahead(_columns_of, parts, _AT_ONCE))
            )
            == previous
        )
    return False


def read_parts(parts: Iterable[Part], columns: pa.Schema | None) -> Iterator[pa.RecordBatch]:
    """The rows of parts, in their order, brought to the union of their columns.

    Raises:
        InvalidInput: a part cannot be read, or has a value that the union does not hold.
        StoreError: the object store cannot be read.
    """
    for part in parts:
        for rows in part.read() if columns is None else part.read(columns):
            yield without_index(rows)


def _columns_of(part: Part) -> tuple[str, Columns]:
    assert part.columns is not None
    return part.name, part.columns()
