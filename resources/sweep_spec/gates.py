"""The gates: conditions that a winner must meet before it is promoted, each written as one key."""

from typing import Annotated, Any, Self, TypeVar

from pydantic import BeforeValidator, Field, model_validator

from halving.text import comma_list
from resources.sweep_spec.base import (
    MAX_TEXT_LENGTH,
    MAX_VALUES,
    Bounds,
    FunctionPath,
    Metric,
    OneOf,
    Strict,
    field_names,
)
from resources.sweep_spec.requirements import Memory

KINDS = {
    "finite_metrics": "Every test metric is a finite number.",
    "lineage": "The winner's run record, code, checkpoint and snapshot are all there.",
    "leakage": (
        "The test split has no rows or groups that were trained on, nothing trained on is later, and no "
        "feature is the target."
    ),
    "bounds": (
        "The metrics are within their bounds: the test metrics of the gates, and the reported ones of the "
        "search."
    ),
    "non_inferior": "The winner is not worse than the champion by more than the margin, on the same rows.",
    "improvement": "The winner is better than the champion, on the same rows.",
    "slices": "In no slice of the test split is the winner worse than the champion by more than the margin.",
    "latency": "The predictor answers fast enough.",
    "size": "The checkpoint, and the memory that the predictor takes, are small enough.",
    "integration_tests": (
        "The exported winner passes the tests that the spec names, in a process of their own."
    ),
}
"""The kinds of gates, with what each says; each is a blocking check of the evaluation report."""


Model = TypeVar("Model", bound=Strict)


class NoSettings(Strict):
    """A gate without settings."""


class Leakage(Strict):
    """What the test split may share with what was trained on: nothing."""

    accept: list[Annotated[str, Field(max_length=MAX_TEXT_LENGTH)]] = Field(
        default=[],
        max_length=MAX_VALUES,
        description="Columns that may predict the target by themselves, because they are known in use, too.",
    )
    ignore: list[Annotated[str, Field(max_length=MAX_TEXT_LENGTH)]] | None = Field(
        default=None,
        max_length=MAX_VALUES,
        description=(
            "Columns that only name a row, such as an id: two rows that differ in nothing else are copies."
        ),
    )


class MetricBounds(Bounds):
    """Bounds of a metric of the test split; its whole interval at 95 % must be within."""

    metric: Metric = Field(description="A test metric, for example accuracy.")


class _Compared(Strict):
    metric: Metric | None = Field(
        default=None,
        description="The test metric to compare, one of the spec's metrics (default: the first of them).",
    )


class NonInferior(_Compared):
    """Worse than the champion by less than a margin."""

    margin: float | None = Field(
        default=None, gt=0, description="How much worse it may be, in the metric's unit."
    )
    margin_percent: float | None = Field(
        default=None,
        gt=0,
        description="How much worse it may be, in percent of the champion's metric (default: 0.5).",
    )

    @model_validator(mode="after")
    def _check_margins(self) -> Self:
        return _check_not_both(self, "margin", "margin_percent")

    @property
    def percent(self) -> float:
        """The margin in percent of the champion's metric, if ``margin`` is not given."""
        if self.margin_percent is None:
            return 0.5
        return self.margin_percent


class SliceGate(NonInferior):
    """In each slice worse than the champion by less than a margin.

    Slices of few rows are shown, but not judged.
    """

    margin_percent: float | None = Field(
        default=None,
        gt=0,
        description=(
            "How much worse it may be in a slice, in percent of the champion's metric there (default: 5)."
        ),
    )

    @property
    def percent(self) -> float:
        """The margin in percent of the champion's metric, if ``margin`` is not given."""
        if self.margin_percent is None:
            return 5.0
        return self.margin_percent


class Improvement(_Compared):
    """Better than the champion."""

    effect: float | None = Field(
        default=None, gt=0, description="The least gain that is worth having, in the metric's unit."
    )
    effect_percent: float | None = Field(
        default=None,
        gt=0,
        description=(
            "The least gain that is worth having, in percent of the champion's metric (default: 0.5)."
        ),
    )

    @model_validator(mode="after")
    def _check_effects(self) -> Self:
        return _check_not_both(self, "effect", "effect_percent")

    @property
    def percent(self) -> float:
        """The effect in percent of the champion's metric, if ``effect`` is not given."""
        if self.effect_percent is None:
            return 0.5
        return self.effect_percent


class Latency(Strict):
    """How long the warm predictor may take, as the report measures it."""

    p50_ms: float | None = Field(
        default=None, gt=0, description="Milliseconds of half of the calls, at most."
    )
    p99_ms: float | None = Field(default=None, gt=0, description="Milliseconds of 99 of 100 calls, at most.")
    batch: bool = Field(
        default=False, description="Of calls with a batch of rows (serving.batch), and not with one row."
    )

    @model_validator(mode="after")
    def _check_limits(self) -> Self:
        return _check_any(self, "p50_ms", "p99_ms")


class Size(Strict):
    """How large the model may be."""

    checkpoint_mib: float | None = Field(default=None, gt=0, description="MiB of the checkpoint, at most.")
    memory_mib: float | None = Field(
        default=None, gt=0, description="MiB of memory that the predictor's process takes, at most."
    )

    @model_validator(mode="after")
    def _check_limits(self) -> Self:
        return _check_any(self, "checkpoint_mib", "memory_mib")


class IntegrationTests(Strict):
    """Tests of the winner as it would be exported."""

    function: FunctionPath = Field(
        description="module:function, called as test(folder) with the folder of the exported model, for "
        "halving.load_model(folder); what it raises fails the gate."
    )
    seconds: float = Field(
        default=300.0, gt=0, le=86_400, description="Seconds after which it is ended, and has failed."
    )
    memory: Memory | None = Field(
        default=None,
        description=(
            "Memory that it may take, for example 4Gi (default: 90 % of what is available when it starts)."
        ),
    )


class Gate(OneOf):
    """One condition on promotion."""

    finite_metrics: NoSettings | None = Field(default=None, description=KINDS["finite_metrics"])
    lineage: NoSettings | None = Field(default=None, description=KINDS["lineage"])
    leakage: Leakage | None = Field(default=None, description=KINDS["leakage"])
    bounds: MetricBounds | None = Field(default=None, description="A test metric is within its bounds.")
    non_inferior: NonInferior | None = Field(default=None, description=KINDS["non_inferior"])
    improvement: Improvement | None = Field(default=None, description=KINDS["improvement"])
    slices: SliceGate | None = Field(default=None, description=KINDS["slices"])
    latency: Latency | None = Field(default=None, description=KINDS["latency"])
    size: Size | None = Field(default=None, description=KINDS["size"])
    integration_tests: IntegrationTests | None = Field(default=None, description=KINDS["integration_tests"])


def _gate_of(value: Any) -> Any:
    """Expand the short forms of a gate.

    These are ``lineage`` and ``lineage:`` for ``{lineage: {}}``, and ``integration_tests: module:function``.
    """
    if isinstance(value, str):
        return {value: {}}
    if isinstance(value, dict):
        gate: dict[Any, Any] = {}
        for name, settings in value.items():
            gate[name] = settings
            if settings is None:
                gate[name] = {}
        tests = gate.get("integration_tests")
        if isinstance(tests, str):
            gate["integration_tests"] = {"function": tests}
        return gate
    if isinstance(value, Gate):
        return value
    raise ValueError(
        f"give a name, or a name with its settings; the gates are {comma_list(field_names(Gate))}"
    )


Gates = Annotated[list[Annotated[Gate, BeforeValidator(_gate_of)]], Field(max_length=MAX_VALUES)]


def default_gates() -> list[Gate]:
    """The gates of a spec that names none."""
    return [
        Gate(finite_metrics=NoSettings()),
        Gate(lineage=NoSettings()),
        Gate(leakage=Leakage()),
        Gate(non_inferior=NonInferior()),
    ]


def _check_not_both(model: Model, first: str, second: str) -> Model:
    if getattr(model, first) is not None and getattr(model, second) is not None:
        raise ValueError(
            f"{first} = {getattr(model, first):g} and {second} = {getattr(model, second):g} "
            "are two ways to say it; give one"
        )
    return model


def _check_any(model: Model, first: str, second: str) -> Model:
    if getattr(model, first) is None and getattr(model, second) is None:
        raise ValueError(f"give {first}, {second} or both")
    return model
