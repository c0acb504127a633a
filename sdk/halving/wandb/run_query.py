"""W&B's filters and orders of runs, which are MongoDB's, on what the records say of a run."""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from halving.text import comma_list
from halving.wandb.errors import UsageError
from halving.wandb.recorded_runs import RecordedRun
from halving.wandb.run_labels import Labels

Predicate = Callable[[RecordedRun], bool]
MISSING = object()
"""The value of a field that a run does not have."""

_STATES = {
    "unfinished": "crashed",
    "terminated": "crashed",  # W&B does not hear of a SIGTERM.
    "stopped": "killed",
    "paused": "preempted",
}
_NAMES = {
    "createdAt": "created_at",
    "displayName": "display_name",
    "jobType": "job_type",
    "heartbeatAt": "heartbeat_at",
    "updatedAt": "heartbeat_at",
    "updated_at": "heartbeat_at",
    "summary": "summary_metrics",
}
_FLAGS = {"i": re.IGNORECASE, "m": re.MULTILINE, "s": re.DOTALL, "x": re.VERBOSE}  # MongoDB's $options
_SECTIONS = ("config", "summary_metrics")
_TIMES = ("created_at", "heartbeat_at")


def state_of(run: RecordedRun) -> str:
    """The state of a run in W&B's words."""
    return _STATES.get(run.status, run.status)


def labels_of(run: RecordedRun) -> Labels:
    """The run's name, tags, group and so on."""
    return Labels().completed(run.tags)


def time_of(text: str) -> datetime:
    """A time of ISO 8601; in UTC where it names no zone.

    Raises:
        ValueError: it is none.
    """
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        return time.replace(tzinfo=UTC)
    return time


_FIELDS: dict[str, Callable[[RecordedRun], Any]] = {
    "created_at": lambda run: time_of(run.started),
    "display_name": lambda run: labels_of(run).name or run.id,
    "duration": lambda run: run.seconds,
    "entity": lambda run: labels_of(run).entity,
    "group": lambda run: labels_of(run).group,
    "heartbeat_at": lambda run: time_of(run.ended or run.started),
    "host": lambda run: (run.provenance.get("hardware") or {}).get("host"),
    "job_type": lambda run: labels_of(run).job_type,
    "name": lambda run: run.id,
    "notes": lambda run: labels_of(run).notes,
    "project": lambda run: run.project,
    "state": state_of,
    "sweep": lambda run: labels_of(run).sweep or run.parent.get("sweep"),
    "tags": lambda run: list(labels_of(run).tags),
}


def predicate_of(filters: Mapping[str, Any] | None) -> Predicate:
    """Whether a filter chooses a run.

    Args:
        filters: such as ``{"config.lr": {"$lt": 0.1}, "state": "finished"}``.

    Raises:
        UsageError: naming the field or operator that has no equal here.
    """
    if filters is None:
        filters = {}
    if not isinstance(filters, Mapping):
        raise UsageError(f"filters = {filters!r:.80} is not accepted: give a dict of fields and conditions")
    parts = [_part(name, condition) for name, condition in filters.items()]
    return lambda run: all(part(run) for part in parts)


def sorted_runs(runs: Sequence[RecordedRun], order: str | None) -> list[RecordedRun]:
    """Runs in an order such as ``-summary_metrics.loss``; those without the value come last.

    Raises:
        UsageError: the order names a field that has no equal here.
    """
    text = order or "+created_at"
    descending = text.startswith("-")
    read = reader_of(text.lstrip("+-"))
    with_value = [(read(run), run) for run in runs]
    ranked = [(_rank(value), run) for value, run in with_value if _rank(value) is not None]
    ranked.sort(key=lambda pair: pair[0], reverse=descending)  # type: ignore[arg-type, return-value]
    return [run for _, run in ranked] + [run for value, run in with_value if _rank(value) is None]


def reader_of(name: str) -> Callable[[RecordedRun], Any]:
    """What reads a field of a run; :data:`MISSING` where the run has none.

    Raises:
        UsageError: there is no such field here.
    """
    first, dot, rest = name.partition(".")
    first = _NAMES.get(first, first)
    if first in _SECTIONS and dot and rest:
        if first == "config":
            return lambda run: _nested(run.params, rest.removesuffix(".value"))
        return lambda run: _summary_value(run, rest)
    if first in _FIELDS and not dot:
        read = _FIELDS[first]
        return lambda run: _or_missing(read(run))
    raise UsageError(
        f"field {name!r} has no equal here: there are {comma_list(sorted(_FIELDS))}, config.NAME and "
        "summary_metrics.NAME"
    )


def _part(name: str, condition: Any) -> Predicate:
    if name in ("$and", "$or", "$nor"):
        if not isinstance(condition, (list, tuple)) or not condition:
            raise UsageError(f"{name} = {condition!r:.80} is not accepted: give a list of filters")
        inner = [predicate_of(part) for part in condition]
        return {
            "$and": lambda run: all(part(run) for part in inner),
            "$or": lambda run: any(part(run) for part in inner),
            "$nor": lambda run: not any(part(run) for part in inner),
        }[name]
    if name.startswith("$"):
        raise UsageError(f"{name} has no equal here: there are $and, $or and $nor of filters")
    read = reader_of(name)
    field = _NAMES.get(name, name)
    test = _condition(field, condition)
    return lambda run: test(read(run))


def _condition(field: str, condition: Any) -> Callable[[Any], bool]:
    """What tests the value of a field."""
    if not isinstance(condition, Mapping) or not any(str(name).startswith("$") for name in condition):
        wanted = _operand(field, condition)
        return lambda value: _equal(value, wanted)
    flags = condition.get("$options", "")
    tests = []
    for name, operand in condition.items():
        if name == "$options":
            continue
        tests.append(_test(field, str(name), operand, str(flags)))
    return lambda value: all(test(value) for test in tests)


def _test(field: str, name: str, operand: Any, flags: str) -> Callable[[Any], bool]:
    if name == "$not":
        inner = _condition(field, operand)
        return lambda value: not inner(value)
    if name == "$exists":
        return lambda value: (value is not MISSING) == bool(operand)
    if name == "$regex":
        try:
            pattern = re.compile(str(operand), _flags(field, flags))
        except re.error as error:
            raise UsageError(f"{field}.$regex = {operand!r:.80} is not accepted: {error}") from None
        return lambda value: any(isinstance(each, str) and pattern.search(each) for each in _each(value))
    if name in ("$in", "$nin"):
        if not isinstance(operand, (list, tuple, set)):
            raise UsageError(f"{field}.{name} = {operand!r:.80} is not accepted: give a list")
        choices = [_operand(field, each) for each in operand]
        return lambda value: any(_equal(value, each) for each in choices) == (name == "$in")
    if name not in _COMPARISONS:
        raise UsageError(
            f"{field}.{name} has no equal here: there are {comma_list(sorted([*_COMPARISONS, *_OTHERS]))}"
        )
    compare = _COMPARISONS[name]
    wanted = _operand(field, operand)
    return lambda value: compare(value, wanted)


def _flags(field: str, options: str) -> int:
    flags = re.NOFLAG
    for letter in options:
        if letter not in _FLAGS:
            raise UsageError(f"{field}.$options = {options!r:.80} is not accepted: give letters of imsx")
        flags |= _FLAGS[letter]
    return flags


def _compared(value: Any, wanted: Any, test: Callable[[Any, Any], bool]) -> bool:
    """Whether any of the values has the type of the wanted one and passes the test."""
    return any(_kind(each) == _kind(wanted) and test(each, wanted) for each in _each(value))


_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "$eq": lambda value, wanted: _equal(value, wanted),
    "$ne": lambda value, wanted: not _equal(value, wanted),
    "$gt": lambda value, wanted: _compared(value, wanted, lambda a, b: a > b),
    "$gte": lambda value, wanted: _compared(value, wanted, lambda a, b: a >= b),
    "$lt": lambda value, wanted: _compared(value, wanted, lambda a, b: a < b),
    "$lte": lambda value, wanted: _compared(value, wanted, lambda a, b: a <= b),
}
_OTHERS = ("$exists", "$in", "$nin", "$not", "$regex")


def _equal(value: Any, wanted: Any) -> bool:
    if wanted is None:
        return value is MISSING or value is None
    if isinstance(value, list) and isinstance(wanted, list):
        return value == wanted
    return any(_kind(each) == _kind(wanted) and each == wanted for each in _each(value))


def _each(value: Any) -> list[Any]:
    """The value, or the values of a list: a condition on a list is met by any of them."""
    if value is MISSING:
        return []
    if isinstance(value, list):
        return value
    return [value]


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "flag"
    if isinstance(value, (int, float)):
        return "number"
    return type(value).__name__


def _operand(field: str, operand: Any) -> Any:
    if field not in _TIMES:
        return operand
    if isinstance(operand, datetime):
        return time_of(operand.isoformat())
    try:
        return time_of(str(operand))
    except ValueError:
        raise UsageError(
            f"{field} = {operand!r:.80} is not accepted: give a time such as 2026-11-01T12:00:00Z"
        ) from None


def _rank(value: Any) -> tuple[int, Any] | None:
    """What a value is ordered by, numbers before texts; None for what has no place."""
    if isinstance(value, datetime):
        return (0, value.timestamp())
    if isinstance(value, (bool, int, float)):
        if value != value:  # NaN
            return None
        return (0, float(value))
    if isinstance(value, str):
        return (1, value)
    return None


def _nested(params: Mapping[str, Any], name: str) -> Any:
    """A param by its name, in which dots lead into nested ones."""
    if name in params:
        return _or_missing(params[name])
    first, dot, rest = name.partition(".")
    inner = params.get(first)
    if dot and isinstance(inner, Mapping):
        return _nested(inner, rest)
    return MISSING


def _summary_value(run: RecordedRun, name: str) -> Any:
    if name == "_runtime":
        return _or_missing(run.seconds)
    if name == "_timestamp":
        return time_of(run.ended or run.started).timestamp()
    for spelling in (name, name.replace(".", "/")):
        if spelling in run.summary:
            return run.summary[spelling]
    return MISSING


def _or_missing(value: Any) -> Any:
    if value is None:
        return MISSING
    return value
