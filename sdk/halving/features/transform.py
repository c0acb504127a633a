"""A view's transform, applied in the same way to many rows offline and to one row in a request.

A transform takes a table of the source's rows and returns a table with as many rows in the same order, whose
columns are the features. Each row may depend on that row alone: a mean over the table would be another one in
a request.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from halving.errors import InvalidInput
from halving.features.definition import NESTED_REMEDY, TYPES, Definition, arrow_type
from halving.features.whole_numbers import whole_numbers
from halving.trial.import_string import import_function, where

if TYPE_CHECKING:
    import pyarrow as pa

Transform = Callable[["pa.Table"], "pa.Table"]
_HOLD = "declare a type that holds it, or cast it in the source or in a transform, for example to a text"
_ROUND = (
    "round it in the source or in a transform: pyarrow.compute.floor_temporal(column, unit='microsecond')"
)


class RequestTransform:
    """The transform of a view for rows of requests.

    It computes features from what a request says, without looking anything up.

    Args:
        definition: the view's, from :attr:`halving.features.online.OnlineFeatures.definitions` or from its
            publisher.

    Raises:
        InvalidInput: the view has no transform, or there is no such function.
    """

    def __init__(self, definition: Definition) -> None:
        if definition.transform is None:
            raise InvalidInput(
                f"the feature view {definition.key} has no transform: its features are looked up"
            )
        self.definition = definition
        self._function = import_function("transform", definition.transform)
        self._schema = definition.input_schema()

    def __call__(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Compute the features of one row by name, as the transform computes them offline.

        Args:
            values: values of the source's columns; one that is left out is null.

        Raises:
            InvalidInput: there is no such column, a value is not of its type, or the transform refuses the
                row.
        """
        import pyarrow as pa

        if self._schema is not None and (unknown := sorted(set(values) - set(self._schema.names))):
            raise InvalidInput(
                f"{unknown[0]} is not accepted: the source of {self.definition.key} has {self._schema.names}"
            )
        try:
            row = pa.Table.from_pylist([dict(values)], schema=self._schema)
        except (pa.ArrowException, TypeError) as error:
            raise InvalidInput(
                f"the values {dict(values)!r:.200} are not accepted by {self.definition.key}: {error}"
            ) from None
        result: dict[str, Any] = features_of(self.definition, self._function, row).to_pylist()[0]
        return result


def features_of(definition: Definition, function: Transform | None, rows: "pa.Table") -> "pa.Table":
    """Compute the features of rows, as a table with the columns and types that the view declares.

    It has as many rows, in the same order.

    Args:
        function: the transform, or None where the rows have the features as columns.

    Raises:
        InvalidInput: the transform raises, or returns something else than a table of as many rows with these
            columns.
    """
    import pyarrow as pa

    subject = f"the transform {definition.transform} of the feature view {definition.key}"
    if function is None:
        result = rows
        subject = f"the source of the feature view {definition.key}"
    else:
        try:
            result = function(rows)
        except Exception as error:
            raise InvalidInput(
                f"{subject} raised {type(error).__name__} at {where(error)}: {error}"
            ) from error
        if not isinstance(result, pa.Table):
            raise InvalidInput(f"{subject} returned {type(result).__name__}; return a pyarrow.Table")
        if result.num_rows != rows.num_rows:
            raise InvalidInput(
                f"{subject} made {result.num_rows} rows of {rows.num_rows}; return one for each row, in the "
                "same order"
            )
    missing = [name for name in definition.features if name not in result.column_names]
    if missing:
        raise InvalidInput(
            f"{subject} has no column {missing[0]!r}, which the schema declares; it has "
            f"{result.column_names}: add it, or take it out of the schema"
        )
    columns = [_cast(result[name], name, kind, subject) for name, kind in definition.features.items()]
    return pa.Table.from_arrays(columns, names=list(definition.features))


def check_row_by_row(
    definition: Definition, function: Transform, rows: "pa.Table", features: "pa.Table"
) -> None:
    """Check that rows get the same features alone as among others: the first, the middle and the last.

    Raises:
        InvalidInput: they differ, so that a request would get other features than training had.
    """
    if not rows.num_rows:
        return
    for row in sorted({0, rows.num_rows // 2, rows.num_rows - 1}):
        alone = features_of(definition, function, rows.slice(row, 1))
        among = features.slice(row, 1)
        for name in definition.features:
            single = alone[name].combine_chunks()
            other = among[name].combine_chunks()
            if not single.equals(other) and str(single) != str(other):  # NaN is not equal to itself
                raise InvalidInput(
                    f"the transform {definition.transform} of the feature view {definition.key} is not "
                    f"accepted: {name} of a row is {single[0]} alone and {other[0]} among {rows.num_rows}; "
                    "compute each row from that row alone"
                )


def _cast(column: "pa.ChunkedArray", name: str, kind: str, source: str) -> "pa.ChunkedArray":
    """Cast a column to its declared type, if that changes no value."""
    import pyarrow as pa

    from halving.data.exact_casts import Unlike, cast_exactly

    wanted = arrow_type(kind)
    if column.type == wanted:
        return column
    subject = f"{source} gives {name} as {column.type}, which the schema declares as {kind}"
    if pa.types.is_integer(wanted) and pa.types.is_floating(column.type):
        column = whole_numbers(column, f"{subject}: it")
    elif not _fits(column.type, wanted):
        raise InvalidInput(f"{subject}; {_remedy_of_type(column.type, wanted)}")
    try:
        return pa.chunked_array([cast_exactly(chunk, wanted) for chunk in column.chunks], wanted)
    except (Unlike, pa.ArrowInvalid) as error:
        remedy = _HOLD
        if pa.types.is_timestamp(wanted):
            remedy = _ROUND
        raise InvalidInput(f"{subject}: {error}; {remedy}") from None


def _fits(kind_of_values: "pa.DataType", wanted: "pa.DataType") -> bool:
    import pyarrow as pa

    if pa.types.is_dictionary(kind_of_values):
        kind_of_values = kind_of_values.value_type
    if pa.types.is_null(kind_of_values) or kind_of_values == wanted:
        return True
    is_number = pa.types.is_integer(wanted) or pa.types.is_floating(wanted)
    if is_number and (pa.types.is_integer(kind_of_values) or pa.types.is_decimal(kind_of_values)):
        return True  # the cast refuses a value that the type does not hold
    if pa.types.is_floating(wanted):
        return bool(pa.types.is_floating(kind_of_values) and kind_of_values.bit_width <= wanted.bit_width)
    if pa.types.is_timestamp(wanted):
        return bool(pa.types.is_timestamp(kind_of_values) and kind_of_values.tz is not None)
    texts = ("string", "large_string", "string_view")
    bytes_ = ("binary", "large_binary", "binary_view")
    return any(str(kind_of_values) in kinds and str(wanted) in kinds for kinds in (texts, bytes_))


def _remedy_of_type(kind_of_values: "pa.DataType", wanted: "pa.DataType") -> str:
    """What to do about a column whose type cannot become the declared one."""
    import pyarrow as pa

    if pa.types.is_dictionary(kind_of_values):
        kind_of_values = kind_of_values.value_type
    if pa.types.is_nested(kind_of_values):
        return NESTED_REMEDY
    if pa.types.is_timestamp(kind_of_values) and pa.types.is_timestamp(wanted):
        return (
            "say in the source or in a transform which time zone it is in: "
            "pyarrow.compute.assume_timezone(column, 'UTC')"
        )
    kinds: tuple[str, ...] = TYPES[::-1]  # int64 before double
    if pa.types.is_decimal(kind_of_values):
        kinds = ("double",)
    declared = next((kind for kind in kinds if _fits(kind_of_values, arrow_type(kind))), None)
    remedy = f"cast it in the source or in a transform to {wanted}"
    if declared:
        remedy += f", or declare it {declared}"
    return remedy
