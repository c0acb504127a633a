"""Suggests by tree-structured Parzen estimators."""

from typing import TYPE_CHECKING, Any

from resources.search.suggestions.optuna_suggester import OptunaSuggester
from resources.search.suggestions.optuna_terms import load_optuna

if TYPE_CHECKING:
    import optuna


class TpeSuggester(OptunaSuggester):
    """Asks TPE, which counts trials in flight as bad ones (a constant liar)."""

    # TPE builds its good model from at most the 25 best trials, however long the history is (Optuna's
    # `default_gamma`), and its bad model from a density, for which a sample suffices.
    max_finished = 500
    keeps_notes = False

    def make_sampler(self, seed: int) -> "optuna.samplers.BaseSampler":
        """TPE with Optuna's options, of which the spec's have the last word."""
        options: dict[str, Any] = {
            "constant_liar": True,
            "n_startup_trials": self.model_trials,
            "seed": seed,
        }
        if len(self._spec.objectives) == 1:
            # With multivariate the parameters interact; with group those of a branch are learned from the
            # trials that have them.
            options["multivariate"] = True
            options["group"] = any(parameter.when for parameter in self._spec.space.values())
        return load_optuna().samplers.TPESampler(**{**options, **self._options})
