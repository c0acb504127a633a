"""The search space: ranges, choices and constants, and conditions on which parameters exist."""

import json
import re
import sys
from fractions import Fraction
from hashlib import sha256
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, model_validator

from halving.text import comma_list
from resources.sweep_spec.base import MAX_VALUES, Choice, Strict

_WHOLE = re.compile(r"\s*[+-]?[0-9]{1,400}\s*")


def _as_double(value: Any) -> Any:
    """Refuse a whole number, also a quoted one, that would be rounded as a double."""
    if isinstance(value, str) and _WHOLE.fullmatch(value):
        value = int(value)
    if isinstance(value, int) and (abs(value) > sys.float_info.max or int(float(value)) != value):
        raise ValueError("no double is this whole number; give another one, or a range of int")
    return value


_Double = Annotated[float, BeforeValidator(_as_double)]


class _Range(Strict):
    """The fields that ranges of real and of whole numbers have in common."""

    low: _Double = Field(description="Smallest value.")
    high: _Double = Field(description="Largest value.")
    log: bool = Field(default=False, description="Sample evenly in the logarithm; needs low > 0.")
    step: _Double | None = Field(
        default=None, gt=0, description="Distance between the values; without it any number in the range."
    )

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if self.low >= self.high:
            raise ValueError(
                f"low = {self.low} must be below high = {self.high}; for a single value give constant"
            )
        if self.log and self.low <= 0:
            raise ValueError(f"low = {self.low} must be above 0 when log is true")
        if self.step == type(self).model_fields["step"].default:
            return self  # Without a step it is any number in the range.
        if self.log and isinstance(self, FloatRange):
            raise ValueError(f"step = {self.step} cannot go with log = true; leave one of them out")
        # Exact fractions, because in binary 0.3 is not three steps of 0.1.
        low = Fraction(str(self.low))
        width = Fraction(str(self.high)) - Fraction(str(self.low))
        step = Fraction(str(self.step))
        number = type(self.low)
        if step > width:
            raise ValueError(
                f"step = {self.step} is larger than the range from {self.low} to {self.high}; give at most "
                f"{number(width)}"
            )
        if width % step:
            below = low + width // step * step
            raise ValueError(
                f"high = {self.high} is not a whole number of steps of {self.step} above low = {self.low}; "
                f"give high = {number(below)} or {number(below + step)}"
            )
        return self


class FloatRange(_Range):
    """A real number between ``low`` and ``high``, both included."""


class IntRange(_Range):
    """A whole number between ``low`` and ``high``, both included."""

    low: int = Field(ge=-(2**63), lt=2**63, description="Smallest value.")
    high: int = Field(ge=-(2**63), lt=2**63, description="Largest value.")
    step: int = Field(
        default=1, ge=1, description="Distance between the values; with log the nearest of them is taken."
    )


def _as_list(value: Any) -> Any:
    if isinstance(value, list):
        return value
    return [value]


# ``when: {optimizer: sgd}`` and ``when: {optimizer: [sgd]}`` are the same.
Choices = Annotated[list[Choice], BeforeValidator(_as_list), Field(min_length=1, max_length=MAX_VALUES)]


_MAX_NAME_LENGTH = 40
_NAME_START = 30  # characters of a longer name that are kept; a hash follows


def choice_name(value: Any) -> Any:
    """A short and unique name of a value, for tables and samplers.

    Lists and mappings become JSON; any other value is its own name.
    """
    if not isinstance(value, list | dict):
        return value
    text = json.dumps(value, ensure_ascii=False, sort_keys=True)
    if len(text) <= _MAX_NAME_LENGTH:
        return text
    return f"{text[:_NAME_START]}…{sha256(text.encode()).hexdigest()[:8]}"


def spell(value: Any) -> str:
    """A value as people write it in a spec, for messages."""
    if isinstance(value, str):
        return repr(value)
    return json.dumps(value, ensure_ascii=False)


def is_same(value: Any, choice: Any) -> bool:
    """Whether a value is this choice: 1 and 1.0 are the same number, 1 and true are not the same."""
    if isinstance(choice, list):
        if not isinstance(value, list) or len(value) != len(choice):
            return False
        return all(is_same(*pair) for pair in zip(value, choice, strict=True))
    if isinstance(choice, dict):
        return (
            isinstance(value, dict)
            and value.keys() == choice.keys()
            and all(is_same(value[name], choice[name]) for name in choice)
        )
    return bool(value == choice) and isinstance(value, bool) == isinstance(choice, bool)


_KINDS = ("float", "int", "categorical", "constant")


class Parameter(Strict):
    """One hyperparameter: its range, its choices or its constant, and the condition on which it exists."""

    float_: FloatRange | None = Field(default=None, alias="float", description="A real number in a range.")
    int_: IntRange | None = Field(default=None, alias="int", description="A whole number in a range.")
    categorical: list[Choice] | None = Field(
        default=None,
        min_length=1,
        max_length=MAX_VALUES,
        description=(
            "One of these values: texts, numbers, true, false, null, lists or mappings; the trial gets it "
            "as it is."
        ),
    )
    constant: Choice | None = Field(
        default=None, description="Always this value, which may be null, a list or a mapping, too."
    )
    when: dict[str, Choices] = Field(
        default={},
        description="The parameter exists only where others have this value, or one of these values: "
        "{optimizer: sgd}. A value that is a list stands in one: {layers: [[64, 64]]}.",
    )

    @model_validator(mode="before")
    @classmethod
    def _replace_null(cls, fields: Any) -> Any:
        """Turn ``constant: null`` into a categorical with the one choice null."""
        if not isinstance(fields, dict) or "constant" not in fields or fields["constant"] is not None:
            return fields
        if others := [kind for kind in _KINDS if fields.get(kind) is not None]:
            raise ValueError(
                f"give exactly one of {comma_list(_KINDS)}; got {comma_list([*others, 'constant'])}"
            )
        return {**fields, "categorical": [None]}

    @model_validator(mode="after")
    def _check_exactly_one(self) -> Self:
        values = (self.float_, self.int_, self.categorical, self.constant)
        kinds = [kind for kind, value in zip(_KINDS, values, strict=True) if value is not None]
        if len(kinds) != 1:
            raise ValueError(f"give exactly one of {comma_list(_KINDS)}; got {comma_list(kinds)}")
        choices = self.categorical or []
        names = [choice_name(value) for value in choices]
        for index, value in enumerate(choices):
            if value in choices[:index] or names[index] in names[:index]:
                raise ValueError(f"categorical must have each value once; {spell(value)} is there twice")
        return self

    @property
    def range(self) -> FloatRange | IntRange | None:
        """The range, or None for choices and constants."""
        return self.float_ or self.int_

    @property
    def choices(self) -> list[Any] | None:
        """The values of a categorical, the one value of a constant, or None for a range."""
        if self.constant is not None:
            return [self.constant]
        return self.categorical

    @property
    def is_fixed(self) -> bool:
        """Whether it has a single value wherever it exists, so that there is nothing to search."""
        return self.choices is not None and len(self.choices) == 1

    @property
    def value(self) -> Any:
        """The single value of a fixed parameter."""
        (value,) = self.choices or []
        return value

    @property
    def chosen(self) -> FloatRange | IntRange | list[Any]:
        """The range or the choices."""
        return self.range or self.choices or []
