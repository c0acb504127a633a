"""Copies blocks of rows out of mapped shards, column by column, from wherever the rows lie."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from halving.data.arrow_layout import NotReadable, layout_of
from halving.data.columns import Column, Gathered
from halving.errors import InvalidInput

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]


class MappedShard:
    """A shard's bytes, in memory or mapped, and the layout of its rows.

    Args:
        data: ``(bytes,)`` of uint8, which keeps alive whatever it is a view of.
        rows: the number of rows that the shard must have.

    Raises:
        NotReadable: it is no Arrow file that a loader can read, or has another number of rows.
    """

    def __init__(self, data: "Array", rows: int) -> None:
        self._data = data
        self._view = data.data
        self.layout = layout_of(data)
        if self.layout.rows != rows:
            raise NotReadable(f"it has {self.layout.rows:,} rows, not {rows:,}")

    def fill(self, into: Sequence[Gathered], places: "Array", rows: "Array") -> None:
        """Copy rows of every column into some places of the gathered columns.

        Raises:
            NotReadable: an offset in it points outside of it.
            InvalidInput: a list has a null in it.
        """
        batches = np.searchsorted(self.layout.starts, rows, side="right") - 1
        within = rows - self.layout.starts[batches]
        try:
            for gathered in into:
                self._fill(gathered, places, batches, within)
        except IndexError as error:
            raise NotReadable(f"its column {gathered.column.name!r} points outside of it") from error

    def _fill(self, gathered: Gathered, places: "Array", batches: "Array", within: "Array") -> None:
        """Copy rows of one column into some places.

        Args:
            batches: the number of each row's record batch, ``(n,)``.
            within: the number of each row in its batch, ``(n,)``.
        """
        column = gathered.column
        layout = self.layout
        if layout.nulls[column.node].any():
            if gathered.valid is None:
                gathered.valid = np.ones(len(gathered.values), bool)
            gathered.valid[places] = self._validity(column.node, column.buffer, batches, within)
        if column.kind == "bits":
            gathered.values[places] = self._bits(column.buffer + 1, batches, within)
        elif column.kind == "fixed":
            offsets = layout.offsets[column.data_buffer]
            width = column.row_bytes
            if not column.shape and not (offsets % width).any():
                # Indexing numbers is faster, but works only where all of them are aligned.
                gathered.values[places] = self._numbers(column.dtype)[(offsets // width)[batches] + within]
            else:
                items = self._items(width)[offsets[batches] + within * width]
                gathered.values[places] = items.view(column.dtype).reshape(len(places), *column.shape)
            for depth in range(1, column.nodes):
                items_a_row = math.prod(column.shape[:depth])
                self._check_items(
                    gathered, places, depth, batches, within * items_a_row, np.full(len(places), items_a_row)
                )
        else:
            self._fill_views(gathered, places, batches, within)

    def _fill_views(self, gathered: Gathered, places: "Array", batches: "Array", within: "Array") -> None:
        """Put views of rows of a ``variable`` column into some places."""
        column = gathered.column
        layout = self.layout
        width = column.offset_bytes
        pairs = self._items(2 * width)[layout.offsets[column.buffer + 1][batches] + within * width]
        bounds = pairs.view(f"<i{width}").reshape(-1, 2).astype(np.int64) * column.dtype.itemsize
        base = layout.offsets[column.data_buffer][batches]
        length = layout.lengths[column.data_buffer][batches]
        if (bounds[:, 0] < 0).any() or (bounds[:, 1] < bounds[:, 0]).any() or (bounds[:, 1] > length).any():
            raise IndexError
        if column.nodes > 1:
            item = column.dtype.itemsize
            self._check_items(
                gathered, places, 1, batches, bounds[:, 0] // item, (bounds[:, 1] - bounds[:, 0]) // item
            )
        values = gathered.values
        view = self._view
        for place, begin, end in zip(
            places.tolist(), (base + bounds[:, 0]).tolist(), (base + bounds[:, 1]).tolist(), strict=True
        ):
            values[place] = view[begin:end]

    def _check_items(
        self,
        gathered: Gathered,
        places: "Array",
        depth: int,
        batches: "Array",
        begins: "Array",
        counts: "Array",
    ) -> None:
        """Refuse a null among the items of lists that are not null themselves.

        Below a null list, Arrow may have anything.
        """
        column = gathered.column
        if not self.layout.nulls[column.node + depth].any():
            return
        if gathered.valid is not None:
            counts = np.where(gathered.valid[places], counts, 0)
        first = np.repeat(np.cumsum(counts) - counts, counts)
        items = np.repeat(begins, counts) + np.arange(counts.sum()) - first
        if not self._validity(
            column.node + depth,
            column.buffer + depth + (column.kind == "variable"),
            np.repeat(batches, counts),
            items,
        ).all():
            raise InvalidInput(
                f"column {column.name!r} of type {column.type} has a null within a list, which a loader "
                "does not read"
            )

    def _validity(self, node: int, buffer: int, batches: "Array", within: "Array") -> "Array":
        """Which rows of a field node are not null, ``(n,)``."""
        valid: Array = self._bits(buffer, batches, within) | (self.layout.nulls[node][batches] == 0)
        return valid

    def _bits(self, buffer: int, batches: "Array", within: "Array") -> "Array":
        """The bits of some rows in a buffer, ``(n,)`` of bool."""
        has_bits = self.layout.lengths[buffer][batches] > 0  # a batch without nulls may have no bits
        bytes_ = np.where(has_bits, self.layout.offsets[buffer][batches] + (within >> 3), 0)
        bits: Array = (self._data[bytes_] >> (within & 7).astype(np.uint8) & 1).astype(bool) & has_bits
        return bits

    def _numbers(self, dtype: "np.dtype[Any]") -> "Array":
        """View the file as numbers, from its beginning."""
        numbers: Array = self._data[: len(self._data) // dtype.itemsize * dtype.itemsize].view(dtype)
        return numbers

    def _items(self, width: int) -> "Array":
        """View the file as items of a fixed width, one beginning at each byte.

        One index then copies rows from anywhere in the file.
        """
        if not 0 < width <= len(self._data):
            raise IndexError
        first = self._data[:width].view(f"V{width}")
        items: Array = np.lib.stride_tricks.as_strided(
            first, (len(self._data) - width + 1,), (1,), writeable=False
        )
        return items


def allocate_rows(columns: Sequence[Column], rows: int) -> list[Gathered]:
    """Allocate columns for so many rows."""
    gathered = []
    for column in columns:
        if column.kind == "variable":
            gathered.append(Gathered(column, [None] * rows))
        else:
            gathered.append(Gathered(column, np.empty((rows, *column.shape), column.dtype)))
    return gathered
