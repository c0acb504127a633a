"""Chooses what suggests the hyperparameters of new trials.

The spec's starting points come first, then random points, the points of a grid, or those of Optuna's
samplers.

A suggestion depends only on the spec's seed, the trial's number and the results so far, so that the same
results in the same order give the same search again.
"""

from collections.abc import Sequence

from resources.search.suggestions.bohb import BohbSuggester
from resources.search.suggestions.by_path import SuggesterByPath
from resources.search.suggestions.gp import GpSuggester
from resources.search.suggestions.grid import GridSuggester
from resources.search.suggestions.random_points import RandomSuggester
from resources.search.suggestions.suggester import Earlier, Suggester
from resources.search.suggestions.tpe import TpeSuggester
from resources.sweep_spec import SweepSpec
from resources.sweep_spec.strategy import Bohb, GridSearch


def make_suggester(spec: SweepSpec, earlier: Sequence[Earlier] = ()) -> Suggester:
    """Make what suggests the params of a sweep's new trials.

    Args:
        spec: the sweep's spec.
        earlier: trials of earlier sweeps to learn from.
    """
    strategy = spec.strategy.chosen
    sampler, _ = spec.sampler
    if isinstance(strategy, GridSearch):
        return GridSuggester(spec)
    if isinstance(strategy, Bohb):
        return BohbSuggester(spec, earlier)
    match sampler:
        case "random":
            return RandomSuggester(spec)
        case "tpe":
            return TpeSuggester(spec, earlier)
        case "gp":
            return GpSuggester(spec, earlier)
    return SuggesterByPath(spec, earlier)
