"""Intervals of metrics at 95 %, by resampling the rows that they were measured on.

The percentile bootstrap (Efron & Tibshirani 1993, section 13.3), seeded: equal predictions give equal
intervals. Its time is bounded: where a split has more rows than a measure's ``max_rows``, resamples of that
many are drawn (m out of n) and the interval is narrowed by sqrt(m / n) around the value (Bickel, Götze & van
Zwet 1997, for estimators that converge with the root of the rows). A share of rows, such as accuracy or an
evaluator's scores of 0 and 1, has Wilson's interval (Wilson 1927; Brown, Cai & DasGupta 2001) instead: the
bootstrap has no width where every row is right, however few they are. Other metrics have no interval there.
Rows that come in clusters are resampled by them (:mod:`resources.evaluation.statistics.clusters`), shares
too. Of clusters that count for fewer than 20 of one size percentiles hold the value far less often than they
say (of two in half of all cases): there, and where no resample differs, a share has Wilson's interval of as
many rows, and other metrics have none.
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
    value = measured.on(rows) if len(rows) else math.nan
    if len(rows) < 2 or not math.isfinite(value):
        return Interval(value, math.nan, math.nan, len(rows))
    held = among(clusters, rows)
    independent = len(rows) if held is None else count_clusters(held)
    effective = len(rows) if held is None else effective_count(held)
    without_resamples = (math.nan, math.nan)
    is_share = getattr(measured, "is_share", False)
    if is_share:
        without_resamples = wilson(value, effective)
    if (is_share and held is None) or (held is not None and effective < MIN_ROWS):
        return Interval(value, *without_resamples, len(rows))
    share = min(1.0, measured.max_rows / len(rows))
    rng = np.random.default_rng(seed)
    size = max(2, round(share * independent))
    if held is None:
        estimates = measured.bootstrap(rows, rng, size)
    else:
        estimates = np.array([measured.on(rows[redraw(held, rng, size)]) for _ in range(measured.resamples)])
    if _all_equal(estimates):
        return Interval(value, *without_resamples, len(rows))
    return Interval(value, *percentile(estimates, value, narrowed=math.sqrt(size / independent)), len(rows))


def _all_equal(estimates: NDArray[np.float64]) -> bool:
    finite = estimates[np.isfinite(estimates)]
    return bool(len(finite)) and math.isclose(finite.min(), finite.max(), rel_tol=1e-12, abs_tol=1e-12)


def percentile(estimates: NDArray[np.float64], value: float, *, narrowed: float = 1.0) -> tuple[float, float]:
    """The percentile interval of bootstrap estimates without NaN; NaN twice if more than half are NaN."""
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
    return (0.0 if share == 0 else middle - half), (1.0 if share == 1 else middle + half)
