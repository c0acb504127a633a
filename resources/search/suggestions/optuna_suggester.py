"""What all suggesters have in common that ask a sampler of Optuna's.

Trials that are running, queued or suggested are shown to the sampler as running, so that parallel
suggestions differ.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from resources.search.state import Status, TrialState
from resources.search.suggestions.optuna_terms import load_optuna, searched_params, suggest_value
from resources.search.suggestions.random_points import MAX_ASKS, draw_point, seed_of, starting_point
from resources.search.suggestions.suggester import Earlier, Suggestion, Tried
from resources.sweep_spec import SweepSpec
from resources.sweep_spec.points import Params, active, order, satisfies
from resources.sweep_spec.strategy import STARTUP_TRIALS

if TYPE_CHECKING:
    import optuna

    from resources.search.suggestions.history import SamplerHistory


class OptunaSuggester(ABC):
    """Asks a sampler for each new trial, and shows it the other ones.

    Args:
        spec: the sweep's spec.
        earlier: trials of earlier sweeps to learn from.

    Attributes:
        max_finished: how many finished trials the sampler sees at most; None if all.
        max_in_flight: how many running trials it sees at most, the newest ones; None if all.
        keeps_notes: whether the sampler keeps notes on a trial, which it needs again in a new process.
        by_rung: whether it learns from the results at one rung, the highest that enough trials have reached.
        complete_only: whether it reads nothing but the final values of complete trials.
    """

    needs_history = True
    takes_long = True
    max_finished: int | None = None
    max_in_flight: int | None = None
    keeps_notes = True
    by_rung = False

    def __init__(self, spec: SweepSpec, earlier: Sequence[Earlier] = ()) -> None:
        self._spec = spec
        _, self._options = spec.sampler
        self._earlier = earlier
        self.complete_only = len(spec.objectives) > 1

    @abstractmethod
    def make_sampler(self, seed: int) -> "optuna.samplers.BaseSampler":
        """Make the sampler anew, for one suggestion."""

    @property
    def model_trials(self) -> int:
        """How many finished trials a model needs.

        On a rung it is N_min + 2 = d + 3 (BOHB, section 3.2), otherwise Optuna's default.
        """
        if self.by_rung:
            return len(self._spec.space) + 3
        return STARTUP_TRIALS

    def learn(self, trials: Sequence[Tried], sweep_attrs: dict[str, Any]) -> None:
        """Show the sampler which of the sweep's trials have changed; ``trials`` are all, by number."""
        self.history.learn(trials, sweep_attrs)

    def suggest(self, number: int) -> Suggestion:
        """Choose the params of the trial with this number, the next one that has none.

        Where the sampler finds no point that satisfies the constraints, one is drawn at random.

        Raises:
            InvalidInput: no such point was found.
        """
        try:
            for attempt in range(MAX_ASKS):
                if (suggestion := self._ask(number, attempt)) is not None:
                    return suggestion
        finally:
            self.history.storage.forget_refused()
        params = draw_point(self._spec, number)
        self.history.put(number, Tried(params, TrialState(number, Status.SUGGESTED)), "RUNNING")
        return Suggestion(params, {}, dict(self.history.storage.attrs))

    @cached_property
    def history(self) -> "SamplerHistory":
        """The trials that the sampler sees."""
        load_optuna()
        from resources.search.suggestions.history import SamplerHistory

        return SamplerHistory(
            self._spec,
            self._earlier,
            by_rung=self.by_rung,
            complete_only=self.complete_only,
            model_trials=self.model_trials,
            max_finished=self.max_finished,
            max_in_flight=self.max_in_flight,
        )

    def _ask(self, number: int, attempt: int) -> Suggestion | None:
        """Ask the sampler once; None if its suggestion breaks a constraint.

        The suggestion counts as in flight until the next :meth:`learn`. A refused one counts as in flight
        until another one is found: otherwise a sampler that maximises would find the same point again.
        """
        from resources.search.study import study_on

        storage = self.history.storage
        storage.next_number = number
        study = study_on(storage, self.make_sampler(seed_of(self._spec, number, attempt)))
        start = starting_point(self._spec, number)
        if start:
            study.enqueue_trial(searched_params(self._spec.space, start))
        trial = study.ask()
        params = self._suggest_params(trial, start)
        if not satisfies(self._spec, params):
            storage.refuse(number, attempt)
            return None
        notes: dict[str, Any] = {}
        if self.keeps_notes:
            notes = dict(storage.get_trial(trial._trial_id).system_attrs)
            notes.pop("fixed_params", None)
        in_order = {name: params[name] for name in self._spec.space if name in params}
        return Suggestion(in_order, notes, dict(storage.attrs))

    def _suggest_params(self, trial: "optuna.Trial", start: Params) -> Params:
        """Have Optuna suggest the params that a trial has, parents first."""
        space = self._spec.space
        params: Params = {}
        for name in order(space):
            if not active(space, name, params):
                continue
            if space[name].is_fixed:
                value = space[name].value
            else:
                value = suggest_value(trial, name, space[name], self.history.distributions[name])
            # Optuna's whole numbers go through doubles; those of a starting point are exact.
            params[name] = start.get(name, value)
        return params
