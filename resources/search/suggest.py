"""Hyperparameters for a new trial: Optuna's samplers behind one function, or the next point of a grid.

A suggestion depends on the spec's seed, the trial's number and the history alone, so that the same results in the
same order give the same search again.
"""

import warnings
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from resources.search.brain import Status, TrialState
from resources.spec import Asha, FloatRange, GridSearch, IntRange, Parameter, SweepSpec

if TYPE_CHECKING:
    import optuna

Params = dict[str, Any]


@dataclass(frozen=True)
class Tried:
    """A trial in the history: what it was given and what came out so far."""

    params: Params
    state: TrialState


def max_trials(spec: SweepSpec) -> int:
    """Trials that the sweep can start: a grid may have fewer points than ``max_trials``."""
    return spec.grid_size if isinstance(spec.strategy.chosen, GridSearch) else spec.max_trials


def suggest(spec: SweepSpec, history: list[Tried]) -> Params:
    """The params of the trial numbered ``len(history)``, seeing finished, paused and in-flight trials."""
    if isinstance(spec.strategy.chosen, GridSearch):
        return _grid_point(spec, len(history))
    optuna = load_optuna()
    study = optuna.create_study(
        direction=spec.objective.direction,
        sampler=_sampler(spec, number=len(history)),
        storage=optuna.storages.InMemoryStorage(),
    )
    distributions = {name: _distribution(parameter) for name, parameter in spec.space.items()}
    for tried in history:
        study.add_trial(_frozen(spec, tried, distributions))
    trial = study.ask(distributions)
    return dict(trial.params)


@cache
def load_optuna() -> Any:
    """Optuna, quiet. Importing it takes half a second: do it outside of transactions."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    return optuna


def _sampler(spec: SweepSpec, number: int) -> "optuna.samplers.BaseSampler":
    optuna = load_optuna()
    seed = (spec.seed * 1_000_003 + number) % 2**32
    strategy = spec.strategy.chosen
    if isinstance(strategy, Asha) and strategy.sampler == "tpe":
        # multivariate: parameters interact; constant_liar: trials in flight repel new ones.
        return optuna.samplers.TPESampler(seed=seed, multivariate=True, constant_liar=True, n_startup_trials=10)
    return optuna.samplers.RandomSampler(seed=seed)


def _distribution(parameter: Parameter) -> "optuna.distributions.BaseDistribution":
    optuna = load_optuna()
    given = parameter.chosen
    if isinstance(given, FloatRange):
        return optuna.distributions.FloatDistribution(given.low, given.high, log=given.log)
    if isinstance(given, IntRange):
        return optuna.distributions.IntDistribution(given.low, given.high, log=given.log)
    return optuna.distributions.CategoricalDistribution(given)


def _frozen(spec: SweepSpec, tried: Tried, distributions: dict[str, Any]) -> "optuna.trial.FrozenTrial":
    """A trial as Optuna sees it: complete at the last rung, pruned with its curve where it stands, or still running."""
    optuna = load_optuna()
    results = {budget: value for budget, value in zip(spec.budgets, tried.state.results, strict=False) if value is not None}
    if tried.state.status is Status.COMPLETED:
        state, value = optuna.trial.TrialState.COMPLETE, results[max(results)]
    elif tried.state.status is Status.FAILED and not results:
        state, value = optuna.trial.TrialState.FAIL, None
    elif results:
        state, value = optuna.trial.TrialState.PRUNED, None
    else:
        state, value = optuna.trial.TrialState.RUNNING, None
    return optuna.trial.create_trial(
        state=state,
        value=value,
        params=tried.params,
        distributions=distributions,
        intermediate_values=results,
    )


def _grid_point(spec: SweepSpec, number: int) -> Params:
    """The point with this number: the last parameter changes fastest."""
    params = {}
    for name, axis in reversed(spec.grid_axes.items()):
        number, place = divmod(number, len(axis))
        params[name] = axis[place]
    return {name: params[name] for name in spec.space}
