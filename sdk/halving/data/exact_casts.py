"""Casts between Arrow types that keep every value exactly, or refuse."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


class Unlike(ValueError):
    """Two types, or a value and a type, do not fit together; the text says why."""


def cast_exactly(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Cast an array to another type, so that each value stays the same.

    Raises:
        Unlike: a value would be another one in that type.
        pa.ArrowException: a value does not exist in that type at all.
    """
    if values.type == kind:
        return values
    if pa.types.is_null(values.type):
        return pa.nulls(len(values), kind)
    values = _decode(values)
    kind_before = values.type
    if pa.types.is_struct(kind) and pa.types.is_struct(kind_before):
        return _cast_struct(values, kind)
    if (
        pa.types.is_fixed_size_list(kind)
        and pa.types.is_fixed_size_list(kind_before)
        and kind.list_size == kind_before.list_size
    ):
        size = kind.list_size
        inner = cast_exactly(values.values.slice(values.offset * size, len(values) * size), kind.value_type)
        return pa.FixedSizeListArray.from_arrays(inner, type=kind, mask=pc.is_null(values))
    if is_list(kind) and (
        is_list(kind_before) or pa.types.is_list_view(kind_before) or pa.types.is_large_list_view(kind_before)
    ):
        return _cast_list(values, kind)
    if pa.types.is_decimal(kind_before) and not pa.types.is_decimal(kind):
        return _cast_decimals(values, kind)
    cast = values.cast(kind)
    if (
        pa.types.is_floating(kind_before)
        and pa.types.is_floating(kind)
        and kind.bit_width < kind_before.bit_width
    ):
        _refuse_changed(values, cast.cast(kind_before), kind)
    return cast


def fields_of(kind: pa.StructType) -> list[pa.Field]:
    """The fields of a struct."""
    return [kind.field(number) for number in range(kind.num_fields)]


def is_list(kind: pa.DataType) -> bool:
    """Whether a type is a list of variable length."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _cast_struct(values: pa.StructArray, kind: pa.StructType) -> pa.Array:
    """Cast a struct by the names of its fields; a field that the values do not have becomes null."""
    # ``flatten`` gives a field null where its struct is null.
    inner = dict(zip([field.name for field in fields_of(values.type)], values.flatten(), strict=True))
    if more := set(inner) - {field.name for field in fields_of(kind)}:
        raise Unlike(f"it has the fields {sorted(more)}, too")
    columns = []
    for field in fields_of(kind):
        if field.name in inner:
            columns.append(cast_exactly(inner[field.name], field.type))
        else:
            columns.append(pa.nulls(len(values), field.type))
    if not columns:
        return values.cast(kind)
    return pa.StructArray.from_arrays(columns, fields=list(fields_of(kind)), mask=pc.is_null(values))


def _cast_list(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Cast lists, item by item."""
    inner = cast_exactly(values.flatten(), kind.value_type)  # leaves out what lies under a null list
    ends = np.cumsum(pc.fill_null(pc.list_value_length(values), 0).to_numpy(), dtype=np.int64)
    offsets = pa.array(np.concatenate([[0], ends]))
    mask = pc.is_null(values)
    if pa.types.is_large_list(kind):
        return pa.LargeListArray.from_arrays(offsets, inner, type=kind, mask=mask)
    return pa.ListArray.from_arrays(offsets.cast(pa.int32()), inner, type=kind, mask=mask)


def _cast_decimals(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Cast decimals; each must be equal to the result.

    Floats are made by way of the text, which Arrow reads to the nearest double. The double's shortest text
    must be the same decimal.
    """
    # Arrow does not cast decimal32 to whole numbers.
    wide = values.cast(pa.decimal256(76, values.type.scale))
    if pa.types.is_floating(kind):
        cast = values.cast(pa.string()).cast(kind)
        _refuse_changed(wide, cast.cast(pa.string()).cast(wide.type), kind)
        return cast
    if pa.types.is_integer(kind):
        _refuse_beyond(wide, kind)
    return wide.cast(kind)


def _refuse_beyond(values: pa.Decimal256Array, kind: pa.DataType) -> None:
    """Refuse decimals that are not whole numbers, or that an integer type is too narrow for."""
    try:
        values.cast(kind)
    except pa.ArrowInvalid:
        lower = 0
        if pa.types.is_signed_integer(kind):
            lower = -(2 ** (kind.bit_width - 1))
        upper = lower + 2**kind.bit_width - 1
        for value in values.to_pylist():
            if value is not None and (value != int(value) or not lower <= value <= upper):
                raise Unlike(f"it has {value}, which no {kind} is") from None
        raise


def _refuse_changed(values: pa.Array, back: pa.Array, kind: pa.DataType) -> None:
    """Refuse values that differ from those that were cast and cast back; NaN equals itself."""
    is_same = pc.equal(values, back)
    if pa.types.is_floating(values.type):
        is_same = pc.or_(is_same, pc.is_nan(values))
    changed = pc.and_(pc.is_valid(values), pc.invert(pc.fill_null(is_same, False)))
    if pc.any(changed).as_py():
        first = values.filter(changed)[0].as_py()
        raise Unlike(f"it has {first}, which no {kind} is")


def _decode(values: pa.Array) -> pa.Array:
    """Remove an encoding or an extension type, because Arrow does not cast all of those."""
    if isinstance(values, pa.ExtensionArray):
        return _decode(values.storage)
    if pa.types.is_dictionary(values.type):
        return values.dictionary_decode()
    if pa.types.is_run_end_encoded(values.type):
        return pc.run_end_decode(values)
    return values
