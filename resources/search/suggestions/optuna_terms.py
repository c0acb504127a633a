"""Spaces, params and values in Optuna's terms."""

import logging
import warnings
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from resources.sweep_spec.points import Params, Space, nearest_step
from resources.sweep_spec.space import FloatRange, IntRange, Parameter, choice_name, is_same

if TYPE_CHECKING:
    import optuna


@cache
def load_optuna() -> Any:
    """Import Optuna and silence its log.

    Importing it takes half a second, so do it outside of transactions.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    logging.getLogger("optuna").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    return optuna


def distribution_of(parameter: Parameter) -> "optuna.distributions.BaseDistribution":
    """A parameter's range or choices as Optuna's distribution; lists and mappings are named."""
    distributions = load_optuna().distributions
    domain = parameter.chosen
    if isinstance(domain, FloatRange):
        return distributions.FloatDistribution(domain.low, domain.high, log=domain.log, step=domain.step)
    if isinstance(domain, IntRange):
        # Optuna has no steps on a logarithmic scale, so its suggestion is later rounded to the nearest one.
        step = 1 if domain.log else domain.step
        return distributions.IntDistribution(domain.low, domain.high, log=domain.log, step=step)
    return distributions.CategoricalDistribution([choice_name(choice) for choice in domain])


def searched_params(space: Space, params: Mapping[str, Any]) -> Params:
    """The params that are not fixed, in Optuna's terms: choices are named."""
    return {
        name: _optuna_value(space[name], value) for name, value in params.items() if not space[name].is_fixed
    }


def suggest_value(trial: "optuna.Trial", name: str, parameter: Parameter, distribution: Any) -> Any:
    """Have Optuna suggest a parameter's value for a trial, and return it in the spec's terms."""
    if parameter.float_ is not None:
        return trial.suggest_float(
            name, distribution.low, distribution.high, step=distribution.step, log=distribution.log
        )
    if parameter.int_ is not None:
        number = trial.suggest_int(
            name, distribution.low, distribution.high, step=distribution.step, log=distribution.log
        )
        # This also keeps it within the range: 2**63 - 1 becomes 2**63 in a double.
        return nearest_step(parameter.int_, number)
    choice = trial.suggest_categorical(name, distribution.choices)
    return (parameter.choices or [])[distribution.choices.index(choice)]


def _optuna_value(parameter: Parameter, value: Any) -> Any:
    # The name is that of the spec's choice, because an equal value may have another name: [1.0] and [1].
    return next((choice_name(choice) for choice in parameter.choices or [] if is_same(value, choice)), value)
