"""The sweep spec: what a user writes in ``sweeps/*.yaml`` or in Dagster's launchpad, checked before anything runs."""

import difflib
import json
import math
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from halving.errors import InvalidInput
from halving.functions import import_function
from halving.names import NAME_RULE, check_name


def _function_path(value: str) -> str:
    module, _, function = value.partition(":")
    if not all(part.isidentifier() for part in module.split(".")) or not function.isidentifier():
        raise ValueError("give module:function, for example examples.digits:train")
    return value


def _name(value: str) -> str:
    try:
        return check_name("name", value)
    except InvalidInput:
        raise ValueError(NAME_RULE) from None


FunctionPath = Annotated[str, AfterValidator(_function_path)]
Name = Annotated[str, AfterValidator(_name)]
Value = str | int | float | bool


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class OneOf(_Strict):
    """A choice written as a single key: ``{float: {low: 0, high: 1}}``."""

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if len(self.model_fields_set) != 1:
            given = sorted(self.model_fields_set) or "nothing"
            raise ValueError(f"give exactly one of {sorted(self.options())}; got {given}")
        return self

    @classmethod
    def options(cls) -> list[str]:
        return [field.alias or name for name, field in cls.model_fields.items()]

    @property
    def chosen(self) -> Any:
        """The model behind the key that was given."""
        return getattr(self, next(iter(self.model_fields_set)))


class FloatRange(_Strict):
    """A real number between ``low`` and ``high``, both included."""

    low: float = Field(description="Smallest value.")
    high: float = Field(description="Largest value.")
    log: bool = Field(default=False, description="Sample evenly in the logarithm; needs low > 0.")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        _check_range(self)
        return self


class IntRange(_Strict):
    """A whole number between ``low`` and ``high``, both included."""

    low: int = Field(description="Smallest value.")
    high: int = Field(description="Largest value.")
    log: bool = Field(default=False, description="Sample evenly in the logarithm; needs low > 0.")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        _check_range(self)
        return self


def _check_range(given: FloatRange | IntRange) -> None:
    if given.low >= given.high:
        raise ValueError(f"low = {given.low} must be below high = {given.high}")
    if given.log and given.low <= 0:
        raise ValueError(f"low = {given.low} must be above 0 when log is true")


class Parameter(OneOf):
    """One hyperparameter's range."""

    float_: FloatRange | None = Field(default=None, alias="float", description="A real number in a range.")
    int_: IntRange | None = Field(default=None, alias="int", description="A whole number in a range.")
    categorical: list[Value] | None = Field(default=None, min_length=1, description="One of these values.")

    def grid(self, points: int) -> list[Any]:
        """The values on a grid: all of a categorical, ``points`` evenly spaced ones of a range (fewer of a small int range)."""
        given = self.chosen
        if not isinstance(given, FloatRange | IntRange):
            return list(given)
        shares = [index / (points - 1) for index in range(points)]
        if given.log:
            values = [given.low * (given.high / given.low) ** share for share in shares]
        else:
            values = [given.low + (given.high - given.low) * share for share in shares]
        if isinstance(given, IntRange):
            return sorted({round(value) for value in values})
        return [min(max(value, given.low), given.high) for value in values]

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        if self.categorical is not None and len({(type(value), value) for value in self.categorical}) < len(self.categorical):
            raise ValueError(f"categorical = {self.categorical} must hold each value once")
        return self


class Asha(_Strict):
    """Asynchronous successive halving by promotion (Li et al., MLSys 2020, Algorithm 2)."""

    sampler: Literal["random", "tpe"] = Field(default="tpe", description="Who suggests the hyperparameters of a new trial.")
    min_budget: int = Field(default=1, ge=1, description="Epochs to the first rung.")
    max_budget: int = Field(default=27, ge=1, description="Epochs to the last rung.")
    reduction_factor: int = Field(default=3, ge=2, description="Of the trials at a rung, one in this many goes on to the next.")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min_budget > self.max_budget:
            raise ValueError(f"min_budget = {self.min_budget} must not be above max_budget = {self.max_budget}")
        return self

    @property
    def budgets(self) -> tuple[int, ...]:
        """Epochs at each rung: min·η⁰, min·η¹, … and max_budget at the end."""
        rungs = []
        budget = self.min_budget
        while budget < self.max_budget:
            rungs.append(budget)
            budget *= self.reduction_factor
        return (*rungs, self.max_budget)


class RandomSearch(_Strict):
    """Independent random trials, each trained to the full budget (Bergstra & Bengio, JMLR 2012)."""

    budget: int = Field(default=27, ge=1, description="Epochs that every trial trains.")

    @property
    def budgets(self) -> tuple[int, ...]:
        return (self.budget,)


class GridSearch(_Strict):
    """Every combination of the values on a grid, in order, each trained to the full budget."""

    budget: int = Field(default=27, ge=1, description="Epochs that every trial trains.")
    points: int = Field(default=3, ge=2, description="Values on the grid for each float or int range.")

    @property
    def budgets(self) -> tuple[int, ...]:
        return (self.budget,)


class Strategy(OneOf):
    """How trials are chosen and stopped."""

    asha: Asha | None = Field(default=None, description="Stop weak trials early, promote the best at each rung.")
    random: RandomSearch | None = Field(default=None, description="Independent random trials.")
    grid: GridSearch | None = Field(default=None, description="Every combination on a grid.")


class DatasetSource(_Strict):
    """Where the data comes from and how it is split; its content becomes an immutable snapshot."""

    name: Name = Field(description="The dataset's name; its snapshots are named NAME@HASH.")
    source: FunctionPath = Field(description="module:function that returns a pyarrow.Table, or the path of a folder of files.")
    target: str = Field(description="The column to predict.")
    splits: dict[Name, float] = Field(
        default={"train": 0.6, "validation": 0.2, "test": 0.2},
        description="Share of the rows in each split; train, validation and test are needed and all add up to 1.",
    )
    seed: int = Field(default=0, ge=0, description="Seed of the shuffle behind the splits.")

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if missing := {"train", "validation", "test"} - set(self.splits):
            raise ValueError(f"splits = {dict(self.splits)} must name {sorted(missing)} too")
        if any(share <= 0 for share in self.splits.values()) or not math.isclose(sum(self.splits.values()), 1, abs_tol=1e-9):
            raise ValueError(f"splits = {dict(self.splits)} must be above 0 and add up to 1, not {sum(self.splits.values()):g}")
        return self


class Objective(_Strict):
    """What the search optimises: a metric that the trainable reports on the validation split."""

    metric: str = Field(min_length=1, description="The name given to run.report(), for example val_accuracy.")
    direction: Literal["maximize", "minimize"] = Field(description="Which way is better.")


class Resources(_Strict):
    """What one trial needs; on one machine this bounds how many run at a time."""

    cpus: int = Field(default=1, ge=1, description="CPU cores for each trial.")
    gpus: int = Field(default=0, ge=0, description="GPUs for each trial, not shared with another.")


class Gates(_Strict):
    """What the winner must pass on the test split before its checkpoint is promoted."""

    metric: Literal["accuracy", "f1_macro", "r2", "mae", "rmse"] | None = Field(
        default=None, description="Test metric compared with the champion's (default: accuracy for classes, rmse for numbers)."
    )
    margin: float = Field(default=0.0, ge=0, description="How much worse than the champion is still accepted, in the metric's unit.")


class SweepSpec(_Strict):
    """One sweep: trainable, data, objective, search space, strategy and what it may use."""

    name: Name = Field(description="The sweep's name; each launch gets an id NAME-HASH, and its winner a version of the model NAME.")
    trainable: FunctionPath = Field(description="module:function, called as train(run) for every trial.")
    predictor: FunctionPath = Field(
        description="module:function, called as predict(run, table) for the winner; returns one prediction a row."
    )
    dataset: DatasetSource = Field(description="The data to snapshot.")
    objective: Objective = Field(description="What to optimise.")
    space: dict[str, Parameter] = Field(min_length=1, description="Hyperparameter name to its range.")
    strategy: Strategy = Field(default=Strategy(asha=Asha()), description="How trials are chosen and stopped.")
    max_trials: int = Field(default=27, ge=1, le=90_000, description="Trials to start at most; a grid may have fewer, not more.")
    concurrency: int = Field(
        default=0, ge=0, description="Trials that run at a time; 0 means as many as this machine's cores or GPUs allow."
    )
    resources: Resources = Field(default=Resources(), description="What one trial needs.")
    seed: int = Field(default=0, ge=0, description="Seed of the sampler and of every trial.")
    max_retries: int = Field(default=2, ge=0, description="Times that a crashed trial is resumed from its checkpoint.")
    max_failed_trials: int = Field(default=0, ge=0, description="Failed trials that still count as success for the job's exit status.")
    gates: Gates = Field(default=Gates(), description="Conditions on promotion.")
    auto_promote: bool = Field(default=False, description="Make the new version champion at once; otherwise it waits as staging.")

    @property
    def digest(self) -> str:
        """SHA-256 over the spec with all defaults filled in."""
        return "sha256:" + sha256(self.canonical_json().encode()).hexdigest()

    def canonical_json(self) -> str:
        return json.dumps(self.model_dump(mode="json", by_alias=True, exclude_none=True), sort_keys=True)

    @property
    def budgets(self) -> tuple[int, ...]:
        budgets: tuple[int, ...] = self.strategy.chosen.budgets
        return budgets

    @property
    def reachable_rungs(self) -> int:
        """How many rungs ``max_trials`` fills: each takes ``reduction_factor`` results below it for one promotion."""
        factor = getattr(self.strategy.chosen, "reduction_factor", 1)
        return sum(factor**rung <= self.max_trials for rung in range(len(self.budgets)))

    @property
    def grid_axes(self) -> dict[str, list[Any]]:
        """Parameter name to its values on the grid."""
        return {name: parameter.grid(self.strategy.chosen.points) for name, parameter in self.space.items()}

    @property
    def grid_size(self) -> int:
        return math.prod(len(axis) for axis in self.grid_axes.values())

    @model_validator(mode="after")
    def _grid_fits(self) -> Self:
        if isinstance(self.strategy.chosen, GridSearch) and self.grid_size > self.max_trials:
            raise ValueError(
                f"strategy.grid has {self.grid_size} combinations, more than max_trials = {self.max_trials}: "
                "raise max_trials, or give fewer points or parameters"
            )
        return self

    @property
    def maximize(self) -> bool:
        return self.objective.direction == "maximize"


def parse_spec(data: Any) -> SweepSpec:
    """Check a spec and fill in its defaults.

    Raises:
        InvalidInput: naming every wrong field by its path, the value given and what is accepted.
    """
    try:
        return SweepSpec.model_validate(data)
    except ValidationError as error:
        problems = [_problem(detail) for detail in error.errors()]
        raise InvalidInput("the sweep spec is not accepted:\n" + "\n".join(f"  - {problem}" for problem in problems)) from None


def load_spec(path: str | Path) -> SweepSpec:
    """Read a spec from a YAML file.

    Raises:
        InvalidInput: there is no such file, it is not YAML, or the spec is wrong.
    """
    try:
        data = yaml.safe_load(Path(path).read_text())
    except OSError as error:
        raise InvalidInput(f"sweep file {str(path)!r} is not accepted: {error.strerror}; give the path of a YAML file") from None
    except yaml.YAMLError as error:
        raise InvalidInput(f"sweep file {str(path)!r} is not YAML: {error}") from None
    return parse_spec(data)


def check_functions(spec: SweepSpec) -> None:
    """Import the trainable, the predictor and the data source, so that a typing error costs seconds, not a sweep."""
    import_function("trainable", spec.trainable)
    import_function("predictor", spec.predictor)
    import_function("dataset.source", spec.dataset.source)


def _problem(detail: Any) -> str:
    path = ".".join(str(part) for part in detail["loc"]) or "(top)"
    value = detail["input"]
    message = detail["msg"].removeprefix("Value error, ")
    if detail["type"] == "missing":
        return f"{path} is missing"
    if detail["type"] == "extra_forbidden":
        accepted = _fields_beside(detail["loc"])
        meant = difflib.get_close_matches(str(detail["loc"][-1]), accepted, n=1)
        hint = f", did you mean {meant[0]!r}?" if meant else ""
        return f"{path} = {value!r:.80} is not accepted: there is no such field{hint}; accepted are {accepted}"
    if detail["type"] == "model_type":
        return f"{path} = {value!r:.80} is not accepted: give fields and values; the fields are {_fields_beside((*detail['loc'], ''))}"
    shown = "" if isinstance(value, dict) and detail["type"] == "value_error" else f" = {value!r:.80}"
    return f"{path}{shown} is not accepted: {message}"


def _fields_beside(location: tuple[str | int, ...]) -> list[str]:
    """The field names accepted where ``location`` points."""
    model: type[BaseModel] = SweepSpec
    for part in location[:-1]:
        by_alias = {field.alias or name: field for name, field in model.model_fields.items()}
        if part in by_alias:
            model = model_inside(by_alias[str(part)].annotation) or model
    return sorted(field.alias or name for name, field in model.model_fields.items())


def model_inside(annotation: Any) -> type[BaseModel] | None:
    """The model in ``Model``, ``Model | None`` or ``dict[str, Model]``."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    found = (model_inside(argument) for argument in get_args(annotation))
    return next((model for model in found if model), None)
