"""Intervals of metrics at 95 %, by resampling the rows that they were measured on.

This is the percentile bootstrap (Efron & Tibshirani 1993, section 13.3), with a fixed seed, so that equal
predictions have equal intervals.

- Its time is bounded. If there are more rows than a measure's ``max_rows``, resamples of that many are drawn
  (m out of n), and the interval is narrowed by sqrt(m / n) around the value (Bickel, Götze & van Zwet 1997,
  for estimators that converge with the root of the rows).
- A share of rows, such as accuracy or an evaluator's scores of 0 and 1, has Wilson's interval instead (Wilson
  1927; Brown, Cai & DasGupta 2001), because the bootstrap's interval has no width if every row is right,
  however few they are. Other metrics have no interval then.
- Rows that come in clusters are resampled by whole clusters, for shares as well
  (:mod:`resources.evaluation.statistics.clusters`). If the clusters tell less than 20 of one size would, the
  percentiles hold the value far less often than they claim (with two clusters in half of all cases). Then,
  and if no resample differs, a share has Wilson's interval of so many rows, and other metrics have none.
"""

import math
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from resources.evaluation.statistics.clusters import Clusters, among, count_clusters, effective_count, redraw
from resources.evaluation.statistics.too_few import MIN_ROWS

CONFIDENCE = 0.95
SEED = 17
_Z = 1.959963984540054  # of the normal distribution at 0.975


class Resampled(Protocol):
    """A metric that has a value on any of its rows."""

    @property
    def rows(self) -> int:
        """The number of rows that it was prepared for."""

    @property
    def max_rows(self) -> int:
        """The greatest number of rows in a resample."""

    @property
    def resamples(self) -> int:
        """The number of resamples that it makes."""

    def on(self, rows: NDArray[np.int64]) -> float:
        """Its value on these rows."""

    def bootstrap(self, rows: NDArray[np.int64], rng: np.random.Generator, size: int) -> NDArray[np.float64]:
        """Its values on resamples, each of ``size`` of these rows drawn with replacement."""


@dataclass(frozen=True)
class Interval:
    """A metric's value on some rows with its interval; ``low`` and ``high`` are NaN if it has none."""

    value: float
    low: float
    high: float
    rows: int
    confidence: float = CONFIDENCE

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def interval_of(
    measured: Resampled,
    rows: NDArray[np.int64] | None = None,
    clusters: Clusters | None = None,
    *,
    seed: int = SEED,
) -> Interval:
    """A metric on some rows (default: all) with its interval.

    It has no interval if all resamples are equal, as with perfect predictions.

    Args:
        clusters: of all rows, if some belong together.
    """
    if rows is None:
        rows = np.arange(measured.rows)
    value = math.nan
    if len(rows):
        value = measured.on(rows)
    if len(rows) < 2 or not math.isfinite(value):
        return Interval(value, math.nan, math.nan, len(rows))
    row_clusters = among(clusters, rows)
    independent = len(rows)
    effective = len(rows)
    if row_clusters is not None:
        independent = count_clusters(row_clusters)
        effective = effective_count(row_clusters)
    without_resamples = (math.nan, math.nan)
    is_share = getattr(measured, "is_share", False)
    if is_share:
        without_resamples = wilson(value, effective)
    too_few_clusters = row_clusters is not None and effective < MIN_ROWS
    if too_few_clusters or (is_share and row_clusters is None):
        return Interval(value, *without_resamples, len(rows))
    share = min(1.0, measured.max_rows / len(rows))
    rng = np.random.default_rng(seed)
    size = max(2, round(share * independent))
    if row_clusters is None:
        estimates = measured.bootstrap(rows, rng, size)
    else:
        estimates = np.array(
            [measured.on(rows[redraw(row_clusters, rng, size)]) for _ in range(measured.resamples)]
        )
    if _all_equal(estimates):
        return Interval(value, *without_resamples, len(rows))
    return Interval(value, *percentile(estimates, value, narrowed=math.sqrt(size / independent)), len(rows))


def _all_equal(estimates: NDArray[np.float64]) -> bool:
    finite = estimates[np.isfinite(estimates)]
    return bool(len(finite)) and math.isclose(finite.min(), finite.max(), rel_tol=1e-12, abs_tol=1e-12)


def percentile(estimates: NDArray[np.float64], value: float, *, narrowed: float = 1.0) -> tuple[float, float]:
    """The percentile interval of the finite bootstrap estimates; (NaN, NaN) if fewer than half are finite."""
    finite = estimates[np.isfinite(estimates)]
    if 2 * len(finite) < len(estimates) or not len(finite):
        return math.nan, math.nan
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(finite, [tail, 1 - tail])
    if narrowed < 1:
        low, high = (value + narrowed * (end - value) for end in (low, high))
    return float(low), float(high)


def wilson(share: float, rows: int) -> tuple[float, float]:
    """Wilson's score interval of a share of rows (1927, equation 4 of Brown, Cai & DasGupta 2001)."""
    middle = (share + _Z**2 / (2 * rows)) / (1 + _Z**2 / rows)
    half = _Z / (1 + _Z**2 / rows) * math.sqrt(share * (1 - share) / rows + _Z**2 / (4 * rows**2))
    low = middle - half
    high = middle + half
    if share == 0:
        low = 0.0
    if share == 1:
        high = 1.0
    return low, high
