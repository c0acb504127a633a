"""Integers from floats or decimals, as pandas makes of integers beside NaN; each is exact or refused."""

from decimal import Decimal
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

from halving.errors import InvalidInput

if TYPE_CHECKING:
    import pyarrow as pa

BITS = {16: 11, 32: 24, 64: 53}
"""Exact bits by a float's width; from two to the power of these on, two integers may be the same float."""

REMEDY = "read the column as integers (pandas: dtype='Int64') or as texts"


def may_be_whole(kind: "pa.DataType") -> bool:
    """Whether values of a type may be whole numbers that need a check: it is a float, a decimal or uint64."""
    import pyarrow as pa

    return bool(pa.types.is_floating(kind) or pa.types.is_decimal(kind) or pa.types.is_uint64(kind))


def whole_numbers(column: "pa.ChunkedArray", subject: str) -> "pa.ChunkedArray":
    """Convert a column of floats, decimals or uint64 to int64; NaN becomes null.

    Args:
        subject: what has the values, as messages begin with it.

    Raises:
        InvalidInput: a value is not a whole number, cannot be told from its neighbour as a float, or is
            beyond int64.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_floating(column.type):
        return _from_exact(column, subject)
    bits = BITS[column.type.bit_width]
    numbers = column.cast(pa.float64())
    numbers = pc.if_else(pc.is_nan(numbers), pa.scalar(None, pa.float64()), numbers)
    is_wrong = pc.or_(
        pc.not_equal(numbers, pc.trunc(numbers)), pc.greater_equal(pc.abs(numbers), float(2**bits))
    )
    if pc.any(is_wrong).as_py():
        raise InvalidInput(_refusal(subject, numbers.filter(is_wrong)[0].as_py(), bits))
    return numbers.cast(pa.int64())


def is_real(value: Any) -> bool:
    """Whether a value is a float, also of NumPy, or a decimal, and not an int."""
    return isinstance(value, Decimal) or (isinstance(value, Real) and not isinstance(value, Integral))


def whole_number(value: Any, subject: str) -> int:
    """Convert a float or a decimal, which is not NaN, to the int that it is.

    Raises:
        InvalidInput: as :func:`whole_numbers`.
    """
    if isinstance(value, Decimal):
        if not value.is_finite() or value != int(value) or not -(2**63) <= value < 2**63:
            raise InvalidInput(_refusal(subject, value))
        return int(value)
    number = float(value)
    bits = BITS.get(8 * getattr(value, "itemsize", 8), BITS[64])
    if not number.is_integer() or abs(number) >= 2**bits:
        raise InvalidInput(_refusal(subject, number, bits))
    return int(number)


def _from_exact(column: "pa.ChunkedArray", subject: str) -> "pa.ChunkedArray":
    import pyarrow as pa

    if pa.types.is_decimal(column.type):
        # Arrow casts more of the widest decimals to integers than of the others.
        column = column.cast(pa.decimal256(76, column.type.scale))
    try:
        return column.cast(pa.int64())
    except pa.ArrowInvalid:
        for value in column.to_pylist():
            if value is not None and (value != int(value) or not -(2**63) <= value < 2**63):
                raise InvalidInput(_refusal(subject, value)) from None
        raise


def _refusal(subject: str, value: Any, bits: int = 63) -> str:
    number = str(value) if isinstance(value, Decimal) else repr(value)
    return f"{subject} has {number}, which is no whole number below 2**{bits}; {REMEDY}"
