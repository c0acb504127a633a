"""The gates that hold a figure of the winner alone to a limit: ``finite_metrics``, ``bounds``, ``latency``
and ``size``.
"""

import math
from collections.abc import Mapping
from typing import Any

from halving.errors import HalvingError
from resources.evaluation.comparison import value_of
from resources.evaluation.predictions import Predictions
from resources.evaluation.statistics.too_few import LEAST_TELLING
from resources.evaluation.statistics.verdict import Conclusion, within
from resources.registry.gates.verdict import FAIL, PASS, UNDECIDED, Verdict
from resources.sweep_spec.gates import Latency, MetricBounds, Size

_MIB = 2**20
_SIZES = (
    ("checkpoint_mib", "checkpoint_bytes", "the checkpoint"),
    ("memory_mib", "peak_memory_bytes", "the memory of the predictor's process"),
)


def judge_finite(report: Mapping[str, Any]) -> Verdict:
    """Every test metric is a finite number."""
    wrong = sorted(name for name, value in report["metrics"].items() if not _finite(value))
    if wrong:
        known = report.get("without_value", {})
        why = "; ".join(dict.fromkeys(known[name] for name in wrong if name in known))
        return Verdict(
            "finite_metrics", FAIL, f"not finite: {', '.join(wrong)}" + (f" ({why})" if why else "")
        )
    return Verdict("finite_metrics", PASS, "every test metric is finite")


def judge_search_bounds(report: Mapping[str, Any]) -> Verdict:
    """The metrics that trials report are within the spec's bounds, by which the search ranks."""
    bounds = report["spec"]["bounds"]
    winner = report["winner"]
    values = ", ".join(f"{metric} {_number(winner['metrics'][metric])}" for metric in bounds)
    reason = (
        f"{values}; accepted are "
        f"{', '.join(_in_words(name, bound.get('min'), bound.get('max')) for name, bound in bounds.items())}"
    )
    return Verdict("bounds", PASS if winner["violation"] == 0 else FAIL, reason, ", ".join(bounds))


def judge_bounds(gate: MetricBounds, report: Mapping[str, Any], ours: Predictions) -> Verdict:
    """A test metric is within bounds, with its whole interval where it has one."""
    metric = gate.metric
    wanted = _in_words(gate.metric, gate.min, gate.max)
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
        return Verdict("bounds", FAIL, f"{metric} is not finite; accepted is {wanted}", metric, value, limit)
    if metric not in report["intervals"]:  # a single figure of an evaluator
        inside = (gate.min is None or value >= gate.min) and (gate.max is None or value <= gate.max)
        return Verdict(
            "bounds",
            PASS if inside else FAIL,
            f"{metric} {value:.4f}; accepted is {wanted}",
            metric,
            value,
            limit,
        )
    try:
        found = within(value_of(ours, metric), gate.min, gate.max)
    except HalvingError as error:
        return Verdict("bounds", FAIL, f"{metric} cannot be judged: {error}", metric, value, limit)
    interval = (
        f" (at 95 % from {found.low:.4f} to {found.high:.4f})"
        if math.isfinite(found.low) and math.isfinite(found.high)
        else ""
    )
    reason = f"{metric} {value:.4f}{interval}; accepted is {wanted}"
    if found.outcome == UNDECIDED:
        rows = "test rows" if found.n == ours.rows else "rows of the class that is to be found"
        reason += f": whether it is within cannot be told; {rows_needed(found, rows)}"
    needed = -(-found.needed * ours.rows // found.n) if found.needed else None
    return Verdict("bounds", found.outcome, reason, metric, value, limit, found.low, found.high, needed)


def _limit(gate: MetricBounds, value: Any) -> float | None:
    """The bound that a value is held to: of two the nearer one."""
    if gate.min is None or gate.max is None or not _finite(value):
        return gate.min if gate.min is not None else gate.max
    return gate.min if value - gate.min < gate.max - value else gate.max


def judge_latency(gate: Latency, report: Mapping[str, Any]) -> list[Verdict]:
    """The predictor answers fast enough; one verdict for each limit."""
    calls = "batch" if gate.batch else "one_row"
    serving = report["serving"] or {}
    measured = serving.get(calls)
    if measured is None:
        return [_unmeasured("latency", "the predictor's latency", serving)]
    found = []
    for quantile in ("p50_ms", "p99_ms"):
        if (most := getattr(gate, quantile)) is not None:
            value = measured[quantile]
            rows = measured["rows"]
            reason = (
                f"{quantile[:3]} of {measured['calls']:,} calls with {rows:,} "
                f"row{'s' if rows != 1 else ''}: {value:.3g} ms"
            )
            outcome = PASS if value <= most else FAIL
            found.append(
                Verdict("latency", outcome, f"{reason}, at most {most:g} ms accepted", quantile, value, most)
            )
    return found


def judge_size(gate: Size, report: Mapping[str, Any]) -> list[Verdict]:
    """Checkpoint and memory are small enough; one verdict for each limit."""
    serving = report["serving"] or {}
    found = []
    for field, key, what in _SIZES:
        if (most := getattr(gate, field)) is None:
            continue
        if serving.get(key) is None:
            found.append(_unmeasured("size", what, serving))
            continue
        value = serving[key] / _MIB
        reason = f"{what} is {value:.3g} MiB, at most {most:g} MiB accepted"
        found.append(Verdict("size", PASS if value <= most else FAIL, reason, what, value, most))
    return found


def _unmeasured(name: str, what: str, serving: Mapping[str, Any]) -> Verdict:
    why = serving.get("error") or "the spec's serving.seconds is 0, or it has an evaluator and no predictor"
    return Verdict(name, UNDECIDED, f"{what} was not measured: {why}")


def rows_needed(found: Conclusion, rows: str = "test rows") -> str:
    """How many rows would settle a question, for people: to two digits, upwards, since it is no more exact
    than that.

    Args:
        rows: which rows those are that were judged.
    """
    few = ""
    if found.telling is not None:
        of, units = (
            (f"{found.clusters:,} group{'s' if found.clusters > 1 else ''}", "groups")
            if found.clusters
            else (f"{found.n:,}", rows)
        )
        few = (
            f"too few {units} tell anything: of {of} {found.telling} differ, and of fewer than "
            f"{LEAST_TELLING} nothing is concluded; "
        )
        if not found.telling:
            return f"{few}take more {rows}: how many cannot be foretold while none differs"
    if found.needed is None:
        return f"{few}no number of rows within reason would settle it"
    unit = 10 ** max(0, len(str(found.needed)) - 2)
    return f"{few}about {-(-found.needed // unit) * unit:,} {rows} would settle it, there are {found.n:,}"


def _in_words(metric: str, least: float | None, most: float | None) -> str:
    ends = [f"{word} {end:g}" for word, end in (("at least", least), ("at most", most)) if end is not None]
    return f"{metric} {' and '.join(ends)}"


def _finite(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _number(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, float) else str(value)
