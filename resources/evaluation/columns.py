"""Columns of many rows that are no Python object for each row: of classes each different one is held once,
and numbers are float64.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


@dataclass(frozen=True)
class Coded:
    """Texts, numbers or booleans of which each different one is held once; 1, 1.0 and True are different.

    Attributes:
        values: the different ones, in the order in which they came.
        codes: of each row, the place of its value in ``values``. Shape (rows,), int32.
    """

    values: list[Any]
    codes: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def types(self) -> set[type]:
        """The types that its values are of."""
        return {type(value) for value in self.values}

    def objects(self) -> NDArray[Any]:
        """The value of each row, which rows share.

        Shape (rows,), of objects, so that values stay what they are in the table.
        """
        return shared(self.values)[self.codes]


class Coding:
    """Gives equal values of several columns one code.

    Attributes:
        values: those that have one, by which they can be found again.
    """

    def __init__(self) -> None:
        self._places: dict[tuple[type, Any], int] = {}

    @property
    def values(self) -> list[Any]:
        return [value for _, value in self._places]

    def codes_of(self, values: Iterable[Any]) -> NDArray[np.int32]:
        """The code of each value; one that is new gets the next."""
        places = self._places
        return np.fromiter(
            (places.setdefault((type(value), value), len(places)) for value in values), np.int32
        )

    def recoded(self, column: Coded) -> NDArray[np.int32]:
        """The codes of a column's rows among all values."""
        return self.codes_of(column.values)[column.codes]


def coded(values: Iterable[Any]) -> Coded:
    """Plain values, which may be of several types."""
    coding = Coding()
    codes = coding.codes_of(values)
    return Coded(coding.values, codes)


def coded_arrow(column: pa.Array) -> Coded:
    """A column of Arrow's; null is None."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_null(column.type):
        return coded(column.to_pylist())
    encoded = column.dictionary_encode()
    values = encoded.dictionary.to_pylist()
    if encoded.null_count:
        return Coded([*values, None], encoded.indices.fill_null(len(values)).to_numpy(zero_copy_only=False))
    return Coded(values, encoded.indices.to_numpy(zero_copy_only=False))


def joined(columns: Iterable[Coded]) -> Coded:
    """Columns one after the other, as one."""
    coding = Coding()
    parts = [np.zeros(0, np.int32), *(coding.recoded(column) for column in columns)]
    return Coded(coding.values, np.concatenate(parts))


def numbers_of(column: pa.Array) -> NDArray[np.float64]:
    """A column of numbers; null is NaN. Shape (rows,)."""
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        return column.to_numpy(zero_copy_only=False).astype(np.float64)
    # such as decimals
    return np.array([math.nan if value is None else float(value) for value in column.to_pylist()], np.float64)


def shared(values: list[Any]) -> NDArray[Any]:
    """An array of these very objects, never of NumPy's types. Shape (values,)."""
    objects = np.empty(len(values), object)
    objects[:] = values
    return objects


__all__ = ["Coded", "Coding", "coded", "coded_arrow", "joined", "numbers_of", "shared"]
