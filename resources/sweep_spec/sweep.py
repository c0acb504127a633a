"""The fields of a sweep spec."""

import json
from hashlib import sha256
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from halving.errors import InvalidInput
from halving.identifiers import NAME_RULE, check_name
from halving.text import comma_list
from resources.sweep_spec.base import (
    MAX_COUNT,
    MAX_PARAMETERS,
    MAX_VALUES,
    Bounds,
    Choice,
    Digest,
    FunctionPath,
    Metric,
    Name,
    Strict,
)
from resources.sweep_spec.dataset import DatasetSource
from resources.sweep_spec.evaluation import EvaluationLimits, ScorerName, Serving, Slice
from resources.sweep_spec.final import TRAIN, FinalTraining
from resources.sweep_spec.gates import Gates, default_gates
from resources.sweep_spec.requirements import Elastic, Image, Resources
from resources.sweep_spec.space import Parameter
from resources.sweep_spec.strategy import Asha, EarlyStopping, Strategy


class Objective(Strict):
    """What the search optimises: a metric that the trainable reports on the validation split."""

    metric: Metric = Field(description="The name given to run.report(), for example val_accuracy.")
    direction: Literal["maximize", "minimize"] = Field(description="Which way is better.")
    summary: Literal["end", "best", "average"] = Field(
        default="end",
        description=(
            "Which value counts at a rung: that of its last epoch, the best so far, or the mean of the "
            "last epochs."
        ),
    )
    window: int | None = Field(
        default=None, ge=1, le=MAX_COUNT, description="Epochs over which average is taken (default: 5)."
    )

    @model_validator(mode="before")
    @classmethod
    def _fill_window(cls, fields: Any) -> Any:
        if isinstance(fields, dict) and fields.get("summary") == "average" and fields.get("window") is None:
            return {**fields, "window": 5}
        return fields

    @model_validator(mode="after")
    def _check_window(self) -> Self:
        if self.window is not None and self.summary != "average":
            raise ValueError(
                f"window = {self.window} needs summary = 'average', not {self.summary!r}; leave it out, or "
                "give average"
            )
        return self

    @property
    def maximize(self) -> bool:
        """Whether larger values are better."""
        return self.direction == "maximize"


class Restored(Strict):
    """A checkpoint of another run from which training goes on; its epochs count."""

    project: Name = Field(description="The run's project.")
    run: Name = Field(description="The run's id, for example digits-7f3a.0007.")
    epoch: int = Field(ge=1, le=MAX_COUNT, description="The checkpoint's epoch.")
    checkpoint: Digest = Field(description="The checkpoint's digest.")


class Training(Strict):
    """The trainable's learning-rate schedule, for checks of the rungs; training does not read it."""

    warmup_epochs: float | None = Field(
        default=None, ge=0, description="Epochs over which the learning rate rises."
    )
    lr_schedule: Literal["cosine", "linear", "step", "constant"] | None = Field(
        default=None, description="How the learning rate falls."
    )
    schedule_epochs: float | None = Field(
        default=None, gt=0, description="Epochs after which the schedule is at its end."
    )


class Approval(Strict):
    """Who must approve a version before it becomes the champion, beside its gates."""

    required: bool = Field(default=False, description="Whether a version waits for approval.")
    by: list[Annotated[str, Field(min_length=1, max_length=250)]] = Field(
        default=[],
        max_length=MAX_VALUES,
        description="Names of who may approve: of tokens, or of users (default: everybody).",
    )
    at_least: int = Field(default=1, ge=1, le=MAX_VALUES, description="How many of them must approve.")

    @model_validator(mode="after")
    def _can_be_met(self) -> Self:
        names = set(self.by)
        if self.by and self.at_least > len(names):
            raise ValueError(
                f"at_least = {self.at_least} can never be met: by names {len(names)}; name more, or ask "
                "for fewer"
            )
        if not self.required and (self.by or self.at_least != 1):
            raise ValueError("by and at_least mean nothing without required: true; set it, or leave them out")
        return self


def _check_sweeps(value: Any) -> Any:
    if value is None or value == "auto":
        return value
    if not isinstance(value, list) or not value:
        raise ValueError("give auto, or a list of the ids of earlier sweeps")
    for sweep in value:
        try:
            check_name("warm_start", sweep)
        except InvalidInput:
            raise ValueError(f"{sweep!r} is not the id of a sweep: {NAME_RULE}") from None
    return value


NO_TRAINABLE = (
    "trainable is missing: give module:function, for example examples.digits:train; "
    "only a study that external loops train does without one (POST /hpo/studies?driver=api)"
)

# It is checked as a whole, because pydantic reports a wrong value of a union once for each of its members.
WarmStart = Annotated[list[str] | Literal["auto"] | None, BeforeValidator(_check_sweeps)]


class SweepSpec(Strict):
    """One sweep: the trainable, the data, what is optimised, how it is searched, and its resources."""

    name: Name = Field(
        description=(
            "The sweep's name; each launch gets an id NAME-HASH, and its winner a version of the model NAME."
        )
    )
    project: Name = Field(
        default_factory=lambda fields: fields["name"],
        description="The project whose share it uses, and whose runs its trials are (default: name).",
    )
    priority: int = Field(
        default=0,
        ge=-MAX_VALUES,
        le=MAX_VALUES,
        description="Among the sweeps of its project those with a higher one come first.",
    )
    trainable: FunctionPath | None = Field(
        default=None,
        description=(
            "module:function, called as train(run) for every trial. Required, except where external loops "
            "train (driver api)."
        ),
    )
    predictor: FunctionPath | None = Field(
        default=None,
        description="module:function, called as predict(run, table) for the winner; returns a prediction "
        "for each row, or probabilities of its classes. Without a predictor or an evaluator the sweep ends "
        "with its search: nothing is evaluated or promoted.",
    )
    evaluator: FunctionPath | None = Field(
        default=None,
        description="module:function, called as evaluate(run, split) for the winner in place of a predictor; "
        "returns a halving.Evaluation: metrics, scores of each row, figures. For what is no table.",
    )
    metrics: list[ScorerName] = Field(
        default=[],
        max_length=50,
        description=(
            "Names of scikit-learn's scorers that the winner is judged by (default: accuracy and f1_macro, "
            "or r2, mae and rmse)."
        ),
    )
    slices: list[Slice] = Field(
        default=[],
        max_length=50,
        description=(
            "Groups of test rows that are judged apart: columns, each value a group, and conditions such "
            "as age >= 65."
        ),
    )
    evaluation_limits: EvaluationLimits = Field(
        default=EvaluationLimits(),
        description="What the predictor or the evaluator may use before it is ended.",
    )
    serving: Serving = Field(
        default=Serving(), description="How the predictor's cost of serving is measured."
    )
    exporter: FunctionPath | None = Field(
        default=None,
        description="module:function, called as export(run) by halving models export; returns an ONNX "
        "model whose inputs are the columns and whose first output is what the predictor returns.",
    )
    dataset: DatasetSource = Field(description="The data to snapshot.")
    snapshot: Digest | None = Field(
        default=None,
        description=(
            "Digest of the dataset's snapshot to run on (default: a new one is taken of dataset.source)."
        ),
    )
    restored_from: Restored | None = Field(
        default=None, description="The checkpoint that every trial starts from (default: none)."
    )
    objective: Objective = Field(description="What to optimise.")
    other_objectives: list[Objective] = Field(
        default=[],
        max_length=MAX_VALUES,
        description="More objectives, for a Pareto front; with strategies that train every trial to the end.",
    )
    bounds: dict[Metric, Bounds] = Field(
        default={},
        max_length=MAX_VALUES,
        description=(
            "Reported metrics that must be in bounds at every rung (objectives: their summary); others "
            "rank last."
        ),
    )
    divergence: dict[Metric, Bounds] = Field(
        default={},
        max_length=MAX_VALUES,
        description="Metrics that stop a trial at once when they leave these bounds or are NaN or infinite.",
    )
    space: dict[Annotated[str, Field(max_length=250)], Parameter] = Field(
        min_length=1,
        max_length=MAX_PARAMETERS,
        description="The hyperparameters by name, each with its range, choices or constant.",
    )
    constraints: list[str] = Field(
        default=[],
        max_length=MAX_VALUES,
        description=(
            "Comparisons of hyperparameters that every trial must meet, for example hidden * batch_size <= "
            "8192."
        ),
    )
    strategy: Strategy = Field(
        default=Strategy(asha=Asha()), description="How trials are chosen and stopped."
    )
    warm_start: WarmStart = Field(
        default=None,
        description="Ids of earlier sweeps to learn from; auto: all that fit this space and objective.",
    )
    start_from: list[dict[str, Choice]] = Field(
        default=[],
        max_length=MAX_VALUES,
        description="Hyperparameters to try first, in this order; those left out are sampled.",
    )
    training: Training = Field(
        default=Training(), description="The learning-rate schedule; the rungs are checked against it."
    )
    max_trials: int = Field(
        default=27,
        ge=1,
        le=90_000,
        description="Most trials to start; a grid may have fewer points, not more.",
    )
    concurrency: int = Field(
        default=0,
        ge=0,
        le=MAX_COUNT,
        description=(
            "Trials at a time; 0: as many as this machine has room for, or as the cluster's settings say."
        ),
    )
    resources: Resources = Field(default=Resources(), description="What one trial needs.")
    elastic: Elastic | None = Field(
        default=None,
        description=(
            "Let trials of many nodes go on with fewer (default: a trial waits until it has all of its "
            "nodes)."
        ),
    )
    image: Image | None = Field(
        default=None,
        description=(
            "Cluster: image that trials run in, with the trainable and the halving SDK in it (default: the "
            "code location's image)."
        ),
    )
    seed: int = Field(default=0, ge=0, lt=2**63, description="Seed of the sampler and of the trials.")
    deterministic: Annotated[bool | None, AfterValidator(lambda value: value or None)] = Field(
        default=None,
        description=(
            "Let trials compute the same from the same seed, as far as their libraries can, so that a "
            "rerun gives equal weights."
        ),
    )
    max_retries: int = Field(
        default=2,
        ge=0,
        le=MAX_COUNT,
        description="How many times a crashed trial is resumed from its checkpoint.",
    )
    max_preemptions: int = Field(
        default=10,
        ge=0,
        le=MAX_COUNT,
        description=(
            "How many times a trial is resumed after its worker was lost, which does not count as a crash."
        ),
    )
    max_failed_trials: int = Field(
        default=0,
        ge=0,
        le=MAX_COUNT,
        description="With at most so many failed trials the job still succeeds.",
    )
    final: FinalTraining = Field(
        default=None,
        description="Train the winner's params again from scratch with several seeds when the search is "
        "over, and promote the median one (default: the winner's own checkpoint is what may be promoted).",
    )
    gates: Gates = Field(
        default_factory=default_gates,
        description=(
            "What the winner must show to be promoted (default: finite_metrics, lineage, leakage, "
            "non_inferior by 0.5 %)."
        ),
    )
    approval: Approval | None = Field(
        default=None,
        description="Who must approve the new version before it becomes the champion (default: nobody).",
    )
    auto_promote: bool = Field(
        default=False, description="Make the new version champion at once; otherwise it waits as staging."
    )

    @property
    def judged_by(self) -> str | None:
        """The predictor or the evaluator; without one the sweep ends with its search."""
        return self.predictor or self.evaluator

    @property
    def gate_metrics(self) -> dict[str, str]:
        """The test metrics that gates name, by the path of the field."""
        named = (
            (f"gates.{place}.{gate.name}.metric", getattr(gate.chosen, "metric", None))
            for place, gate in enumerate(self.gates)
        )
        return {path: metric for path, metric in named if metric is not None}

    @property
    def gate_metric(self) -> str | None:
        """The metric by which versions are compared, if a gate names one."""
        compared = (gate.chosen.metric for gate in self.gates if gate.name in ("non_inferior", "improvement"))
        return next((metric for metric in compared if metric is not None), None)

    @property
    def digest(self) -> str:
        """SHA-256 of the spec with all its defaults, but without its project and its priority.

        The project may be renamed, and the priority may change while the sweep runs.
        """
        return "sha256:" + sha256(self._as_json(without={"project", "priority"}).encode()).hexdigest()

    def canonical_json(self) -> str:
        """The spec as JSON, with all its defaults and sorted keys."""
        return self._as_json(without=set())

    def _as_json(self, without: set[str]) -> str:
        return json.dumps(
            self.model_dump(mode="json", by_alias=True, exclude_none=True, exclude=without), sort_keys=True
        )

    @property
    def trained_by(self) -> str:
        """The trainable of a sweep whose trials the platform trains.

        Raises:
            InvalidInput: it has none, because external loops train its trials.
        """
        if self.trainable is None:
            raise InvalidInput(NO_TRAINABLE)
        return self.trainable

    @property
    def objectives(self) -> tuple[Objective, ...]:
        """All objectives; the first ranks trials."""
        return (self.objective, *self.other_objectives)

    @property
    def ladders(self) -> tuple[tuple[int, ...], ...]:
        """Epochs at each rung, ascending; one ladder for each bracket, the longest first.

        All ladders end at the same epoch.
        """
        return self.strategy.chosen.ladders

    @property
    def budgets(self) -> tuple[int, ...]:
        """Epochs at each rung of the longest ladder."""
        return self.ladders[0]

    def fewest_nodes(self, budget: int) -> int:
        """The fewest nodes with which an attempt up to ``budget`` epochs may go on."""
        nodes = self.resources.at(budget).nodes
        if self.elastic is None:
            return nodes
        return min(nodes, self.elastic.min_nodes)

    @property
    def final_epochs(self) -> int:
        """Epochs of each training of the final training, if there is one."""
        return (self.final and self.final.epochs) or self.budgets[-1]

    def train_on(self, final: int | None) -> tuple[str, ...]:
        """The dataset's splits that make up the train split of a trial.

        Args:
            final: the number of its seed in the final training; None for the search's trials.
        """
        if self.final is None or final is None:
            return (TRAIN,)
        return tuple(self.final.on)

    @property
    def rungs(self) -> str:
        """The rungs, in words."""
        return "rungs at " + " and ".join(comma_list(ladder) for ladder in self.ladders) + " epochs"

    @property
    def sampler(self) -> tuple[str, dict[str, Any]]:
        """The sampler that suggests new trials, by name or import path, and its options."""
        return self.strategy.chosen.suggester

    @property
    def audit(self) -> float:
        """Share of the pruned trials that run to the end anyway."""
        if isinstance(self.strategy.chosen, EarlyStopping):
            return self.strategy.chosen.audit
        return 0.0

    def reachable(self, ladder: int) -> int:
        """How many rungs of a ladder are reached with its share of ``max_trials``.

        Each promotion takes ``reduction_factor`` results.
        """
        strategy = self.strategy.chosen
        factor = getattr(strategy, "reduction_factor", 1)
        trials = max(1, self.max_trials * strategy.weights[ladder] // sum(strategy.weights))
        return sum(factor**rung <= trials for rung in range(len(self.ladders[ladder])))
