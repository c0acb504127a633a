"""Derives the rules of a search from its sweep spec."""

from resources.search.state import FinalTraining, Halving, MedianStop, Rules
from resources.sweep_spec import SweepSpec
from resources.sweep_spec.points import grid_size
from resources.sweep_spec.strategy import GridSearch, MedianStopping, SuccessiveHalving


def rules_of(spec: SweepSpec) -> Rules:
    """The rules of the search that a spec describes."""
    final: FinalTraining | None = None
    if spec.final:
        final = FinalTraining(spec.final.seeds, spec.final_epochs)
    return Rules(
        ladders=spec.ladders,
        weights=spec.strategy.chosen.weights,
        maximize=tuple(objective.maximize for objective in spec.objectives),
        early_stopping=_early_stopping(spec),
        max_retries=spec.max_retries,
        max_preemptions=spec.max_preemptions,
        audit=spec.audit,
        final=final,
    )


def max_trials(spec: SweepSpec) -> int:
    """How many trials the search can start: the points of a grid, otherwise ``max_trials``."""
    if isinstance(spec.strategy.chosen, GridSearch):
        return grid_size(spec)
    return spec.max_trials


def seeds_of(spec: SweepSpec) -> int:
    """How many trials of the final training follow the search; 0 if the spec has none."""
    return spec.final.seeds if spec.final else 0


def violation(spec: SweepSpec, values: dict[str, float]) -> float:
    """How far metrics are out of their bounds: the sum of the relative excesses.

    Each excess is divided by the bound that it exceeds, or by 1 if that bound is 0.
    """
    excess = 0.0
    for metric, bounds in spec.bounds.items():
        value = values[metric]
        if bounds.max is not None and value > bounds.max:
            excess += (value - bounds.max) / (abs(bounds.max) or 1.0)
        if bounds.min is not None and value < bounds.min:
            excess += (bounds.min - value) / (abs(bounds.min) or 1.0)
    return excess


def _early_stopping(spec: SweepSpec) -> Halving | MedianStop | None:
    strategy = spec.strategy.chosen
    if isinstance(strategy, SuccessiveHalving):
        return Halving(strategy.reduction_factor)
    if isinstance(strategy, MedianStopping):
        return MedianStop(strategy.min_trials, strategy.quantile)
    return None
