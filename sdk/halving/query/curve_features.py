"""What stands out in a curve: spikes, plateaus, trends and gaps, computed on arrays of a million points.

Nothing here reads a file or knows a name of a metric.
"""

from typing import Any, Literal, NamedTuple

import numpy as np

Trend = Literal["falling", "rising", "flat"]
_Array = np.ndarray[Any, Any]

BLOCK = 64
"""Points of a block. A point is compared with its own block and the two beside it."""
SIDE = 16
"""Points on each side of a point among which a spike must stand out."""
MIN_SIDE = 4
"""With fewer points on a side nothing is called a spike: the curve has only begun, or ends."""
SPIKE_SCORE = 8.0
"""Scaled deviations by which a spike stands out; of 10 million normal values none does by chance."""
MAX_CANDIDATES = 50_000
"""Points that are looked at closely, those with the highest scores."""
BUCKETS = 200
"""Parts of a curve, of equally many points, whose means say where it became flat."""

_MAD_TO_DEVIATION = 1.4826  # of normal values
_MEAN_TO_DEVIATION = 1.2533
_FLAT_SHARE = 0.02  # of the curve's whole range
_MIN_FLAT_SHARE = 0.1  # of the curve's points
_MIN_FLAT_POINTS = 4  # The last point alone is always flat, and three are too few beside a range.
_SIGNIFICANT = 3.0  # standard errors of a slope
_GAP_FACTOR = 10
_MIN_TIME_GAP = 60_000  # ms


class Spike(NamedTuple):
    """Points that stand out together from what is before and after them, at the largest of them.

    Attributes:
        step: of the largest.
        value: at that step.
        usual: the level of the points around it.
        score: by how many robust deviations it stands out from them.
    """

    step: int
    value: float
    usual: float
    score: float


class Slope(NamedTuple):
    """A straight line through the last tenth of a curve, by least squares.

    Attributes:
        per_step: change of the value with a step.
        relative: the same as a share of the median there; None where that is 0.
        trend: ``flat`` unless the slope is beyond three standard errors.
    """

    per_step: float
    relative: float | None
    trend: Trend


class Gap(NamedTuple):
    """Where points are missing: from the last one before to the first one after.

    Attributes:
        after, before: steps.
        length: in steps, or in ms of time.
    """

    after: int
    before: int
    length: int


def find_spikes(steps: _Array, values: _Array) -> list[Spike]:
    """Find spikes, the largest score first.

    A point is one if it is beyond the level around it by ``SPIKE_SCORE`` scaled median absolute deviations
    (:func:`_levels`), and beyond the medians of the up to ``SIDE`` points before it and after it by
    half of that, on the same side. So neither a steep beginning nor a jump to another level is a spike.
    Where more than half of the values are equal, the mean absolute deviation takes the median's place
    (Iglewicz & Hoaglin 1993, How to Detect and Handle Outliers, section 3.3). Spikes with fewer than ``SIDE``
    points between them are one.

    Args:
        steps, values: int64 and finite float64 arrays of shape (n,), sorted by step.
    """
    if len(values) < 2 * MIN_SIDE + 1:
        return []
    medians, scales = _levels(values)
    block = np.minimum(np.arange(len(values)) // BLOCK, len(medians) - 1)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        scores = np.abs(values - medians[block]) / scales[block]
    places = np.flatnonzero(scores > SPIKE_SCORE)
    if len(places) > MAX_CANDIDATES:
        highest = np.argpartition(scores[places], -MAX_CANDIDATES)[-MAX_CANDIDATES:]
        places = np.sort(places[highest])
    places = places[_stands_out(values, places, scales[block[places]])]
    if not len(places):
        return []
    firsts = np.flatnonzero(np.append(True, np.diff(places) > SIDE))
    spikes = []
    for group in np.split(places, firsts[1:]):
        top = group[np.argmax(scores[group])]
        usual = float(medians[block[top]])
        spikes.append(Spike(int(steps[top]), float(values[top]), usual, float(scores[top])))
    return sorted(spikes, key=lambda spike: (-spike.score, spike.step))


def fit_last_tenth(steps: _Array, values: _Array) -> Slope | None:
    """Fit a line through the last tenth of the points, at least three; None where there are fewer.

    Args:
        steps, values: int64 and finite float64 arrays of shape (n,), sorted by step.
    """
    count = max(3, len(values) // 10)
    if len(values) < 3:
        return None
    x = steps[-count:].astype(np.float64)
    x -= x.mean()
    last = values[-count:]
    # Values near the largest floats overflow when they are squared, so they are made small first.
    size = float(np.abs(last).max()) or 1.0
    y = last / size
    level = float(y.mean())
    squares = float(x @ x)
    slope = float(x @ (y - level)) / squares
    left = y - level - slope * x
    error = float(np.sqrt(left @ left / (count - 2) / squares))
    trend: Trend = "flat"
    if abs(slope) > _SIGNIFICANT * error and abs(slope) * (x[-1] - x[0]) > 1e-9:
        trend = "falling"
        if slope > 0:
            trend = "rising"
    median = abs(float(np.median(y)))
    relative = None
    if median > 0:
        relative = slope / median
    return Slope(slope * size, relative, trend)


def find_plateau(steps: _Array, values: _Array) -> int | None:
    """Find the step since which a curve has been flat to its end; None if it is not.

    The curve is cut into at most ``BUCKETS`` parts. It is flat from the first of them on whose mean, like all
    later ones, is within 2 % of the whole range of means (or within three deviations of the noise in them).
    What is flat in less than a tenth of its points, or in less than four, is not called so.

    Args:
        steps, values: int64 and finite float64 arrays of shape (n,), sorted by step.
    """
    if len(values) < 10:
        return None
    edges = np.unique(np.linspace(0, len(values), min(BUCKETS, len(values)) + 1).astype(np.int64))[:-1]
    counts = np.diff(np.append(edges, len(values)))
    size = float(np.abs(values).max()) or 1.0
    means = np.add.reduceat(values / size, edges) / counts
    whole = float(means.max() - means.min())
    # A straight line has no second differences, so a steady fall is not taken for noise.
    noise = _MAD_TO_DEVIATION * float(np.median(np.abs(np.diff(means, 2)))) / np.sqrt(6)
    allowed = max(_FLAT_SHARE * whole, 3 * noise)
    high = np.maximum.accumulate(means[::-1])[::-1]
    low = np.minimum.accumulate(means[::-1])[::-1]
    place = int(edges[int(np.argmax(high - low <= allowed))])
    if len(values) - place < max(_MIN_FLAT_SHARE * len(values), _MIN_FLAT_POINTS):
        return None
    return int(steps[place])


def find_step_gaps(steps: _Array) -> list[Gap]:
    """Find where more than ten times the usual distance lies between steps, the largest gap first."""
    return _gaps(steps, steps, 0)


def find_time_gaps(steps: _Array, times: _Array) -> list[Gap]:
    """Find where more than a minute, and ten times the usual pause, lies between points, the longest first.

    Args:
        times: int64 array of shape (n,), ms since 1970.
    """
    return _gaps(steps, times, _MIN_TIME_GAP)


def _gaps(steps: _Array, axis: _Array, shortest: int) -> list[Gap]:
    lengths = np.diff(axis)
    if len(lengths) < 2 or lengths.max() <= max(shortest, _GAP_FACTOR * lengths.min()):
        return []  # The median is not less than the smallest, and takes longer.
    allowed = max(shortest, _GAP_FACTOR * float(np.median(lengths)))
    places = np.flatnonzero(lengths > allowed)
    gaps = [Gap(int(steps[place]), int(steps[place + 1]), int(lengths[place])) for place in places]
    return sorted(gaps, key=lambda gap: (-gap.length, gap.after))


def _levels(values: _Array) -> tuple[_Array, _Array]:
    """The level and the scaled deviation around each block.

    They are the median of its own median and those of the two blocks beside it, and the largest of their
    deviations. The last block has what is left over, up to twice as much.
    """
    blocks = max(len(values) // BLOCK, 1)
    medians = np.empty(blocks)
    scales = np.empty(blocks)
    whole = (blocks - 1) * BLOCK
    medians[:-1], scales[:-1] = _level(values[:whole].reshape(blocks - 1, BLOCK))
    medians[-1:], scales[-1:] = _level(values[whole:][None, :])
    around = np.stack([_beside(medians, 1), medians, _beside(medians, -1)])
    widest = np.maximum(scales, np.maximum(_beside(scales, 1), _beside(scales, -1)))
    return np.median(around, axis=0), widest


def _beside(column: _Array, shift: int) -> _Array:
    """Each block's neighbour in a column; at the ends the block itself."""
    places = np.clip(np.arange(len(column)) + shift, 0, len(column) - 1)
    return column[places]


def _level(windows: _Array) -> tuple[_Array, _Array]:
    """The median of each row, and its scaled median (else mean) absolute deviation, never 0."""
    medians = np.median(windows, axis=1)
    with np.errstate(over="ignore"):
        distances = np.abs(windows - medians[:, None])
        scales = _MAD_TO_DEVIATION * np.median(distances, axis=1)
        means = _MEAN_TO_DEVIATION * distances.mean(axis=1)
    scales = np.where(scales > 0, scales, means)
    # What differs by rounding alone is equal.
    return medians, np.maximum(scales, np.abs(medians) * 1e-12 + np.finfo(np.float64).tiny)


def _stands_out(values: _Array, places: _Array, scales: _Array) -> _Array:
    """Which of the places are beyond what is before and after them, on the same side."""
    offsets = np.arange(1, SIDE + 1)
    befores = _side_medians(values, places[:, None] - offsets)
    afters = _side_medians(values, places[:, None] + offsets)
    margins = SPIKE_SCORE / 2 * scales
    own = values[places]
    with np.errstate(invalid="ignore"):
        above = own > np.maximum(befores, afters) + margins
        below = own < np.minimum(befores, afters) - margins
    return above | below


def _side_medians(values: _Array, places: _Array) -> _Array:
    """The median over each row of places; NaN, which is beyond nothing, for too few within the curve."""
    inside = (places >= 0) & (places < len(values))
    rows = np.where(inside, values[np.clip(places, 0, len(values) - 1)], np.inf)
    rows.sort(axis=1)
    counts = inside.sum(axis=1)
    row = np.arange(len(rows))
    low = rows[row, np.maximum(counts - 1, 0) // 2]
    high = rows[row, counts // 2]
    medians: _Array = low / 2 + high / 2
    medians[counts < MIN_SIDE] = np.nan
    return medians
