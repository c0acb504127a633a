"""Compact columns of many rows: each distinct class is held once, and numbers are float64."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


@dataclass(frozen=True)
class Coded:
    """A column of texts, numbers or booleans that holds each distinct value once; 1, 1.0 and True differ.

    Attributes:
        values: the distinct values, in the order in which they came.
        codes: for each row, the place of its value in ``values``. Shape (rows,), int32.
    """

    values: list[Any]
    codes: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def types(self) -> set[type]:
        """The types of its values."""
        return {type(value) for value in self.values}

    def objects(self) -> NDArray[Any]:
        """The value of each row, as an array of objects that equal rows share. Shape (rows,)."""
        return object_array(self.values)[self.codes]


class Coding:
    """Gives equal values of several columns the same code.

    Attributes:
        values: the values in the order of their codes.
    """

    def __init__(self) -> None:
        self._places: dict[tuple[type, Any], int] = {}

    @property
    def values(self) -> list[Any]:
        return [value for _, value in self._places]

    def codes_of(self, values: Iterable[Any]) -> NDArray[np.int32]:
        """The code of each value; a new value gets the next code."""
        places = self._places
        return np.fromiter(
            (places.setdefault((type(value), value), len(places)) for value in values), np.int32
        )

    def recode(self, column: Coded) -> NDArray[np.int32]:
        """The codes of a column's rows among all values."""
        return self.codes_of(column.values)[column.codes]


def encode(values: Iterable[Any]) -> Coded:
    """Encode values, which may be of several types."""
    coding = Coding()
    codes = coding.codes_of(values)
    return Coded(coding.values, codes)


def encode_arrow(column: pa.Array) -> Coded:
    """Encode an Arrow column; null becomes None."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_null(column.type):
        return encode(column.to_pylist())
    encoded = column.dictionary_encode()
    values = encoded.dictionary.to_pylist()
    if encoded.null_count:
        codes = encoded.indices.fill_null(len(values))
        return Coded([*values, None], codes.to_numpy(zero_copy_only=False))
    return Coded(values, encoded.indices.to_numpy(zero_copy_only=False))


def join_columns(columns: Iterable[Coded]) -> Coded:
    """Join columns, one after the other."""
    coding = Coding()
    parts = [np.zeros(0, np.int32), *(coding.recode(column) for column in columns)]
    return Coded(coding.values, np.concatenate(parts))


def numbers_of(column: pa.Array) -> NDArray[np.float64]:
    """A column of numbers as float64; null becomes NaN. Shape (rows,)."""
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        return column.to_numpy(zero_copy_only=False).astype(np.float64)
    # Other types, such as decimals.
    return np.array([math.nan if value is None else float(value) for value in column.to_pylist()], np.float64)


def object_array(values: list[Any]) -> NDArray[Any]:
    """An array of these very objects, which NumPy does not convert. Shape (values,)."""
    objects = np.empty(len(values), object)
    objects[:] = values
    return objects


__all__ = ["Coded", "Coding", "encode", "encode_arrow", "join_columns", "numbers_of", "object_array"]
