"""Batches of points over HTTP, as Arrow IPC or JSON: checked and turned into columns."""

import json
import math
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from halving.errors import InvalidInput
from halving.ingest.values import KEY_RULE, is_key
from halving.metrics.numpy_arrow import codes_of, numbers_in
from halving.metrics.segments import DRAINED
from server.ingest.arrow_messages import check_uncompressed

ARROW = "application/vnd.apache.arrow.stream"
JSON = "application/json"
MAX_BYTES = 32 << 20
"""Of a batch, as it comes and decompressed."""
MAX_POINTS = 1_000_000
MAX_JSON = 8 << 20
MAX_JSON_POINTS = 200_000
"""Of a batch as JSON, which as Python's objects takes many times as much: bytes when decompressed, and
points.
"""

# One at a time: parsing JSON holds the interpreter's lock, and each batch's objects take memory.
_one_json = threading.Lock()

_FIELDS = ("key", "step", "value", "wall_time")
_YEAR_10000 = 253_402_300_800_000  # ms since 1970; what reads times as dates goes no further
_MAX_DRAINED = 10_000  # bytes
_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


class Columns(NamedTuple):
    """Points sorted by key, and within a key as they came.

    Attributes:
        keys: the distinct keys, sorted.
        codes: int32, (n,): each point's place in ``keys``.
        steps: int64, (n,).  times: ms since 1970, int64, (n,).  values: float64, (n,).
        drained: how far the client's journal is in the store with this batch, as it says.
    """

    keys: list[str]
    codes: Any
    steps: Any
    times: Any
    values: Any
    drained: dict[str, list[int]]


def columns_of(body: bytes, media_type: str) -> Columns:
    """Read the points of a batch.

    Raises:
        InvalidInput: it is none that is accepted; the message names the column or the point, and what is.
    """
    name = media_type.partition(";")[0].strip().lower()
    readers: dict[str, Callable[[bytes], Columns]] = {ARROW: _from_arrow, JSON: _from_json}
    if name not in readers:
        raise InvalidInput(f"Content-Type {media_type!r} is not accepted: give {ARROW} or {JSON}")
    return readers[name](body)


def decompress(body: bytes, encoding: str) -> bytes:
    """Decompress a body according to its ``Content-Encoding``.

    Raises:
        InvalidInput: the encoding is not known, or not that of these bytes, or they are more than
            :data:`MAX_BYTES` without it.
    """
    if encoding in ("", "identity"):
        return body
    if encoding not in ("zstd", "gzip"):
        raise InvalidInput(f"Content-Encoding {encoding!r} is not accepted: give zstd, gzip or none")
    parts = []
    size = 0
    try:
        with pa.CompressedInputStream(pa.BufferReader(body), encoding) as stream:
            while part := stream.read(1 << 20):
                parts.append(part)
                size += len(part)
                if size > MAX_BYTES:  # before more of it is in memory
                    raise InvalidInput(
                        f"the batch has more than {MAX_BYTES} bytes when it is decompressed: give fewer "
                        "points"
                    )
    except OSError as error:
        raise InvalidInput(f"the body is not {encoding}, as Content-Encoding says: {error}") from None
    return b"".join(parts)


def _from_arrow(body: bytes) -> Columns:
    try:
        check_uncompressed(body)
        table = pa.ipc.open_stream(body).read_all()
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput(f"the body is not an Arrow IPC stream: {error}") from None
    unknown = [name for name in table.column_names if name not in _FIELDS]
    if unknown or len(set(table.column_names)) != table.num_columns:
        raise InvalidInput(
            f"column {(unknown or table.column_names)[0]!r} is not accepted: give each of "
            f"{', '.join(_FIELDS)} once"
        )
    _check_count(table.num_rows)
    drained = _read_drained(table.schema.metadata)
    columns = {
        name: _column(table, name) for name in _FIELDS if name in table.column_names or name != "wall_time"
    }
    codes, keys = codes_of(columns["key"])
    if "wall_time" in columns:
        times = numbers_in(columns["wall_time"])
    else:
        times = np.full(table.num_rows, _now(), np.int64)
    return _sort(keys, codes, numbers_in(columns["step"]), times, numbers_in(columns["value"]), drained)


def _column(table: pa.Table, name: str) -> pa.Array:
    """A column, cast to the type in which it is stored.

    Raises:
        InvalidInput: it is missing, has nulls, or is of another kind.
    """
    texts = pa.dictionary(pa.int32(), pa.string())
    wanted = {"key": texts, "step": pa.int64(), "value": pa.float64(), "wall_time": pa.int64()}[name]
    if name not in table.column_names:
        raise InvalidInput(f"column {name!r} is missing: give {', '.join(_FIELDS)}")
    column = table[name]
    if column.null_count:
        raise InvalidInput(
            f"column {name!r} has nulls, which are not accepted: leave out points without a {name}"
        )
    kind = column.type
    if pa.types.is_dictionary(kind) and name == "key":
        if column.num_chunks:
            column = column.unify_dictionaries().combine_chunks()
        kind = kind.value_type
    accepted = {
        "key": pa.types.is_string(kind) or pa.types.is_large_string(kind),
        "step": pa.types.is_integer(kind),
        "value": pa.types.is_floating(kind) or pa.types.is_integer(kind),
        "wall_time": pa.types.is_timestamp(kind) or kind == pa.int64(),
    }[name]
    if not accepted:
        raise InvalidInput(
            f"column {name!r} of type {column.type} is not accepted: give {_accepted_types(name)}"
        )
    try:
        if pa.types.is_timestamp(kind):
            column = column.cast(pa.timestamp("ms", kind.tz), safe=False)
        whole = column
        if isinstance(column, pa.ChunkedArray):
            whole = column.combine_chunks()
        if name == "key" and not pa.types.is_dictionary(whole.type):
            whole = whole.dictionary_encode()
        if whole.type != wanted:
            return whole.cast(wanted, safe=name != "value")
        return whole
    except pa.ArrowException as error:
        raise InvalidInput(
            f"column {name!r} is not accepted: give {_accepted_types(name)} ({error})"
        ) from None


def _accepted_types(name: str) -> str:
    return {
        "key": "strings",
        "step": "integers of at most 63 bits",
        "value": "numbers",
        "wall_time": "int64 ms since 1970, or timestamps",
    }[name]


def _from_json(body: bytes) -> Columns:
    if len(body) > MAX_JSON or body.count(b"{") + body.count(b"[") > MAX_JSON_POINTS + 2:
        raise InvalidInput(
            f"a batch as JSON has at most {MAX_JSON >> 20} MiB and {MAX_JSON_POINTS} points: give fewer, "
            "or Arrow"
        )
    with _one_json:
        return _from_small_json(body)


def _from_small_json(body: bytes) -> Columns:
    try:
        content = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"the body is not JSON: {error}") from None
    if not isinstance(content, dict) or set(content) != {"points"} or not isinstance(content["points"], list):
        raise InvalidInput(
            'the body is not accepted: give {"points": [{"key": "loss", "step": 0, "value": 0.5}, …]}'
        )
    points = content["points"]
    _check_count(len(points))
    now = _now()
    rows = [_row(number, point, now) for number, point in enumerate(points)]
    keys = sorted({row[0] for row in rows})
    places = {key: place for place, key in enumerate(keys)}
    return _sort(
        keys,
        np.array([places[row[0]] for row in rows], np.int32),
        np.array([row[1] for row in rows], np.int64),
        np.array([row[3] for row in rows], np.int64),
        np.array([row[2] for row in rows], np.float64),
        {},
    )


def _row(number: int, point: Any, now: int) -> tuple[str, int, float, int]:
    """A point as key, step, value, time."""
    where = f"points[{number}]"
    if not isinstance(point, dict):
        raise InvalidInput(f"{where} is not accepted: give an object with {', '.join(_FIELDS)}")
    if unknown := sorted(set(point) - set(_FIELDS)):
        raise InvalidInput(f"{where}.{unknown[0]:.60} is not accepted: a point has {', '.join(_FIELDS)}")
    if missing := [name for name in _FIELDS[:3] if name not in point]:
        raise InvalidInput(
            f"{where}.{missing[0]} is missing: a point has {', '.join(_FIELDS[:3])}, and maybe wall_time"
        )
    key = point["key"]
    step = point["step"]
    value = point["value"]
    wall_time = point.get("wall_time", now)
    if not isinstance(key, str):
        raise InvalidInput(f"{where}.key is not accepted: give a string")
    if isinstance(step, bool) or not isinstance(step, int) or not -(2**63) <= step < 2**63:
        raise InvalidInput(f"{where}.step = {step!r:.60} is not accepted: give an integer of at most 63 bits")
    if isinstance(value, str):
        value = _NOT_FINITE.get(value, value)
    if not isinstance(value, (int, float)) or (isinstance(value, int) and abs(value) > 2**1023):
        raise InvalidInput(
            f'{where}.value = {value!r:.60} is not accepted: give a number, or "NaN", "Infinity" or '
            '"-Infinity"'
        )
    if isinstance(wall_time, bool) or not isinstance(wall_time, int) or not 0 <= wall_time < _YEAR_10000:
        raise InvalidInput(
            f"{where}.wall_time = {wall_time!r:.60} is not accepted: give ms since 1970, an integer"
        )
    return key, step, float(value), wall_time


def _sort(
    keys: list[str], codes: Any, steps: Any, times: Any, values: Any, drained: dict[str, list[int]]
) -> Columns:
    """Check the keys, and sort the points by them."""
    for key in keys:
        if not is_key(key):
            raise InvalidInput(f"key {key!r:.80} is not accepted: {KEY_RULE}")
    if len(times) and not (times.min() >= 0 and times.max() < _YEAR_10000):
        raise InvalidInput("column 'wall_time' is not accepted: give ms since 1970, before the year 10000")
    order = sorted(set(keys))
    places = {key: place for place, key in enumerate(order)}
    codes = np.array([places[key] for key in keys], np.int32)[codes]
    if (codes[1:] < codes[:-1]).any():
        chosen = np.argsort(codes, kind="stable")
        codes, steps, times, values = (column[chosen] for column in (codes, steps, times, values))
    return Columns(order, codes, steps, times, values, drained)


def _check_count(count: int) -> None:
    if not 1 <= count <= MAX_POINTS:
        raise InvalidInput(f"the batch has {count} points, which is not accepted: give 1 to {MAX_POINTS}")


def _read_drained(metadata: dict[bytes, bytes] | None) -> dict[str, list[int]]:
    """How far the client's journal is in the store with this batch; empty where the client does not say."""
    text = (metadata or {}).get(DRAINED, b"{}")
    try:
        positions = None
        if len(text) <= _MAX_DRAINED:
            positions = json.loads(text)
    except ValueError:
        positions = None
    if not isinstance(positions, dict) or not all(_is_position(position) for position in positions.values()):
        raise InvalidInput(
            f"the schema's metadata {DRAINED.decode()} is not accepted: give a JSON object of names to "
            "[number, offset]"
        )
    return positions


def _is_position(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) == 2
        and all(type(part) is int and 0 <= part < 2**63 for part in value)
    )


def _now() -> int:
    return int(time.time() * 1000)
