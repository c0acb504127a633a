"""The language of filters, which choose and order runs, as data.

An example is ``params.lr between 1e-4 and 1e-3 and status = finished order by metrics.val_loss``. The
command, the API and the page share the language. This module has its parts and their text;
:mod:`halving.query.run_filter_parser` reads them from text.

A condition is true, false or unknown for a run, as in SQL, and chooses the runs for which it is true. A
comparison is unknown if the run lacks the value, or if the value has another type than the literal; ``not``
leaves it unknown.
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
"""Characters of a run's text that filters compare. In four bytes each they fit into an index of Postgres."""


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
    """A property of runs that a filter names.

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
        """The type of the field's values; ``any`` for params, which are numbers, texts or booleans."""
        if self.kind == "run":
            return RUN_FIELDS[self.name].type
        return _TYPES[self.kind]

    @property
    def in_catalog(self) -> bool:
        """Whether only the catalog has the field, not the run's own records."""
        return self.part == "best" or (self.kind == "run" and RUN_FIELDS[self.name].in_catalog)

    def __str__(self) -> str:
        """The field in a filter's text, with its name in quotes where it must be."""
        if self.kind == "run":
            return self.name
        name = self.name
        if not name or not all(map(is_plain, name)):
            name = quote_text(name, '"')
        if self.part == "last":
            return f"{self.kind}.{name}"
        return f"{self.part}({self.kind}.{name})"


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
    """``FIELD in (A, B, …)``: whether a literal is equal to the run's value.

    Only literals of the value's type count; without any it is unknown.
    """

    field: Field
    values: tuple[Value, ...]

    def __str__(self) -> str:
        return f"{self.field} in ({', '.join(map(literal, self.values))})"


@dataclass(frozen=True)
class Like:
    r"""``FIELD like 'res%'``: whether a text matches a pattern.

    ``%`` is any text, ``_`` is any character, and ``\`` stands before a character that is meant literally.
    Case is ignored for the letters A to Z, and no others.
    """

    field: Field
    pattern: str

    def __str__(self) -> str:
        return f"{self.field} like {literal(self.pattern)}"


@dataclass(frozen=True)
class IsNull:
    """``FIELD is null``: the run has no such value. It is never unknown."""

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
        if isinstance(inner, (And, Or)):
            return f"not ({inner})"
        return f"not {inner}"


@dataclass(frozen=True)
class And:
    """All of these, two or more."""

    parts: "tuple[Condition, ...]"

    def __str__(self) -> str:
        return _join(" and ", self.parts, in_brackets=(And, Or))


@dataclass(frozen=True)
class Or:
    """Any of these, two or more."""

    parts: "tuple[Condition, ...]"

    def __str__(self) -> str:
        return _join(" or ", self.parts, in_brackets=(Or,))


def _join(separator: str, parts: "tuple[Condition, ...]", in_brackets: tuple[type, ...]) -> str:
    texts = [str(part) for part in parts]
    for place, part in enumerate(parts):
        if isinstance(part, in_brackets):
            texts[place] = f"({part})"
    return separator.join(texts)


Condition = Comparison | Between | In | Like | IsNull | Not | And | Or


@dataclass(frozen=True)
class Order:
    """A field that orders runs.

    Among params, numbers come before texts, and texts before false and true; ``desc`` reverses all of it.
    Runs without the value, or with NaN, come last in either direction, as equals.
    """

    field: Field
    descending: bool = False

    def __str__(self) -> str:
        return f"{self.field}{' desc' * self.descending}"


@dataclass(frozen=True)
class RunFilter:
    """A parsed filter.

    Without an order, and where the order leaves ties, the newest run is first: by start, project and run,
    each descending.

    Attributes:
        where: None for every run.
        limit: None for as many as there are.
    """

    where: Condition | None = None
    order: tuple[Order, ...] = ()
    limit: int | None = None

    def __str__(self) -> str:
        """A text that parses to an equal filter, at any time, because its times are absolute."""
        parts = []
        if self.where:
            parts.append(str(self.where))
        if self.order:
            parts.append(f"order by {', '.join(map(str, self.order))}")
        if self.limit is not None:
            parts.append(f"limit {self.limit}")
        return " ".join(parts)

    @property
    def fields(self) -> tuple[Field, ...]:
        """The fields that the condition and the order name, each once."""
        return tuple(dict.fromkeys([*_fields(self.where), *(order.field for order in self.order)]))

    @property
    def active_alone(self) -> bool:
        """Whether only active runs are chosen, because the condition does not name ``lifecycle``."""
        return not self._names("lifecycle")

    @property
    def names_project(self) -> bool:
        """Whether the condition names ``project``."""
        return self._names("project")

    def _names(self, name: str) -> bool:
        return any(field.kind == "run" and field.name == name for field in _fields(self.where))


def _fields(condition: Condition | None) -> Iterator[Field]:
    if condition is None:
        return
    if isinstance(condition, (And, Or)):
        for part in condition.parts:
            yield from _fields(part)
    elif isinstance(condition, Not):
        yield from _fields(condition.inner)
    else:
        yield condition.field


def known_text(text: str) -> str:
    """The part of a run's text that filters compare.

    It is the beginning, without what a database does not take (NUL, half of a surrogate pair).
    """
    return text[:MAX_TEXT].encode(errors="replace").decode().replace("\0", "")


def is_plain(character: str) -> bool:
    """Whether a name or a text with this character needs no quotes for it."""
    return character.isalnum() or character in "_-/.@:+"


def quote_text(text: str, quote: str) -> str:
    """Put a text in quotes, with the quotes in it doubled."""
    return quote + text.replace(quote, quote * 2) + quote


def literal(value: Value) -> str:
    """The text of a literal in a filter."""
    if isinstance(value, str):
        return quote_text(value, "'")
    return str(value).lower()
