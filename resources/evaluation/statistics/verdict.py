"""From evidence to a verdict: pass, fail, or too little evidence and how much would settle it."""

from dataclasses import dataclass
from math import ceil, isfinite
from typing import Literal

import scipy  # its parts are imported when they are first used: they take a second

from resources.evaluation.statistics.bootstrap import Bootstrapped
from resources.evaluation.statistics.evidence import ALPHA, Evidence
from resources.evaluation.statistics.too_few import TooFew

Outcome = Literal["pass", "fail", "too little evidence"]
POWER = 0.9
"""How often as much evidence as a verdict asks for settles the question, where what was supposed is true."""

_MAX_ROWS = 10**9  # that anyone could have


@dataclass(frozen=True)
class Conclusion:
    """What is concluded from evidence about a claim of the kind "the quantity is above the threshold".

    Attributes:
        outcome: of the claim.
        estimate, low, high: the estimate, and the interval that holds it at 95 %.
        p: the p-value of the claim being wrong.
        n: how much evidence there was: rows, or seeds.
        needed: how much would settle it; None where it is settled, or where no amount within reason would.
        telling: where too few rows, or clusters of rows, tell anything, how many do.
        clusters: of how many, where rows come in clusters.
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
    """Whether a quantity is above a threshold, by two one-sided tests.

    It passes where the hypothesis that it is at most ``threshold`` is rejected, and fails where the one that
    it is at least ``refuted_below`` is. So of quantities at the threshold at most ``ALPHA`` pass.

    Args:
        refuted_below: the threshold itself, or what would have been worth having: then it fails where that
            much is ruled out.
        supposed: the quantity for which the size is worked out that settles the question.
    """
    p = evidence.p_above(threshold)
    low, high = evidence.interval()
    outcome: Outcome = "too little evidence"
    if p <= ALPHA:
        outcome = "pass"
    elif evidence.p_below(refuted_below) <= ALPHA:
        outcome = "fail"
    needed = None if outcome != "too little evidence" else settling_size(evidence, threshold, supposed)
    return Conclusion(outcome, evidence.estimate, low, high, p, evidence.n, needed, *_telling(evidence))


def non_inferior(gain: Evidence, margin: float) -> Conclusion:
    """Test that the new is worse by less than the margin, at most; it fails if shown to be worse by more.

    What would settle it is worked out for two that are equally good, as for a trial that is planned (Julious,
    "Sample sizes for clinical trials with normal data", Statistics in Medicine 23 (2004), section 4).

    Args:
        gain: what is new against what it is compared with, higher is better.
        margin: 0 or more, in the same unit.
    """
    return conclude(gain, -margin, refuted_below=-margin, supposed=0.0)


def superior(gain: Evidence, effect: float) -> Conclusion:
    """Test that the new is better; it fails if a gain of the declared effect is ruled out.

    Args:
        effect: above 0, the least gain that is worth having, in the same unit; with so much evidence as
            settles it, a gain of that size passes with a probability of ``POWER``.
    """
    return conclude(gain, 0.0, refuted_below=effect, supposed=effect)


def within(evidence: Evidence, minimum: float | None, maximum: float | None) -> Conclusion:
    """Test that a quantity is within bounds: it passes with its whole interval, and fails with none of it.

    What would settle it is worked out for the estimate, because no plan says what to suppose.
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
    needed = None if outcome != "too little evidence" else settling_size(evidence, nearest, evidence.estimate)
    return Conclusion(outcome, evidence.estimate, low, high, p, evidence.n, needed, *_telling(evidence))


def _telling(evidence: Evidence) -> tuple[int | None, int | None]:
    return (evidence.telling, evidence.clusters) if isinstance(evidence, TooFew) else (None, None)


def settling_size(evidence: Evidence, threshold: float, supposed: float) -> int | None:
    """The rows, or seeds, that a test at ``ALPHA`` with a power of ``POWER`` takes at this spread.

    It supposes a quantity, and not that the estimate is the truth, which is what too little evidence cannot
    say (Hoenig & Heisey, "The abuse of power", The American Statistician 55 (2001)). If there were as many
    already, the quantity is nearer to the threshold than was supposed; then the answer is for the estimate.
    """
    if isinstance(evidence, TooFew):
        return evidence.rows_to_tell
    if not isfinite(evidence.standard_error) or evidence.standard_error <= 0 or evidence.n < 1:
        return None
    deviation = evidence.standard_error * evidence.n**0.5
    fewest_rows = evidence.min_rows if isinstance(evidence, Bootstrapped) else 0
    for distance in (abs(supposed - threshold), abs(evidence.estimate - threshold)):
        needed = planned_rows(deviation, distance, evidence.step) if distance > 0 else None
        if needed is None or needed > evidence.n:
            return needed if needed is None else max(needed, fewest_rows)
    return fewest_rows if fewest_rows > evidence.n else None


def planned_rows(deviation: float, distance: float, step: float = 0.0) -> int | None:
    """The rows that show a difference with a power of ``POWER``; None: more than anyone could have.

    Args:
        deviation: of one row's paired difference.
        distance: of the truth from the threshold, above 0.
        step: see :class:`Evidence`; a test that is cautious by a step needs ``step / distance`` rows more.
    """
    rows = (
        (scipy.stats.norm.isf(ALPHA) + scipy.stats.norm.ppf(POWER)) * deviation / distance
    ) ** 2 + step / distance
    return ceil(rows) if rows <= _MAX_ROWS else None


def planned_seeds(deviation: float, difference: float) -> int | None:
    """The seeds of each of two training procedures that show a difference of their means; None: too many.

    Two independent samples, by the normal distribution, and z²/4 more for Student's t (Guenther, "Sample size
    formulas for normal theory t tests", The American Statistician 35 (1981)).

    Args:
        deviation: of a metric from seed to seed, the same for both.
        difference: of the means, above 0.
    """
    z_alpha = scipy.stats.norm.isf(ALPHA)
    seeds = 2 * ((z_alpha + scipy.stats.norm.ppf(POWER)) * deviation / difference) ** 2 + z_alpha**2 / 4
    return max(2, ceil(seeds)) if seeds <= _MAX_ROWS else None


def holm(p_values: list[float]) -> list[float]:
    """Adjust the p-values of many tests, so that at one level a false rejection is as rare as for one test.

    Holm, "A simple sequentially rejective multiple test procedure", Scandinavian Journal of Statistics 6
    (1979).
    """
    adjusted = [0.0] * len(p_values)
    greatest = 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=lambda place: p_values[place])):
        greatest = max(greatest, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = greatest
    return adjusted
