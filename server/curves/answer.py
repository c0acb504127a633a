"""Reads a question's curves from the store, and encodes them.

The binary encoding, little endian: uint32 the header's length, the header (JSON, padded with spaces until the
arrays begin at a multiple of 8), and for each curve float64 x, float32 value and, where it is in buckets,
float32 min and max; each array is padded to a multiple of 8 bytes. ``offset`` in the header counts from the
header's end.
"""

import json
import math
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from halving.errors import NotFound
from halving.query.api import curve_rows
from halving.query.curve_reader import RunCurves
from halving.query.curve_table import CurveRows, table_of
from halving.query.json_values import jsonable
from halving.query.runs import read_json, seconds_of
from halving.store.store import Store
from server.curves.question import Question

BINARY = "application/vnd.halving.curves"
ARROW = "application/vnd.apache.arrow.stream"
JSON = "application/json"
_FLOAT32 = np.dtype("<f4")
_FLOAT64 = np.dtype("<f8")
_MAX_PLACE = 2.0**53  # steps or ms


@dataclass(frozen=True)
class Curves:
    """The curves of an answer.

    Attributes:
        x: for each curve its place on the axis, float64.
        missing: run and key of each pair without points (in the window, where one is given).
    """

    axis: str
    rows: list[CurveRows]
    x: list[Any]
    missing: list[tuple[str, str]]


def read_curves(
    store: Store,
    question: Question,
    open_reader: Callable[[str, str, Sequence[str]], RunCurves],
    after_each: Callable[[int], None],
) -> Curves:
    """Read a question's curves, ordered by run and then by key.

    The question must have ``runs`` and sorted ``keys``.

    Args:
        open_reader: gives the reader of a project's run for some keys.
        after_each: called after each curve with the number of its rows, and with 0 before each block that is
            read of it, by several threads; what it raises ends the query.

    Raises:
        NotFound: no such run.
    """
    names = list(question.runs)
    keys = question.keys
    starts = {}
    if question.x == "relative":
        starts = {name: _began(store, name) for name in names}
    windowed = question.low is not None or question.high is not None
    groups = [names] if names else []
    if windowed and starts:  # on the relative axis each run has a window of its own in time
        groups = [[name] for name in names]
    rows = [
        curve
        for part in groups
        for curve in curve_rows(
            part,
            keys,
            root=store,
            x="step" if question.x == "step" else "time",
            max_points=question.max_points,
            window=_window(question, starts.get(part[0], 0.0)) if windowed else None,
            edges=question.edges,
            known_keys=False,
            after_each=after_each,
            opened=open_reader,
        )
    ]
    places = {name: place for place, name in enumerate(names)}
    rows.sort(key=lambda curve: places[curve.run])
    present = {(curve.run, curve.key) for curve in rows}
    missing = [(name, key) for name in names for key in keys if (name, key) not in present]
    return Curves(question.x, rows, [_places(question.x, curve, starts) for curve in rows], missing)


def encode(curves: Curves, kind: str) -> bytes:
    """Encode an answer; ``kind`` is :data:`BINARY`, :data:`ARROW` or :data:`JSON`."""
    return {BINARY: _binary, ARROW: _arrow, JSON: _json}[kind](curves)


def _binary(curves: Curves) -> bytes:
    described = []
    arrays = []
    offset = 0
    with np.errstate(over="ignore"):  # what float32 cannot hold is infinite on a figure
        for curve, x in zip(curves.rows, curves.x, strict=True):
            described.append({**_describe(curve), "offset": offset})
            own = [x.astype(_FLOAT64, copy=False), curve.value.astype(_FLOAT32)]
            if described[-1]["bucketed"]:
                own += [curve.min.astype(_FLOAT32), curve.max.astype(_FLOAT32)]
            for array in own:
                arrays += [array.tobytes(), bytes(-array.nbytes % 8)]
                offset += array.nbytes + -array.nbytes % 8
    header = json.dumps(
        {"x": curves.axis, "curves": described, "missing": curves.missing}, separators=(",", ":")
    ).encode()
    header += b" " * (-(4 + len(header)) % 8)
    return b"".join([struct.pack("<I", len(header)), header, *arrays])


def _json(curves: Curves) -> bytes:
    """Encode as JSON, one curve at a time.

    A ``json.dumps`` holds the interpreter's lock, which the event loop needs, until it ends.
    """
    rows = ", ".join(json_curves(curves))
    return f'{{"x": "{curves.axis}", "curves": [{rows}], "missing": {json.dumps(curves.missing)}}}'.encode()


def json_curves(curves: Curves) -> Iterator[str]:
    """Each curve as JSON."""
    for curve, x in zip(curves.rows, curves.x, strict=True):
        description = _describe(curve)
        columns = {"x": x, "value": curve.value}
        if description["bucketed"]:
            columns |= {"min": curve.min, "max": curve.max}
        yield json.dumps(
            {**description, **{name: _numbers(column) for name, column in columns.items()}}, allow_nan=False
        )


def _arrow(curves: Curves) -> bytes:
    import pyarrow as pa

    table = table_of(curves.rows, raw=False, single=False)
    if curves.axis == "relative":
        table = table.append_column(
            "seconds", pa.array(np.concatenate([np.empty(0), *curves.x]), pa.float64())
        )
    table = table.replace_schema_metadata({b"halving.missing": json.dumps(curves.missing).encode()})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def _describe(curve: CurveRows) -> dict[str, Any]:
    points = int(curve.count.sum())
    return {
        "run": curve.run,
        "key": curve.key,
        "rows": len(curve.step),
        "points": points,
        "bucketed": points > len(curve.step),
    }


def _numbers(column: Any) -> Iterable[Any]:
    values = column.tolist()
    if np.isfinite(column).all():
        return values
    return [jsonable(value) for value in values]


def _places(axis: str, curve: CurveRows, starts: dict[str, float]) -> Any:
    """The places of a curve's rows on the axis."""
    if axis == "step":
        return curve.step.astype(np.float64)
    return curve.wall_time.astype(np.float64) / 1000 - starts.get(curve.run, 0.0)


def _window(question: Question, began: float) -> tuple[Any, Any]:
    """The window in the query's units: whole steps, or seconds since 1970."""
    if question.x == "step":
        return _map(math.ceil, _near(question.low)), _map(math.floor, _near(question.high))

    def seconds(ms: float) -> float:
        return ms / 1000 + began

    return _map(seconds, _near(question.low, 1000)), _map(seconds, _near(question.high, 1000))


def _near(end: float | None, scale: int = 1) -> float | None:
    """An end of a window times ``scale``, within what is exact as a float; None where it is open."""
    if end is None:
        return None
    return max(-_MAX_PLACE, min(end * scale, _MAX_PLACE))


def _map(function: Callable[[float], float], end: float | None) -> float | None:
    if end is None:
        return None
    return function(end)


@lru_cache(maxsize=20_000)  # a record never changes
def _began(store: Store, name: str) -> float:
    """When a run's first attempt began, seconds since 1970.

    Raises:
        NotFound: no such run.
    """
    project, _, run = name.partition("/")
    try:
        return seconds_of(read_json(store, f"runs/project={project}/{run}/record.json")["started"])
    except NotFound:
        raise NotFound(f"no run {run!r} in project {project!r} of {store.root}") from None
