"""A run's Parquet files, each opened once: the row groups that may hold a curve, and its rows."""

import os
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from halving.metrics import downsampling
from halving.metrics.numpy_arrow import codes_of, numbers_of
from halving.metrics.points import EVERYWHERE, MixedPoints, Points, join_points, no_points, within
from halving.store.store import Store

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

_FOOTER = 1 << 14  # bytes that hold most footers
_SMALL = 1 << 18  # bytes that an object store gives in less time than it takes to answer another request
_KEPT = 4  # The decoded row groups of a file that are kept, because other keys may be in them.
_KEPT_ROWS = 1 << 16  # A larger row group is not kept.
_KEPT_CLOSED_ROWS = 20_000  # A larger row group of a closed file is not kept.
_POINT = ("attempt", "step", "wall_time", "value")  # The fields of Points.


class Files:
    """Reads the files of a run; for one thread at a time.

    Every method raises FileNotFoundError when the file is gone.

    Attributes:
        before_each: called before each row group; what it raises ends the reading.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._open: dict[str, _File] = {}
        self.before_each: Callable[[], None] | None = None

    def close(self, *, keep: bool = False) -> int:
        """Release what is open; a later call of a method opens it again.

        Args:
            keep: keep small decoded row groups and the statistics of all groups in memory.

        Returns:
            By how many bytes the memory has grown since the last call.
        """
        if not keep:
            self._open.clear()
        return sum(file.close() for file in self._open.values())

    def summary(self, path: str) -> downsampling.SegmentBuckets | None:
        """The buckets in a segment's footer, if it has any."""
        packed = _metadata_value(self._footer(path), downsampling.BUCKETS)
        if packed is None:
            return None
        return downsampling.SegmentBuckets(packed)

    def segment(self, path: str, attempt: int, keys: Sequence[str]) -> dict[str, Points]:
        """The points of some keys in a segment, in the order of logging."""
        points = {key: no_points() for key in keys}
        if keys:
            file = _File(self._store, path)
            for group in self._each(range(file.groups)):
                wanted = [key for key in keys if file.may_hold(group, "key", key, key)]
                if not wanted:
                    continue
                table = file.read(group, ["key", "step", "wall_time", "value"])
                codes, names = codes_of(table["key"])
                for key in wanted:
                    if key in names:
                        step, time, value = _arrays(
                            table, ("step", "wall_time", "value"), _rows(codes == names.index(key))
                        )
                        more = Points(np.full(len(step), attempt, np.int32), step, time, value)
                        points[key] = Points(
                            *(np.concatenate(both) for both in zip(points[key], more, strict=True))
                        )
        return points

    def points(self, path: str, key: str, ranges: Sequence[tuple[int, int]]) -> Points:
        """A curve's points in some ranges of steps, in the order of the file."""
        file = self._file(path)
        parts = [no_points()]
        for group in self._each(file.groups_with(key)):
            if ranges is EVERYWHERE or any(file.may_hold(group, "step", low, high) for low, high in ranges):
                table = file.read(group, ["key", *_POINT])
                parts.append(within(Points(*_arrays(table, _POINT, _curve(table, key))), ranges))
        return join_points(parts)

    def levels(self, path: str, key: str) -> Iterator[Any]:
        """A curve's buckets in a rollup file, level by level from the coarsest.

        They are arrays of :data:`downsampling.BUCKET`.
        """
        file = self._file(path)
        spans = {group: file.bounds(group, "level") or (0, 64) for group in file.groups_with(key)}
        for level in sorted(
            {level for low, high in spans.values() for level in range(low, high + 1)}, reverse=True
        ):
            groups = [group for group, (low, high) in spans.items() if low <= level <= high]
            parts = [file.buckets(group, key, level) for group in self._each(groups)]
            if any(map(len, parts)):
                yield np.concatenate(parts) if len(parts) > 1 else parts[0]

    def keys(self, path: str) -> set[str]:
        """The keys in a file."""
        file = _File(self._store, path)
        return {
            key
            for group in range(file.groups)
            for key in file.read(group, ["key"])["key"].unique().to_pylist()
        }

    def _each(self, groups: Iterable[int]) -> Iterator[int]:
        for group in groups:
            if self.before_each is not None:
                self.before_each()
            yield group

    def _file(self, path: str) -> "_File":
        if path not in self._open:
            self._open[path] = _File(self._store, path)
        return self._open[path]

    def _footer(self, path: str) -> bytes:
        if self._store.folder is not None:
            handle = os.open(path, os.O_RDONLY)
            try:
                size = os.fstat(handle).st_size
                return _footer_of(lambda count: os.pread(handle, count, max(0, size - count)))
            finally:
                os.close(handle)
        with self._store.missing_when_gone(path), self._store.filesystem.open_input_file(path) as file:
            size = file.size()
            return _footer_of(lambda count: bytes(file.read_at(min(count, size), max(0, size - count))))


def read_mixed(
    store: Store, path: str, wants: Callable[[str], bool], attempt: int | None = None
) -> Iterator[MixedPoints]:
    """The points of many curves in a file, in its order.

    Each row group is read once for all of them. Where it has none of them, only its keys are read.

    Args:
        wants: whether a key's points are wanted.
        attempt: the attempt of all points, where it is known.

    Raises:
        FileNotFoundError: the file is gone.
    """
    file = _File(store, path)
    for group in range(file.groups):
        codes, names = codes_of(file.table(group, ["key"])["key"])
        wanted = np.array([wants(name) for name in names], bool)
        rows = _rows(wanted[codes])
        if _count(rows):
            table = file.table(group, [name for name in _POINT if attempt is None or name != "attempt"])
            yield _mixed_points(table, rows, codes, names, wanted, attempt)


def mixed_of(table: "pa.Table", wants: Callable[[str], bool]) -> MixedPoints:
    """The points of many curves in a table that has the columns of a file."""
    codes, names = codes_of(table["key"])
    wanted = np.array([wants(name) for name in names], bool)
    return _mixed_points(table, _rows(wanted[codes]), codes, names, wanted, None)


def _mixed_points(
    table: "pa.Table", rows: Any, codes: Any, names: list[str], wanted: Any, attempt: int | None
) -> MixedPoints:
    """The points in some rows of a table.

    Args:
        codes, names: of its keys, whether or not it has these itself.
        wanted: which names the rows are of.
    """
    times = [_cut(numbers_of(table[name]), rows) for name in ("step", "wall_time", "value")]
    if attempt is None:
        attempts = _cut(numbers_of(table["attempt"]), rows)
    else:
        attempts = np.full(_count(rows), attempt, np.int32)
    places = (np.cumsum(wanted) - 1).astype(np.int32)
    keys = [name for name, is_wanted in zip(names, wanted.tolist(), strict=True) if is_wanted]
    return MixedPoints(places[codes[rows]], keys, Points(attempts, *times))


class _File:
    """An open Parquet file.

    Its row groups are sorted, so that their statistics tell apart those that may hold a curve.
    """

    def __init__(self, store: Store, path: str) -> None:
        import pyarrow as pa

        self._missing_when_gone = partial(store.missing_when_gone, path)
        self._open_file: pq.ParquetFile | None = None
        self._open: Callable[[], pa.NativeFile] = partial(pa.memory_map, path)
        if store.folder is None:
            self._open = partial(_open_remote, store, path)
        self._bounds: dict[str, list[tuple[Any, Any] | None]] = {}
        self._tables: OrderedDict[int, pa.Table] = OrderedDict()
        self._size = 0
        self.groups: int = self._file.metadata.num_row_groups

    @property
    def _file(self) -> "pq.ParquetFile":
        import pyarrow.parquet as pq

        if self._open_file is None:
            with self._missing_when_gone():  # a handle, because a path would be looked up once more
                self._open_file = pq.ParquetFile(self._open())
        return self._open_file

    def close(self) -> int:
        """Release the file and large tables; return how many more bytes are in memory than last time."""
        self._open_file = None
        for group in [group for group, table in self._tables.items() if len(table) > _KEPT_CLOSED_ROWS]:
            del self._tables[group]
        before = self._size
        self._size = sum(table.nbytes for table in self._tables.values())
        return self._size - before

    def bounds(self, group: int, column: str) -> tuple[Any, Any] | None:
        """The smallest and largest value of a row group's column, if its statistics have them."""
        if column not in self._bounds:
            metadata = self._file.metadata
            place = metadata.schema.names.index(column)
            self._bounds[column] = [
                _bounds_in(metadata.row_group(number).column(place).statistics)
                for number in range(self.groups)
            ]
        return self._bounds[column][group]

    def may_hold(self, group: int, column: str, low: Any, high: Any) -> bool:
        """Whether a row group may have a value from ``low`` to ``high`` in a column."""
        bounds = self.bounds(group, column)
        return bounds is None or bool(bounds[0] <= high and low <= bounds[1])

    def groups_with(self, key: str) -> list[int]:
        """The row groups that may hold a curve."""
        return [group for group in range(self.groups) if self.may_hold(group, "key", key, key)]

    def read(self, group: int, columns: list[str]) -> "pa.Table":
        """Read a row group, and keep small ones.

        Every call for a file asks for the same columns of a group, so groups are kept by number.
        """
        if group in self._tables:
            self._tables.move_to_end(group)
            return self._tables[group]
        table = self.table(group, columns)
        if len(table) <= _KEPT_ROWS:
            self._tables[group] = table
            if len(self._tables) > _KEPT:
                self._tables.popitem(last=False)
        return table

    def table(self, group: int, columns: list[str]) -> "pa.Table":
        """Read some columns of a row group without keeping them."""
        with self._missing_when_gone():
            return self._file.read_row_group(group, columns=columns, use_threads=False)

    def constant(self, group: int, column: str) -> Any:
        """The only value of a row group's column; None if it has several, or no statistics."""
        bounds = self.bounds(group, column)
        if bounds is None or bounds[0] != bounds[1]:
            return None
        return bounds[0]

    def buckets(self, group: int, key: str, level: int) -> Any:
        """A curve's buckets of one level in a row group of a rollup.

        Columns of a single value are taken from the statistics.
        """
        single = self.constant(group, "level") == 0  # one point each: its value says everything
        fields = [name for name, _ in downsampling.BUCKET]
        if single:
            fields = ["step", "wall_time", "last"]
        # The number of values that are not finite is mostly the same in a whole row group.
        constants = {
            name: value
            for name in ("level", "nonfinite")
            if (value := self.constant(group, name)) is not None
        }
        if constants.get("level", level) != level:
            return downsampling.empty()
        table = self.read(group, ["key", *(name for name in ("level", *fields) if name not in constants)])
        mixed_level = None if "level" in constants else level
        rows = _curve(table, key, mixed_level)
        if single:
            return downsampling.of_points(*_arrays(table, ("step", "wall_time", "last"), rows))
        units = np.empty(_count(rows), downsampling.BUCKET)
        for name in fields:
            if name in constants:
                units[name] = constants[name]
            else:
                units[name] = numbers_of(table[name])[rows]
        return units


def _bounds_in(statistics: Any) -> tuple[Any, Any] | None:
    """The smallest and the largest value, if the statistics have them."""
    if statistics is None or not statistics.has_min_max:
        return None
    return statistics.min, statistics.max


def _open_remote(store: Store, path: str) -> "pa.NativeFile":
    """Open a file on an object store; a small one is read into memory at once.

    Else the footer and each few columns are requests of their own.
    """
    import pyarrow as pa

    file = store.filesystem.open_input_file(path)
    size = file.size()
    if size > _SMALL:
        return file
    with file:
        return pa.BufferReader(file.read_buffer(size))


def _curve(table: "pa.Table", key: str, level: int | None = None) -> Any:
    """The rows of a key, and of a level unless all rows are of one level."""
    codes, names = codes_of(table["key"])
    if key not in names:
        return slice(0, 0)
    if len(names) == 1 and level is None:
        return slice(0, len(table))
    here = codes == names.index(key)
    if level is not None:
        here &= numbers_of(table["level"]) == level
    return _rows(here)


def _rows(here: Any) -> Any:
    """The rows that a mask selects: a slice where they are adjacent, as in a sorted file."""
    places = np.flatnonzero(here)
    if not len(places):
        return slice(0, 0)
    first = int(places[0])
    last = int(places[-1])
    if last - first + 1 == len(places):
        return slice(first, last + 1)
    return places


def _cut(column: Any, rows: Any) -> Any:
    """Some rows of a column, copied unless they are all: a view would hold the others in memory."""
    cut = column[rows]
    if isinstance(rows, slice) and len(cut) < len(column):
        return cut.copy()
    return cut


def _count(rows: Any) -> int:
    return rows.stop - rows.start if isinstance(rows, slice) else len(rows)


def _arrays(table: "pa.Table", names: Sequence[str], rows: Any) -> list[Any]:
    """Columns as numpy arrays, times as ms since 1970."""
    return [numbers_of(table[name])[rows] for name in names]


def _footer_of(read: Any) -> bytes:
    """A Parquet file's footer; ``read(n)`` returns the file's last n bytes."""
    data: bytes = read(_FOOTER)
    length = int.from_bytes(data[-8:-4], "little") + 8
    if length > len(data):
        data = read(length)
    return data[-length:]


def _metadata_value(footer: bytes, name: bytes) -> bytes | None:
    """A value of the file's key-value metadata, found in the footer without parsing all of it.

    In Thrift's compact protocol each text is 0x18, its length as a varint, and its bytes.
    """
    place = footer.rfind(b"\x18" + bytes([len(name)]) + name + b"\x18")
    if place < 0:
        return None
    place += len(name) + 3
    length = shift = 0
    while True:
        byte = footer[place]
        place = place + 1
        length = length | (byte & 127) << shift
        shift = shift + 7
        if byte < 128:
            return footer[place : place + length]
