"""Chooses the hyperparameters of new trials.

The spec's starting points come first, then random points, the points of a grid, or those of Optuna's
samplers.

A suggestion depends only on the spec's seed, the trial's number and the results so far, so that the same
results in the same order give the same search again. Trials that are running, queued or suggested are shown
to
the sampler as running, so that parallel suggestions differ: TPE counts them as bad (a constant liar), and the
Gaussian process integrates over their possible results (qLogEI).
"""

import inspect
import logging
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from random import Random
from typing import TYPE_CHECKING, Any

from halving.errors import InvalidInput
from resources.search.rules import rules_of
from resources.search.state import Result, Status, TrialState
from resources.sweep_spec import SweepSpec
from resources.sweep_spec.functions import import_sampler
from resources.sweep_spec.points import (
    Params,
    Space,
    active,
    grid_point,
    nearest_step,
    order,
    sample,
    satisfies,
)
from resources.sweep_spec.space import FloatRange, IntRange, Parameter, choice_name, is_same
from resources.sweep_spec.strategy import STARTUP_TRIALS, Bohb, GridSearch

if TYPE_CHECKING:
    import optuna

    from resources.search.study import SweepStorage

_TRIES = 20  # of the sampler to satisfy the constraints, before points are drawn at random
_RANDOM_TRIES = 10_000


@dataclass(frozen=True)
class Suggestion:
    """Params of a new trial, and the sampler's notes on the trial and on the sweep."""

    params: Params
    trial_attrs: dict[str, Any] = field(default_factory=dict)
    sweep_attrs: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Tried:
    """A trial of this sweep, for the sampler."""

    params: Params
    state: TrialState
    attrs: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Earlier:
    """A finished trial of an earlier sweep, with its params mapped to the space of this one."""

    params: Params
    epochs: int
    result: Result


class Suggester:
    """Chooses the params of a sweep's new trials.

    Args:
        spec: the sweep's spec.
        earlier: trials of earlier sweeps to learn from.
    """

    def __init__(self, spec: SweepSpec, earlier: Sequence[Earlier] = ()) -> None:
        self._spec = spec
        self._rules = rules_of(spec)
        self._sampler_name, self._options = spec.sampler
        self.needs_history = (
            not isinstance(spec.strategy.chosen, GridSearch) and self._sampler_name != "random"
        )
        """Whether suggestions depend on results."""
        self.takes_long = self.needs_history or bool(spec.constraints)
        """Whether params are to be chosen ahead of time, outside of any transaction."""
        self._by_rung = isinstance(spec.strategy.chosen, Bohb) or (
            self._sampler_name == "gp" and len(spec.budgets) > 1
        )
        self._earlier = earlier
        self._learned: list[TrialState] = []
        self._rungs = sorted({epochs for ladder in self._rules.ladders for epochs in ladder})
        self._at_epochs: Counter[int] = Counter(
            rung for trial in earlier if (rung := self._rung_of(trial)) is not None
        )
        self._level: int | None = None
        self._complete_only = self._sampler_name == "gp" or len(spec.objectives) > 1
        self._failed: dict[int, Tried] = {}
        self._worst: list[float] | None = None  # of each objective, among the trials that are shown
        self._storage: SweepStorage | None = None

    def learn(self, trials: Sequence[Tried], sweep_attrs: dict[str, Any]) -> None:
        """Show the sampler which of the sweep's trials have changed; ``trials`` are all, by number."""
        if not self.needs_history:
            return
        storage = self._open_storage()
        storage.attrs = dict(sweep_attrs)
        storage.drop_from(len(trials))  # These suggestions were not used, because another worker was faster.
        changed = [
            tried
            for tried in trials
            if tried.state.number >= len(self._learned)
            or self._learned[tried.state.number] is not tried.state
        ]
        for tried in changed:
            if tried.state.number < len(self._learned):
                self._at_epochs.subtract(self._results_by_epochs(self._learned[tried.state.number]).keys())
            self._at_epochs.update(self._results_by_epochs(tried.state).keys())
        if self._by_rung and (level := self._highest_populated()) != self._level:
            self._level = level
            self._worst = None
            changed = list(trials)
            self._show_earlier()
        for tried in changed:
            self._show(tried)
        if self._complete_only:
            for tried in self._failed.values():  # The worst values may have changed.
                self._put_failed(tried.state.number, tried)
        self._learned = [tried.state for tried in trials]

    def suggest(self, number: int) -> Suggestion:
        """Choose the params of the trial with this number, the next one that has none.

        Raises:
            InvalidInput: no point that satisfies the constraints was found.
        """
        if isinstance(self._spec.strategy.chosen, GridSearch):
            return Suggestion(grid_point(self._spec, number))
        if not self.needs_history:
            return Suggestion(self._draw(number))
        try:
            for attempt in range(_TRIES):
                if (suggestion := self._ask(number, attempt)) is not None:
                    return suggestion
        finally:
            self._open_storage().forget_refused()
        params = self._draw(number)
        self._put(number, Tried(params, TrialState(number, Status.SUGGESTED)), "RUNNING")
        return Suggestion(params, {}, dict(self._open_storage().attrs))

    def _draw(self, number: int) -> Params:
        """A random point that satisfies the constraints."""
        fixed = self._start_from(number)
        for attempt in range(_TRIES, _TRIES + _RANDOM_TRIES):
            params = sample(self._spec.space, Random(self._seed(number, attempt)), fixed)
            if satisfies(self._spec, params):
                return params
        raise InvalidInput(
            f"constraints = {list(self._spec.constraints)} leave hardly a point of the space: none of "
            f"{_RANDOM_TRIES} at random satisfies them; narrow the ranges to where they hold"
        )

    def _start_from(self, number: int) -> Params:
        """The starting point of the trial with this number, if the spec has one for it."""
        return self._spec.start_from[number] if number < len(self._spec.start_from) else {}

    def _ask(self, number: int, attempt: int) -> Suggestion | None:
        """Ask the sampler once; None if its suggestion breaks a constraint.

        The suggestion counts as in flight until the next :meth:`learn`. A refused one counts as in flight
        until another one is found: otherwise a sampler that maximises would find the same point again.
        """
        from resources.search.study import study_on

        storage = self._open_storage()
        storage.next_number = number
        sampler = _make_sampler(
            self._sampler_name, self._options, self._spec, self._seed(number, attempt), self._enough
        )
        study = study_on(storage, sampler)
        first = self._start_from(number)
        if first:
            study.enqueue_trial(searched_params(self._spec.space, first))
        trial = study.ask()
        params: Params = {}
        for name in order(self._spec.space):
            parameter = self._spec.space[name]
            if active(self._spec.space, name, params):
                if parameter.is_fixed:
                    suggested = parameter.value
                else:
                    suggested = _suggest_value(trial, name, parameter, self._distributions[name])
                # Optuna's whole numbers go through doubles; those of a starting point are exact.
                params[name] = first.get(name, suggested)
        attrs: dict[str, Any] = {}
        if self._sampler_name not in _STATELESS:
            attrs = _without_fixed_params(storage.get_trial(trial._trial_id).system_attrs)
        if not satisfies(self._spec, params):
            storage.refuse(number, attempt)
            return None
        return Suggestion(
            {name: params[name] for name in self._spec.space if name in params}, attrs, dict(storage.attrs)
        )

    @cached_property
    def _distributions(self) -> dict[str, "optuna.distributions.BaseDistribution"]:
        return {
            name: distribution_of(parameter)
            for name, parameter in self._spec.space.items()
            if not parameter.is_fixed
        }

    def _seed(self, number: int, attempt: int) -> int:
        return (self._spec.seed * 1_000_003 + number + attempt * 7_919_317) % 2**32

    def _open_storage(self) -> "SweepStorage":
        if self._storage is None:
            load_optuna()
            from resources.search.study import HISTORY, IN_FLIGHT, SweepStorage

            self._storage = SweepStorage(
                self._rules.maximize, HISTORY.get(self._sampler_name), IN_FLIGHT.get(self._sampler_name)
            )
            self._show_earlier()
        return self._storage

    @property
    def _enough(self) -> int:
        """How many finished trials a model needs.

        On a rung it is N_min + 2 = d + 3 (BOHB, section 3.2), otherwise Optuna's default.
        """
        return len(self._spec.space) + 3 if self._by_rung else STARTUP_TRIALS

    def _highest_populated(self) -> int | None:
        """The largest number of epochs at which enough trials for a model have results; None if none has."""
        return max(
            (epochs for epochs, count in self._at_epochs.items() if count >= self._enough), default=None
        )

    def _rung_of(self, trial: Earlier) -> int | None:
        """The highest rung of this sweep that an earlier trial was trained to; None if it reached none."""
        return max((epochs for epochs in self._rungs if epochs <= trial.epochs), default=None)

    def _show(self, tried: Tried) -> None:
        trial = tried.state
        reached = self._results_by_epochs(tried.state)
        in_flight = trial.status in (Status.RUNNING, Status.QUEUED, Status.SUGGESTED)
        if trial.status is Status.FAILED:  # It gets no more results, whatever it had before.
            self._failed[trial.number] = tried
            return self._put_failed(trial.number, tried)
        if self._by_rung and self._level is not None and self._level in reached:
            return self._put_result(trial.number, tried, self._level, reached[self._level], complete=True)
        if in_flight and (not reached or self._complete_only):
            return self._put(trial.number, tried, "RUNNING")
        if not reached:
            return self._open_storage().take_out(trial.number)
        epochs, result = max(reached.items())
        if self._by_rung and self._complete_only:
            # It was trained for less than the level, so it has no result there.
            return self._open_storage().take_out(trial.number)
        # To TPE every complete trial (here: one at the level) is better than every pruned one, so the trials
        # below the level show it where not to search. A model of the few trials at the level alone would not
        # know where the search has been.
        return self._put_result(
            trial.number,
            tried,
            epochs,
            result,
            complete=trial.status is Status.COMPLETED and not self._by_rung,
        )

    def _results_by_epochs(self, trial: TrialState) -> dict[int, Result]:
        """The results of a trial by their epochs."""
        ladder = self._rules.ladder(trial.number)
        return {
            epochs: result
            for epochs, result in zip(ladder, trial.results, strict=False)
            if result is not None
        }

    def _put_result(
        self, number: int, tried: Tried | Earlier, epochs: int, result: Result, *, complete: bool
    ) -> None:
        signs = [-1.0 if larger else 1.0 for larger in self._rules.maximize]
        worst = self._worst or list(result.values)
        self._worst = [
            sign * max(sign * old, sign * new)
            for sign, old, new in zip(signs, worst, result.values, strict=True)
        ]
        order = (result.violation > 0, result.violation, -epochs, signs[0] * result.value)
        if complete:
            self._put(number, tried, "COMPLETE", order, result.violation, values=result.values)
        else:
            self._put(
                number, tried, "PRUNED", order, result.violation, intermediate_values={epochs: result.value}
            )

    def _put_failed(self, number: int, tried: Tried) -> None:
        """Show a failed trial as pruned before its first epoch, which is the worst for TPE.

        A sampler that reads only complete trials sees the worst values so far instead.
        """
        last = (True, float("inf"), 0, 0.0)
        if not self._complete_only:
            self._put(number, tried, "PRUNED", last)
        elif self._worst is None:
            self._put(number, tried, "FAIL", last)
        else:
            self._put(number, tried, "COMPLETE", last, 0.0, values=self._worst)

    def _put(
        self,
        number: int,
        tried: Tried | Earlier,
        state: str,
        order: Any = None,
        violation: float | None = None,
        **results: Any,
    ) -> None:
        """Show a trial to the sampler.

        Args:
            number: to show it under.
            state: the name of its state in Optuna.
            order: its place among the finished trials.
        """
        from resources.search.study import new_trial

        params = searched_params(self._spec.space, tried.params)
        trial = new_trial(
            load_optuna().trial.TrialState[state],
            violation=violation if self._spec.bounds else None,
            params=params,
            distributions={name: self._distributions[name] for name in params},
            system_attrs=dict(tried.attrs) if isinstance(tried, Tried) else {},
            **results,
        )
        self._open_storage().put(trial, number, order)

    def _show_earlier(self) -> None:
        from resources.search.study import FIRST_EARLIER

        for index, trial in enumerate(self._earlier):
            rung = self._rung_of(trial)
            if self._by_rung and self._complete_only and rung != self._level:
                self._open_storage().take_out(FIRST_EARLIER + index)
                continue
            # It is shown with the epochs that it was trained for, so that a trial that was paused early in
            # the earlier sweep counts for no more than one that was paused late in this one.
            whole = (
                rung == (self._level if self._by_rung else self._rungs[-1]) or len(self._rules.maximize) > 1
            )
            self._put_result(
                FIRST_EARLIER + index, trial, min(trial.epochs, self._rungs[-1]), trial.result, complete=whole
            )


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


_STATELESS = ("tpe", "gp")


def _make_sampler(
    name: str, options: dict[str, Any], spec: SweepSpec, seed: int, startup: int
) -> "optuna.samplers.BaseSampler":
    samplers = load_optuna().samplers
    conditional = any(parameter.when for parameter in spec.space.values())
    match name:
        case "tpe":
            # With multivariate the parameters interact; with group those of a branch are learned from the
            # trials that have them.
            together = {} if len(spec.objectives) > 1 else {"multivariate": True, "group": conditional}
            return samplers.TPESampler(
                **{"constant_liar": True, "n_startup_trials": startup, **together, "seed": seed, **options}
            )
        case "gp":
            return samplers.GPSampler(**{"n_startup_trials": startup, "seed": seed, **options})
    kind = import_sampler(name)
    arguments: dict[str, Any] = {}
    if "seed" in inspect.signature(kind).parameters:
        arguments["seed"] = seed
    if issubclass(kind, samplers.QMCSampler | samplers.GridSampler):
        arguments["seed"] = spec.seed  # They walk along one sequence, which the seed shuffles.
    if issubclass(kind, samplers.QMCSampler):
        arguments["independent_sampler"] = samplers.RandomSampler(seed=seed)
    return kind(**{**arguments, **options})


def distribution_of(parameter: Parameter) -> "optuna.distributions.BaseDistribution":
    """A parameter's range or choices as Optuna's distribution; lists and mappings are named."""
    distributions = load_optuna().distributions
    domain = parameter.chosen
    if isinstance(domain, FloatRange):
        return distributions.FloatDistribution(domain.low, domain.high, log=domain.log, step=domain.step)
    if isinstance(domain, IntRange):
        # Optuna has no steps on a logarithmic scale, so its suggestion is later rounded to the nearest one.
        return distributions.IntDistribution(
            domain.low, domain.high, log=domain.log, step=1 if domain.log else domain.step
        )
    return distributions.CategoricalDistribution([choice_name(choice) for choice in domain])


def searched_params(space: Space, params: Mapping[str, Any]) -> Params:
    """The params that are not fixed, in Optuna's terms: choices are named."""
    return {
        name: _optuna_value(space[name], value) for name, value in params.items() if not space[name].is_fixed
    }


def _optuna_value(parameter: Parameter, value: Any) -> Any:
    # The name is that of the spec's choice, because an equal value may have another name: [1.0] and [1].
    return next((choice_name(choice) for choice in parameter.choices or [] if is_same(value, choice)), value)


def _suggest_value(trial: "optuna.Trial", name: str, parameter: Parameter, distribution: Any) -> Any:
    if parameter.float_ is not None:
        return trial.suggest_float(
            name, distribution.low, distribution.high, step=distribution.step, log=distribution.log
        )
    if parameter.int_ is not None:
        drawn = trial.suggest_int(
            name, distribution.low, distribution.high, step=distribution.step, log=distribution.log
        )
        # This also keeps it within the range: 2**63 - 1 becomes 2**63 in a double.
        return nearest_step(parameter.int_, drawn)
    chosen = trial.suggest_categorical(name, distribution.choices)
    return (parameter.choices or [])[distribution.choices.index(chosen)]


def _without_fixed_params(attrs: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in attrs.items() if key != "fixed_params"}
