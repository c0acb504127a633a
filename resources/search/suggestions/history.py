"""Which trials a sampler of Optuna's sees, and as what it sees each of them."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from optuna.trial import TrialState as OptunaState

from resources.search.rules import rules_of
from resources.search.state import Result, Status, TrialState
from resources.search.study import FIRST_EARLIER, SweepStorage, new_trial
from resources.search.suggestions.optuna_terms import distribution_of, searched_params
from resources.search.suggestions.suggester import Earlier, Tried
from resources.sweep_spec import SweepSpec

_IN_FLIGHT = (Status.RUNNING, Status.QUEUED, Status.SUGGESTED)


class SamplerHistory:
    """The trials of a sweep and of earlier ones, as a sampler sees them.

    Args:
        spec: the sweep's spec.
        earlier: trials of earlier sweeps to learn from.
        by_rung: whether the sampler learns from the results at one rung.
        complete_only: whether it reads nothing but the final values of complete trials.
        model_trials: how many results a rung needs to be learned from.
        max_finished: how many finished trials are shown at most; None if all.
        max_in_flight: how many running trials are shown at most; None if all.

    Attributes:
        storage: where the sampler finds the trials.
        distributions: of each parameter that is not fixed, by its name.
    """

    def __init__(
        self,
        spec: SweepSpec,
        earlier: Sequence[Earlier],
        *,
        by_rung: bool,
        complete_only: bool,
        model_trials: int,
        max_finished: int | None,
        max_in_flight: int | None,
    ) -> None:
        self._spec = spec
        self._rules = rules_of(spec)
        self._rungs = sorted({epochs for ladder in self._rules.ladders for epochs in ladder})
        self._earlier = earlier
        self._by_rung = by_rung
        self._complete_only = complete_only
        self._model_trials = model_trials
        self.storage = SweepStorage(self._rules.maximize, max_finished, max_in_flight)
        self.distributions = {
            name: distribution_of(parameter)
            for name, parameter in spec.space.items()
            if not parameter.is_fixed
        }
        self._states: list[TrialState] = []  # of the sweep's trials, as they are shown
        self._at_epochs: Counter[int] = Counter(
            rung for trial in earlier if (rung := self._rung_of(trial)) is not None
        )
        self._level: int | None = None  # the epochs at which results are compared, if by rung
        self._failed: dict[int, Tried] = {}
        self._worst: list[float] | None = None  # of each objective, among the trials that are shown
        self._show_earlier()

    def learn(self, trials: Sequence[Tried], sweep_attrs: dict[str, Any]) -> None:
        """Show which of the sweep's trials have changed; ``trials`` are all, by number."""
        self.storage.attrs = dict(sweep_attrs)
        # Suggestions from there on were not used, because another worker was faster.
        self.storage.drop_from(len(trials))
        known_count = len(self._states)
        changed = []
        for tried in trials:
            number = tried.state.number
            if number < known_count:
                if self._states[number] is tried.state:
                    continue
                self._at_epochs.subtract(self._results_by_epochs(self._states[number]).keys())
            self._at_epochs.update(self._results_by_epochs(tried.state).keys())
            changed.append(tried)
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
        self._states = [tried.state for tried in trials]

    def put(
        self,
        number: int,
        trial: Tried | Earlier,
        state: str,
        rank: Any = None,
        violation: float | None = None,
        **results: Any,
    ) -> None:
        """Show a trial to the sampler.

        Args:
            number: to show it under.
            trial: with its params.
            state: the name of its state in Optuna.
            rank: its place among the finished trials; the best have the smallest.
            violation: how far it is out of the bounds, if that is known.
            results: its values in Optuna's terms.
        """
        params = searched_params(self._spec.space, trial.params)
        if not self._spec.bounds:
            violation = None
        notes: dict[str, Any] = {}
        if isinstance(trial, Tried):
            notes = dict(trial.attrs)
        optuna_trial = new_trial(
            OptunaState[state],
            violation=violation,
            params=params,
            distributions={name: self.distributions[name] for name in params},
            system_attrs=notes,
            **results,
        )
        self.storage.put(optuna_trial, number, rank)

    def _highest_populated(self) -> int | None:
        """The largest number of epochs at which enough trials for a model have results; None if none has."""
        populated = (epochs for epochs, count in self._at_epochs.items() if count >= self._model_trials)
        return max(populated, default=None)

    def _rung_of(self, trial: Earlier) -> int | None:
        """The highest rung of this sweep that an earlier trial was trained to; None if it reached none."""
        return max((epochs for epochs in self._rungs if epochs <= trial.epochs), default=None)

    def _results_by_epochs(self, trial: TrialState) -> dict[int, Result]:
        """The results of a trial by their epochs."""
        ladder = self._rules.ladder(trial.number)
        return {
            epochs: result
            for epochs, result in zip(ladder, trial.results, strict=False)
            if result is not None
        }

    def _show(self, tried: Tried) -> None:
        trial = tried.state
        results = self._results_by_epochs(trial)
        if trial.status is Status.FAILED:  # It gets no more results, whatever it had before.
            self._failed[trial.number] = tried
            self._put_failed(trial.number, tried)
        elif self._level is not None and self._level in results:
            self._put_result(trial.number, tried, self._level, results[self._level], complete=True)
        elif trial.status in _IN_FLIGHT and (not results or self._complete_only):
            self.put(trial.number, tried, "RUNNING")
        elif not results or (self._by_rung and self._complete_only):
            # By rung, it was trained for less than the level, so it has no result there.
            self.storage.take_out(trial.number)
        else:
            # To TPE every complete trial (by rung: one at the level) is better than every pruned one, so the
            # trials below the level show it where not to search. A model of the few trials at the level
            # alone would not know where the search has been.
            epochs, result = max(results.items())
            complete = trial.status is Status.COMPLETED and not self._by_rung
            self._put_result(trial.number, tried, epochs, result, complete=complete)

    def _show_earlier(self) -> None:
        full: int | None = self._rungs[-1]
        if self._by_rung:
            full = self._level
        for number, trial in enumerate(self._earlier, start=FIRST_EARLIER):
            rung = self._rung_of(trial)
            if self._by_rung and self._complete_only and rung != self._level:
                self.storage.take_out(number)
                continue
            # It is shown with the epochs that it was trained for, so that a trial that was paused early in
            # the earlier sweep counts for no more than one that was paused late in this one.
            epochs = min(trial.epochs, self._rungs[-1])
            complete = rung == full or len(self._rules.maximize) > 1
            self._put_result(number, trial, epochs, trial.result, complete=complete)

    def _put_result(
        self, number: int, trial: Tried | Earlier, epochs: int, result: Result, *, complete: bool
    ) -> None:
        signs = [-1.0 if larger else 1.0 for larger in self._rules.maximize]
        worst = self._worst or list(result.values)
        self._worst = [
            sign * max(sign * old, sign * new)
            for sign, old, new in zip(signs, worst, result.values, strict=True)
        ]
        rank = (result.violation > 0, result.violation, -epochs, signs[0] * result.value)
        if complete:
            self.put(number, trial, "COMPLETE", rank, result.violation, values=result.values)
        else:
            values = {epochs: result.value}
            self.put(number, trial, "PRUNED", rank, result.violation, intermediate_values=values)

    def _put_failed(self, number: int, tried: Tried) -> None:
        """Show a failed trial as pruned before its first epoch, which is the worst for TPE.

        A sampler that reads only complete trials sees the worst values so far instead.
        """
        last = (True, float("inf"), 0, 0.0)
        if not self._complete_only:
            self.put(number, tried, "PRUNED", last)
        elif self._worst is None:
            self.put(number, tried, "FAIL", last)
        else:
            self.put(number, tried, "COMPLETE", last, 0.0, values=self._worst)
