"""What ``define_metric`` says of metrics: their x axis, and what of them the summary has."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import isnan
from typing import Any

from halving.wandb.errors import Error

OPERATIONS = ("min", "max", "mean", "last", "first", "copy", "none")


@dataclass(frozen=True)
class Metric:
    """One call of ``define_metric``.

    Attributes:
        name: of the metric; with ``*`` at its end, of all whose names begin so.
        step_metric: the metric that is its x axis.
        step_sync: whether the last value of ``step_metric`` is logged with it where a call has none.
        summary: what the summary has of it; None for the last value.
        hidden: whether it has no chart of its own.
        goal: whether a smaller or a larger value is better, for older scripts; recorded.
    """

    name: str
    step_metric: str | None = None
    step_sync: bool | None = None
    summary: tuple[str, ...] | None = None
    hidden: bool | None = None
    goal: str | None = None

    def as_record(self) -> dict[str, Any]:
        """What is recorded of it."""
        facts = {
            "step_metric": self.step_metric,
            "summary": self.summary and list(self.summary),
            "hidden": self.hidden,
            "goal": self.goal,
        }
        return {name: value for name, value in facts.items() if value}


class DefinedMetrics:
    """All definitions of a run. A name goes before a pattern, and a longer pattern before a shorter."""

    def __init__(self) -> None:
        self._exact: dict[str, Metric] = {}
        self._patterns: dict[str, Metric] = {}
        self._matches: dict[str, Metric | None] = {}

    def __bool__(self) -> bool:
        return bool(self._exact or self._patterns)

    def add(self, metric: Metric, *, overwrite: bool = False) -> None:
        """Add a definition; without ``overwrite`` it completes an earlier one of the same name."""
        kind = self._exact
        if metric.name.endswith("*"):
            kind = self._patterns
        earlier = kind.get(metric.name)
        if earlier is not None and not overwrite:
            stated = {name: value for name, value in vars(metric).items() if value is not None}
            if earlier.summary and metric.summary:
                stated["summary"] = tuple(dict.fromkeys((*earlier.summary, *metric.summary)))
            metric = replace(earlier, **stated)
        kind[metric.name] = metric
        self._matches.clear()

    def names(self) -> list[str]:
        """The names and patterns."""
        return [*self._exact, *self._patterns]

    def match(self, name: str) -> Metric | None:
        """The definition of a metric, or None."""
        try:
            return self._matches[name]
        except KeyError:
            metric = self._matches[name] = self._find(name)
            return metric

    def as_record(self) -> dict[str, dict[str, Any]]:
        """All definitions by name, as they are recorded."""
        return {
            name: metric.as_record() for name, metric in sorted({**self._patterns, **self._exact}.items())
        }

    def _find(self, name: str) -> Metric | None:
        if name in self._exact:
            return self._exact[name]
        fitting = [pattern for pattern in self._patterns if name.startswith(pattern[:-1])]
        if not fitting:
            return None
        return self._patterns[max(fitting, key=len)]


def define(
    name: Any,
    step_metric: Any = None,
    step_sync: Any = None,
    hidden: Any = None,
    summary: Any = None,
    overwrite: Any = None,
    goal: Any = None,
) -> Metric:
    """Check the arguments of ``define_metric``.

    Raises:
        Error: one is not accepted, with W&B's own message.
    """
    if not name:
        raise Error("define_metric() requires non-empty name argument")
    if isinstance(step_metric, Metric):
        step_metric = step_metric.name
    arguments: dict[str, tuple[Any, type]] = {
        "name": (name, str),
        "step_metric": (step_metric, str),
        "step_sync": (step_sync, bool),
        "hidden": (hidden, bool),
        "summary": (summary, str),
        "overwrite": (overwrite, bool),
        "goal": (goal, str),
    }
    for field, (value, kind) in arguments.items():
        if value is not None and not isinstance(value, kind):
            raise Error(f"Unhandled define_metric() arg: {field} type: {type(value).__name__}")
    if "*" in name.removesuffix("*"):
        raise Error(f"Unhandled define_metric() arg: name (glob suffixes only): {name}")
    operations: tuple[str, ...] | None = None
    if summary:
        operations = tuple(part.lower() for part in summary.split(","))
        for operation in operations:
            if operation not in (*OPERATIONS, "best"):
                raise Error(f"Unhandled define_metric() arg: summary op: {operation}")
    if step_sync is None and step_metric is not None:
        step_sync = True
    return Metric(name, step_metric or None, step_sync, operations, hidden, goal)


class Aggregate:
    """Collects what the summary has of one metric. A NaN makes the minimum, the maximum and the mean NaN.

    Args:
        metric: says what is wanted; it may be another one later.
        recorded: the minimum, maximum and first value of earlier attempts, as far as they recorded them.
    """

    def __init__(self, metric: Metric, recorded: Mapping[str, float]) -> None:
        self.metric = metric
        self._recorded = dict(recorded)
        self._count = 0
        self._sum = self._min = self._max = self._first = self._last = 0.0

    def add(self, value: Any) -> None:
        """Add a value; one that is no number counts for nothing."""
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            return
        if not self._count:
            self._min = self._max = self._first = number
        elif number < self._min:
            self._min = number
        elif number > self._max:
            self._max = number
        if isnan(number):
            self._min = self._max = number
        self._count += 1
        self._sum += number
        self._last = number

    def as_summary(self) -> dict[str, float] | None:
        """The aggregates that are wanted; None where the summary has nothing of the metric."""
        wanted = self.metric.summary or ()
        if "none" in wanted:
            return None
        if not self._count:
            return {}
        smallest = min(self._min, self._recorded.get("min", self._min))
        largest = max(self._max, self._recorded.get("max", self._max))
        best = smallest
        if (self.metric.goal or "minimize").startswith("max"):
            best = largest
        values = {
            "min": smallest,
            "max": largest,
            "mean": self._sum / self._count,
            "last": self._last,
            "first": self._recorded.get("first", self._first),
            "best": best,
        }
        return {name: values[name] for name in wanted if name in values}
