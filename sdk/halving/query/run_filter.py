"""The language that chooses runs: ``params.lr between 1e-4 and 1e-3 and status = finished order by
metrics.val_loss``.

One language for the command, the API and the page. Here are its parts as data, for whoever answers a filter,
and how they are written; :mod:`halving.query.run_filter_parser` reads them from text.

A condition is true, false or unknown of a run, as in SQL, and chooses the runs of which it is true. A value
that the run has not, or that is of another type than the literal, makes a comparison unknown; ``not`` leaves
that unknown.
"""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from halving.errors import InvalidInput

Value = str | int | float | bool
"""A literal: text, a number (NaN and infinities too), true or false. A time is text: ISO 8601 in UTC."""

Type = Literal["text", "number", "time", "any"]

MAX_CHARACTERS = 8_000
MAX_DEPTH = 50
MAX_CONDITIONS = 200
MAX_ORDERS = 8
MAX_TEXT = 600
"""Characters of a run's text that filters know. In four bytes each they fit into an index of Postgres."""


class InvalidFilter(InvalidInput):
    """A filter is not accepted; the message says where, what stands there and what is accepted.

    Attributes:
        reason: the message without the place.
        column: the place in the filter, from 1.
    """

    def __init__(self, reason: str, column: int) -> None:
        super().__init__(reason, column)
        self.reason = reason
        self.column = column

    def __str__(self) -> str:
        return f"column {self.column}: {self.reason}"


@dataclass(frozen=True)
class RunField:
    """A field that every run has.

    Attributes:
        in_catalog: only the catalog knows it, not the run's own records.
    """

    type: Type
    about: str
    in_catalog: bool = False


RUN_FIELDS = {
    "project": RunField("text", "the project"),
    "run": RunField("text", "the run's id"),
    "status": RunField(
        "text", "finished, failed, paused, crashed, running, unfinished, or what the script chose"
    ),
    "lifecycle": RunField(
        "text", "active, archived or deleted; a filter that does not name it chooses active runs alone"
    ),
    "started": RunField("time", "when the first attempt began"),
    "ended": RunField("time", "when the newest attempt ended"),
    "seconds": RunField("number", "time of all attempts together"),
    "epoch": RunField("number", "epochs completed"),
    "attempt": RunField("number", "the newest attempt: 1, 2, …"),
    "seed": RunField("number", "the seed"),
    "sweep": RunField("text", "the sweep that it is a trial of"),
    "trial": RunField("number", "the trial's number in its sweep"),
    "dataset": RunField("text", "the dataset's name"),
    "snapshot": RunField("text", "the digest of the dataset's snapshot"),
    "commit": RunField("text", "the git commit of the newest attempt"),
    "model": RunField("text", "the model that a checkpoint of the run was promoted to", in_catalog=True),
    "stage": RunField(
        "text", "the stage of that model's version: staging, champion, archived", in_catalog=True
    ),
}


@dataclass(frozen=True)
class Field:
    """What a run is asked for.

    Attributes:
        kind: ``run`` for a field that every run has (``status``, ``started``…), else ``params``, ``metrics``
            or ``tags``.
        name: of the field, param, metric or tag. Nested params are ``optimizer/lr``; one that is a list is
            its JSON text.
        part: of a metric's curve: ``metrics.loss`` is its last value, ``min(metrics.loss)`` its smallest.
        column: where it stands in the filter, from 1; fields are equal wherever they stand.
    """

    kind: Literal["run", "params", "metrics", "tags"]
    name: str
    part: Literal["last", "best", "min", "max"] = "last"
    column: int = dataclasses.field(default=1, compare=False)

    @property
    def type(self) -> Type:
        """``any`` is that of the value of each run: of params there are numbers, texts and booleans."""
        return RUN_FIELDS[self.name].type if self.kind == "run" else _TYPES[self.kind]

    @property
    def in_catalog(self) -> bool:
        """Whether only the catalog knows it."""
        return self.part == "best" or (self.kind == "run" and RUN_FIELDS[self.name].in_catalog)

    def __str__(self) -> str:
        """As a filter has it, quoted where it must be."""
        if self.kind == "run":
            return self.name
        is_bare = bool(self.name) and all(map(is_plain, self.name))
        name = f"{self.kind}.{self.name if is_bare else quoted(self.name, chr(34))}"
        return name if self.part == "last" else f"{self.part}({name})"


_TYPES: dict[str, Type] = {"params": "any", "metrics": "number", "tags": "text"}


@dataclass(frozen=True)
class Comparison:
    """``FIELD = VALUE`` and its kin.

    Texts are compared by code points. NaN is equal to NaN, and neither less nor greater than a number.

    Literals that are true, false or NaN come with ``=`` and ``!=`` only.
    """

    field: Field
    operator: Literal["=", "!=", "<", "<=", ">", ">="]
    value: Value

    def __str__(self) -> str:
        return f"{self.field} {self.operator} {literal(self.value)}"


@dataclass(frozen=True)
class Between:
    """``FIELD between LOW and HIGH``, both included and of one type, numbers or texts."""

    field: Field
    low: Value
    high: Value

    def __str__(self) -> str:
        return f"{self.field} between {literal(self.low)} and {literal(self.high)}"


@dataclass(frozen=True)
class In:
    """``FIELD in (A, B, …)``: whether one of those that have the type of the run's value is equal to it;
    unknown if none has.
    """

    field: Field
    values: tuple[Value, ...]

    def __str__(self) -> str:
        return f"{self.field} in ({', '.join(map(literal, self.values))})"


@dataclass(frozen=True)
class Like:
    r"""``FIELD like 'res%'``: ``%`` is any text, ``_`` any character, ``\`` before a character means it
    itself.

    The letters A to Z are as a to z, and no others.
    """

    field: Field
    pattern: str

    def __str__(self) -> str:
        return f"{self.field} like {literal(self.pattern)}"


@dataclass(frozen=True)
class IsNull:
    """``FIELD is null``: the run has no such value. Never unknown."""

    field: Field

    def __str__(self) -> str:
        return f"{self.field} is null"


@dataclass(frozen=True)
class Not:
    """``not CONDITION``.

    A run that lacks the value matches neither the condition nor its negation: only ``is null`` finds it.
    """

    inner: "Condition"

    def __str__(self) -> str:
        inner = self.inner
        if isinstance(inner, IsNull):
            return f"{inner.field} is not null"
        if isinstance(inner, (In, Like, Between)):
            return f"{inner.field} not {str(inner).removeprefix(f'{inner.field} ')}"
        return f"not ({inner})" if isinstance(inner, (And, Or)) else f"not {inner}"


@dataclass(frozen=True)
class And:
    """All of these, two or more."""

    parts: "tuple[Condition, ...]"

    def __str__(self) -> str:
        return " and ".join(f"({part})" if isinstance(part, (And, Or)) else str(part) for part in self.parts)


@dataclass(frozen=True)
class Or:
    """Any of these, two or more."""

    parts: "tuple[Condition, ...]"

    def __str__(self) -> str:
        return " or ".join(f"({part})" if isinstance(part, Or) else str(part) for part in self.parts)


Condition = Comparison | Between | In | Like | IsNull | Not | And | Or


@dataclass(frozen=True)
class Order:
    """What runs are ordered by: of params, numbers come before texts, and these before false and true;
    ``desc`` turns all of it.

    Those without the value, or with NaN, come last in either direction, as equals.
    """

    field: Field
    descending: bool = False

    def __str__(self) -> str:
        return f"{self.field} desc" if self.descending else str(self.field)


@dataclass(frozen=True)
class RunFilter:
    """A filter as it was understood.

    Ties, and runs without any order, are newest first: by start, project and run, each descending.

    Attributes:
        where: None for every run.
        limit: None for as many as there are.
    """

    where: Condition | None = None
    order: tuple[Order, ...] = ()
    limit: int | None = None

    def __str__(self) -> str:
        """The text that is parsed to an equal filter; without any names of days, so the same whenever it is
        read.
        """
        parts = [str(self.where)] if self.where else []
        parts += [f"order by {', '.join(map(str, self.order))}"] if self.order else []
        parts += [f"limit {self.limit}"] if self.limit is not None else []
        return " ".join(parts)

    @property
    def fields(self) -> tuple[Field, ...]:
        """Those that the condition and the order name, each once."""
        found = list(_fields(self.where)) if self.where else []
        return tuple(dict.fromkeys([*found, *(order.field for order in self.order)]))

    @property
    def active_alone(self) -> bool:
        """Whether archived and deleted runs are left out: the condition does not name ``lifecycle``, and so
        does not ask for them.
        """
        return not self._asks_of("lifecycle")

    @property
    def names_project(self) -> bool:
        """Whether the condition names ``project``."""
        return self._asks_of("project")

    def _asks_of(self, name: str) -> bool:
        return any(
            field.kind == "run" and field.name == name
            for field in (_fields(self.where) if self.where else ())
        )


def _fields(condition: Condition) -> Iterator[Field]:
    if isinstance(condition, (And, Or)):
        for part in condition.parts:
            yield from _fields(part)
    elif isinstance(condition, Not):
        yield from _fields(condition.inner)
    else:
        yield condition.field


def known_text(text: str) -> str:
    """A run's text as filters know it: its beginning, without what a database does not take (NUL, half of a
    surrogate pair).
    """
    return text[:MAX_TEXT].encode(errors="replace").decode().replace("\0", "")


def is_plain(character: str) -> bool:
    """Whether a name or a text may have it without quotes."""
    return character.isalnum() or character in "_-/.@:+"


def quoted(text: str, quote: str) -> str:
    """A text in quotes, its own doubled."""
    return quote + text.replace(quote, quote * 2) + quote


def literal(value: Value) -> str:
    """A literal as a filter has it."""
    return quoted(value, "'") if isinstance(value, str) else str(value).lower()
