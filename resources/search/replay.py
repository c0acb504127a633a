"""Replays a finished sweep under another strategy, with the recorded curves of its trials in their order.

Nothing is trained: at each rung a trial reports its curve's value there. If a curve ends before a rung that
the strategy asks for, it is unknown how it would have gone on. The trial then ends with its last result, and
the missing epochs are counted as a measure of how far the replay can be trusted.
"""

import math
import statistics
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from halving.errors import InvalidInput
from halving.text import did_you_mean
from resources.search.decide import ranking
from resources.search.rules import violation
from resources.search.simulation import SimulatedWorkers, simulate
from resources.search.state import Result, Status
from resources.sweep_spec import SweepSpec, parse_spec
from resources.sweep_spec.parsing import model_inside
from resources.sweep_spec.strategy import Strategy
from resources.sweep_spec.sweep import Objective

Points = Mapping[str, Sequence[tuple[int, float]]]
"""From a metric's name to its points ``(epoch, value)``, sorted by epoch."""


@dataclass(frozen=True)
class TrialCurve:
    """A trial's recorded metrics, and how it ended.

    Attributes:
        points: of every objective and every bounded metric.
        epochs: the last recorded epoch.
        ended: why it ended there: its search stopped it, its trainable returned, or it failed.
        seconds_per_epoch: of its training.
    """

    points: Points
    epochs: int
    ended: Literal["stopped", "returned", "failed"]
    seconds_per_epoch: float = 1.0


@dataclass(frozen=True)
class Replayed:
    """The cost and the result of a replayed strategy.

    Attributes:
        strategy: as in a spec, with defaults filled in.
        trials: how many were started.
        completed: how many were trained to the last rung.
        epochs: how many were trained, with the unknown ones.
        unknown_epochs: how many were asked for after the end of a curve.
        unknown_trials: how many trials have such epochs.
        seconds: virtual time on the sweep's number of workers.
        worker_seconds: of training.
        winner: the index of the best trial; None if no trial has a result.
        winner_epochs: how long the winner was trained.
        winner_objective: its objective at that epoch.
    """

    strategy: dict[str, Any]
    trials: int
    completed: int
    epochs: int
    unknown_epochs: int
    unknown_trials: int
    seconds: float
    worker_seconds: float
    winner: int | None
    winner_epochs: int
    winner_objective: float | None


def curve_of(
    spec: SweepSpec,
    points: Points,
    ended: Literal["stopped", "returned", "failed"],
    seconds_per_epoch: float = 1.0,
) -> TrialCurve:
    """Build a trial's curve from its points; at an objective that is not finite the trial has failed."""
    needed = {objective.metric for objective in spec.objectives} | set(spec.bounds)
    epochs = max((points[metric][-1][0] for metric in needed if points.get(metric)), default=0)
    diverged = [
        epoch
        for objective in spec.objectives
        for epoch, value in points.get(objective.metric, ())
        if not math.isfinite(value)
    ]
    if diverged and min(diverged) <= epochs:
        return TrialCurve(points, min(diverged) - 1, "failed", seconds_per_epoch)
    return TrialCurve(points, epochs, ended, seconds_per_epoch)


def result_at(spec: SweepSpec, curve: TrialCurve, epochs: int) -> Result | None:
    """The result that a trial would report after so many epochs; None if its curve does not have it."""
    if epochs > curve.epochs:
        return None
    objectives = {objective.metric: objective for objective in spec.objectives}
    values = {}
    for metric in [*spec.bounds, *objectives]:
        history = _values_until(curve.points.get(metric, ()), epochs)
        if not history:
            return None
        values[metric] = history[-1]
        if metric in objectives:
            values[metric] = _summarise(objectives[metric], history)
    return Result(tuple(values[objective.metric] for objective in spec.objectives), violation(spec, values))


def replay(spec: SweepSpec, curves: Sequence[TrialCurve], workers: int) -> Replayed:
    """Run a spec's strategy on the curves of its trials, in their order.

    Args:
        spec: of :func:`spec_with`.
        curves: of all trials.
        workers: how many trials run at a time.
    """
    short: dict[int, int] = {}  # trial to the epochs asked for after the end of its curve

    def evaluate(trial: int, params: Mapping[str, Any], epochs: int) -> Result | None:
        curve = curves[trial]
        if trial in short and curve.ended == "failed":
            return None  # Results from before the failure do not count at this rung.
        if epochs > curve.epochs:
            short.setdefault(trial, epochs - curve.epochs)
        return result_at(spec, curve, epochs)

    simulation = simulate(
        spec,
        evaluate,
        SimulatedWorkers(workers),
        epoch_seconds=lambda params: curves[params["trial"]].seconds_per_epoch,
        suggest=lambda number: {"trial": number},
    )
    # The simulation counts every leg up to its end, but a trial that failed or returned stops before.
    beyond = {trial: epochs for trial, epochs in short.items() if curves[trial].ended != "stopped"}
    unknown = [epochs for trial, epochs in short.items() if trial not in beyond]
    ranked = ranking(simulation.state)
    winner: int | None = None
    winner_epochs = 0
    winner_objective: float | None = None
    if ranked:
        best, rung = ranked[0]
        winner = best.number
        winner_epochs = min(simulation.state.rules.ladder(winner)[rung], curves[winner].epochs)
        if (result := best.results[rung]) is not None:
            winner_objective = result.value
    return Replayed(
        strategy=spec.strategy.model_dump(exclude_none=True, exclude_unset=False),
        trials=len(simulation.state.trials),
        completed=sum(
            trial.status is Status.COMPLETED and trial.number not in short
            for trial in simulation.state.trials
        ),
        epochs=simulation.epochs - sum(beyond.values()),
        unknown_epochs=sum(unknown),
        unknown_trials=len(unknown),
        seconds=simulation.seconds,
        worker_seconds=simulation.busy_seconds
        - sum(epochs * curves[trial].seconds_per_epoch for trial, epochs in beyond.items()),
        winner=winner,
        winner_epochs=winner_epochs,
        winner_objective=winner_objective,
    )


def spec_with(spec: SweepSpec, strategy: Any, trials: int) -> SweepSpec:
    """A sweep's spec under another strategy, for a replay of the search without the final training.

    Args:
        spec: the sweep's own.
        strategy: its name, or ``{name: {setting: value}}``; by default its largest budget is the sweep's.
        trials: how many trials have curves.

    Raises:
        InvalidInput: there is no such strategy, it cannot be replayed, or its settings are wrong.
    """
    name, settings = _parse_strategy(strategy)
    model = model_inside(Strategy.model_fields[name].annotation)
    budget = "budget"
    if model and "max_budget" in model.model_fields:
        budget = "max_budget"
    settings = {budget: spec.budgets[-1], **settings}
    settings.pop("audit", None)  # It only trains pruned trials afterwards, and does not change the search.
    data = spec.model_dump(mode="json", by_alias=True, exclude_none=True)
    search_alone: dict[str, Any] = {
        "start_from": [],
        "warm_start": None,
        "final": None,
        "resources": {},  # They may name rungs of the old strategy, and so may elastic.
        "elastic": None,
    }
    return parse_spec(data | {"strategy": {name: settings}, "max_trials": trials, **search_alone})


def _values_until(points: Sequence[tuple[int, float]], epochs: int) -> list[float]:
    return [value for _, value in points[: bisect_right(points, epochs, key=lambda point: point[0])]]


def _summarise(objective: Objective, values: Sequence[float]) -> float:
    match objective.summary:
        case "best":
            return max(values) if objective.maximize else min(values)
        case "average":
            return statistics.fmean(values[-(objective.window or 1) :])
    return values[-1]


def _parse_strategy(strategy: Any) -> tuple[str, dict[str, Any]]:
    """Split a strategy into its name and settings."""
    names = list(Strategy.model_fields)
    accepted = f"give one of {names}, or settings as {{asha: {{min_budget: 3, reduction_factor: 4}}}}"
    if isinstance(strategy, str):
        strategy = {strategy: {}}
    if not isinstance(strategy, Mapping) or len(strategy) != 1:
        raise InvalidInput(f"strategy = {strategy!r} is not accepted: {accepted}")
    name, settings = next(iter(strategy.items()))
    if name not in names:
        raise InvalidInput(f"strategy = {name!r} is not accepted{did_you_mean(name, names)}: {accepted}")
    if settings is not None and not isinstance(settings, Mapping):
        raise InvalidInput(
            f"strategy.{name} = {settings!r} is not accepted: give its settings by name, as {{min_budget: 3}}"
        )
    if name == "grid":
        raise InvalidInput(
            "strategy = 'grid' cannot be replayed: a grid has points of its own; replay random, which "
            "trains every trial"
        )
    return name, dict(settings or {})
