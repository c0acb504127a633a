"""Curves as few bytes: values in 14 bits of their range, places as second differences.

A curve's values are quantised evenly between its smallest and its largest, or, where they spread over more
than two decades, evenly in asinh, which is a logarithm on both sides of zero. What is then stored are
differences of neighbours, the high and the low bytes of all curves apart, because both compress better so.
Places on the axes (steps, and times in ms) are stored once for all curves that have the same; a run's metrics
that are logged together do.

``server/static/shared/payload.js`` reads it.
"""

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from halving.query.curve_table import CurveRows

LEVELS = 1 << 14
"""The code of a curve's largest value; its smallest has 0. A chart has some hundred pixels for them."""
NAN = 65535
POSITIVE_INFINITY = 65534
NEGATIVE_INFINITY = 65533
_WIDE = 256.0  # the largest over a small value of a curve: beyond that it is stored in asinh
_SMALL = 0.05  # the share of values below the small one
_NARROWEST = 1e-15  # of the largest value: what is smaller is drawn as zero
_EXACT = 2**50  # what the page's numbers hold exactly, with room for differences


@dataclass
class PackedCurves:
    """Curves that are being packed.

    Attributes:
        described: for each curve ``run`` and ``key`` (numbers), ``rows``, ``points``, ``bucketed``, ``x``
            (the number of its places), ``low``, ``high``, ``bend`` (null: even).
        places: for each of the different places ``rows``, and ``scale`` that the steps are multiplied by.
    """

    described: list[dict[str, Any]] = field(default_factory=list)
    places: list[dict[str, Any]] = field(default_factory=list)
    _numbers: dict[bytes, int] = field(default_factory=dict)
    _varints: list[bytes] = field(default_factory=list)
    _codes: dict[str, list[Any]] = field(default_factory=lambda: {"value": [], "min": [], "max": []})

    def add(self, run: int, key: int, curve: CurveRows) -> None:
        """Add a curve of a run and a metric, both by their numbers on the page."""
        points = int(curve.count.sum())
        rows = len(curve.step)
        bucketed = points > rows
        columns = [np.asarray(curve.value, np.float64)]
        if bucketed:
            columns += [np.asarray(curve.min, np.float64), np.asarray(curve.max, np.float64)]
        scale = scale_of(np.concatenate(columns))
        codes = [scale.quantise(column) for column in columns]
        self._codes["value"].append(np.diff(codes[0], prepend=0))
        if bucketed:
            self._codes["min"].append(codes[0] - codes[1])
            self._codes["max"].append(codes[2] - codes[0])
        self.described.append(
            {
                "run": run,
                "key": key,
                "rows": rows,
                "points": points,
                "bucketed": bucketed,
                "x": self._place(curve.step, curve.wall_time),
                "low": scale.low,
                "high": scale.high,
                "bend": scale.bend,
            }
        )

    def encode(self) -> list[bytes]:
        """The arrays: places, then high and low bytes of values, minima and maxima."""
        arrays = [b"".join(self._varints)]
        for name in ("value", "min", "max"):
            columns = self._codes[name] or [np.empty(0, np.int64)]
            differences = np.concatenate(columns).astype(np.int16)  # modulo 2 ** 16
            folded = _zigzag(differences, 15).astype(np.uint16)
            arrays += [(folded >> 8).astype(np.uint8).tobytes(), (folded & 255).astype(np.uint8).tobytes()]
        return arrays

    def _place(self, steps: Any, times: Any) -> int:
        steps = np.asarray(steps, np.int64)
        times = np.clip(np.asarray(times, np.int64), -_EXACT, _EXACT)
        key = steps.tobytes() + times.tobytes()
        if key not in self._numbers:
            self._numbers[key] = len(self.places)
            shift = 0
            if len(steps):
                largest = max(abs(int(steps[0])), abs(int(steps[-1])))
                shift = max(0, largest.bit_length() - 50)
            self.places.append({"rows": len(steps), "scale": 2**shift})
            self._varints += [_varints(steps >> shift), _varints(times)]
        return self._numbers[key]


@dataclass(frozen=True)
class Scale:
    """How a curve's values become codes.

    Attributes:
        low, high: what code 0 and the greatest code stand for; in asinh where ``bend`` is not None.
        bend: below it asinh is even.
    """

    low: float
    high: float
    bend: float | None

    def quantise(self, values: Any) -> Any:
        """The codes of values, int64."""
        codes = np.full(len(values), NAN, np.int64)
        codes[values == np.inf] = POSITIVE_INFINITY
        codes[values == -np.inf] = NEGATIVE_INFINITY
        finite = np.isfinite(values)
        numbers = values[finite]
        if self.bend is not None:
            numbers = np.arcsinh(numbers / self.bend)
        width = self.high - self.low or 1.0
        codes[finite] = np.rint((numbers - self.low) / width * LEVELS).astype(np.int64)
        return codes


def scale_of(values: Any) -> Scale:
    """The scale that fits values; what is not finite does not count."""
    finite = values[np.isfinite(values)]
    if not len(finite):
        return Scale(0.0, 0.0, None)
    low = float(finite.min())
    high = float(finite.max())
    sizes = np.abs(finite[finite != 0])
    if not len(sizes):
        return Scale(0.0, 0.0, None)
    largest = max(abs(low), abs(high))
    small = max(float(np.quantile(sizes, _SMALL)), largest * _NARROWEST, float(np.finfo(np.float64).tiny))
    if largest / small <= _WIDE and math.isfinite(high - low):
        return Scale(low, high, None)
    return Scale(math.asinh(low / small), math.asinh(high / small), small)


def frame(header: bytes, arrays: Sequence[bytes]) -> bytes:
    """A header and arrays, each behind its length as uint32, little endian."""
    return b"".join(struct.pack("<I", len(part)) + part for part in (header, *arrays))


def _varints(numbers: Any) -> bytes:
    """Second differences of whole numbers, zigzag, in groups of 7 bits, the lowest first."""
    second = np.diff(np.diff(numbers, prepend=0), prepend=0)
    left = _zigzag(second, 63).astype(np.uint64)
    columns = []
    kept = []
    going = np.ones(len(left), bool)
    while going.any():
        low = (left & np.uint64(127)).astype(np.uint8)
        left = left >> np.uint64(7)
        columns.append(np.where(left > 0, low | 128, low).astype(np.uint8))
        kept.append(going)
        going = left > 0
    if not columns:
        return b""
    groups = np.stack(columns, axis=1)
    return bytes(groups[np.stack(kept, axis=1)].tobytes())


def _zigzag(numbers: Any, bits: int) -> Any:
    return (numbers << 1) ^ (numbers >> bits)
