"""Types of columns: how they unite, and which of them snapshots have."""

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


def unite_types(first: pa.DataType, second: pa.DataType, *, optional: bool = False) -> pa.DataType:
    """The type that holds the values of both.

    For whole numbers and fractions it is double, and each value is checked when it is read.

    Raises:
        Unlike: no type holds both without changing them.
    """
    if first == second or pa.types.is_null(second):
        return first
    if pa.types.is_null(first):
        return second
    if pa.types.is_struct(first) and pa.types.is_struct(second):
        return _unite_structs(first, second, optional)
    if (
        pa.types.is_fixed_size_list(first)
        and pa.types.is_fixed_size_list(second)
        and first.list_size == second.list_size
    ):
        return pa.list_(unite_types(first.value_type, second.value_type, optional=optional), first.list_size)
    if is_list(first) and is_list(second):
        item = unite_types(first.value_type, second.value_type, optional=optional)
        if pa.types.is_large_list(first) or pa.types.is_large_list(second):
            return pa.large_list(item)
        return pa.list_(item)
    if isinstance(first, pa.BaseExtensionType) or isinstance(second, pa.BaseExtensionType):
        return unite_types(_storage(first), _storage(second), optional=optional)
    if pa.types.is_decimal(first) and pa.types.is_decimal(second):
        return _unite_decimals(first, second)
    if pa.types.is_decimal(first) or pa.types.is_decimal(second):
        return unite_types(_canonical_leaf(first), _canonical_leaf(second))
    if _family(first) is None or _family(first) != _family(second):
        raise Unlike(f"{first} and {second}")
    if pa.types.is_integer(first) != pa.types.is_integer(second):
        return pa.float64()
    return _unify(first, second)


def _unite_structs(first: pa.StructType, second: pa.StructType, optional: bool) -> pa.StructType:
    fields = {field.name: field.type for field in fields_of(first)}
    others = {field.name: field.type for field in fields_of(second)}
    if fields.keys() != others.keys() and not optional:
        raise Unlike(f"{first} and {second}")
    for name, kind in others.items():
        fields[name] = unite_types(fields.get(name, pa.null()), kind, optional=optional)
    return pa.struct(list(fields.items()))


def _unite_decimals(first: pa.DataType, second: pa.DataType) -> pa.DataType:
    try:
        return _unify(first, second)
    except pa.ArrowInvalid:  # No decimal has as many digits.
        return pa.float64()


def _unify(first: pa.DataType, second: pa.DataType) -> pa.DataType:
    """Unite types of one family; across families Arrow would make binary of text, and double of decimals."""
    if pa.types.is_timestamp(first) and first.tz != second.tz:
        # The instants stay the same; all zones unite to UTC.
        return _unify(pa.timestamp(first.unit, "UTC"), pa.timestamp(second.unit, "UTC"))
    if pa.uint64() in (first, second) and pa.types.is_integer(first):
        # Arrow would make int64 of it, but ids of 20 digits are more likely than negative numbers beside it.
        return pa.uint64()
    schemas = [pa.schema([("x", kind)]) for kind in (first, second)]
    return pa.unify_schemas(schemas, promote_options="permissive").field("x").type


def _family(kind: pa.DataType) -> Any:
    """The family of a type: types of one family can hold each other's values.

    None for a type that goes with no other one.
    """
    if pa.types.is_timestamp(kind):
        return "timestamp", kind.tz is not None
    for name, is_members in _FAMILIES.items():
        if any(is_member(kind) for is_member in is_members):
            return name
    return None


def _storage(kind: pa.DataType) -> pa.DataType:
    """The storage type of an extension type; an opaque one can be read by its maker only."""
    if not isinstance(kind, pa.BaseExtensionType):
        return kind
    if kind.extension_name == "arrow.opaque":
        raise Unlike(str(kind))
    return plain_type(kind.storage_type)


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The type without encodings and views, and with one name for the items of lists."""
    return _with_leaves(kind, lambda leaf: leaf)


def canonical_type(kind: pa.DataType) -> pa.DataType:
    """The type in which a snapshot stores such values.

    It is plain; a decimal becomes int64 if it has no fractions, else double.

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
    """The plain type, with its innermost types changed."""
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return _with_leaves(kind.value_type, change)
    if pa.types.is_string_view(kind):
        return pa.large_string()
    if pa.types.is_binary_view(kind):
        return pa.large_binary()
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
