"""From evidence to a conclusion: pass, fail, or too little evidence, and how much would be enough."""

from dataclasses import dataclass
from math import ceil, isfinite
from typing import Literal

import scipy  # its parts are imported when they are first used: they take a second

from resources.evaluation.statistics.bootstrap import Bootstrapped
from resources.evaluation.statistics.evidence import ALPHA, Evidence
from resources.evaluation.statistics.too_few import TooFew

Outcome = Literal["pass", "fail", "too little evidence"]
POWER = 0.9
"""The probability that as much evidence as a conclusion asks for settles it, if its supposition is true."""

_MAX_ROWS = 10**9  # Nobody could have more.


@dataclass(frozen=True)
class Conclusion:
    """The conclusion on a claim such as "the quantity is above the threshold".

    Attributes:
        outcome: whether the claim passes.
        estimate: the estimate of the quantity.
        low, high: the interval at 95 %.
        p: the p-value of the hypothesis that the claim is wrong.
        n: the number of rows, or of seeds, that the evidence is made of.
        needed: the number that would settle the claim; None if it is settled, or if no number within reason
            would settle it.
        telling: the number of rows, or of clusters, that differ, if they are too few.
        clusters: the number of all clusters then, if rows come in clusters.
    """

    outcome: Outcome
    estimate: float
    low: float
    high: float
    p: float
    n: int
    needed: int | None
    telling: int | None = None
    clusters: int | None = None


def conclude(evidence: Evidence, threshold: float, *, refuted_below: float, supposed: float) -> Conclusion:
    """Conclude whether a quantity is above a threshold, by two one-sided tests.

    It passes if "at most ``threshold``" is rejected, and fails if "at least ``refuted_below``" is rejected.
    So of quantities at the threshold at most ``ALPHA`` pass.

    Args:
        refuted_below: the threshold itself, or a larger quantity that would have been worth having; the claim
            fails if that is ruled out.
        supposed: the quantity that is supposed when ``needed`` is computed.
    """
    p = evidence.p_above(threshold)
    low, high = evidence.interval()
    outcome: Outcome = "too little evidence"
    if p <= ALPHA:
        outcome = "pass"
    elif evidence.p_below(refuted_below) <= ALPHA:
        outcome = "fail"
    needed = None
    if outcome == "too little evidence":
        needed = settling_size(evidence, threshold, supposed)
    return Conclusion(outcome, evidence.estimate, low, high, p, evidence.n, needed, *_telling(evidence))


def non_inferior(gain: Evidence, margin: float) -> Conclusion:
    """Test that a gain is not below ``-margin``: worse by less than the margin, if worse at all.

    It fails if the gain is shown to be below ``-margin``. ``needed`` supposes that both are equally good, as
    for a trial that is planned (Julious, "Sample sizes for clinical trials with normal data", Statistics in
    Medicine 23 (2004), section 4).

    Args:
        gain: the gain of the new over the old; higher is better.
        margin: 0 or more, in the unit of the gain.
    """
    return conclude(gain, -margin, refuted_below=-margin, supposed=0.0)


def superior(gain: Evidence, effect: float) -> Conclusion:
    """Test that a gain is above 0; it fails if a gain of ``effect`` is ruled out.

    Args:
        effect: the least gain that is worth having, above 0, in the unit of the gain. With as much evidence
            as ``needed`` says, a gain of that size passes with a probability of ``POWER``.
    """
    return conclude(gain, 0.0, refuted_below=effect, supposed=effect)


def within(evidence: Evidence, minimum: float | None, maximum: float | None) -> Conclusion:
    """Test that a quantity is within bounds.

    It passes if its whole interval is within them, and fails if none of the interval is. ``needed`` supposes
    the estimate, because no plan says what else to suppose.
    """
    ends = []
    if minimum is not None:
        ends.append((evidence.p_above(minimum), evidence.p_below(minimum), minimum))
    if maximum is not None:
        ends.append((evidence.p_below(maximum), evidence.p_above(maximum), maximum))
    low, high = evidence.interval()
    outcome: Outcome = "pass"
    if any(against <= ALPHA for _, against, _ in ends):
        outcome = "fail"
    elif any(p > ALPHA for p, _, _ in ends):
        outcome = "too little evidence"
    p, _, nearest = max(ends)
    needed = None
    if outcome == "too little evidence":
        needed = settling_size(evidence, nearest, evidence.estimate)
    return Conclusion(outcome, evidence.estimate, low, high, p, evidence.n, needed, *_telling(evidence))


def _telling(evidence: Evidence) -> tuple[int | None, int | None]:
    if isinstance(evidence, TooFew):
        return evidence.telling, evidence.clusters
    return None, None


def settling_size(evidence: Evidence, threshold: float, supposed: float) -> int | None:
    """The rows, or seeds, that a test at ``ALPHA`` with a power of ``POWER`` needs; None if none suffice.

    The quantity is supposed, because too little evidence cannot say that the estimate is the truth (Hoenig &
    Heisey, "The abuse of power", The American Statistician 55 (2001)). If there are as many rows already, the
    quantity is nearer to the threshold than was supposed; then the answer supposes the estimate.
    """
    if isinstance(evidence, TooFew):
        return evidence.rows_to_tell
    if not isfinite(evidence.standard_error) or evidence.standard_error <= 0 or evidence.n < 1:
        return None
    deviation = evidence.standard_error * evidence.n**0.5
    min_rows = 0
    if isinstance(evidence, Bootstrapped):
        min_rows = evidence.min_rows
    for distance in (abs(supposed - threshold), abs(evidence.estimate - threshold)):
        if distance == 0:
            return None
        needed = planned_rows(deviation, distance, evidence.step)
        if needed is None:
            return None
        if needed > evidence.n:
            return max(needed, min_rows)
    if min_rows > evidence.n:
        return min_rows
    return None


def planned_rows(deviation: float, distance: float, step: float = 0.0) -> int | None:
    """The rows that show a difference with a power of ``POWER``; None if nobody could have so many.

    Args:
        deviation: the standard deviation of one row's paired difference.
        distance: the distance of the truth from the threshold, above 0.
        step: see :class:`Evidence`; a test that is cautious by a step needs ``step / distance`` rows more.
    """
    rows = (
        (scipy.stats.norm.isf(ALPHA) + scipy.stats.norm.ppf(POWER)) * deviation / distance
    ) ** 2 + step / distance
    if rows <= _MAX_ROWS:
        return ceil(rows)
    return None


def planned_seeds(deviation: float, difference: float) -> int | None:
    """The seeds that each of two training procedures needs to show a difference of their means.

    None if nobody could train so many.

    Two independent samples, by the normal distribution, and z²/4 more for Student's t (Guenther, "Sample size
    formulas for normal theory t tests", The American Statistician 35 (1981)).

    Args:
        deviation: the standard deviation of a metric from seed to seed, the same for both.
        difference: the difference of the means, above 0.
    """
    z_alpha = scipy.stats.norm.isf(ALPHA)
    seeds = 2 * ((z_alpha + scipy.stats.norm.ppf(POWER)) * deviation / difference) ** 2 + z_alpha**2 / 4
    if seeds <= _MAX_ROWS:
        return max(2, ceil(seeds))
    return None


def holm(p_values: list[float]) -> list[float]:
    """Adjust the p-values of many tests, so that one false rejection among all is as rare as for one test.

    Holm, "A simple sequentially rejective multiple test procedure", Scandinavian Journal of Statistics 6
    (1979).
    """
    adjusted = [0.0] * len(p_values)
    greatest = 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=lambda place: p_values[place])):
        greatest = max(greatest, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = greatest
    return adjusted
