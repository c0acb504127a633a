"""The bias-corrected and accelerated bootstrap (BCa) of a statistic of rows.

Efron, "Better bootstrap confidence intervals", JASA 82 (1987), equation 2.3; its inverse gives a p-value for
any threshold. Two things differ from ``scipy.stats.bootstrap``, against which it is tested: the acceleration
is of a jackknife over groups of rows, because one over single rows costs the square of their number; and what
is claimed at a level is widened to Student's t (Hesterberg, "What teachers should know about the bootstrap",
The American Statistician 69 (2015), section 3.3), because percentiles are too narrow by sqrt((n - 1) / n).
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
_FEW = 4  # times fewer kinds of rows than rows, and these are drawn as kinds
_GROUPS = 200  # of the jackknife
_MAX_ROWS = 20_000  # for more, a normal distribution is exact enough, and resampling takes many seconds
_AT_ONCE = 1 << 17  # numbers that are drawn at a time, so that they stay in the cache


@dataclass(frozen=True)
class Bootstrapped:
    """A statistic with what its resamples say; see
    :class:`resources.evaluation.statistics.evidence.Evidence`.

    Attributes:
        replicates: the statistic of each resample, ascending. Shape (resamples,); empty where ``n`` is large:
            then it is normal.
        acceleration: Efron's a, a sixth of the skewness of the jackknife.
        standard_error: NaN where nothing can be concluded: values that are not finite, or a statistic that
            most resamples have not.
        clusters: how many there are, where rows were resampled by them; None: each row by itself.
        effective: as how many clusters of one size they count, by which Student's t is chosen.
        telling: where few rows (or clusters) differ from all others, how many. Skewness is guessed badly from
            them, and BCa is misled by it: then nothing is claimed that Student's t of so many does not show
            as well.
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
            return self._by_t(alpha, self._units if self.telling is None else self.telling)
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
        """The number of rows below which nothing is concluded; with clusters by their size so far."""
        return -(-self.n * MIN_ROWS // self._units) if self._units else MIN_ROWS

    @property
    def _units(self) -> int:
        """The number of independent units."""
        return self.n if self.effective is None else self.effective

    @property
    def _says_something(self) -> bool:
        return self._units >= MIN_ROWS and bool(
            np.isfinite(self.estimate) and np.isfinite(self.standard_error)
        )

    @property
    def _bias(self) -> float:
        """Efron's z0, of the share of resamples below the estimate; equal ones count half."""
        below = np.searchsorted(self.replicates, self.estimate, "left")
        up_to = np.searchsorted(self.replicates, self.estimate, "right")
        return float(scipy.special.ndtri(_inside((below + up_to) / 2, len(self.replicates))))

    def _quantile(self, z: float) -> float:
        bias = self._bias
        place = scipy.special.ndtr(bias + (bias + z) / (1 - self.acceleration * (bias + z)))
        return float(np.quantile(self.replicates, place))

    def _p(self, threshold: float) -> tuple[float, float]:
        """Both p-values: the levels at which an end of the interval is the threshold, by equation 2.3."""
        if not self._says_something:
            return 1.0, 1.0
        if not len(self.replicates):
            return self._p_by_t(threshold, self._units if self.telling is None else self.telling)
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
    if n < 2 or not np.isfinite(values).all():
        return _nothing(float(values.mean()) if n else np.nan, n)
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
    if _FEW * len(kinds) < n:  # as where models differ on hardly a row
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

    It is called with the numbers of the rows that count, in order: first all, then those of each resample.

    Args:
        statistic: shape (rows,) to a number; for a comparison the difference of two models' metrics on these
            rows.
        n: how many rows there are.
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
    """Bootstrap a statistic of how often each row counts, computed for many resamples at once.

    Args:
        statistic: weights, shape (resamples, rows), to numbers, shape (resamples,).
        n: how many rows there are.
    """
    estimate = float(statistic(np.ones((1, n), np.int32))[0]) if n else np.nan
    if n < 2 or not np.isfinite(estimate):
        return _nothing(estimate, n)
    source = np.random.default_rng(seed)
    step = max(1, _AT_ONCE // n)
    units = n if clusters is None else count_clusters(clusters)
    groups = min(units, _GROUPS)
    of_rows = (source.permutation(units) % groups)[np.arange(n) if clusters is None else clusters]
    each = np.arange(groups)
    left_out = np.concatenate(
        [
            statistic((of_rows != each[start : start + step, None]).astype(np.int32))
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
        part[:] = statistic(times if clusters is None else times[:, clusters])
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
        statistic: sums, shape (…, values), to numbers, shape (…).
        values: of each row, shape (rows, values).
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
        statistic: counts, shape (…, kinds), to values, shape (…).
        counts: of all rows, shape (kinds,), each above 0.
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
    """The evidence of replicates; some may have no value, because the resample lacks a class."""
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
    """A share that is neither 0 nor 1, because no p-value is smaller than one resample.

    Davison & Hinkley, "Bootstrap methods" (1997), 4.2.
    """
    return float(min(max(count, 0.5), of - 0.5) / of)


def _nothing(estimate: float, n: int) -> Bootstrapped:
    return Bootstrapped(estimate, np.nan, n, np.zeros(0), 0.0)
