"""Figures of hyperparameters, drawn by Optuna: parallel coordinates, importances, slices, Pareto front.

Results after different numbers of epochs cannot be compared, so each figure takes the results after one
number of epochs (:func:`comparable`), whatever became of the trials afterwards.
"""

import copy
import math
import warnings
from collections import Counter
from collections.abc import Sequence
from typing import Any

from halving.text import count_of
from resources.analysis.summary import SweepSummary
from resources.analysis.timeline import Timeline
from resources.evaluation.figures.style import (
    BAD,
    SAMPLED,
    Figure,
    apply_style,
    missing,
    not_drawn,
    value_range,
    without_outliers,
)
from resources.search.suggestions.optuna_terms import distribution_of, load_optuna, searched_params
from resources.sweep_spec import SweepSpec

_FOR_IMPORTANCES = 10  # trials with a result that importances need
_COMPARED = 2000  # trials from which importances are computed, at most
_LINES = 200  # trials in the parallel coordinates, at most
_DOTS = 500  # trials in a slice, at most
_POINTS = 1000  # trials in the Pareto figure, at most
_AXES = 12  # hyperparameters in the parallel coordinates and in the slices, at most
_IN_A_ROW = 4  # slices side by side


def comparable(spec: SweepSpec, timeline: Timeline) -> int:
    """The number of epochs after which the figures compare results.

    It is the largest one that 20 trials, or two for each hyperparameter, have reached. If no rung has so many
    results, it is that of the rung with the most results; 0 if no trial has a result.
    """
    counts = Counter(milestone.epochs for milestone in timeline.milestones if milestone.value is not None)
    enough = max(20, 2 * len(_searched_params(spec)))
    populated = [epochs for epochs, count in counts.items() if count >= enough]
    if populated:
        return max(populated)
    return max(counts, key=lambda epochs: (counts[epochs], epochs), default=0)


class ParamFigures:
    """The figures of one sweep."""

    def __init__(self, spec: SweepSpec, summary: SweepSummary, timeline: Timeline) -> None:
        self._spec = spec
        self._summary = summary
        self.epochs = comparable(spec, timeline)
        self._trials = self._comparable_trials(timeline)
        names = {name for trial in self._trials for name in trial.params}
        self._names = [name for name in _searched_params(spec) if name in names]
        self._importances: dict[str, float] = {}

    def importances(self) -> Figure:
        """Draw how much of the difference between trials each hyperparameter explains.

        By PED-ANOVA (Watanabe et al., IJCAI 2023).
        """
        from optuna.importance import get_param_importances
        from optuna.visualization import plot_param_importances

        title = "Hyperparameter importances"
        if len(self._names) < 2:
            return Figure(title, f"{_none_or_one(self._names)}, so there is nothing to compare.")
        if len(self._trials) < _FOR_IMPORTANCES:
            few = (
                f"{len(self._trials)} trials have a result after {count_of(self.epochs, 'epoch')}; at least "
                f"{_FOR_IMPORTANCES} are needed."
            )
            return Figure(title, few)
        if len({trial.values[0] for trial in self._trials}) == 1:
            return Figure(
                title, "All trials have the same result, so no hyperparameter explains any difference."
            )
        every = math.ceil(len(self._trials) / _COMPARED)
        compared = [self._as_losses(trial) for trial in self._trials[::every]]
        study = self._study(None, compared, losses=True)
        with warnings.catch_warnings():
            # With several objectives it assumes that low values are good, and warns of that; here they are.
            warnings.simplefilter("ignore", UserWarning)
            self._importances = get_param_importances(study, target=_first_value)
            figure = plot_param_importances(study, target_name=self._summary.objective)
        reading = (
            "The longer a bar, the more this hyperparameter explains of what sets good trials apart after "
            f"{count_of(self.epochs, 'epoch')}; "
            "an objective's bars add up to 1. A sampler's trials are not an even sample: take it as a hint."
        )
        apply_style(figure, "importance", height=140 + 34 * len(self._names)).update_yaxes(title=None)
        left_out = ""
        if every > 1:
            left_out = f"Every {every}th trial is compared, {len(compared)} of {len(self._trials)}."
        return Figure(title, reading, figure, left_out)

    def parallel(self) -> Figure:
        """Draw every trial as a line through its hyperparameters to its result."""
        from optuna.visualization import plot_parallel_coordinate

        title = "Parallel coordinates"
        if not self._names:
            return self._nothing(title)
        # The axes of this figure cannot be cut, so results that would squash them are left out.
        limits, outside = value_range(
            [trial.values[0] for trial in self._trials], self._summary.direction == "maximize"
        )
        trials = self._trials
        if limits is not None:
            trials = [trial for trial in trials if limits[0] <= trial.values[0] <= limits[1]]
        study = self._study(_LINES, trials)
        names = self._leading(study)
        figure = plot_parallel_coordinate(study, params=names, target_name=self._summary.objective)
        apply_style(figure, height=440).update_layout(margin={"t": 60, "l": 70, "r": 60})
        color = f"its {self._summary.objective}"
        if len(self._summary.objectives) > 1:
            color = "its Pareto rank"
        far_results = ""
        if outside:
            far_results = f"{outside} results far on the worse side"
        reading = (
            f"A line is a trial, from {color} after {count_of(self.epochs, 'epoch')} through its "
            "hyperparameters; where lines of one colour meet on an axis, that value matters. "
            "None: the hyperparameter does not exist in that trial."
        )
        return Figure(title, reading, figure, self._left_out(_LINES, names, far_results))

    def slices(self) -> list[Figure]:
        """Draw the result over each hyperparameter alone; several figures if there are many."""
        from optuna.visualization import plot_slice

        if not self._names:
            return [self._nothing("Slices")]
        target = None
        if len(self._summary.objectives) > 1:
            target = _first_value
        figures = []
        study = self._study(_DOTS)
        names = self._leading(study)
        rows = math.ceil(len(names) / _IN_A_ROW)
        for number in range(rows):
            row = names[number * len(names) // rows : (number + 1) * len(names) // rows]
            figure = plot_slice(study, params=row, target=target, target_name=self._summary.objective)
            apply_style(figure, height=320).update_layout(width=None, margin={"r": 90})
            cut = without_outliers(
                figure, [trial.values[0] for trial in self._trials], self._summary.direction == "maximize"
            )
            # Within a row Optuna sorts them by name.
            heading = f"Slices: {', '.join(sorted(row))}"
            reading = (
                f"Each point is a trial after {count_of(self.epochs, 'epoch')}, darker the later it was "
                "started"
            )
            if self._summary.bounds:
                reading += "; grey is out of bounds"
            left_out = ""
            if number + 1 == rows:
                left_out = self._left_out(_DOTS, names, cut)
            figures.append(Figure(heading, f"{reading}.", figure, left_out))
        return figures

    def pareto(self) -> Figure:
        """Draw the Pareto front: the trials that no other trial beats in every objective."""
        from optuna.visualization import plot_pareto_front

        title = "Pareto front"
        metrics = [objective["metric"] for objective in self._summary.objectives]
        front = [standing for standing in self._summary.standings if standing.on_front]
        if not front:
            return Figure(title, "No trial is complete and within its bounds, so there is no front.")
        if len(metrics) > 3:
            return Figure(
                title,
                f"{len(front)} trials are on the front of {len(metrics)} objectives; the table below marks "
                "them.",
            )
        limit = max(_POINTS, 4 * len(front))
        figure = plot_pareto_front(self._study(limit), target_names=metrics)
        if len(metrics) == 2:
            x, y = zip(
                *sorted((standing.metrics[metrics[0]], standing.metrics[metrics[1]]) for standing in front),
                strict=True,
            )
            figure.add_scatter(
                x=x,
                y=y,
                mode="lines",
                line={"color": BAD, "width": 1, "dash": "dot"},
                hoverinfo="skip",
                showlegend=False,
            )
        apply_style(figure, height=480).update_layout(margin={"r": 130})
        directions = ", ".join(
            f"{objective['direction']} {objective['metric']}" for objective in self._summary.objectives
        )
        reading = (
            "Red trials are the front: no other is at least as good in every objective and better in one "
            f"({directions})."
        )
        if self._summary.bounds:
            reading += " Grey is out of bounds."
        return Figure(title, reading, figure, self._left_out(limit, self._names))

    def _comparable_trials(self, timeline: Timeline) -> list[Any]:
        """The trials with a result after :attr:`epochs`, as trials of Optuna."""
        from resources.search.study import new_trial

        complete = load_optuna().trial.TrialState.COMPLETE
        standings = {standing.trial: standing for standing in self._summary.standings}
        metrics = [objective["metric"] for objective in self._summary.objectives]
        trials = []
        for milestone in timeline.milestones:
            if milestone.value is None or milestone.epochs != self.epochs:
                continue
            standing = standings[milestone.trial]
            params = searched_params(self._spec.space, standing.params)
            others = [standing.metrics[metric] for metric in metrics[1:]]
            violation = None
            if self._summary.bounds:
                violation = milestone.violation
            trial = new_trial(
                complete,
                violation=violation,
                number=milestone.trial,
                values=[milestone.value, *others],
                params=params,
                distributions={name: distribution_of(self._spec.space[name]) for name in params},
                user_attrs={"on_front": standing.on_front, "violation": milestone.violation},
            )
            trials.append(trial)
        return trials

    def _as_losses(self, trial: Any) -> Any:
        """A copy of a trial with losses as values: negated where the objective is maximized."""
        losses = copy.copy(trial)
        losses.values = [
            -value if objective.maximize else value
            for value, objective in zip(trial.values, self._spec.objectives, strict=True)
        ]
        return losses

    def _study(self, limit: int | None, trials: Sequence[Any] | None = None, *, losses: bool = False) -> Any:
        """Make a study of at most ``limit`` trials: the best ones, and an even sample of the others."""
        from resources.search.study import SweepStorage, study_on

        objectives = self._spec.objectives
        storage = SweepStorage([objective.maximize and not losses for objective in objectives], limit)
        if trials is None:
            trials = self._trials
        for trial in trials:
            loss = trial.values[0]
            if objectives[0].maximize:
                loss = -loss
            storage.put(
                trial, trial.number, (not trial.user_attrs["on_front"], trial.user_attrs["violation"], loss)
            )
        study = study_on(storage)
        if len(objectives) > 1:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", load_optuna().exceptions.ExperimentalWarning)
                study.set_metric_names([objective.metric for objective in objectives])
        return study

    def _leading(self, study: Any) -> list[str]:
        """The most important hyperparameters of a study's trials.

        They are the spec's first ones if importances are not known.
        """
        present = {name for trial in study.get_trials(deepcopy=False) for name in trial.params}
        return sorted(
            (name for name in self._names if name in present),
            key=lambda name: -self._importances.get(name, 0.0),
        )[:_AXES]

    def _left_out(self, limit: int, names: Sequence[str], outside: str = "") -> str:
        """What a figure of ``limit`` trials and of these hyperparameters does not draw, for people."""
        trials = missing(limit, len(self._trials), f"trials; {SAMPLED}")
        dropped = ", ".join(name for name in self._names if name not in names)
        if dropped:
            dropped = f"the less important {dropped}"
        return not_drawn(trials, outside, dropped)

    def _nothing(self, title: str) -> Figure:
        return Figure(title, f"{_none_or_one(self._names)}, so there is nothing to show.")


def _searched_params(spec: SweepSpec) -> list[str]:
    return [name for name, parameter in spec.space.items() if not parameter.is_fixed]


def _first_value(trial: Any) -> float:
    value: float = trial.values[0]
    return value


def _none_or_one(names: Sequence[str]) -> str:
    if names:
        return f"Only {names[0]} was searched"
    return "No hyperparameter was searched in the trials that have a result"
