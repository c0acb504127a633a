"""The bias-corrected and accelerated bootstrap (BCa) of a statistic of rows.

Efron, "Better bootstrap confidence intervals", JASA 82 (1987), equation 2.3. The inverse of that equation
gives a p-value for any threshold. Two things differ from ``scipy.stats.bootstrap``, against which it is
tested:

- The acceleration comes from a jackknife over groups of rows, because the time of one over single rows grows
  with the square of their number.
- Intervals are widened to Student's t (Hesterberg, "What teachers should know about the bootstrap", The
  American Statistician 69 (2015), section 3.3), because percentiles are too narrow by sqrt((n - 1) / n).

Rows that come in clusters are resampled, left out and counted by whole clusters
(:mod:`resources.evaluation.statistics.clusters`).
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import scipy  # its parts are imported when they are first used: they take a second
from numpy.typing import NDArray

from resources.evaluation.statistics.clusters import Clusters, count_clusters, effective_count, totals
from resources.evaluation.statistics.evidence import ALPHA
from resources.evaluation.statistics.too_few import MIN_ROWS

Rows = NDArray[np.intp]
Floats = NDArray[np.float64]

RESAMPLES_OF_MEANS = 4_999
RESAMPLES = 1_999
_ROWS_A_KIND = 4  # With more rows than this for each distinct value, values are drawn instead of rows.
_GROUPS = 200  # of the jackknife
_MAX_ROWS = 20_000  # For more, a normal distribution is exact enough, and resampling takes many seconds.
_AT_ONCE = 1 << 17  # Numbers drawn at a time, few enough to stay in the processor's cache.


@dataclass(frozen=True)
class Bootstrapped:
    """A statistic and its values on resamples, as :class:`resources.evaluation.statistics.evidence.Evidence`.

    Attributes:
        standard_error: NaN if nothing can be concluded, because a value is not finite or because the
            statistic has no value on most resamples.
        replicates: the statistic of each resample, ascending. Shape (resamples,). Empty if ``n`` is large;
            then the statistic is taken as normally distributed.
        acceleration: Efron's a, a sixth of the skewness of the jackknife.
        clusters: the number of clusters, if rows were resampled by clusters; None if row by row.
        effective: the number of clusters of one size that would tell as much; Student's t is of so many.
        telling: the number of rows (or clusters) that differ from all others, if they are few. The skewness
            is estimated badly from few, which misleads BCa. So nothing is claimed then that Student's t of
            so many does not show as well.
    """

    estimate: float
    standard_error: float
    n: int
    replicates: Floats = field(repr=False)
    acceleration: float
    step: float = 0.0
    clusters: int | None = None
    effective: int | None = None
    telling: int | None = None

    def p_above(self, threshold: float) -> float:
        return self._p(threshold)[0]

    def p_below(self, threshold: float) -> float:
        return self._p(threshold)[1]

    def interval(self, alpha: float = ALPHA) -> tuple[float, float]:
        if not self._says_something:
            return -np.inf, np.inf
        if not len(self.replicates):
            return self._by_t(alpha, self._units_of_t)
        units = self._units
        z = float(scipy.stats.t.isf(alpha, units - 1)) * np.sqrt(units / (units - 1))
        low = self._quantile(-z)
        high = self._quantile(z)
        if self.telling is None:
            return low, high
        widest = self._by_t(alpha, self.telling)
        return min(low, widest[0]), max(high, widest[1])

    def _by_t(self, alpha: float, units: int) -> tuple[float, float]:
        half = float(scipy.stats.t.isf(alpha, units - 1)) * self.standard_error
        return self.estimate - half, self.estimate + half

    @property
    def min_rows(self) -> int:
        """The number of rows below which nothing is concluded; with clusters, if they stay as large."""
        if not self._units:
            return MIN_ROWS
        return -(-self.n * MIN_ROWS // self._units)

    @property
    def _units(self) -> int:
        """The number of independent units."""
        return self.n if self.effective is None else self.effective

    @property
    def _units_of_t(self) -> int:
        """The number of units by which Student's t is chosen: those that tell, if they are few."""
        return self._units if self.telling is None else self.telling

    @property
    def _says_something(self) -> bool:
        return self._units >= MIN_ROWS and bool(
            np.isfinite(self.estimate) and np.isfinite(self.standard_error)
        )

    @property
    def _bias(self) -> float:
        """Efron's z0, from the share of resamples below the estimate; equal ones count half."""
        below = np.searchsorted(self.replicates, self.estimate, "left")
        up_to = np.searchsorted(self.replicates, self.estimate, "right")
        return float(scipy.special.ndtri(_inside((below + up_to) / 2, len(self.replicates))))

    def _quantile(self, z: float) -> float:
        bias = self._bias
        place = scipy.special.ndtr(bias + (bias + z) / (1 - self.acceleration * (bias + z)))
        return float(np.quantile(self.replicates, place))

    def _p(self, threshold: float) -> tuple[float, float]:
        """The p-values of being above and below: the levels at which the interval ends at the threshold."""
        if not self._says_something:
            return 1.0, 1.0
        if not len(self.replicates):
            return self._p_by_t(threshold, self._units_of_t)
        units = self._units
        below, up_to = (int(np.searchsorted(self.replicates, threshold, side)) for side in ("left", "right"))
        bias = self._bias
        w = float(scipy.special.ndtri(_inside((below + up_to) / 2, len(self.replicates)))) - bias
        z = (w / max(1 + self.acceleration * w, 0.01) - bias) * np.sqrt((units - 1) / units)
        above = float(scipy.stats.t.cdf(z, units - 1))
        under = float(scipy.stats.t.sf(z, units - 1))
        if self.telling is None:
            return above, under
        by_t = self._p_by_t(threshold, self.telling)
        return max(above, by_t[0]), max(under, by_t[1])

    def _p_by_t(self, threshold: float, units: int) -> tuple[float, float]:
        distance = self.estimate - threshold
        t = 0.0
        if self.standard_error > 0:
            t = distance / self.standard_error
        elif distance:
            t = np.copysign(np.inf, distance)
        return float(scipy.stats.t.sf(t, units - 1)), float(scipy.stats.t.cdf(t, units - 1))


def bootstrap_mean(values: Floats, clusters: Clusters | None = None, *, seed: int = 0) -> Bootstrapped:
    """Bootstrap the mean of a value of each row, such as the difference of two models' scores.

    Args:
        values: shape (rows,). If one is not finite, neither is the estimate, and nothing is concluded.
    """
    n = len(values)
    if not n:
        return _nothing(np.nan, 0)
    if n < 2 or not np.isfinite(values).all():
        return _nothing(float(values.mean()), n)
    if clusters is not None:
        return bootstrap_totals(
            lambda sums: sums[..., 0] / sums[..., 1],
            np.column_stack([values, np.ones(n)]),
            clusters,
            seed=seed,
        )
    mean = float(values.mean())
    error = float(values.std(ddof=1) / np.sqrt(n))
    if n > _MAX_ROWS:
        return Bootstrapped(mean, error, n, np.zeros(0), 0.0)
    kinds, counts = np.unique(values, return_counts=True)
    if _ROWS_A_KIND * len(kinds) < n:  # For example, if two models differ on hardly any row.
        return bootstrap_counts(
            lambda drawn: drawn @ kinds / drawn.sum(axis=-1),
            counts.astype(np.float64),
            seed=seed,
            resamples=RESAMPLES_OF_MEANS,
        )
    source = np.random.default_rng(seed)
    replicates = np.empty(RESAMPLES_OF_MEANS)
    step = max(1, _AT_ONCE // n)
    for start in range(0, len(replicates), step):
        part = replicates[start : start + step]
        part[:] = values[source.integers(0, n, (len(part), n), np.int32)].mean(axis=1)
    return Bootstrapped(mean, error, n, np.sort(replicates), _acceleration(values - mean))


def bootstrap(
    statistic: Callable[[Rows], float],
    n: int,
    clusters: Clusters | None = None,
    *,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> Bootstrapped:
    """Bootstrap any statistic of rows.

    Args:
        statistic: a function of row numbers, shape (rows,), such as the difference of two models' metrics on
            these rows. It is called first with all rows, then with those of each resample, in order.
        n: the number of rows.
    """
    every = np.arange(n)

    def of_weights(weights: NDArray[np.int32]) -> Floats:
        return np.array([statistic(np.repeat(every, times)) for times in weights])

    return bootstrap_weights(of_weights, n, clusters, seed=seed, resamples=resamples)


def bootstrap_weights(
    statistic: Callable[[NDArray[np.int32]], Floats],
    n: int,
    clusters: Clusters | None = None,
    *,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> Bootstrapped:
    """Bootstrap a statistic of weighted rows, computed for many resamples at once.

    Args:
        statistic: a function of weights, how often each row counts, shape (resamples, rows), to values,
            shape (resamples,).
        n: the number of rows.
    """
    if not n:
        return _nothing(np.nan, 0)
    estimate = float(statistic(np.ones((1, n), np.int32))[0])
    if n < 2 or not np.isfinite(estimate):
        return _nothing(estimate, n)
    source = np.random.default_rng(seed)
    step = max(1, _AT_ONCE // n)
    units = n
    if clusters is not None:
        units = count_clusters(clusters)
    groups = min(units, _GROUPS)
    group_of_row = source.permutation(units) % groups
    if clusters is not None:
        group_of_row = group_of_row[clusters]
    numbers = np.arange(groups)
    left_out = np.concatenate(
        [
            statistic((group_of_row != numbers[start : start + step, None]).astype(np.int32))
            for start in range(0, groups, step)
        ]
    )
    left_out = left_out[np.isfinite(left_out)]
    if len(left_out) < 2:
        return _nothing(estimate, n)
    # Efron & Tibshirani, "An introduction to the bootstrap" (1993), 11.5, over groups
    deviations = left_out.mean() - left_out
    error = float(np.sqrt((groups - 1) / len(left_out) * (deviations**2).sum()))
    if n > _MAX_ROWS and units >= _GROUPS:
        return _by_clusters(Bootstrapped(estimate, error, n, np.zeros(0), 0.0), clusters)
    replicates = np.empty(resamples)
    for start in range(0, resamples, step):
        part = replicates[start : start + step]
        times = np.stack(
            [np.bincount(source.integers(0, units, units), minlength=units) for _ in part]
        ).astype(np.int32)
        if clusters is not None:
            times = times[:, clusters]
        part[:] = statistic(times)
    return _by_clusters(_from_replicates(estimate, replicates, _acceleration(deviations), n), clusters)


def bootstrap_totals(
    statistic: Callable[[Floats], Floats],
    values: Floats,
    clusters: Clusters,
    *,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> Bootstrapped:
    """Bootstrap a statistic of sums over rows that come in clusters, by resampling each cluster's sums.

    Args:
        statistic: a function of sums, shape (…, values), to numbers, shape (…).
        values: the values of each row, shape (rows, values).
    """
    n = len(values)
    of_clusters = totals(values, clusters)
    units = len(of_clusters)
    whole = of_clusters.sum(axis=0)
    estimate = float(statistic(whole))
    if units < 2 or not np.isfinite(estimate):
        return _nothing(estimate, n)
    source = np.random.default_rng(seed)
    replicates = np.empty(resamples)
    step = max(1, _AT_ONCE // units)
    for start in range(0, resamples, step):
        part = replicates[start : start + step]
        times = np.stack([np.bincount(source.integers(0, units, units), minlength=units) for _ in part])
        part[:] = statistic(times @ of_clusters)
    left_out = statistic(whole - of_clusters)
    left_out = left_out[np.isfinite(left_out)]
    if len(left_out) < 2:
        return _nothing(estimate, n)
    return _by_clusters(
        _from_replicates(estimate, replicates, _acceleration(left_out.mean() - left_out), n), clusters
    )


def bootstrap_counts(
    statistic: Callable[[Floats], Floats], counts: Floats, *, seed: int = 0, resamples: int = RESAMPLES
) -> Bootstrapped:
    """Bootstrap a statistic of the number of rows of each kind, by multinomial draws of the kinds.

    Args:
        statistic: a function of counts, shape (…, kinds), to values, shape (…).
        counts: the number of rows of each kind, shape (kinds,), each above 0.
    """
    n = int(counts.sum())
    estimate = float(statistic(counts))
    if n < 2 or not np.isfinite(estimate):
        return _nothing(estimate, n)
    drawn = np.random.default_rng(seed).multinomial(n, counts / n, size=resamples).astype(np.float64)
    replicates = statistic(drawn)
    left_out = statistic(counts - np.eye(len(counts)))
    if not np.isfinite(left_out).all():
        return _nothing(estimate, n)
    deviations = np.average(left_out, weights=counts) - left_out
    return _from_replicates(estimate, replicates, _acceleration(deviations, counts), n)


def _from_replicates(estimate: float, replicates: Floats, acceleration: float, n: int) -> Bootstrapped:
    """Make the evidence from replicates; some may be NaN, because their resample lacks a class."""
    finite = np.sort(replicates[np.isfinite(replicates)])
    if len(finite) < len(replicates) // 2:
        return _nothing(estimate, n)
    return Bootstrapped(estimate, float(finite.std(ddof=1)), n, finite, acceleration)


def _by_clusters(bootstrapped: Bootstrapped, clusters: Clusters | None) -> Bootstrapped:
    if clusters is None:
        return bootstrapped
    return replace(bootstrapped, clusters=count_clusters(clusters), effective=effective_count(clusters))


def _acceleration(deviations: Floats, weights: Floats | float = 1.0) -> float:
    """A sixth of the skewness of the jackknife, of rows or of groups of rows (Efron 1987, equation 6.6)."""
    square = float((weights * deviations**2).sum())
    if square <= 0:
        return 0.0
    return float((weights * deviations**3).sum()) / (6 * square**1.5)


def _inside(count: float, of: int) -> float:
    """The share ``count / of``, kept off 0 and 1, because no p-value is smaller than one resample tells.

    Davison & Hinkley, "Bootstrap methods" (1997), 4.2.
    """
    return float(min(max(count, 0.5), of - 0.5) / of)


def _nothing(estimate: float, n: int) -> Bootstrapped:
    return Bootstrapped(estimate, np.nan, n, np.zeros(0), 0.0)
