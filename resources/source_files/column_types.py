"""Types of columns and how they unite; and casts after which each value is what it was, or is refused."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_FAMILIES: dict[str, list[Callable[[pa.DataType], bool]]] = {
    "number": [pa.types.is_integer, pa.types.is_floating],
    "text": [pa.types.is_string, pa.types.is_large_string],
    "binary": [pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary],
    "date": [pa.types.is_date],
    "time": [pa.types.is_time],
    "duration": [pa.types.is_duration],
}


class Unlike(ValueError):
    """Two types, or a value and a type, that do not go together; the text says why."""


def united_type(one: pa.DataType, other: pa.DataType, *, optional: bool = False) -> pa.DataType:
    """The type that holds the values of both; of whole numbers and fractions a double, whose values are looked at as they are read.

    Raises:
        Unlike: there is none that would not make something else of them.
    """
    if one == other or pa.types.is_null(other):
        return one
    if pa.types.is_null(one):
        return other
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        return _united_struct(one, other, optional)
    if pa.types.is_fixed_size_list(one) and pa.types.is_fixed_size_list(other) and one.list_size == other.list_size:
        return pa.list_(united_type(one.value_type, other.value_type, optional=optional), one.list_size)
    if _is_list(one) and _is_list(other):
        item = united_type(one.value_type, other.value_type, optional=optional)
        return pa.large_list(item) if pa.types.is_large_list(one) or pa.types.is_large_list(other) else pa.list_(item)
    if isinstance(one, pa.BaseExtensionType) or isinstance(other, pa.BaseExtensionType):
        return united_type(_storage(one), _storage(other), optional=optional)
    if pa.types.is_decimal(one) and pa.types.is_decimal(other):
        return _united_decimal(one, other)
    if pa.types.is_decimal(one) or pa.types.is_decimal(other):
        return united_type(_canonical_leaf(one), _canonical_leaf(other))
    if _family(one) is None or _family(one) != _family(other):
        raise Unlike(f"{one} and {other}")
    if pa.types.is_integer(one) != pa.types.is_integer(other):
        return pa.float64()
    return _unified(one, other)


def _united_struct(one: pa.StructType, other: pa.StructType, optional: bool) -> pa.StructType:
    fields = {field.name: field.type for field in _fields_of(one)}
    others = {field.name: field.type for field in _fields_of(other)}
    if fields.keys() != others.keys() and not optional:
        raise Unlike(f"{one} and {other}")
    for name, kind in others.items():
        fields[name] = united_type(fields.get(name, pa.null()), kind, optional=optional)
    return pa.struct(list(fields.items()))


def _united_decimal(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    try:
        return _unified(one, other)
    except pa.ArrowInvalid:  # no decimal has as many digits
        return pa.float64()


def _unified(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """Of one family alone: across them Arrow makes binary of text, and double of decimals."""
    if pa.types.is_timestamp(one) and one.tz != other.tz:
        return _unified(pa.timestamp(one.unit, "UTC"), pa.timestamp(other.unit, "UTC"))  # the same moments, in the one zone of all
    if pa.uint64() in (one, other) and pa.types.is_integer(one):
        return pa.uint64()  # of which Arrow makes int64; but ids of 20 digits are more likely than numbers below zero beside it
    both = [pa.schema([("x", kind)]) for kind in (one, other)]
    return pa.unify_schemas(both, promote_options="permissive").field("x").type


def _family(kind: pa.DataType) -> Any:
    """What is equal of types of which one can hold the values of another; None of a type that goes with no other."""
    if pa.types.is_timestamp(kind):
        return "timestamp", kind.tz is not None
    for name, is_members in _FAMILIES.items():
        if any(is_member(kind) for is_member in is_members):
            return name
    return None


def _storage(kind: pa.DataType) -> pa.DataType:
    """What an extension type is made of; of an opaque one only its maker can read that."""
    is_known = isinstance(kind, pa.BaseExtensionType) and kind.extension_name != "arrow.opaque"
    if isinstance(kind, pa.BaseExtensionType) and not is_known:
        raise Unlike(str(kind))
    return plain_type(kind.storage_type) if is_known else kind


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The type without encodings and views, and with one name for the items of lists; all else as it is."""
    return _with_leaves(kind, lambda leaf: leaf)


def canonical_type(kind: pa.DataType) -> pa.DataType:
    """The type that a snapshot holds such values in: plain, and of a decimal int64 where it has no fractions, else double.

    Raises:
        Unlike: it cannot hold them, or they are all null and no type is known.
    """
    return _with_leaves(kind, _canonical_leaf)


def _with_leaves(kind: pa.DataType, change: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """The plain type with what is not nested changed."""
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return _with_leaves(kind.value_type, change)
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        return pa.large_string() if pa.types.is_string_view(kind) else pa.large_binary()
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(_with_leaves(kind.value_type, change), kind.list_size)
    if pa.types.is_list(kind) or pa.types.is_list_view(kind):
        return pa.list_(_with_leaves(kind.value_type, change))
    if pa.types.is_large_list(kind) or pa.types.is_large_list_view(kind):
        return pa.large_list(_with_leaves(kind.value_type, change))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _with_leaves(field.type, change)) for field in _fields_of(kind)])
    return change(kind)


def _canonical_leaf(kind: pa.DataType) -> pa.DataType:
    if isinstance(kind, pa.BaseExtensionType):
        return canonical_type(_storage(kind))
    if pa.types.is_decimal(kind):
        return pa.int64() if kind.scale <= 0 else pa.float64()
    if pa.types.is_union(kind) or pa.types.is_interval(kind) or pa.types.is_null(kind) or pa.types.is_map(kind):
        raise Unlike(str(kind))
    return kind


def _fields_of(kind: pa.StructType) -> list[pa.Field]:
    return [kind.field(number) for number in range(kind.num_fields)]


def _is_list(kind: pa.DataType) -> bool:
    """Whether it is a list of any length."""
    return pa.types.is_list(kind) or pa.types.is_large_list(kind)


def cast_exactly(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """The same values in another type.

    Raises:
        Unlike: one of them would be another value there.
        pa.ArrowException: one of them is not to be had there at all.
    """
    if values.type == kind:
        return values
    if pa.types.is_null(values.type):
        return pa.nulls(len(values), kind)
    values = _plain(values)
    given = values.type
    if pa.types.is_struct(kind) and pa.types.is_struct(given):
        return _cast_struct(values, kind)
    if pa.types.is_fixed_size_list(kind) and pa.types.is_fixed_size_list(given) and kind.list_size == given.list_size:
        size = kind.list_size
        inner = cast_exactly(values.values.slice(values.offset * size, len(values) * size), kind.value_type)
        return pa.FixedSizeListArray.from_arrays(inner, type=kind, mask=pc.is_null(values))
    if _is_list(kind) and (_is_list(given) or pa.types.is_list_view(given) or pa.types.is_large_list_view(given)):
        return _cast_list(values, kind)
    if pa.types.is_decimal(given) and not pa.types.is_decimal(kind):
        return _cast_decimals(values, kind)
    cast = values.cast(kind)
    if pa.types.is_floating(given) and pa.types.is_floating(kind) and kind.bit_width < given.bit_width:
        _refuse_changed(values, cast.cast(given), kind)
    return cast


def _cast_struct(values: pa.StructArray, kind: pa.StructType) -> pa.Array:
    """By the names of the fields; one that the values have not is null."""
    inner = dict(zip([field.name for field in _fields_of(values.type)], values.flatten(), strict=True))  # null where the struct is null
    if more := set(inner) - {field.name for field in _fields_of(kind)}:
        raise Unlike(f"it has the fields {sorted(more)}, too")
    columns = [
        cast_exactly(inner[field.name], field.type) if field.name in inner else pa.nulls(len(values), field.type)
        for field in _fields_of(kind)
    ]
    if not columns:
        return values.cast(kind)
    return pa.StructArray.from_arrays(columns, fields=list(_fields_of(kind)), mask=pc.is_null(values))


def _cast_list(values: pa.Array, kind: pa.DataType) -> pa.Array:
    inner = cast_exactly(values.flatten(), kind.value_type)  # without what lies under a null
    is_large = pa.types.is_large_list(kind)
    ends = np.cumsum(pc.fill_null(pc.list_value_length(values), 0).to_numpy(), dtype=np.int64)
    offsets = pa.array(np.concatenate([[0], ends])).cast(pa.int64() if is_large else pa.int32())
    whole = pa.LargeListArray if is_large else pa.ListArray
    return whole.from_arrays(offsets, inner, type=kind, mask=pc.is_null(values))


def _cast_decimals(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """To floats by their text, which Arrow reads to the nearest double; the double's shortest text must be the same decimal."""
    wide = values.cast(pa.decimal256(76, values.type.scale))  # of decimal32 Arrow refuses each whole number
    if pa.types.is_floating(kind):
        cast = values.cast(pa.string()).cast(kind)
        _refuse_changed(wide, cast.cast(pa.string()).cast(wide.type), kind)
        return cast
    if pa.types.is_integer(kind):
        _refuse_beyond(wide, kind)
    return wide.cast(kind)


def _refuse_beyond(values: pa.Decimal256Array, kind: pa.DataType) -> None:
    """Refuse decimals that are no whole numbers, or not ones of so many bits."""
    try:
        values.cast(kind)
    except pa.ArrowInvalid:
        least = 0 if pa.types.is_unsigned_integer(kind) else -(2 ** (kind.bit_width - 1))
        most = least + 2**kind.bit_width - 1
        for value in values.to_pylist():
            if value is not None and (value != int(value) or not least <= value <= most):
                raise Unlike(f"it has {value}, which no {kind} is") from None
        raise


def _refuse_changed(values: pa.Array, back: pa.Array, kind: pa.DataType) -> None:
    """Refuse values that are not what came back of their cast; NaN is itself."""
    is_same = pc.equal(values, back)
    if pa.types.is_floating(values.type):
        is_same = pc.or_(is_same, pc.is_nan(values))
    changed = pc.and_(pc.is_valid(values), pc.invert(pc.fill_null(is_same, False)))
    if pc.any(changed).as_py():
        first = values.filter(changed)[0].as_py()
        raise Unlike(f"it has {first}, which no {kind} is")


def _plain(values: pa.Array) -> pa.Array:
    """Without an encoding or an extension type, of which Arrow does not cast all."""
    if isinstance(values, pa.ExtensionArray):
        return _plain(values.storage)
    if pa.types.is_dictionary(values.type):
        return values.dictionary_decode()
    return pc.run_end_decode(values) if pa.types.is_run_end_encoded(values.type) else values
