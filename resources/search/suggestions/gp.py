"""Suggests by a Gaussian process with expected improvement."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from resources.search.suggestions.optuna_suggester import OptunaSuggester
from resources.search.suggestions.optuna_terms import load_optuna
from resources.search.suggestions.suggester import Earlier
from resources.sweep_spec import SweepSpec

if TYPE_CHECKING:
    import optuna


class GpSuggester(OptunaSuggester):
    """Asks a Gaussian process, which integrates over the possible results of trials in flight (qLogEI)."""

    max_finished = 200  # A Gaussian process takes time with the cube of its history.
    max_in_flight = 64  # Each makes qLogEI slower.
    keeps_notes = False

    def __init__(self, spec: SweepSpec, earlier: Sequence[Earlier] = ()) -> None:
        super().__init__(spec, earlier)
        self.by_rung = len(spec.budgets) > 1
        self.complete_only = True

    def make_sampler(self, seed: int) -> "optuna.samplers.BaseSampler":
        """Optuna's Gaussian process; the spec's options have the last word."""
        options = {"n_startup_trials": self.model_trials, "seed": seed, **self._options}
        return load_optuna().samplers.GPSampler(**options)
