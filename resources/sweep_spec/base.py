"""The base of all parts of the spec: strict models, choices of one key, and types of simple values."""

import json
import math
import re
from collections.abc import Callable, Iterator
from types import UnionType
from typing import Annotated, Any, Self, Union, get_args, get_origin
from zoneinfo import ZoneInfo

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationInfo,
    field_validator,
    model_validator,
)

from halving.errors import InvalidInput
from halving.identifiers import NAME_RULE, check_name
from halving.text import comma_list

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")

# Limits of a spec, so that one request cannot take down the process that reads it. All are far above real
# use.
MAX_COUNT = 2**31 - 1
"""The largest count: the catalog stores epochs and trials as 32-bit integers."""
MAX_PARAMETERS = 1_000
MAX_VALUES = 1_000
"""Most choices of a parameter, and most constraints, bounds, objectives and earlier sweeps."""
MAX_TEXT_LENGTH = 10_000
_MAX_DEPTH = 5  # levels of lists and mappings in one value


class NoFlags(BaseModel):
    """A model that refuses true and false for numbers; pydantic would take them for 1 and 0."""

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_flags(cls, value: Any, info: ValidationInfo) -> Any:
        return _check_flags(value, cls.model_fields[str(info.field_name)].annotation)


class Strict(NoFlags):
    """A frozen model that refuses unknown fields and infinite numbers."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class OneOf(Strict):
    """A choice written as a single key: ``{asha: {max_budget: 27}}``."""

    @model_validator(mode="after")
    def _check_exactly_one(self) -> Self:
        if len(self.model_fields_set) != 1:
            raise ValueError(
                f"give exactly one of {comma_list(field_names(type(self)))}; got "
                f"{comma_list(sorted(self.model_fields_set))}"
            )
        return self

    @property
    def name(self) -> str:
        """The key that is set."""
        return next(iter(self.model_fields_set))

    @property
    def chosen(self) -> Any:
        """The value of the key that is set."""
        return getattr(self, self.name)


class Bounds(Strict):
    """The interval in which a value must stay, both ends included."""

    min: int | float | None = Field(default=None, description="Smallest value accepted.")
    max: int | float | None = Field(default=None, description="Largest value accepted.")

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if self.min is None and self.max is None:
            raise ValueError("give min, max or both")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"min = {self.min} must not be above max = {self.max}")
        return self


def field_names(model: type[BaseModel]) -> list[str]:
    """The names of a model's fields as YAML has them, sorted."""
    return sorted(field.alias or name for name, field in model.model_fields.items())


def is_import_path(value: str) -> bool:
    """Whether this looks like ``package.module:name``; nothing is imported."""
    module, _, name = value.partition(":")
    return all(part.isidentifier() for part in module.split(".")) and name.isidentifier()


def must(be_right: Callable[[str], object], remedy: str) -> AfterValidator:
    """A validator for ``Annotated[str, …]`` that refuses a text with this remedy."""

    def check(value: str) -> str:
        if not be_right(value):
            raise ValueError(remedy)
        return value

    return AfterValidator(check)


def _check_name(value: str) -> str:
    try:
        return check_name("name", value)
    except InvalidInput:
        raise ValueError(NAME_RULE) from None


def _check_zone(value: str) -> str:
    try:
        ZoneInfo(value)
    except (KeyError, ValueError, OSError):
        raise ValueError("give a time zone's name, for example UTC or Europe/Berlin") from None
    return value


def _check_flags(value: Any, annotation: Any, name: str = "") -> Any:
    """Return a value that has no true or false where the annotation has only numbers.

    Raises:
        ValueError: it, or a value within it, is true or false where the annotation has only numbers.
    """
    kinds = _alternatives(annotation)
    if isinstance(value, bool):
        if (int in kinds or float in kinds) and not (bool in kinds or Any in kinds):
            message = "true and false are no numbers; give a number"
            if float not in kinds:
                message = "true and false are no numbers; give a whole number"
            if name:
                message = f"{name} = {value}: {message}"
            raise ValueError(message)
        return value
    for kind in kinds:
        if get_origin(kind) is dict and isinstance(value, dict):
            for key, inside in value.items():
                _check_flags(inside, get_args(kind)[1], f"{key!s:.80}")
        if get_origin(kind) is list and isinstance(value, list):
            for place, inside in enumerate(value):
                _check_flags(inside, get_args(kind)[0], str(place))
    return value


def _alternatives(annotation: Any) -> list[Any]:
    """The types that an annotation accepts, without their validators."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _alternatives(get_args(annotation)[0])
    if origin in (Union, UnionType):
        return [kind for argument in get_args(annotation) for kind in _alternatives(argument)]
    return [annotation]


def _check_choice(value: Any) -> Any:
    """Check a value of a hyperparameter as a whole, before anything else reads it.

    Aliases of YAML may make a short text endless.
    """
    for place, (inside, depth) in enumerate(_values_inside(value)):
        if depth > _MAX_DEPTH:
            raise ValueError(f"it has lists or mappings more than {_MAX_DEPTH} deep in one another")
        if place > MAX_TEXT_LENGTH:
            raise ValueError(f"it has more than {MAX_TEXT_LENGTH} values; give fewer")
        _check_value(inside)
    if (
        isinstance(value, list | dict)
        and (length := len(json.dumps(value, ensure_ascii=False))) > MAX_TEXT_LENGTH
    ):
        raise ValueError(f"it has {length} characters as JSON; give at most {MAX_TEXT_LENGTH}")
    return value


def _values_inside(value: Any, depth: int = 0) -> Iterator[tuple[Any, int]]:
    """A value and all values within it, each with its depth in lists and mappings."""
    depth += isinstance(value, list | dict)
    yield value, depth
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for inside in value:
            yield from _values_inside(inside, depth)


def _check_value(value: Any) -> None:
    if isinstance(value, str) and len(value) > MAX_TEXT_LENGTH:
        raise ValueError(f"it has {len(value)} characters; give at most {MAX_TEXT_LENGTH}")
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ValueError("give a whole number from -2**63 to 2**63 - 1, or a text in quotes")
    if isinstance(value, dict) and (wrong := [name for name in value if not isinstance(name, str)]):
        raise ValueError(f"the name {wrong[0]!r:.80} in a mapping is no text; write it in quotes")
    if not (
        value is None
        or isinstance(value, str | int | list | dict)
        or (isinstance(value, float) and math.isfinite(value))
    ):
        raise ValueError("give a text, a finite number, true, false, null, or a list or mapping of them")


FunctionPath = Annotated[str, must(is_import_path, "give module:function, for example examples.digits:train")]
Name = Annotated[str, AfterValidator(_check_name)]
TimeZone = Annotated[str, AfterValidator(_check_zone)]
NO_FLAG = BeforeValidator(lambda value: _check_flags(value, int))
"""The validator of a number that stands alone; :class:`NoFlags` has it for fields."""
Digest = Annotated[str, must(_DIGEST.fullmatch, "give sha256: and 64 hexadecimal digits")]
Metric = Annotated[str, Field(min_length=1, max_length=250)]
# A plain validator, because pydantic reports a wrong value of a union once for each of its members.
Choice = Annotated[Any, PlainValidator(_check_choice)]
