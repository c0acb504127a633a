"""A run's steps, as W&B counts them, and the summary that follows from what is logged."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from halving.ingest.device_tensors import capture, is_on_device
from halving.wandb.defined_metrics import OPERATIONS, Aggregate, DefinedMetrics, Metric
from halving.wandb.errors.term import termwarn
from halving.wandb.logged_values import INTERNAL, as_logged
from halving.wandb.summary import DELETED

_AS_THEY_ARE = frozenset({int, float, bool})
_MAX_PENDING = 1000  # values that wait for a device, before the older half is fetched for aggregates
_MAX_STEP = 2**63 - 1


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
        lock: held while a call takes its step, so that each call of several threads has one of its own.
    """

    def __init__(self, sink: Sink | None, first_step: int = 0) -> None:
        self._sink = sink
        self.step = first_step
        self.defined = DefinedMetrics()
        self.values: dict[str, Any] = {}
        self.note: Callable[[Mapping[str, Any]], None] = self.values.update
        self._aggregates: dict[str, Aggregate] = {}  # by the names of metrics; nested ones are joined by "."
        self._aggregated: dict[tuple[str, ...], list[str]] = {}  # what of a call's names has aggregates
        self._follows_axes = False
        self._whole: set[tuple[str, ...]] = set()  # the names of calls that lack no x axis
        self._assigned: set[str] = set()
        self._pending: list[tuple[str, Callable[[], list[Any]]]] = []
        self.renew_locks()
        self._began = time.time()
        self._has_logged = False

    def log(self, data: Mapping[str, Any], step: Any, commit: bool | None) -> None:
        """Record values, and count the step.

        Raises:
            TypeError: ``data`` is no dict, a name is no text, or ``step`` no whole number.
        """
        if not isinstance(data, Mapping):
            raise TypeError("wandb.log must be passed a dictionary")
        if any(not isinstance(key, str) for key in data):
            raise TypeError("Key values passed to `wandb.log` must be strings.")
        number = None
        if step is not None:
            number = _whole_number(step)
            if self._is_late(number):
                return
        row = {key: value for key, value in data.items() if key not in INTERNAL}
        # Converting an image takes long, so other threads do not wait for it.
        converted = as_logged(row)
        kept = remembered(row, converted)
        with self.lock:
            if number is not None:
                if self._is_late(number):
                    return
                self.step = number
            at = self.step
            if self._follows_axes:
                steps = self._missing_steps(row)
                converted = {**as_logged(steps), **converted}
                kept = {**steps, **kept}
            self._has_logged = True
            nested = {name: self.values.get(name) for name, value in kept.items() if _is_nested(value)}
            self.note(kept)
            self.values.update({name: _merged(before, kept[name]) for name, before in nested.items()})
            if self._sink is not None and (commit or (commit is None and step is None)):
                self.step += 1
        if self._sink is not None and converted:
            self._sink.log(converted, step=at)

    def renew_locks(self) -> None:
        """Make the locks anew, as a forked child must, whose parent's threads may have held them."""
        # A signal's handler may log as well, so its own thread may take them again.
        self.lock = threading.RLock()
        self._fetching = threading.RLock()

    def define(self, metric: Metric, *, overwrite: bool) -> None:
        """Take a definition; it counts for what is logged from now on."""
        with self.lock:
            self._define(metric, overwrite)

    def _define(self, metric: Metric, overwrite: bool) -> None:
        self.defined.add(metric, overwrite=overwrite)
        for name, aggregate in list(self._aggregates.items()):
            changed = self.defined.match(name)
            if changed is None or not changed.summary:
                del self._aggregates[name]
            else:
                aggregate.metric = changed
        self.note = self._note_defined
        self._follows_axes = self._follows_axes or bool(metric.step_sync)
        self._whole.clear()
        self._aggregated.clear()

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
        self._aggregates.pop(".".join(names), None)
        self._assigned.add(names[0])
        if value is DELETED:
            tree.pop(names[-1], None)
        else:
            tree[names[-1]] = summary_value(value)

    def summary(self) -> dict[str, Any]:
        """The whole summary, with aggregates, and W&B's own values under names with an underscore."""
        self._resolve()
        with self.lock:
            values = dict(self.values)
            aggregates = dict(self._aggregates)
        summary = {}
        for name, value in values.items():
            # A device that has failed does not give its value any more; the others are kept.
            with contextlib.suppress(Exception):
                summary[name] = _settled(value)
        for name, aggregate in aggregates.items():
            names = name.split(".")
            if name in values:
                names = [name]  # A name that has dots itself.
            _put(summary, names, aggregate.as_summary())
        if self._has_logged:
            time_s = time.time()
            runtime = time_s - self._began
            summary["_step"] = max(0, self.step - 1)
            summary["_timestamp"] = time_s
            summary["_runtime"] = runtime
            summary["_wandb"] = {"runtime": int(runtime)}
        return summary

    def assigned_numbers(self) -> dict[str, float]:
        """The numbers below names that the script has assigned, and all aggregates."""
        summary = self.summary()
        names = self._assigned | {name.partition(".")[0] for name in self._aggregates}
        return dict(_numbers("", {name: summary[name] for name in names if name in summary}))

    def numbers(self) -> dict[str, float]:
        """The summary's numbers by names that are joined by ``/``, as imports of W&B's runs have them."""
        own = {name: value for name, value in self.summary().items() if name not in INTERNAL}
        return dict(_numbers("", own))

    def takes_fast(self, data: Mapping[str, Any]) -> bool:
        """Whether a call with these names may go the fast path: it lacks no x axis that is logged with it."""
        return not self._follows_axes or tuple(data) in self._whole

    def _missing_steps(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """The x axes that this call lacks, with their last values; 0 where there is none, as in W&B."""
        steps: dict[str, Any] = {}
        for name in _dotted_names("", row):
            metric = self.defined.match(name)
            if metric is None or not metric.step_sync or metric.step_metric is None:
                continue
            if metric.step_metric not in row:
                steps[metric.step_metric] = self.values.get(metric.step_metric, 0)
        if not steps:
            self._whole.add(tuple(row))
        return steps

    def _note_defined(self, row: Mapping[str, Any]) -> None:
        self.values.update(row)
        names = tuple(row)
        aggregated = self._aggregated.get(names)
        if aggregated is None:
            aggregated = self._aggregated[names] = [name for name in names if self._has_aggregates(name)]
        for name in aggregated:
            self._aggregate(name, row[name])

    def _has_aggregates(self, name: str) -> bool:
        """Whether a top-level name, or one below it, has aggregates."""
        if any(defined.startswith(f"{name}.") for defined in self.defined.names()):
            return True
        metric = self.defined.match(name)
        return metric is not None and bool(metric.summary)

    def _aggregate(self, name: str, value: Any) -> None:
        aggregate = self._aggregates.get(name)
        if aggregate is not None and type(value) in _AS_THEY_ARE and not self._pending:
            # The hot path: a plain number again.
            aggregate.add(value)
            return
        if isinstance(value, dict):
            for inner, below in value.items():
                self._aggregate(f"{name}.{inner}", below)
            return
        metric = self.defined.match(name)
        if metric is None or not metric.summary:
            return
        if aggregate is None:
            recorded = {
                operation: self.values.pop(f"{name}/{operation}")
                for operation in OPERATIONS
                if f"{name}/{operation}" in self.values
            }
            aggregate = self._aggregates[name] = Aggregate(metric, recorded)
        if is_on_device(value):
            with contextlib.suppress(Exception):  # The device may have failed, or have no memory left.
                self._pending.extend((name, fetch) for _, fetch in capture({name: value}))
        elif self._pending:
            # It takes its turn, so that nothing waits for the device here.
            self._pending.append((name, lambda: [value]))
        else:
            aggregate.add(value)
        if len(self._pending) > _MAX_PENDING and self._fetching.acquire(blocking=False):
            # The older half was computed long ago. Whoever fetches already may wait for this call's lock.
            try:
                self._fetch(_MAX_PENDING // 2)
            finally:
                self._fetching.release()

    def _resolve(self) -> None:
        """Fetch what a device has computed."""
        with self._fetching:
            self._fetch(None)

    def _fetch(self, count: int | None) -> None:
        """Fetch all that waits, or the ``count`` oldest, in the order of logging."""
        with self.lock:
            pending = self._pending[:count]
            del self._pending[:count]
        for name, fetch in pending:
            with contextlib.suppress(Exception):  # The device may have failed meanwhile.
                for number in fetch():
                    if aggregate := self._aggregates.get(name):
                        aggregate.add(number)

    def _is_late(self, step: int) -> bool:
        """Whether a step is before the current one; it is warned about once."""
        if step >= self.step:
            return False
        termwarn(
            f"Tried to log to step {step} that is less than the current step {self.step}."
            " Steps must be monotonically increasing, so this data will be ignored.",
            repeat=False,
        )
        return True


def _whole_number(step: Any) -> int:
    """A step as an integer.

    Raises:
        TypeError: it is none.
        ValueError: it has more than 63 bits.
    """
    try:
        number = int(step.__index__())
    except AttributeError:
        raise TypeError(f"{type(step).__name__!r} object cannot be interpreted as an integer") from None
    if number > _MAX_STEP:
        raise ValueError(f"Value out of range: {number}")
    return number


def remembered(row: Mapping[str, Any], converted: Mapping[str, Any]) -> dict[str, Any]:
    """What the summary keeps of a call: texts as they are, tensors without graph, media by kind.

    What a script may change later (an array, a tensor) is copied; nothing waits for a device.
    """
    kept: dict[str, Any] = {}
    for name, value in converted.items():
        kind = type(value)
        if kind in _AS_THEY_ARE:
            kept[name] = value
            continue
        original = row.get(name)
        if isinstance(original, Mapping) and kind is dict:
            kept[name] = remembered(original, value)
        elif isinstance(original, str):
            kept[name] = original
        elif isinstance(value, (int, float, dict, list, tuple)):
            kept[name] = value
        elif hasattr(value, "media_type"):
            kept[name] = {"_type": value.kind}
        elif kind.__module__ == "numpy":
            kept[name] = value.copy()
        elif hasattr(value, "detach"):
            with contextlib.suppress(Exception):  # The device may have failed, or have no memory left.
                kept[name] = value.detach().clone()
        elif getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
            # The run fetches it now as well.
            kept[name] = value.item()
        # Of anything else, which may be as large as a model, nothing is kept.
    return kept


def _is_nested(value: Any) -> bool:
    return isinstance(value, dict) and "_type" not in value


def _merged(before: Any, value: dict[str, Any]) -> dict[str, Any]:
    """A nested value with those of its names that were logged before and are not logged now."""
    if not isinstance(before, dict) or not _is_nested(before):
        return value
    inner = {name: _merged(before.get(name), below) for name, below in value.items() if _is_nested(below)}
    return before | value | inner


def _dotted_names(prefix: str, row: Mapping[str, Any]) -> Iterator[str]:
    """The names of a call, as ``define_metric`` knows them: nested ones are joined by ``.``."""
    for name, value in row.items():
        if isinstance(value, Mapping):
            yield from _dotted_names(f"{prefix}{name}.", value)
        else:
            yield f"{prefix}{name}"


def _put(summary: dict[str, Any], names: list[str], values: dict[str, float] | None) -> None:
    """Put a metric's aggregates in place of its last value; None leaves it out."""
    tree = summary
    for name in names[:-1]:
        below = tree.get(name)
        below = dict(below) if isinstance(below, dict) else {}
        tree[name] = below
        tree = below
    if values is None:
        tree.pop(names[-1], None)
    elif values:
        tree[names[-1]] = values


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
