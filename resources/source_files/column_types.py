"""Types of columns, how they unite, and which of them snapshots have."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from halving.data.exact_casts import Unlike, fields_of, is_list

_FAMILIES: dict[str, list[Callable[[pa.DataType], bool]]] = {
    "number": [pa.types.is_integer, pa.types.is_floating],
    "text": [pa.types.is_string, pa.types.is_large_string],
    "binary": [pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary],
    "date": [pa.types.is_date],
    "time": [pa.types.is_time],
    "duration": [pa.types.is_duration],
}


def united_type(one: pa.DataType, other: pa.DataType, *, optional: bool = False) -> pa.DataType:
    """The type that holds the values of both; of whole numbers and fractions a double, whose values are
    looked at as they are read.

    Raises:
        Unlike: there is none that would not make something else of them.
    """
    if one == other or pa.types.is_null(other):
        return one
    if pa.types.is_null(one):
        return other
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        return _united_struct(one, other, optional)
    if (
        pa.types.is_fixed_size_list(one)
        and pa.types.is_fixed_size_list(other)
        and one.list_size == other.list_size
    ):
        return pa.list_(united_type(one.value_type, other.value_type, optional=optional), one.list_size)
    if is_list(one) and is_list(other):
        item = united_type(one.value_type, other.value_type, optional=optional)
        return (
            pa.large_list(item)
            if pa.types.is_large_list(one) or pa.types.is_large_list(other)
            else pa.list_(item)
        )
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
    fields = {field.name: field.type for field in fields_of(one)}
    others = {field.name: field.type for field in fields_of(other)}
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
        # the same moments, in the one zone of all
        return _unified(pa.timestamp(one.unit, "UTC"), pa.timestamp(other.unit, "UTC"))
    if pa.uint64() in (one, other) and pa.types.is_integer(one):
        # of which Arrow makes int64; but ids of 20 digits are more likely than numbers below zero beside it
        return pa.uint64()
    both = [pa.schema([("x", kind)]) for kind in (one, other)]
    return pa.unify_schemas(both, promote_options="permissive").field("x").type


def _family(kind: pa.DataType) -> Any:
    """What is equal of types of which one can hold the values of another; None of a type that goes with no
    other.
    """
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
    """The type that a snapshot holds such values in: plain, and of a decimal int64 where it has no fractions,
    else double.

    Raises:
        Unlike: it cannot hold them, or they are all null and no type is known.
    """
    canonical = _with_leaves(kind, _canonical_leaf)
    _refuse_double_fields(canonical)
    return canonical


def _refuse_double_fields(kind: pa.DataType) -> None:
    inner = [kind.field(number) for number in range(kind.num_fields)]
    names = [field.name for field in inner]
    if pa.types.is_struct(kind) and len(set(names)) < len(names):
        raise Unlike(f"{kind}, of which two fields have one name")
    for field in inner:
        _refuse_double_fields(field.type)


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
        return pa.struct(
            [pa.field(field.name, _with_leaves(field.type, change)) for field in fields_of(kind)]
        )
    return change(kind)


def _canonical_leaf(kind: pa.DataType) -> pa.DataType:
    if isinstance(kind, pa.BaseExtensionType):
        return canonical_type(_storage(kind))
    if pa.types.is_decimal(kind):
        return pa.int64() if kind.scale <= 0 else pa.float64()
    if (
        pa.types.is_union(kind)
        or pa.types.is_interval(kind)
        or pa.types.is_null(kind)
        or pa.types.is_map(kind)
    ):
        raise Unlike(str(kind))
    return kind
