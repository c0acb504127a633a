"""The parts of a source as one: the union of their columns, and their rows cast to it.

The union is found before a row is read.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain

import pyarrow as pa

from halving.errors import InvalidInput
from resources.datasets.file_sources import Part
from resources.datasets.thread_map import map_in_threads
from resources.source_files.columns import Columns, unite, without_index

# Parts whose columns are found at a time. For a text file this reads all of it, in blocks of 8 MiB.
_AT_ONCE = 4


def unite_columns(field: str, parts: Sequence[Part]) -> pa.Schema | None:
    """Unite the columns of all parts; None if a part cannot say its columns beforehand.

    Args:
        field: field of the spec that names the files, for messages.

    Raises:
        InvalidInput: two parts do not go together, or one cannot be read.
        StoreError: the object store cannot be read.
    """
    if not all(part.columns for part in parts):
        return None
    return unite(field, map_in_threads(_columns_of, parts, _AT_ONCE))


def fit_union(previous: pa.Schema | None, parts: Sequence[Part]) -> bool:
    """Whether the columns of new parts leave the union of the previous parts' columns as it is.

    Args:
        previous: that union; None if the previous parts could not say their columns.
    """
    if not all(part.columns for part in parts):
        return previous is None
    if previous is None:
        return False
    columns = map_in_threads(_columns_of, parts, _AT_ONCE)
    with suppress(InvalidInput):  # It is raised again with the files' names, when all are united.
        return unite("", chain([("", Columns(previous, optional=True))], columns)) == previous
    return False


def read_parts(parts: Iterable[Part], columns: pa.Schema | None) -> Iterator[pa.RecordBatch]:
    """Read the rows of parts, in order, cast to the union of their columns.

    Raises:
        InvalidInput: a part cannot be read, or has a value that the union does not hold.
        StoreError: the object store cannot be read.
    """
    for part in parts:
        batches = part.read() if columns is None else part.read(columns)
        yield from map(without_index, batches)


def _columns_of(part: Part) -> tuple[str, Columns]:
    assert part.columns is not None
    return part.name, part.columns()
