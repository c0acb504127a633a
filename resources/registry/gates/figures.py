"""Gates with a limit on a number of the winner: ``finite_metrics``, ``bounds``, ``latency``, ``size``."""

import math
from collections.abc import Mapping
from typing import Any

from halving.errors import HalvingError
from resources.evaluation.comparison import value_of
from resources.evaluation.predictions import Predictions
from resources.evaluation.statistics.too_few import MIN_TELLING
from resources.evaluation.statistics.verdict import Conclusion, Outcome, within
from resources.registry.gates.verdict import FAIL, PASS, UNDECIDED, Verdict
from resources.sweep_spec.gates import Latency, MetricBounds, Size

_MIB = 2**20
_SIZES = (
    ("checkpoint_mib", "checkpoint_bytes", "the checkpoint"),
    ("memory_mib", "peak_memory_bytes", "the memory of the predictor's process"),
)


def judge_finite(report: Mapping[str, Any]) -> Verdict:
    """Judge whether every test metric is a finite number."""
    wrong = sorted(name for name, value in report["metrics"].items() if not _finite(value))
    if wrong:
        reason = f"not finite: {', '.join(wrong)}"
        causes = report.get("without_value", {})
        if why := "; ".join(dict.fromkeys(causes[name] for name in wrong if name in causes)):
            reason += f" ({why})"
        return Verdict("finite_metrics", FAIL, reason)
    return Verdict("finite_metrics", PASS, "every test metric is finite")


def judge_search_bounds(report: Mapping[str, Any]) -> Verdict:
    """Judge whether the winner's reported metrics are within the bounds by which the search ranks."""
    bounds = report["spec"]["bounds"]
    winner = report["winner"]
    values = ", ".join(f"{metric} {_number(winner['metrics'][metric])}" for metric in bounds)
    accepted = ", ".join(
        _in_words(name, bound.get("min"), bound.get("max")) for name, bound in bounds.items()
    )
    outcome = _pass_if(winner["violation"] == 0)
    return Verdict("bounds", outcome, f"{values}; accepted are {accepted}", ", ".join(bounds))


def judge_bounds(gate: MetricBounds, report: Mapping[str, Any], ours: Predictions) -> Verdict:
    """Judge whether a test metric is within bounds, with its whole interval if it has one."""
    metric = gate.metric
    accepted = _in_words(gate.metric, gate.min, gate.max)
    value = report["metrics"].get(metric)
    limit = _limit(gate, value)
    if value is None:
        return Verdict(
            "bounds",
            FAIL,
            f"{metric!r} is no test metric: give one of {', '.join(sorted(report['metrics']))} in gates",
            metric,
        )
    if not _finite(value):
        reason = f"{metric} is not finite; accepted is {accepted}"
        return Verdict("bounds", FAIL, reason, metric, value, limit)
    if metric not in report["intervals"]:  # An evaluator's single figure has no interval.
        inside = (gate.min is None or value >= gate.min) and (gate.max is None or value <= gate.max)
        reason = f"{metric} {value:.4f}; accepted is {accepted}"
        return Verdict("bounds", _pass_if(inside), reason, metric, value, limit)
    try:
        conclusion = within(value_of(ours, metric), gate.min, gate.max)
    except HalvingError as error:
        return Verdict("bounds", FAIL, f"{metric} cannot be judged: {error}", metric, value, limit)
    low = conclusion.low
    high = conclusion.high
    interval = ""
    if math.isfinite(low) and math.isfinite(high):
        interval = f" (at 95 % from {low:.4f} to {high:.4f})"
    reason = f"{metric} {value:.4f}{interval}; accepted is {accepted}"
    if conclusion.outcome == UNDECIDED:
        rows = "rows of the class that is to be found"
        if conclusion.n == ours.rows:
            rows = "test rows"
        reason += f": whether it is within cannot be told; {rows_needed(conclusion, rows)}"
    needed = None
    if conclusion.needed:
        needed = -(-conclusion.needed * ours.rows // conclusion.n)
    return Verdict("bounds", conclusion.outcome, reason, metric, value, limit, low, high, needed)


def _limit(gate: MetricBounds, value: Any) -> float | None:
    """The bound that a value is compared with: of two bounds the nearer one."""
    if gate.min is None:
        return gate.max
    if gate.max is None or not _finite(value) or value - gate.min < gate.max - value:
        return gate.min
    return gate.max


def judge_latency(gate: Latency, report: Mapping[str, Any]) -> list[Verdict]:
    """Judge whether the predictor answers fast enough, with one verdict for each limit."""
    calls = "batch" if gate.batch else "one_row"
    serving = report["serving"] or {}
    measured = serving.get(calls)
    if measured is None:
        return [_verdict_unmeasured("latency", "the predictor's latency", serving)]
    verdicts = []
    rows = measured["rows"]
    noun = "rows"
    if rows == 1:
        noun = "row"
    for quantile in ("p50_ms", "p99_ms"):
        limit = getattr(gate, quantile)
        if limit is None:
            continue
        value = measured[quantile]
        reason = (
            f"{quantile[:3]} of {measured['calls']:,} calls with {rows:,} {noun}: {value:.3g} ms, "
            f"at most {limit:g} ms accepted"
        )
        verdicts.append(Verdict("latency", _pass_if(value <= limit), reason, quantile, value, limit))
    return verdicts


def judge_size(gate: Size, report: Mapping[str, Any]) -> list[Verdict]:
    """Judge whether checkpoint and memory are small enough, with one verdict for each limit."""
    serving = report["serving"] or {}
    verdicts = []
    for field, key, noun in _SIZES:
        limit = getattr(gate, field)
        if limit is None:
            continue
        if serving.get(key) is None:
            verdicts.append(_verdict_unmeasured("size", noun, serving))
            continue
        value = serving[key] / _MIB
        reason = f"{noun} is {value:.3g} MiB, at most {limit:g} MiB accepted"
        verdicts.append(Verdict("size", _pass_if(value <= limit), reason, noun, value, limit))
    return verdicts


def _verdict_unmeasured(name: str, noun: str, serving: Mapping[str, Any]) -> Verdict:
    why = serving.get("error") or "the spec's serving.seconds is 0, or it has an evaluator and no predictor"
    return Verdict(name, UNDECIDED, f"{noun} was not measured: {why}")


def rows_needed(conclusion: Conclusion, rows: str = "test rows") -> str:
    """A text on how many rows would settle a question, rounded up to two digits, as it is no more exact.

    Args:
        rows: the name of the rows that were judged.
    """
    few = ""
    if conclusion.telling is not None:
        total = f"{conclusion.n:,}"
        units = rows
        if conclusion.clusters:
            units = "groups"
            total = f"{conclusion.clusters:,} groups"
            if conclusion.clusters == 1:
                total = "1 group"
        few = (
            f"too few {units} differ: of {total} {conclusion.telling} do, and from fewer than {MIN_TELLING} "
            "nothing is concluded; "
        )
        if not conclusion.telling:
            return f"{few}take more {rows}: how many cannot be computed while none differs"
    if conclusion.needed is None:
        return f"{few}no number of rows within reason would settle it"
    unit = 10 ** max(0, len(str(conclusion.needed)) - 2)
    rounded = -(-conclusion.needed // unit) * unit
    return f"{few}about {rounded:,} {rows} would settle it, there are {conclusion.n:,}"


def _in_words(metric: str, low: float | None, high: float | None) -> str:
    ends = [f"{word} {end:g}" for word, end in (("at least", low), ("at most", high)) if end is not None]
    return f"{metric} {' and '.join(ends)}"


def _finite(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _number(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4f}"
    return str(value)


def _pass_if(condition: bool) -> Outcome:
    return PASS if condition else FAIL
