"""Sweeps whose suggestions are asked for one by one, and spaces and strategies to do so with."""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from resources.search.rules import rules_of
from resources.search.state import Result, Status, TrialState
from resources.search.suggest import make_suggester
from resources.search.suggestions.suggester import Suggester, Suggestion, Tried
from resources.sweep_spec import SweepSpec
from resources.sweep_spec.points import Params

Spec = Callable[..., SweepSpec]

SPACE: dict[str, Any] = {
    "momentum": {"float": {"low": 0.0, "high": 0.9, "step": 0.1}, "when": {"kind": ["a", 3]}},
    "nesterov": {"categorical": [True, False], "when": {"nested": "deep"}},
    "lr": {"float": {"low": 1e-5, "high": 1e-1, "log": True}},
    "x": {"float": {"low": -2.0, "high": 2.0}},
    "n": {"int": {"low": 2, "high": 64, "log": True}},
    "k": {"int": {"low": 4, "high": 16, "step": 4}},
    "batch": {"int": {"low": 16, "high": 1024, "step": 16, "log": True}},
    "kind": {"categorical": ["a", "b", 3, True]},
    "nested": {"categorical": ["deep", "flat"], "when": {"kind": "a"}},
    "warmup": {"constant": 3},
}
UNIT_SQUARE = {"x": {"float": {"low": 0.0, "high": 1.0}}, "y": {"float": {"low": 0.0, "high": 1.0}}}
CONSTRAINTS = ["n * k <= 300", "momentum < 0.5 or lr < 0.01"]

NSGA2 = {"nsga2": {"budget": 9, "population_size": 5}}
QMC = {"optuna": {"sampler": "optuna.samplers:QMCSampler", "budget": 9}}
BOHB = {"bohb": {"max_budget": 9}}
STRATEGIES: dict[str, dict[str, Any]] = {
    "random": {"random": {"budget": 9}},
    "tpe": {"tpe": {"budget": 9}},
    "nsga2": NSGA2,
    "qmc": QMC,
    "scrambled qmc": {"optuna": {**QMC["optuna"], "options": {"scramble": True, "qmc_type": "halton"}}},
    "asha": {"asha": {"sampler": "tpe", "max_budget": 9}},
    "hyperband": {"hyperband": {"sampler": "tpe", "max_budget": 9}},
    "bohb": BOHB,
    "median": {"median": {"sampler": "tpe", "max_budget": 3}},
}
SLOW = {"gp": {"gp": {"budget": 9}}, "asha gp": {"asha": {"sampler": "gp", "max_budget": 9}}}


@dataclass
class Played:
    """A sweep whose suggestions were asked for one by one, as a process would that keeps its suggester."""

    spec: SweepSpec
    suggester: Suggester
    afresh: bool = False  # every suggestion from a new process, which knows what the catalog has kept
    tried: list[Tried] = field(default_factory=list)
    sweep_attrs: dict[str, Any] = field(default_factory=dict)

    def next(self) -> Suggestion:
        suggester = self.suggester
        if self.afresh:
            suggester = make_suggester(self.spec)
        suggester.learn(self.tried, self.sweep_attrs)
        suggestion = suggester.suggest(len(self.tried))
        self.sweep_attrs = json.loads(json.dumps(suggestion.sweep_attrs))
        return suggestion

    def add(self, suggestion: Suggestion, state: TrialState) -> None:
        kept = json.loads(json.dumps({"params": suggestion.params, "attrs": suggestion.trial_attrs}))
        self.tried.append(Tried(kept["params"], state, kept["attrs"]))


def play(
    spec: SweepSpec,
    count: int,
    *,
    afresh: bool = False,
    finish: Callable[[Played, int, Params], TrialState] | None = None,
) -> Played:
    """Run so many trials: complete, paused, failed and running ones in turn, some of which go on later."""
    sweep = Played(spec, make_suggester(spec), afresh)
    for number in range(count):
        suggestion = sweep.next()
        sweep.add(suggestion, (finish or finish_mixed)(sweep, number, suggestion.params))
        if number >= 6 and finish is None:  # The one that ran six trials ago has got further.
            before = sweep.tried[number - 6]
            if before.state.status is Status.RUNNING:
                results = results_of(spec, number - 6, len(ladder_of(spec, number - 6)))
                completed = TrialState(number - 6, Status.COMPLETED, results)
                sweep.tried[number - 6] = Tried(before.params, completed, before.attrs)
    return sweep


def ladder_of(spec: SweepSpec, number: int) -> tuple[int, ...]:
    return rules_of(spec).ladder(number)


def results_of(spec: SweepSpec, number: int, count: int) -> tuple[Result, ...]:
    value = math.sin(number)
    violation = 0.0
    if spec.bounds:
        violation = max(0.0, value)
    return (Result((value,) * len(spec.objectives), violation),) * count


def finish_mixed(sweep: Played, number: int, params: Params) -> TrialState:
    rungs = len(ladder_of(sweep.spec, number))
    paused = TrialState(number, Status.FAILED, (None,))
    if rungs > 1:
        paused = TrialState(number, Status.PAUSED, results_of(sweep.spec, number, 1))
    return [
        TrialState(number, Status.COMPLETED, results_of(sweep.spec, number, rungs)),
        paused,
        TrialState(number, Status.FAILED, (None,)),
        TrialState(number, Status.RUNNING),
        TrialState(number, Status.COMPLETED, results_of(sweep.spec, number, rungs)),
    ][number % 5]


def complete_with(
    score: Callable[[Params], tuple[float, ...]],
) -> Callable[[Played, int, Params], TrialState]:
    return lambda sweep, number, params: TrialState(number, Status.COMPLETED, (Result(score(params)),))


def near(params: Params) -> tuple[float, ...]:
    return (-((params["x"] - 0.3) ** 2) - (params["y"] - 0.6) ** 2,)
