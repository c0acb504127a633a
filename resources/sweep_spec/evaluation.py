"""How a winner is judged: its metrics and slices, and the limits and serving cost of its predictor."""

from collections.abc import Iterable, Mapping
from typing import Annotated

from pydantic import AfterValidator, Field

from halving.errors import InvalidInput
from halving.text import comma_list
from resources.sweep_spec.base import Strict
from resources.sweep_spec.constraints import constraint
from resources.sweep_spec.metrics import (
    CLASS_METRICS,
    CLASS_SCORERS,
    NUMBER_METRICS,
    NUMBER_SCORERS,
    check_metric,
)
from resources.sweep_spec.requirements import Memory

ScorerName = Annotated[str, AfterValidator(check_metric)]


def _check_slice(text: str) -> str:
    if not is_column(text):
        try:
            constraint(text)
        except InvalidInput as error:
            message = (
                str(error)
                .replace("hyperparameter", "column")
                .replace('params["the-name"]', 'columns["the name"]')
            )
            raise ValueError(
                f"give a column, or a comparison of columns such as 'age >= 65': {message}"
            ) from None
    return text


def is_column(text: str) -> bool:
    """Whether a slice is a column's name, and not a condition; each value of the column is a group."""
    return text.isidentifier() or not any(sign in text for sign in "<>=!")


Slice = Annotated[str, Field(min_length=1, max_length=1_000), AfterValidator(_check_slice)]


class EvaluationLimits(Strict):
    """What the predictor or evaluator may use before it is ended."""

    seconds: float = Field(default=3600.0, gt=0, description="Seconds that it may take on the whole split.")
    memory: Memory | None = Field(
        default=None,
        description=(
            "Memory that it may take, for example 4Gi (default: 90 % of what is available when it starts)."
        ),
    )


class Serving(Strict):
    """How the serving cost is measured: by calls with one row and with a batch, after a warm-up."""

    seconds: float = Field(
        default=0.25,
        ge=0,
        le=3600,
        description="Seconds of calls with one row, and again with a batch; 0: none.",
    )
    batch: int = Field(default=256, ge=2, le=1_000_000, description="Rows of a batch.")


def judged_as_number(target_type: str, metrics: Iterable[str], gate_metrics: Mapping[str, str]) -> bool:
    """Whether the target is a number to come close to, and not a class.

    Floats are, and integers if a metric for numbers is named.

    Args:
        target_type: Arrow's name of the target's type.
        metrics: metrics of the spec; if there are none, the usual ones of the target count.
        gate_metrics: metrics that gates name, by the path of the field.

    Raises:
        InvalidInput: a metric does not fit the target, or a gate's is not among the metrics.
    """
    real = target_type in ("double", "float", "halffloat") or target_type.startswith("decimal")
    named = [(f"metrics.{index}", metric) for index, metric in enumerate(metrics)]
    named += gate_metrics.items()
    number = real or ("int" in target_type and any(metric in NUMBER_SCORERS for _, metric in named))
    kind = "as a class"
    usual = CLASS_METRICS
    fitting = CLASS_SCORERS
    if number:
        kind = "as a number"
        usual = NUMBER_METRICS
        fitting = NUMBER_SCORERS
    for field, metric in named:
        if metric not in fitting:
            raise InvalidInput(
                f"{field} = {metric!r} is not accepted for a target of type {target_type}, judged {kind}: "
                f"give one of {comma_list(sorted(fitting))}"
            )
    accepted = list(metrics) or usual
    for field, metric in gate_metrics.items():
        if metric not in accepted:
            raise InvalidInput(
                f"{field} = {metric!r} is not accepted: it is not among the metrics; give one of "
                f"{comma_list(accepted)}"
            )
    return number
