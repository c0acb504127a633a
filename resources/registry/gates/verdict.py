"""The verdict of a gate, and the outcome of a sweep by the verdicts of all its gates."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from halving.errors import HalvingError
from resources.evaluation.statistics.verdict import Outcome

PASS: Outcome = "pass"
FAIL: Outcome = "fail"
UNDECIDED: Outcome = "too little evidence"


class GateFailed(HalvingError, RuntimeError):
    """The winner failed a gate, so it was not promoted."""


class TooLittleEvidence(GateFailed):
    """No gate failed, but the test split is too small for one of them to say; the winner was not promoted."""


@dataclass(frozen=True)
class Verdict:
    """The verdict of a gate on a winner.

    Attributes:
        name: the gate's kind, which is also the name of its asset check.
        reason: the reason for people, with a remedy if it did not pass.
        about: the metric, or what else was judged.
        figure: the number that was measured; None if the gate has no number.
        threshold: the number that ``figure`` was compared with.
        low, high: the interval of ``figure`` at 95 %; None if it has none.
        needed: the rows of the test split that would settle it, if there was too little evidence.
        needed_seeds: the seeds of each recipe that would show such a difference of the recipes, if there was
            a final training.
    """

    name: str
    outcome: Outcome
    reason: str
    about: str | None = None
    figure: float | None = None
    threshold: float | None = None
    low: float | None = None
    high: float | None = None
    needed: int | None = None
    needed_seeds: int | None = None

    def __post_init__(self) -> None:
        # Verdicts are written as JSON, which has no NaN.
        for field in ("figure", "threshold", "low", "high"):
            value = getattr(self, field)
            if value is not None and not math.isfinite(value):
                object.__setattr__(self, field, None)

    @property
    def passed(self) -> bool:
        """Whether the winner passes the gate."""
        return self.outcome == PASS

    def as_dict(self) -> dict[str, Any]:
        """The verdict as plain data, as a report keeps it."""
        return asdict(self)


def overall(verdicts: Sequence[Verdict]) -> Outcome:
    """The outcome of all gates together: a fail, if any gate fails, else undecided, if any gate is."""
    outcomes = {verdict.outcome for verdict in verdicts}
    for outcome in (FAIL, UNDECIDED):
        if outcome in outcomes:
            return outcome
    return PASS


def status_of_refused(verdicts: Sequence[Verdict]) -> Literal["rejected", "held"]:
    """The status of a sweep whose winner did not pass."""
    if overall(verdicts) == FAIL:
        return "rejected"
    return "held"


def refusal(sweep: str, verdicts: Sequence[Verdict], page: str) -> GateFailed:
    """The error for a winner that did not pass: which gates, why, and where to read more."""
    reasons = "; ".join(f"{verdict.name}: {verdict.reason}" for verdict in verdicts if not verdict.passed)
    if overall(verdicts) == FAIL:
        return GateFailed(f"sweep {sweep} was not promoted: {reasons}. The report says more: {page}")
    return TooLittleEvidence(
        f"sweep {sweep} is held back, because there is too little evidence: {reasons}. The report says "
        f"more: {page}"
    )
