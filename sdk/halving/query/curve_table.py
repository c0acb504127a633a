"""Curves as the tables that queries return: rows, smoothing, and the columns of a leaderboard."""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from halving.errors import InvalidInput
from halving.metrics import downsampling
from halving.metrics.numpy_arrow import column_of, dictionary_of, moments
from halving.query.runs import RunInfo

if TYPE_CHECKING:
    import pyarrow as pa

Smoother = Callable[[Any], Any]


class CurveRows(NamedTuple):
    """One curve's rows, as arrays.

    The reading functions rely on the first three fields: run, key, and a column that is empty without points.
    """

    run: str
    key: str
    step: Any
    wall_time: Any
    value: Any
    min: Any
    max: Any
    count: Any
    attempt: int | None

    @classmethod
    def of(
        cls, run: str, key: str, attempt: int | None, units: Any, limit: int | None, smooth: Smoother
    ) -> "CurveRows":
        """Reduce units, in the order of the x axis, to ``limit`` rows."""
        if limit is not None:
            units = downsampling.at_most(units, limit)
        values = smooth(downsampling.values_of(units))
        return cls(
            run,
            key,
            units["step"],
            units["wall_time"],
            values,
            units["min"],
            units["max"],
            units["count"],
            attempt,
        )


def table_of(curves: Sequence[CurveRows], *, raw: bool, single: bool) -> "pa.Table":
    """Join curves into one table.

    Args:
        raw: add the column ``attempt``.
        single: the rows are single points; leave out ``min``, ``max`` and ``count``.
    """
    import pyarrow as pa

    lengths = [len(curve.step) for curve in curves]
    columns = {
        "run": _texts([curve.run for curve in curves], lengths),
        "key": _texts([curve.key for curve in curves], lengths),
    }
    if raw:
        columns["attempt"] = column_of(
            np.repeat(np.array([curve.attempt for curve in curves], np.int32), lengths), pa.int32()
        )
    kinds = {"step": pa.int64(), "wall_time": moments(), "value": pa.float64()}
    if not single:
        kinds |= {"min": pa.float64(), "max": pa.float64(), "count": pa.int64()}
    for name, kind in kinds.items():
        # Without curves the empty array decides the column's type.
        empty = np.empty(0, np.int64)
        if kind == pa.float64():
            empty = np.empty(0, np.float64)
        columns[name] = column_of(np.concatenate([empty, *(getattr(curve, name) for curve in curves)]), kind)
    return pa.Table.from_arrays(list(columns.values()), names=list(columns))


def rows_of(units: Iterable[tuple[str, str, Any]], names: tuple[str, str, str]) -> "pa.Table":
    """A table with one row for each run and key that has a unit.

    Args:
        units: run, key, and one unit or none.
        names: the unit's fields of step, time and value.
    """
    import pyarrow as pa

    rows = [
        (run, key, *_single(unit, names[0], names[1]), float(unit[names[2]][0]))
        for run, key, unit in units
        if len(unit)
    ]
    columns = list(zip(*rows, strict=True)) or [()] * 5
    kinds = (pa.string(), pa.string(), pa.int64(), moments(), pa.float64())
    named = zip(("run", "key", "step", "wall_time", "value"), columns, kinds, strict=True)
    return pa.table({name: pa.array(column, kind) for name, column, kind in named})


def board_of(rows: Sequence[tuple[str, Any, Any, RunInfo]], column: str) -> "pa.Table":
    """A leaderboard of rows that are ranked already.

    Args:
        rows: run, the unit of its best value, the unit of its last value, and its record.
        column: ``min`` or ``max``, whichever is best.
    """
    import pyarrow as pa

    table = {
        "rank": pa.array(range(1, len(rows) + 1), pa.int64()),
        "run": pa.array([run for run, *_ in rows], pa.string()),
        "value": pa.array([float(top[column][0]) for _, top, _, _ in rows], pa.float64()),
        "step": pa.array([_single(top, "step", "wall_time")[0] for _, top, _, _ in rows], pa.int64()),
        "last": pa.array([float(end["last"][0]) for _, _, end, _ in rows], pa.float64()),
        "status": pa.array([info.status for *_, info in rows], pa.string()),
    }
    params = [info.flat_params for *_, info in rows]
    for name in sorted({name for own in params for name in own}):
        table[f"params.{name}"] = _column([own.get(name) for own in params])
    return pa.table(table)


def is_number(value: Any) -> bool:
    """Whether a value is a number; True and False are not."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def as_text(value: Any) -> str | None:
    """A param as text: text is unchanged, anything else is JSON, and None stays None."""
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value)


def smoother_of(smooth: Mapping[str, float] | None) -> Smoother:
    """The function that smooths a curve's values.

    Raises:
        InvalidInput: the argument is not accepted.
    """
    if smooth is None:
        return lambda values: values
    if isinstance(smooth, Mapping) and len(smooth) == 1:
        ((name, amount),) = smooth.items()
        if name == "ema" and is_number(amount) and 0 <= amount < 1:
            return lambda values: _ema(values, float(amount))
        if name == "mean" and isinstance(amount, int) and not isinstance(amount, bool) and amount >= 1:
            return lambda values: _trailing_mean(values, amount)
    raise InvalidInput(
        f'smooth {smooth!r} is not accepted: give {{"ema": weight from 0 to below 1}} or {{"mean": points '
        "from 1 on}"
    )


def _ema(values: Any, weight: float) -> Any:
    average = 0.0
    past_weight = 1.0
    smooth = []
    for value in values.tolist():
        if math.isfinite(value):
            average = weight * average + (1 - weight) * value
            past_weight *= weight
            smooth.append(average / (1 - past_weight))
        else:
            smooth.append(value)
    return np.array(smooth, np.float64)


def _trailing_mean(values: Any, points: int) -> Any:
    finite = np.isfinite(values)
    own = values[finite]
    smooth = np.array(values, np.float64)
    if len(own):
        # Each window is summed afresh, because a running sum would carry the rounding error of a large value
        # into all later ones.
        length = min(points, len(own))
        padded = np.concatenate([np.full(length - 1, np.nan), own])
        smooth[finite] = np.nanmean(np.lib.stride_tricks.sliding_window_view(padded, length), axis=1)
    return smooth


def _single(unit: Any, step: str, time: str) -> tuple[int | None, int | None]:
    """A unit's step and time; both are None if the unit has several points, as any of them may be the one."""
    if unit["count"][0] > 1 and step == "step":
        return None, None
    return int(unit[step][0]), int(unit[time][0])


def _column(values: list[Any]) -> "pa.Array":
    """A param's values as a column that holds each exactly; as text where the values are of several kinds."""
    import pyarrow as pa

    present = [value for value in values if value is not None]
    if all(isinstance(value, bool) for value in present):
        return pa.array(values, pa.bool_())
    if all(is_number(value) for value in present):
        if all(isinstance(value, int) for value in present):
            largest = max(abs(value) for value in present)
            if largest < 2**63:
                return pa.array(values, pa.int64())
            if largest < 10**38:
                return pa.array(_convert(values, Decimal), pa.decimal128(38, 0))
        elif all(_is_exact(value) for value in present):
            return pa.array(_convert(values, float), pa.float64())
    return pa.array([as_text(value) for value in values], pa.string())


def _convert(values: list[Any], kind: Callable[[Any], Any]) -> list[Any]:
    return [None if value is None else kind(value) for value in values]


def _is_exact(value: float) -> bool:
    """Whether a double holds a number exactly, which it may not do with a large whole number."""
    try:
        return isinstance(value, float) or float(value) == value
    except OverflowError:
        return False


def _texts(names: list[str], lengths: list[int]) -> "pa.DictionaryArray":
    places = {name: place for place, name in enumerate(dict.fromkeys(names))}
    return dictionary_of(
        np.repeat(np.array([places[name] for name in names], np.int32), lengths), list(places)
    )
