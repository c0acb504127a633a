"""The gates that a winner must pass before it is promoted."""

import math
from dataclasses import dataclass
from typing import Any

from halving.errors import HalvingError
from resources.sweep_spec.metrics import HIGHER_IS_BETTER
from resources.sweep_spec.sweep import Gates


class GateFailed(HalvingError, RuntimeError):
    """The winner failed a gate, so it was not promoted."""


@dataclass(frozen=True)
class Gate:
    """The outcome of one condition on promotion; ``name`` is also the name of the asset check."""

    name: str
    passed: bool
    reason: str


def check_gates(gates: Gates, report: dict[str, Any], missing_lineage: list[str]) -> list[Gate]:
    """Judge a report: finite metrics, complete lineage, within bounds, and not worse than the champion by more than the margin.

    Args:
        gates: the spec's.
        report: the evaluation report (``metrics``, ``champion``).
        missing_lineage: what of the checkpoint's origin could not be found.
    """
    wrong = sorted(name for name, value in report["metrics"].items() if not _finite(value))
    finite = Gate("finite_metrics", not wrong, f"not finite: {', '.join(wrong)}" if wrong else "every test metric is finite")
    whole = Gate(
        "lineage_complete",
        not missing_lineage,
        f"missing: {'; '.join(missing_lineage)}" if missing_lineage else "run record, code, checkpoint and snapshot are all there",
    )
    return [finite, whole, _within_bounds(report), _against_champion(gates, report)]


def _within_bounds(report: dict[str, Any]) -> Gate:
    name, bounds, winner = "within_bounds", report["spec"].get("bounds", {}), report["winner"]
    if not bounds:
        return Gate(name, True, "the spec bounds no metric")
    values = ", ".join(f"{metric} {_number(winner['metrics'][metric])}" for metric in bounds)
    return Gate(name, winner["violation"] == 0, f"{values}; accepted are {', '.join(_in_words(*bound) for bound in bounds.items())}")


def _in_words(metric: str, bound: dict[str, float | None]) -> str:
    ends = [f"{word} {end:g}" for word, end in (("at least", bound.get("min")), ("at most", bound.get("max"))) if end is not None]
    return f"{metric} {' and '.join(ends)}"


def _against_champion(gates: Gates, report: dict[str, Any]) -> Gate:
    name, champion = "not_worse_than_champion", report["champion"]
    if champion is None:
        return Gate(name, True, "there is no champion yet")
    title = f"champion {champion['model']} {champion['version']}"
    if champion["error"]:
        remedy = f"correct it, or take it out of use: halving archive {champion['model']} {champion['version']}"
        return Gate(name, False, f"the {title} could not be evaluated on this test split: {champion['error']}; {remedy}")
    metric = gates.metric or default_metric(report["metrics"])
    if metric not in report["metrics"] or metric not in champion["metrics"]:
        return Gate(name, False, f"gates.metric = {metric!r} is not among the test metrics {', '.join(sorted(report['metrics']))}")
    ours, theirs = report["metrics"][metric], champion["metrics"][metric]
    worse = theirs - ours if HIGHER_IS_BETTER[metric] else ours - theirs
    compared = f"{metric} {_number(ours)} against {_number(theirs)} of the {title}, margin {gates.margin:g}"
    return Gate(name, _finite(worse) and worse <= gates.margin, compared)


def default_metric(metrics: dict[str, float]) -> str:
    """The metric that versions are compared by when the spec names none."""
    return "accuracy" if "accuracy" in metrics else "rmse"


def _finite(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _number(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, float) else str(value)
