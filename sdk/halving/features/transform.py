"""A view's transform, applied to many rows offline and to one in a request: the same function, the same types, the same checks.

A transform takes a table of the source's rows and gives one with as many rows in the same order, whose columns are the features. Each row
depends on that row alone: a mean over the table would be another one in a request.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from halving.errors import InvalidInput
from halving.features.definition import NESTED_REMEDY, Definition, arrow_type
from halving.features.whole_numbers import whole_numbers
from halving.trial.import_string import import_function, where

if TYPE_CHECKING:
    import pyarrow as pa

Transform = Callable[["pa.Table"], "pa.Table"]


class RequestTransform:
    """The transform of a view for the rows of requests: what is computed from what a request says, not looked up.

    Args:
        definition: of the view, from :attr:`halving.features.online.OnlineFeatures.definitions` or from its publisher.

    Raises:
        InvalidInput: the view has no transform, or there is no such function.
    """

    def __init__(self, definition: Definition) -> None:
        if definition.transform is None:
            raise InvalidInput(f"the feature view {definition.key} has no transform: its features are looked up")
        self.definition = definition
        self._function = import_function("transform", definition.transform)
        self._schema = definition.input_schema()

    def __call__(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The features of one row, by name, as the transform gives them offline for the same row.

        Args:
            values: of the source's columns; one that is left out is null.

        Raises:
            InvalidInput: there is no such column, a value is not of its type, or the transform refuses the row.
        """
        import pyarrow as pa

        if self._schema is not None and (unknown := sorted(set(values) - set(self._schema.names))):
            raise InvalidInput(f"{unknown[0]} is not accepted: the source of {self.definition.key} has {self._schema.names}")
        try:
            row = pa.Table.from_pylist([dict(values)], schema=self._schema)
        except (pa.ArrowException, TypeError) as error:
            raise InvalidInput(f"the values {dict(values)!r:.200} are not accepted by {self.definition.key}: {error}") from None
        result: dict[str, Any] = features_of(self.definition, self._function, row).to_pylist()[0]
        return result


def features_of(definition: Definition, function: Transform | None, rows: "pa.Table") -> "pa.Table":
    """The features of rows: a table with the columns and types that the view declares, as many rows, in the same order.

    Args:
        function: the transform, or None where the rows have the features as columns.

    Raises:
        InvalidInput: the transform raises, or gives something else than a table of as many rows with these columns.
    """
    import pyarrow as pa

    named = f"the transform {definition.transform} of the feature view {definition.key}"
    if function is None:
        result, named = rows, f"the source of the feature view {definition.key}"
    else:
        try:
            result = function(rows)
        except Exception as error:
            raise InvalidInput(f"{named} raised {type(error).__name__} at {where(error)}: {error}") from error
        if not isinstance(result, pa.Table):
            raise InvalidInput(f"{named} returned {type(result).__name__}; return a pyarrow.Table")
        if result.num_rows != rows.num_rows:
            raise InvalidInput(f"{named} made {result.num_rows} rows of {rows.num_rows}; return one for each row, in the same order")
    missing = [name for name in definition.features if name not in result.column_names]
    if missing:
        raise InvalidInput(f"{named} has no column {missing[0]!r}, which the schema declares; it has {result.column_names}")
    columns = [_cast(result[name], name, kind, named) for name, kind in definition.features.items()]
    return pa.Table.from_arrays(columns, names=list(definition.features))


def check_row_by_row(definition: Definition, function: Transform, rows: "pa.Table", features: "pa.Table") -> None:
    """Compare the features of single rows with those that they got among others: the first, the middle one and the last.

    Raises:
        InvalidInput: they differ, so that a request would get other features than training had.
    """
    for row in sorted({0, rows.num_rows // 2, rows.num_rows - 1}) if rows.num_rows else ():
        alone, among = features_of(definition, function, rows.slice(row, 1)), features.slice(row, 1)
        for name in definition.features:
            one, other = alone[name].combine_chunks(), among[name].combine_chunks()
            if not one.equals(other) and str(one) != str(other):  # NaN is not equal to itself
                raise InvalidInput(
                    f"the transform {definition.transform} of the feature view {definition.key} is not accepted: {name} of a row is "
                    f"{one[0]} alone and {other[0]} among {rows.num_rows}; compute each row from that row alone"
                )


def _cast(column: "pa.ChunkedArray", name: str, kind: str, named: str) -> "pa.ChunkedArray":
    """A column as its declared type, where no value changes by that."""
    import pyarrow as pa

    wanted = arrow_type(kind)
    if column.type == wanted:
        return column
    if pa.types.is_integer(wanted) and pa.types.is_floating(column.type):
        column = whole_numbers(column, f"{named} gives {name} as {column.type}, which the schema declares as {kind}: it")
    elif not _fits(column.type, wanted):
        remedy = NESTED_REMEDY if pa.types.is_nested(column.type) else "cast it, or declare it so"
        raise InvalidInput(f"{named} gives {name} as {column.type}, which the schema declares as {kind}; {remedy}")
    try:
        return column.cast(wanted)
    except pa.ArrowInvalid as error:
        raise InvalidInput(f"{named} gives a {name} that is no {kind}: {error}") from None


def _fits(found: "pa.DataType", wanted: "pa.DataType") -> bool:
    import pyarrow as pa

    if pa.types.is_dictionary(found):
        found = found.value_type
    if pa.types.is_null(found):
        return True
    if pa.types.is_integer(found) and (pa.types.is_integer(wanted) or pa.types.is_floating(wanted)):
        return True  # the cast refuses a value that the type does not hold
    if pa.types.is_floating(wanted):
        return bool(pa.types.is_floating(found) and found.bit_width <= wanted.bit_width)
    if pa.types.is_timestamp(wanted):
        return bool(pa.types.is_timestamp(found) and found.tz is not None)
    texts, bytes_ = ("string", "large_string", "string_view"), ("binary", "large_binary", "binary_view")
    return any(str(found) in kinds and str(wanted) in kinds for kinds in (texts, bytes_))
