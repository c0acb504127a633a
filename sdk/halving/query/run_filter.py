"""The language that chooses runs: ``params.lr between 1e-4 and 1e-3 and status = finished order by metrics.val_loss``.

One language for the command, the API and the page. Here are its parts as data, for whoever answers a filter.
"""

from dataclasses import dataclass
from typing import Literal

Value = str | float | bool
"""A literal: text (and times, as ISO 8601), a number, true or false. NaN is the number nan."""


@dataclass(frozen=True)
class Field:
    """What a run is asked for.

    Attributes:
        kind: ``run`` for a field that every run has (``status``, ``started``…), else ``params``, ``metrics`` or ``tags``.
        name: of the field, param, metric or tag.
        part: of a metric's curve: ``metrics.loss`` is its last value, ``min(metrics.loss)`` its smallest.
        column: where it stands in the filter, from 1.
    """

    kind: Literal["run", "params", "metrics", "tags"]
    name: str
    part: Literal["last", "best", "min", "max"] = "last"
    column: int = 1


@dataclass(frozen=True)
class Comparison:
    """``FIELD = VALUE`` and its kin. A value of another type than the literal's never matches, whatever the operator."""

    field: Field
    operator: Literal["=", "!=", "<", "<=", ">", ">="]
    value: Value


@dataclass(frozen=True)
class Between:
    """``FIELD between LOW and HIGH``, both included."""

    field: Field
    low: Value
    high: Value


@dataclass(frozen=True)
class In:
    """``FIELD in (A, B, …)``."""

    field: Field
    values: tuple[Value, ...]


@dataclass(frozen=True)
class Like:
    """``FIELD like 'res%'``: ``%`` is any text, ``_`` any character; upper and lower case are the same."""

    field: Field
    pattern: str


@dataclass(frozen=True)
class IsNull:
    """``FIELD is null``: the run has no such value."""

    field: Field


@dataclass(frozen=True)
class Not:
    """``not CONDITION``. A run that lacks the value matches neither the condition nor its negation: only ``is null`` finds it."""

    inner: "Condition"


@dataclass(frozen=True)
class And:
    """All of these."""

    parts: "tuple[Condition, ...]"


@dataclass(frozen=True)
class Or:
    """Any of these."""

    parts: "tuple[Condition, ...]"


Condition = Comparison | Between | In | Like | IsNull | Not | And | Or


@dataclass(frozen=True)
class Order:
    """What runs are ordered by; those without the value, or with NaN, come last in either direction."""

    field: Field
    descending: bool = False


@dataclass(frozen=True)
class RunFilter:
    """A filter as it was understood. Ties, and runs without any order, are newest first.

    Attributes:
        where: None for every run.
        limit: None for as many as there are.
    """

    where: Condition | None = None
    order: tuple[Order, ...] = ()
    limit: int | None = None
