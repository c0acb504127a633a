"""The search space: ranges, choices and constants, and which parameters exist only with certain choices of others."""

from fractions import Fraction
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, model_validator

from resources.sweep_spec.base import MOST_VALUES, Strict, Value, listed


class _Range(Strict):
    """What ranges of real and of whole numbers have in common."""

    low: float = Field(description="Smallest value.")
    high: float = Field(description="Largest value.")
    log: bool = Field(default=False, description="Sample evenly in the logarithm; needs low > 0.")
    step: float | None = Field(default=None, gt=0, description="Distance between the values; without it any number in the range.")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.low >= self.high:
            raise ValueError(f"low = {self.low} must be below high = {self.high}; for a single value give constant")
        if self.log and self.low <= 0:
            raise ValueError(f"low = {self.low} must be above 0 when log is true")
        if self.step == type(self).model_fields["step"].default:
            return self  # no step was given: any number in the range
        if self.log:
            raise ValueError(f"step = {self.step} cannot go with log = true; leave one of them out")
        # In exact fractions: 0.3 is three steps of 0.1, which it is not in binary.
        low, width, step = Fraction(str(self.low)), Fraction(str(self.high)) - Fraction(str(self.low)), Fraction(str(self.step))
        number = type(self.low)
        if step > width:
            raise ValueError(f"step = {self.step} is larger than the range from {self.low} to {self.high}; give at most {number(width)}")
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
    step: int = Field(default=1, ge=1, description="Distance between the values.")


def _as_list(given: Any) -> Any:
    return given if isinstance(given, list) else [given]


# ``when: {optimizer: sgd}`` and ``when: {optimizer: [sgd]}`` are the same.
Choices = Annotated[list[Value], BeforeValidator(_as_list), Field(min_length=1, max_length=MOST_VALUES)]


class Parameter(Strict):
    """One hyperparameter: its range, its choices or its constant, and the condition on which it exists."""

    float_: FloatRange | None = Field(default=None, alias="float", description="A real number in a range.")
    int_: IntRange | None = Field(default=None, alias="int", description="A whole number in a range.")
    categorical: list[Value] | None = Field(default=None, min_length=1, max_length=MOST_VALUES, description="One of these values.")
    constant: Value | None = Field(default=None, description="Always this value.")
    when: dict[str, Choices] = Field(
        default={},
        description="The parameter exists only where others have this value, or one of these values: {optimizer: sgd}.",
    )

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        kinds = {"float": self.float_, "int": self.int_, "categorical": self.categorical, "constant": self.constant}
        given = [kind for kind, value in kinds.items() if value is not None]
        if len(given) != 1:
            raise ValueError(f"give exactly one of {listed(kinds)}; got {listed(given)}")
        for index, value in enumerate(self.categorical or []):
            if value in (self.categorical or [])[:index]:
                raise ValueError(f"categorical must have each value once; {value!r} is there twice")
        return self

    @property
    def range(self) -> FloatRange | IntRange | None:
        """The range, or None for choices and constants."""
        return self.float_ or self.int_

    @property
    def choices(self) -> list[Any] | None:
        """The values of a categorical, the one value of a constant, or None for a range."""
        return [self.constant] if self.constant is not None else self.categorical

    @property
    def chosen(self) -> FloatRange | IntRange | list[Any]:
        """The range or the choices."""
        return self.range or self.choices or []
