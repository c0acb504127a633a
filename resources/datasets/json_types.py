"""Types of a JSON file's columns that hold the values of all its blocks exactly."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from resources.datasets.text_numbers import EXACT, Numbers, is_exact
from resources.source_files.texts import wider

Path = tuple[str, ...]
"""Path of a value in an object: its keys, and ``[]`` for the items of a list."""
_SPACE = re.compile(r"\s*")
_TINY = re.compile(r"[eE]-0*(?:[3-9][0-9]{2}|[1-9][0-9]{3,})(?![^\s,}\]])")
"""In the text of a block: a number that may be too small for a double.

The lookahead excludes such digits within a UUID.
"""
_TINY_ZEROS = "0" * 300
_ZONE = r"[T ][0-9:]+(Z|[+-][0-9]{2}(:?[0-9]{2})?)$"
"""The zone in the text of a time that Arrow reads."""
_WAYS = "write such numbers as texts"


class _Inexact(float):
    """The nearest double to a number in a text that no double equals."""

    def __init__(self, text: str) -> None:
        self.text = text


class JsonTypes:
    """The types of the columns, over all blocks so far."""

    def __init__(self) -> None:
        self._kind: pa.DataType = pa.struct([])
        self._numbers: dict[Path, Numbers] = {}

    def add(self, block: str, rows: pa.Table, times: pa.Table | None) -> None:
        """Take in one more block: its text, and its rows as Arrow reads them.

        Args:
            times: the same rows, with times as the texts that are written; None if the rows have no times.

        Raises:
            ValueError: a column has values of two kinds.
        """
        kinds: dict[Path, pa.DataType] = {}
        if times is not None:
            kinds = _kinds_of_times(rows, times)
        for path, values in _leaves(rows):
            if pa.types.is_integer(values.type):
                self._numbers.setdefault(path, Numbers()).add_whole(values)
        for path, numbers in _numbers_beyond(block, rows).items():
            if _are_unsigned(numbers):
                kinds[path] = pa.uint64()
            column_numbers = self._numbers.setdefault(path, Numbers())
            column_numbers.inexact = column_numbers.inexact or _first_inexact(numbers)
        kind = pa.struct(
            [
                (name, _with_types(column.type, (name,), kinds))
                for name, column in zip(rows.column_names, rows.columns, strict=True)
            ]
        )
        self._kind = _merge_types(self._kind, kind, ())

    def types(self) -> pa.Schema:
        """The types of the columns.

        Raises:
            ValueError: a column has a number that no type holds.
        """
        for path, kind in _leaf_types(self._kind, ()):
            try:
                self._numbers.get(path, Numbers()).check(kind)
            except ValueError as error:
                raise ValueError(f"its column {_spell_path(path)} {error}; {_WAYS}") from None
        return pa.schema(list(self._kind))

    def large(self) -> frozenset[str]:
        """The columns with a whole number that no double equals."""
        return frozenset(
            path[0] for path, numbers in self._numbers.items() if numbers.inexact and len(path) == 1
        )


def refuse_rounded(block: str, rows: pa.Table) -> None:
    """Raise ValueError where a block's text has a whole number that is another one in its rows."""
    for path, numbers in _numbers_beyond(block, rows).items():
        inexact = _first_inexact(numbers)
        if inexact is not None:
            raise ValueError(
                f"its column {_spell_path(path)} has the number {inexact}, which a column of doubles would "
                f"round; {_WAYS}"
            )


def _numbers_beyond(block: str, rows: pa.Table) -> dict[Path, list[int | float]]:
    """All numbers, as written, of each column of doubles in which some may have been rounded."""
    doubles = [(path, values) for path, values in _leaves(rows) if pa.types.is_floating(values.type)]
    paths = {path for path, values in doubles if _has_far(values)}
    zeros = {path for path, values in doubles if _has_zero(values)}
    if zeros and _has_tiny(block):
        paths |= zeros
    numbers: dict[Path, list[int | float]] = {path: [] for path in paths}
    if paths:
        for value in objects_of(block):
            _collect(value, (), numbers)
    return numbers


def _has_far(values: pa.ChunkedArray) -> bool:
    return bool(pc.any(pc.greater_equal(pc.abs(values), float(EXACT))).as_py())


def _has_zero(values: pa.ChunkedArray) -> bool:
    return bool(pc.any(pc.equal(values, 0.0)).as_py())


def _has_tiny(block: str) -> bool:
    return _TINY.search(block) is not None or _TINY_ZEROS in block


def objects_of(block: str) -> Iterator[Any]:
    """The objects of a block, as Python values."""
    decode = json.JSONDecoder(parse_float=_as_double).raw_decode
    place = _SPACE.match(block).end()  # type: ignore[union-attr]  # which matches nothing, too
    while place < len(block):
        value, place = decode(block, place)
        yield value
        place = _SPACE.match(block, place).end()  # type: ignore[union-attr]


def _as_double(text: str) -> float:
    if is_exact(text):
        return float(text)
    return _Inexact(text)


def _collect(value: Any, path: Path, numbers: dict[Path, list[int | float]]) -> None:
    if isinstance(value, dict):
        for key, inner in value.items():
            _collect(inner, (*path, key), numbers)
    elif isinstance(value, list):
        for inner in value:
            _collect(inner, (*path, "[]"), numbers)
    elif isinstance(value, int | float) and path in numbers:
        numbers[path].append(value)


def _are_unsigned(numbers: list[int | float]) -> bool:
    return all(isinstance(number, int) and 0 <= number < 2**64 for number in numbers)


def _first_inexact(numbers: list[int | float]) -> str | None:
    for number in numbers:
        if isinstance(number, _Inexact):
            return number.text
        if isinstance(number, int) and not is_exact(str(number)):
            return str(number)
    return None


def _leaves(rows: pa.Table) -> Iterator[tuple[Path, pa.Array]]:
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        for chunk in column.chunks:
            yield from _leaves_of(chunk, (name,))


def _leaves_of(values: pa.Array, path: Path) -> Iterator[tuple[Path, pa.Array]]:
    if pa.types.is_struct(values.type):
        for field, inner in zip(values.type, values.flatten(), strict=True):
            yield from _leaves_of(inner, (*path, field.name))
    elif pa.types.is_list(values.type):
        yield from _leaves_of(values.flatten(), (*path, "[]"))
    else:
        yield path, values


def _leaf_types(kind: pa.DataType, path: Path) -> Iterator[tuple[Path, pa.DataType]]:
    if pa.types.is_struct(kind):
        for field in kind:
            yield from _leaf_types(field.type, (*path, field.name))
    elif pa.types.is_list(kind):
        yield from _leaf_types(kind.value_type, (*path, "[]"))
    else:
        yield path, kind


def _with_types(kind: pa.DataType, path: Path, kinds: Mapping[Path, pa.DataType]) -> pa.DataType:
    """The type with other types at the given paths."""
    if pa.types.is_struct(kind):
        return pa.struct(
            [(field.name, _with_types(field.type, (*path, field.name), kinds)) for field in kind]
        )
    if pa.types.is_list(kind):
        return pa.list_(_with_types(kind.value_type, (*path, "[]"), kinds))
    return kinds.get(path, kind)


def texts_for_times(schema: pa.Schema) -> pa.Schema | None:
    """The types of columns with text in place of times; None if there are no times."""
    times = {path for path, kind in _leaf_types(pa.struct(list(schema)), ()) if pa.types.is_timestamp(kind)}
    texts = dict.fromkeys(times, pa.string())
    if not times:
        return None
    return pa.schema([(field.name, _with_types(field.type, (field.name,), texts)) for field in schema])


def _kinds_of_times(rows: pa.Table, texts: pa.Table) -> dict[Path, pa.DataType]:
    """The types of times that are written with a zone, of which Arrow keeps only the instant.

    If all have a zone, they become times in UTC. If only some have, they are not comparable, and stay texts.
    """
    times = {path: values.type for path, values in _leaves(rows) if pa.types.is_timestamp(values.type)}
    zoned: dict[Path, set[bool]] = {}
    for path, values in _leaves(texts):
        if path in times:
            has_zone = pc.match_substring_regex(values.drop_null(), _ZONE)
            zoned.setdefault(path, set()).update(has_zone.unique().to_pylist())
    utc = {
        path: pa.timestamp(times[path].unit, "UTC") for path, has_zone in zoned.items() if has_zone == {True}
    }
    return utc | {path: pa.string() for path, has_zone in zoned.items() if len(has_zone) > 1}


def _merge_types(first: pa.DataType, second: pa.DataType, path: Path) -> pa.DataType:
    """The type that holds the values of both; a time beside a text is the text that it is written as."""
    if pa.types.is_struct(first) and pa.types.is_struct(second):
        kinds = {field.name: field.type for field in first}
        for field in second:
            kinds[field.name] = _merge_types(
                kinds.get(field.name, pa.null()), field.type, (*path, field.name)
            )
        return pa.struct(list(kinds.items()))
    if pa.types.is_list(first) and pa.types.is_list(second):
        return pa.list_(_merge_types(first.value_type, second.value_type, (*path, "[]")))
    kind = wider(first, second)
    if kind is None and _is_text(first) and _is_text(second):
        return pa.string()
    if kind is None:
        raise ValueError(
            f"its column {_spell_path(path)} is {first} in some objects and {second} in others; "
            "write it with one type"
        )
    return kind


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_timestamp(kind)


def _spell_path(path: Path) -> str:
    return repr(".".join(path).replace(".[]", "[]"))
