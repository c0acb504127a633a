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
    """What a gate says of a winner.

    Attributes:
        name: the gate's kind, and the name of its asset check.
        reason: in words, with what to do next where it did not pass.
        about: the metric, or what else was looked at.
        figure, threshold: what was measured, and what it is held to; None where the gate has no number.
        low, high: the figure's interval at 95 %; None where it has none.
        needed: how many rows of the test split would settle it, where there was too little evidence.
        needed_seeds: how many seeds of each recipe would tell such a difference of the recipes, where seeds
            were trained.
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
        for field in (
            "figure",
            "threshold",
            "low",
            "high",
        ):  # Verdicts are written as JSON, which has no NaN.
            value = getattr(self, field)
            if value is not None and not math.isfinite(value):
                object.__setattr__(self, field, None)

    @property
    def passed(self) -> bool:
        return self.outcome == PASS

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def overall(verdicts: Sequence[Verdict]) -> Outcome:
    """The outcome of all gates: a failure outweighs all, and an undecided gate outweighs those that pass."""
    outcomes = {verdict.outcome for verdict in verdicts}
    for outcome in (FAIL, UNDECIDED):
        if outcome in outcomes:
            return outcome
    return PASS


def ended_as(verdicts: Sequence[Verdict]) -> Literal["rejected", "held"]:
    """The status of a sweep whose winner did not pass."""
    return "rejected" if overall(verdicts) == FAIL else "held"


def refusal(sweep: str, verdicts: Sequence[Verdict], page: str) -> GateFailed:
    """The error for a winner that did not pass: which gates, why, and where to read more."""
    reasons = "; ".join(f"{verdict.name}: {verdict.reason}" for verdict in verdicts if not verdict.passed)
    if overall(verdicts) == FAIL:
        return GateFailed(f"sweep {sweep} was not promoted: {reasons}. The report says more: {page}")
    return TooLittleEvidence(
        f"sweep {sweep} is held back, because there is too little evidence: {reasons}. The report says "
        f"more: {page}"
    )
