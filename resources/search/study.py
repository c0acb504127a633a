"""Optuna's view of a sweep: a storage in memory whose trials are replaced as the sweep goes on.

Optuna's own storages never change a finished trial. But a paused trial, which a sampler sees as finished
(pruned, with its results), may be promoted a minute later. So the sweep has a storage of its own. It also
shows no more trials than a sampler can handle in good time.
"""

import copy
from bisect import bisect_left, insort
from collections.abc import Container, Sequence
from datetime import UTC, datetime
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.storages import BaseStorage
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from resources.search.spread import spread

_DIRECTIONS = {True: StudyDirection.MAXIMIZE, False: StudyDirection.MINIMIZE}
_STUDY = 0
_NAME = "sweep"


class SweepStorage(BaseStorage):
    """A storage with a single study.

    A trial's id is its number in the sweep. Trials of earlier sweeps have larger numbers than all of these.

    Args:
        maximize: for each objective, whether larger is better.
        max_finished: how many finished trials are shown at most; with None all. A quarter are the best, the
            others are spread over the rest.
        max_in_flight: how many running trials are shown at most, the newest ones; with None all.
    """

    def __init__(
        self, maximize: Sequence[bool], max_finished: int | None = None, max_in_flight: int | None = None
    ) -> None:
        self._directions = [_DIRECTIONS[larger] for larger in maximize]
        self._max_finished = max_finished
        self._max_in_flight = max_in_flight
        self._trials: dict[int, FrozenTrial] = {}
        self._finished: list[tuple[Any, int]] = []  # (how good, id), best first
        self._order: dict[int, Any] = {}
        self._visible: list[FrozenTrial] | None = None
        self.attrs: dict[str, Any] = {}
        self.next_number = 0
        """The next trial's number. It does not follow from the trials, as the study may hold only some."""

    def put(self, trial: FrozenTrial, number: int, order: Any) -> None:
        """Show this trial under this number from now on; ``order`` sorts finished trials, the best first."""
        self.take_out(number)
        trial.number = trial._trial_id = number
        self._trials[number] = trial
        if trial.state.is_finished():
            self._order[number] = order
            insort(self._finished, (order, number))

    def take_out(self, number: int) -> None:
        """Show no trial under this number any more."""
        self._visible = None
        if self._trials.pop(number, None) is not None and number in self._order:
            place = (self._order.pop(number), number)
            del self._finished[bisect_left(self._finished, place)]

    def drop_from(self, number: int) -> None:
        """Show none of the sweep's own trials from this number on."""
        self._drop(number, FIRST_EARLIER)

    def refuse(self, number: int, attempt: int) -> None:
        """Show this trial as one more in flight, until :meth:`forget_refused`."""
        trial = self._trials[number]
        self.take_out(number)
        self.put(trial, _FIRST_REFUSED + attempt, order=None)

    def forget_refused(self) -> None:
        """Show no refused trials any more."""
        self._drop(_FIRST_REFUSED, 2 * _FIRST_REFUSED)

    def _drop(self, first: int, end: int) -> None:
        for number in [number for number in self._trials if first <= number < end]:
            self.take_out(number)

    def get_all_trials(
        self, study_id: int, deepcopy: bool = True, states: Container[TrialState] | None = None
    ) -> list[FrozenTrial]:
        if self._visible is None:
            unfinished = sorted(number for number in self._trials if number not in self._order)
            finished = [number for _, number in self._finished]
            visible = spread(finished, self._max_finished or len(finished))
            visible += unfinished[-(self._max_in_flight or len(unfinished)) :]
            self._visible = [self._trials[number] for number in sorted(visible)]
        trials = self._visible
        if states is not None:
            trials = [trial for trial in trials if trial.state in states]
        if deepcopy:
            return copy.deepcopy(trials)
        return trials

    def get_trial(self, trial_id: int) -> FrozenTrial:
        return self._trials[trial_id]

    def get_trial_id_from_study_id_trial_number(self, study_id: int, trial_number: int) -> int:
        return self._trials[trial_number]._trial_id

    def create_new_trial(self, study_id: int, template_trial: FrozenTrial | None = None) -> int:
        trial = new_trial(TrialState.RUNNING)
        if template_trial:
            trial = copy.deepcopy(template_trial)
        self.put(trial, self.next_number, order=None)
        return self.next_number

    def set_trial_param(
        self, trial_id: int, param_name: str, param_value_internal: float, distribution: BaseDistribution
    ) -> None:
        trial = self._trials[trial_id]
        trial.params[param_name] = distribution.to_external_repr(param_value_internal)
        trial.distributions[param_name] = distribution

    def set_trial_state_values(
        self, trial_id: int, state: TrialState, values: Sequence[float] | None = None
    ) -> bool:
        trial = self._trials[trial_id]
        if state == TrialState.RUNNING and trial.state != TrialState.WAITING:
            return False
        trial.state = state
        if values is not None:
            trial.values = list(values)
        return True

    def set_trial_user_attr(self, trial_id: int, key: str, value: Any) -> None:
        self._trials[trial_id].user_attrs[key] = value

    def set_trial_system_attr(self, trial_id: int, key: str, value: Any) -> None:
        self._trials[trial_id].system_attrs[key] = value

    def set_study_system_attr(self, study_id: int, key: str, value: Any) -> None:
        self.attrs[key] = value

    def get_study_system_attrs(self, study_id: int) -> dict[str, Any]:
        return self.attrs

    def get_study_user_attrs(self, study_id: int) -> dict[str, Any]:
        return {}

    def get_study_directions(self, study_id: int) -> list[StudyDirection]:
        return self._directions

    def get_study_id_from_name(self, study_name: str) -> int:
        return _STUDY

    def get_study_name_from_id(self, study_id: int) -> str:
        return _NAME

    def _refuse(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(
            "a sweep is one study without user attributes, whose trials report to the sweep"
        )

    get_all_studies = create_new_study = delete_study = set_study_user_attr = set_trial_intermediate_value = (
        _refuse
    )


FIRST_EARLIER = 1_000_000
"""Number of the first trial that comes from an earlier sweep."""

_FIRST_REFUSED = 2_000_000


def study_on(storage: SweepStorage, sampler: "optuna.samplers.BaseSampler | None" = None) -> "optuna.Study":
    """Optuna's study of a sweep, to ask ``sampler`` for params or to draw figures."""
    return optuna.load_study(
        study_name=_NAME, storage=storage, sampler=sampler, pruner=optuna.pruners.NopPruner()
    )


def new_trial(state: TrialState, *, violation: float | None = None, **overrides: Any) -> FrozenTrial:
    """Make a trial of Optuna's.

    Its own constructor needs every field, and its helper checks each one again.

    Args:
        state: of the trial, in Optuna's terms.
        violation: how far it is out of bounds; None if that is unknown, or if there are no bounds.
        overrides: its other fields.
    """
    began = datetime.now(UTC)
    ended = None
    if state.is_finished():
        ended = began
    fields: dict[str, Any] = {"number": -1, "trial_id": -1, "value": None, "datetime_start": began}
    fields |= {
        name: {} for name in ("params", "distributions", "user_attrs", "system_attrs", "intermediate_values")
    }
    trial = FrozenTrial(state=state, datetime_complete=ended, **{**fields, **overrides})
    if violation is not None:
        trial.set_constraint("bounds", violation)
    return trial
