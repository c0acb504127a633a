"""Suggests by any sampler of Optuna's, of a name or an import path."""

import inspect
from typing import TYPE_CHECKING, Any

from resources.search.suggestions.optuna_suggester import OptunaSuggester
from resources.search.suggestions.optuna_terms import load_optuna
from resources.sweep_spec.functions import import_sampler

if TYPE_CHECKING:
    import optuna


class SuggesterByPath(OptunaSuggester):
    """Asks the sampler that the spec names, and keeps its notes on trials for other processes."""

    def make_sampler(self, seed: int) -> "optuna.samplers.BaseSampler":
        """The sampler of the spec's name or path; the spec's options have the last word."""
        name, options = self._spec.sampler
        samplers = load_optuna().samplers
        sampler_class = import_sampler(name)
        arguments: dict[str, Any] = {}
        if "seed" in inspect.signature(sampler_class).parameters:
            arguments["seed"] = seed
        if issubclass(sampler_class, samplers.QMCSampler | samplers.GridSampler):
            arguments["seed"] = self._spec.seed  # They walk along one sequence, which the seed shuffles.
        if issubclass(sampler_class, samplers.QMCSampler):
            arguments["independent_sampler"] = samplers.RandomSampler(seed=seed)
        return sampler_class(**{**arguments, **options})
