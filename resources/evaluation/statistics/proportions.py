"""Tests of the share of right rows of a classifier, and of its gain over another one on the same rows."""

from dataclasses import dataclass
from math import copysign, sqrt

import scipy  # its parts are imported when they are first used: they take a second

from resources.evaluation.statistics.evidence import ALPHA

CONTINUITY = 0.5
"""The continuity correction of the score test in rows, needed because ``won - lost`` is a whole number.

With it the test passes at most its level, 5 % or 2.5 %, at every size that was enumerated. Without it, it
passes 5.6 % at a level of 5 %.
"""


@dataclass(frozen=True)
class PairedProportions:
    """The gain in accuracy; see :class:`resources.evaluation.statistics.evidence.Evidence`.

    A gain of 0 is tested by McNemar's exact test (Dietterich, "Approximate statistical tests for comparing
    supervised classification learning algorithms", Neural Computation 10 (1998), section 3.1), any other gain
    by Tango's score test (:func:`tango`) with a continuity correction. If both models predict all rows alike,
    a bootstrap would conclude that there is no difference; these tests conclude that fewer than about 3 in
    ``n`` differ.

    Attributes:
        won: the number of rows that only the first model gets right.
        lost: the number of rows that only the second one gets right.
        n: the number of all rows.
    """

    won: int
    lost: int
    n: int
    step: float = 1.0

    @property
    def estimate(self) -> float:
        if not self.n:
            return float("nan")
        return (self.won - self.lost) / self.n

    @property
    def standard_error(self) -> float:
        """The standard error with one more row won and one more lost, so that it is never 0.

        Agresti & Min, Statistics in Medicine 24 (2005).
        """
        n = self.n + 2
        return sqrt(self.won + self.lost + 2 - (self.won - self.lost) ** 2 / n) / n

    def p_above(self, threshold: float) -> float:
        if threshold == 0:
            return _at_least(self.won, self.won + self.lost)
        return float(scipy.stats.norm.sf(tango(self.won, self.lost, self.n, threshold, CONTINUITY)))

    def p_below(self, threshold: float) -> float:
        if threshold == 0:
            return _at_least(self.lost, self.won + self.lost)
        return float(scipy.stats.norm.cdf(tango(self.won, self.lost, self.n, threshold, CONTINUITY)))

    def interval(self, alpha: float = ALPHA) -> tuple[float, float]:
        return tango_interval(self.won, self.lost, self.n, alpha, CONTINUITY)


@dataclass(frozen=True)
class Proportion:
    """The share of rows that are right; see :class:`resources.evaluation.statistics.evidence.Evidence`.

    It is tested by the exact binomial test, with the interval of Clopper & Pearson (Biometrika 26 (1934)).
    """

    right: int
    n: int
    step: float = 1.0

    @property
    def estimate(self) -> float:
        if not self.n:
            return float("nan")
        return self.right / self.n

    @property
    def standard_error(self) -> float:
        """The standard error with one more row right and one more wrong, so that it is never 0."""
        share = (self.right + 1) / (self.n + 2)
        return sqrt(share * (1 - share) / (self.n + 2))

    def p_above(self, threshold: float) -> float:
        if threshold < 0:
            return 0.0
        return float(scipy.stats.binom.sf(self.right - 1, self.n, min(threshold, 1.0)))

    def p_below(self, threshold: float) -> float:
        if threshold > 1:
            return 0.0
        return float(scipy.stats.binom.cdf(self.right, self.n, max(threshold, 0.0)))

    def interval(self, alpha: float = ALPHA) -> tuple[float, float]:
        low = 0.0
        high = 1.0
        if self.right:
            low = float(scipy.stats.beta.ppf(alpha, self.right, self.n - self.right + 1))
        if self.right < self.n:
            high = float(scipy.stats.beta.isf(alpha, self.right + 1, self.n - self.right))
        return low, high


def tango(won: int, lost: int, n: int, gain: float, continuity: float = 0.0) -> float:
    """Tango's score statistic for the hypothesis that the gain is ``gain``.

    If the hypothesis is true, it is about standard normal. For a gain of 0 it is McNemar's statistic,
    (won - lost) / sqrt(won + lost). Tango, "Equivalence test and confidence interval for the difference in
    proportions for the paired-sample design", Statistics in Medicine 17 (1998), equation 4.
    """
    if not n:
        return 0.0
    if abs(gain) >= 1:
        return copysign(float("inf"), -gain)
    # The maximum likelihood of the share of rows that only the second gets right, under this gain, is the
    # root of a quadratic.
    a = 2 * n
    b = -won - lost + (2 * n - won + lost) * gain
    c = -lost * gain * (1 - gain)
    share = max((sqrt(max(b * b - 4 * a * c, 0.0)) - b) / (2 * a), 0.0, -gain)
    deviation = sqrt(max(n * (2 * share + gain * (1 - gain)), 0.0))
    distance = won - lost - n * gain
    distance = copysign(max(abs(distance) - continuity, 0.0), distance)
    if not distance:
        return 0.0
    if deviation > 0:
        return distance / deviation
    return copysign(float("inf"), distance)


def tango_interval(won: int, lost: int, n: int, alpha: float, continuity: float = 0.0) -> tuple[float, float]:
    """The gains that neither one-sided test at ``alpha`` rules out."""
    z = float(scipy.stats.norm.isf(alpha))
    inside = 1 - 1e-12  # A gain of -1 or 1 would leave nothing to test.
    middle = max(-inside, min(inside, (won - lost) / max(n, 1)))

    def beyond(gain: float) -> float:
        return abs(tango(won, lost, n, gain, continuity)) - z

    def end(edge: float) -> float:
        if beyond(edge * inside) <= 0 or abs(edge - middle) < 1e-9:
            return edge
        return float(scipy.optimize.brentq(beyond, middle, edge * inside))

    return end(-1.0), end(1.0)


def _at_least(count: int, of: int) -> float:
    """The probability of ``count`` or more heads in ``of`` tosses of a fair coin."""
    if not of:
        return 1.0
    return float(scipy.stats.binomtest(count, of, 0.5, alternative="greater").pvalue)
