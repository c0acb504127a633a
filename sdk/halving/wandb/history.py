"""A run's steps, as W&B counts them, and the summary that follows from what is logged."""

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from halving.ingest.device_tensors import capture, is_on_device
from halving.wandb.defined_metrics import Aggregate, DefinedMetrics, Metric
from halving.wandb.errors.term import termwarn
from halving.wandb.logged_values import INTERNAL, as_logged
from halving.wandb.summary import DELETED

_MAX_PENDING = 1000  # calls whose values a device computes, before they are fetched for aggregates


class Sink(Protocol):
    """Where values are recorded: a :class:`halving.Run`."""

    def log(self, values: Mapping[str, Any], *, step: int) -> None:
        """Record values at a step."""


class History:
    """Counts steps, hands values to the run at once, and keeps what the summary shows.

    Values are in the run's journal when a call returns, also those of a step that is not committed. What is
    logged again at the same step replaces the earlier value, because the last one of a step counts.

    Args:
        sink: the run; None where nothing is recorded.
        first_step: where counting begins.

    Attributes:
        step: the step that the next values belong to.
        values: the summary by top-level names, without aggregates.
        defined: what ``define_metric`` said.
        note: takes a call of plain numbers into the summary; the fast path of ``log`` calls it.
    """

    def __init__(self, sink: Sink | None, first_step: int = 0) -> None:
        self._sink = sink
        self.step = first_step
        self.defined = DefinedMetrics()
        self.values: dict[str, Any] = {}
        self.note: Callable[[Mapping[str, Any]], None] = self.values.update
        self._aggregates: dict[str, Aggregate] = {}
        self._assigned: dict[str, Any] = {}
        self._pending: list[tuple[str, Callable[[], list[float]]]] = []
        self._began = time.time()
        self._logged_at = 0.0

    def log(self, data: Mapping[str, Any], step: Any, commit: bool | None) -> None:
        """Record values, and count the step.

        Raises:
            TypeError: ``data`` is no dict, a name is no text, or ``step`` no whole number.
        """
        if not isinstance(data, Mapping):
            raise TypeError("wandb.log must be passed a dictionary")
        if any(not isinstance(key, str) for key in data):
            raise TypeError("Key values passed to `wandb.log` must be strings.")
        if step is not None:
            try:
                number = int(step.__index__())
            except AttributeError:
                raise TypeError(
                    f"{type(step).__name__!r} object cannot be interpreted as an integer"
                ) from None
            if number < self.step:
                termwarn(
                    f"Tried to log to step {number} that is less than the current step {self.step}."
                    " Steps must be monotonically increasing, so this data will be ignored.",
                    repeat=False,
                )
                return
            self.step = number
        row = {key: value for key, value in data.items() if key not in INTERNAL}
        if self.defined:
            row = {**self._missing_steps(row), **row}
        row = as_logged(row)
        if self._sink is not None and row:
            self._sink.log(row, step=self.step)
        self._logged_at = time.time()
        self.note({key: value for key, value in row.items() if value is not None})
        if commit or (commit is None and step is None):
            self.step += 1

    def define(self, metric: Metric, *, overwrite: bool) -> None:
        """Take a definition; it counts for what is logged from now on."""
        self.defined.add(metric, overwrite=overwrite)
        self.note = self._note_defined

    def assign(self, names: tuple[str, ...], value: Any) -> None:
        """Set or delete a summary value, which stays until its metric is logged again."""
        self._resolve()
        tree = self.values
        for name in names[:-1]:
            below = tree.get(name)
            if not isinstance(below, dict):
                below = {}
            tree[name] = dict(below)
            tree = tree[name]
        self._aggregates.pop(names[0], None)
        if value is DELETED:
            tree.pop(names[-1], None)
        else:
            tree[names[-1]] = summary_value(value)

    def summary(self) -> dict[str, Any]:
        """The whole summary, with aggregates, and W&B's own values under names with an underscore."""
        self._resolve()
        summary = {name: _settled(value) for name, value in self.values.items()}
        for name, aggregate in self._aggregates.items():
            values = aggregate.as_summary()
            if values:
                summary[name] = values
        if self._logged_at:
            runtime = self._logged_at - self._began
            summary["_step"] = max(0, self.step - 1)
            summary["_timestamp"] = self._logged_at
            summary["_runtime"] = runtime
            summary["_wandb"] = {"runtime": int(runtime)}
        return summary

    def numbers(self) -> dict[str, float]:
        """The summary's numbers by names that are joined by ``/``, as imports of W&B's runs have them."""
        own = {name: value for name, value in self.summary().items() if name not in INTERNAL}
        return dict(_numbers("", own))

    def _missing_steps(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """The last values of x axes that this call lacks."""
        steps = {}
        for name in row:
            metric = self.defined.match(name)
            if metric is None or not metric.step_sync or metric.step_metric is None:
                continue
            axis = metric.step_metric
            if axis not in row and axis in self.values:
                steps[axis] = self.values[axis]
        return steps

    def _note_defined(self, row: Mapping[str, Any]) -> None:
        for name, value in row.items():
            metric = self.defined.match(name)
            if metric is None or metric.summary is None:
                self.values[name] = value
                continue
            if "none" in metric.summary:
                continue
            if metric.summary == ("copy",):
                self.values[name] = value
                continue
            aggregate = self._aggregates.get(name)
            if aggregate is None:
                aggregate = self._aggregates[name] = Aggregate(metric)
                self.values.pop(name, None)
            if is_on_device(value):
                self._pending.extend((name, fetch) for _, fetch in capture({name: value}))
                if len(self._pending) > _MAX_PENDING:
                    self._resolve()
            else:
                self._resolve()
                aggregate.add(value)

    def _resolve(self) -> None:
        """Fetch what a device has computed, in the order of logging."""
        pending = self._pending
        self._pending = []
        for name, fetch in pending:
            for number in fetch():
                self._aggregates[name].add(number)


def summary_value(value: Any) -> Any:
    """A value that a script assigns to its summary, as plain data."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Mapping):
        return {str(name): summary_value(inner) for name, inner in value.items()}
    return _settled(value)


def _settled(value: Any) -> Any:
    """A logged value as plain data; one that a device computes is waited for."""
    if isinstance(value, dict):
        return {name: _settled(inner) for name, inner in value.items()}
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        return value.item()
    if hasattr(value, "tolist") and hasattr(value, "shape"):
        return value.tolist()
    if hasattr(value, "media_type"):
        return {"_type": value.kind}
    return value


def _numbers(prefix: str, values: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for name, value in values.items():
        if isinstance(value, dict) and "_type" not in value:
            yield from _numbers(f"{prefix}{name}/", value)
        elif isinstance(value, (int, float)):
            try:
                yield f"{prefix}{name}", float(value)
            except OverflowError:
                continue
