"""Strategies: who suggests the next trial, how long a trial trains, and which trials stop early."""

import math
from typing import Annotated, Any, ClassVar, Self

from pydantic import AfterValidator, Field, model_validator

from halving.text import did_you_mean
from resources.sweep_spec.base import MAX_COUNT, OneOf, Strict, is_import_path, must

SAMPLERS = {
    "random": "optuna.samplers:RandomSampler",
    "tpe": "optuna.samplers:TPESampler",
    "gp": "optuna.samplers:GPSampler",
    "nsga2": "optuna.samplers:NSGAIISampler",
}
"""The import paths of the samplers that have names.

For ``random`` the class only defines the options: the points are drawn by
:func:`resources.sweep_spec.points.sample`, which takes a twentieth of the time.
"""

_SAMPLER = "What suggests new trials: random, tpe, gp, or module:Class of an Optuna sampler."
_NAMED = ("random", "tpe", "gp")
_MAX_RUNGS = 1_000  # Each is a row of every trial that passes it, and a name in what people see.
# A sampler may keep as many numbers for each trial of a study: candidates, or a population.
_MAX_OPTION = 10_000
_MAX_OPTION_LENGTH = 200
_MAX_OPTION_VALUES = 100
_MAX_POINTS = 90_000  # as many as the trials that a study may have


def _check_sampler(value: str) -> str:
    if value in _NAMED or is_import_path(value):
        return value
    raise ValueError(
        "give 'random', 'tpe', 'gp' or module:Class, for example "
        f"optuna.samplers:CmaEsSampler{did_you_mean(value, _NAMED)}"
    )


def _check_options(options: dict[str, Any]) -> dict[str, Any]:
    if "seed" in options:
        raise ValueError(
            f"seed = {options['seed']} is not an option: the sampler takes the seed of the sweep; "
            "leave it out here"
        )
    for name, value in options.items():
        if not _is_small(value):
            raise ValueError(
                f"{name:.80} = {value!r:.80} is not accepted: "
                f"give numbers from -{_MAX_OPTION} to {_MAX_OPTION}, "
                f"texts of at most {_MAX_OPTION_LENGTH} characters, true, false, null, "
                f"or lists of them whose product has at most {_MAX_POINTS} points"
            )
    return options


def _is_small(value: Any, depth: int = 3) -> bool:
    """Whether an option has simple values, and a size that no sampler stumbles over.

    Lists by name may be a grid, which is built as a whole.
    """
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        points = math.prod(len(item) for item in value if isinstance(item, list) and item)
        return (
            depth > 0
            and len(value) <= _MAX_OPTION_VALUES
            and points <= _MAX_POINTS
            and all(_is_small(item, depth - 1) for item in value)
        )
    if isinstance(value, str):
        return len(value) <= _MAX_OPTION_LENGTH
    return value is None or (isinstance(value, int | float) and -_MAX_OPTION <= value <= _MAX_OPTION)


Sampler = Annotated[str, AfterValidator(_check_sampler)]
SamplerPath = Annotated[
    str, must(is_import_path, "give module:Class, for example optuna.samplers:CmaEsSampler")
]
Options = Annotated[dict[str, Any], AfterValidator(_check_options)]


class SearchStrategy(Strict):
    """What the search needs to know of every strategy."""

    fixed_sampler: ClassVar[str]

    @property
    def suggester(self) -> tuple[str, dict[str, Any]]:
        """A name in :data:`SAMPLERS` or an import path, and the sampler's options."""
        return self.fixed_sampler, {}

    @property
    def ladders(self) -> tuple[tuple[int, ...], ...]:
        """Epochs at each rung, rising; one ladder for each bracket, the longest first."""
        raise NotImplementedError

    @property
    def weights(self) -> tuple[int, ...]:
        """The proportion in which new trials are shared among the ladders."""
        return (1,) * len(self.ladders)


class FullBudget(SearchStrategy):
    """Each trial trains to the end: one rung."""

    budget: int = Field(default=27, ge=1, le=MAX_COUNT, description="Epochs that every trial trains.")

    @property
    def ladders(self) -> tuple[tuple[int, ...], ...]:
        return ((self.budget,),)


class RandomSearch(FullBudget):
    """Independent random trials (Bergstra & Bengio, JMLR 2012)."""

    fixed_sampler = "random"


class GridSearch(FullBudget):
    """Every combination of the values on a grid, in order."""

    points: int | None = Field(
        default=None,
        ge=2,
        le=90_000,
        description="Values on the grid for each range without a step, and for each int range with log: "
        "evenly, ends included. An int range with no more values has all of them.",
    )

    fixed_sampler = "random"


class TpeSearch(FullBudget):
    """Tree-structured Parzen estimators (Bergstra et al., NeurIPS 2011; Watanabe, 2023)."""

    fixed_sampler = "tpe"


class GpSearch(FullBudget):
    """Gaussian process with expected improvement; for few, expensive trials."""

    fixed_sampler = "gp"


class Nsga2Search(FullBudget):
    """A genetic search for the Pareto front of several objectives (Deb et al., IEEE TEC 2002)."""

    population_size: int = Field(default=50, ge=2, le=_MAX_OPTION, description="Trials in a generation.")

    @property
    def suggester(self) -> tuple[str, dict[str, Any]]:
        return "nsga2", {"population_size": self.population_size}


class _AnySampler(SearchStrategy):
    sampler: Sampler = Field(default="tpe", description=_SAMPLER)
    options: Options = Field(default={}, description="Keyword arguments of the sampler, without its seed.")

    @property
    def suggester(self) -> tuple[str, dict[str, Any]]:
        return self.sampler, self.options


class OptunaSearch(_AnySampler, FullBudget):
    """Any Optuna sampler, by its import path."""

    sampler: SamplerPath = Field(
        description="module:Class of an Optuna sampler, for example optuna.samplers:CmaEsSampler."
    )


class EarlyStopping(SearchStrategy):
    """Weak trials stop before the end."""

    min_budget: int = Field(
        default=1, ge=1, le=MAX_COUNT, description="Epochs to the first rung; no trial stops before it."
    )
    max_budget: int = Field(default=27, ge=1, le=MAX_COUNT, description="Epochs to the last rung.")
    audit: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description=(
            "Share of the pruned trials that run to the end anyway, to measure how often pruning was wrong."
        ),
    )

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if self.min_budget > self.max_budget:
            raise ValueError(
                f"min_budget = {self.min_budget} must not be above max_budget = {self.max_budget}"
            )
        self._check_rungs()
        if self.audit and len(self.ladders[0]) == 1:
            raise ValueError(
                f"audit = {self.audit} needs trials that are pruned, and with one rung at max_budget = "
                f"{self.max_budget} none are: give a min_budget below it, or leave audit out"
            )
        return self

    def _check_rungs(self) -> None:
        """Refuse more rungs than anyone needs, before any is made; halving has at most 32."""


class SuccessiveHalving(EarlyStopping):
    """At each rung one trial in ``reduction_factor`` is promoted: the best."""

    reduction_factor: int = Field(
        default=3,
        ge=2,
        le=MAX_COUNT,
        description="Of the trials at a rung, one in this many is promoted to the next.",
    )


class Asha(_AnySampler, SuccessiveHalving):
    """Asynchronous successive halving by promotion (Li et al., MLSys 2020, Algorithm 2)."""

    @property
    def ladders(self) -> tuple[tuple[int, ...], ...]:
        """One ladder: min·η⁰, min·η¹, … and max_budget at the end."""
        rungs = []
        budget = self.min_budget
        while budget < self.max_budget:
            rungs.append(budget)
            budget *= self.reduction_factor
        return ((*rungs, self.max_budget),)


class Brackets(SuccessiveHalving):
    """Hyperband's brackets (Li et al., JMLR 2018, Algorithm 1) with R = max_budget in units of min_budget."""

    @property
    def ladders(self) -> tuple[tuple[int, ...], ...]:
        """Bracket s = s_max … 0 has rungs at R·η⁻ˢ, …, R·η⁻¹, R, in whole epochs."""
        rungs = [self.max_budget]
        while rungs[0] // self.reduction_factor >= self.min_budget:
            rungs.insert(0, self.max_budget // self.reduction_factor ** len(rungs))
        return tuple(tuple(rungs[first:]) for first in range(len(rungs)))

    @property
    def weights(self) -> tuple[int, ...]:
        """n of Algorithm 1: ⌈(s_max + 1) · ηˢ / (s + 1)⌉ trials begin in bracket s."""
        brackets = len(self.ladders)
        return tuple(-(-brackets * self.reduction_factor**s // (s + 1)) for s in reversed(range(brackets)))


class Hyperband(_AnySampler, Brackets):
    """Successive halving with several first rungs at once.

    It is for when it is unknown how early trials may be stopped.
    """

    sampler: Sampler = Field(default="random", description=_SAMPLER)


class Bohb(Brackets):
    """Hyperband's brackets with TPE on the highest populated rung (Falkner et al., ICML 2018)."""

    fixed_sampler = "tpe"


class MedianStopping(_AnySampler, EarlyStopping):
    """A trial stops when it is worse than the median of the others at the same epoch.

    Golovin et al., KDD 2017, section 3.2.2.
    """

    interval: int = Field(default=1, ge=1, le=MAX_COUNT, description="Epochs between two checks.")
    min_trials: int = Field(
        default=5,
        ge=1,
        le=MAX_COUNT,
        description="Other trials that must have a result at an epoch before a trial stops there.",
    )
    quantile: float = Field(
        default=0.5,
        gt=0,
        lt=1,
        description="A trial stops when more than this share of the others is better; 0.5 is the median.",
    )

    def _check_rungs(self) -> None:
        width = self.max_budget - self.min_budget
        if -(-width // self.interval) + 1 > _MAX_RUNGS:
            raise ValueError(
                f"interval = {self.interval} makes {-(-width // self.interval) + 1} checks "
                f"from min_budget = {self.min_budget} to max_budget = {self.max_budget}, "
                f"more than {_MAX_RUNGS}: give an interval of at least {-(-width // (_MAX_RUNGS - 1))}"
            )

    @property
    def ladders(self) -> tuple[tuple[int, ...], ...]:
        """One ladder of checks: min_budget, min_budget + interval, … and max_budget at the end."""
        return ((*range(self.min_budget, self.max_budget, self.interval), self.max_budget),)


class Strategy(OneOf):
    """How trials are chosen and stopped."""

    grid: GridSearch | None = Field(default=None, description="Every combination on a grid.")
    random: RandomSearch | None = Field(default=None, description="Independent random trials.")
    tpe: TpeSearch | None = Field(
        default=None, description="Tree-structured Parzen estimators; each trial trains to the end."
    )
    gp: GpSearch | None = Field(default=None, description="Gaussian process; each trial trains to the end.")
    nsga2: Nsga2Search | None = Field(
        default=None, description="Genetic search, for several objectives; each trial trains to the end."
    )
    optuna: OptunaSearch | None = Field(
        default=None, description="Any Optuna sampler; each trial trains to the end."
    )
    asha: Asha | None = Field(
        default=None, description="Stop weak trials early, promote the best at each rung."
    )
    hyperband: Hyperband | None = Field(
        default=None, description="Successive halving in brackets with different first rungs."
    )
    bohb: Bohb | None = Field(default=None, description="Hyperband's brackets with suggestions by TPE.")
    median: MedianStopping | None = Field(
        default=None, description="Stop trials that are worse than the median of the others."
    )


STARTUP_TRIALS = 10
"""Finished trials after which a model-based sampler no longer samples at random."""
