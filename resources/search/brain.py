"""Successive halving by promotion, as a pure state machine: state and event in, state and decision out.

The algorithm is ASHA in its promotion form (Li et al., "A System for Massively Parallel Hyperparameter Tuning",
MLSys 2020, Algorithm 2): a trial at rung k may go on when it is in the top 1/η of all results at rung k so far.
Two things differ from the paper. A promotable trial that is still running goes on in place, without a relaunch. And a
failed trial counts as the worst result of its rung, so that no rung waits for it. Random and grid search are the same
machine with a single rung. Nothing here knows a clock, randomness, a database or Dagster.
"""

from dataclasses import dataclass, replace
from enum import StrEnum


class Status(StrEnum):
    """Where a trial stands."""

    QUEUED = "queued"  # waits for a worker: decided to start, resume or retry
    RUNNING = "running"
    PAUSED = "paused"  # has a checkpoint, holds no worker, may be promoted later
    COMPLETED = "completed"  # reached the last rung, or its trainable returned early
    FAILED = "failed"


@dataclass(frozen=True)
class Rules:
    """What a sweep's spec means to the machine.

    Attributes:
        budgets: epochs at each rung, rising.
        reduction_factor: η, of the results at a rung one in this many is promoted.
        maximize: whether a larger objective is better.
        max_trials: trials to start at most.
        max_retries: times a crashed trial is queued again.
    """

    budgets: tuple[int, ...]
    reduction_factor: int
    maximize: bool
    max_trials: int
    max_retries: int


@dataclass(frozen=True)
class TrialState:
    """One trial: ``results[k]`` is its objective at rung k, None where it failed there."""

    number: int
    status: Status
    results: tuple[float | None, ...] = ()
    failures: int = 0


@dataclass(frozen=True)
class SearchState:
    """A sweep between two events; trials are in the order of their numbers, from 0 without a gap."""

    rules: Rules
    trials: tuple[TrialState, ...] = ()

    def with_trial(self, trial: TrialState) -> "SearchState":
        """This state with one trial changed, or added behind the last."""
        return replace(self, trials=(*self.trials[: trial.number], trial, *self.trials[trial.number + 1 :]))


@dataclass(frozen=True)
class Reached:
    """A running trial trained to its rung and reports the objective there."""

    trial: int
    value: float


@dataclass(frozen=True)
class Returned:
    """A trainable returned before its rung; ``value`` is its last objective."""

    trial: int
    value: float


@dataclass(frozen=True)
class Crashed:
    """A trial's worker is gone or its trainable raised; it may be tried again."""

    trial: int


@dataclass(frozen=True)
class Failed:
    """A trial failed for good: trying again would fail again (NaN objective, objective never reported)."""

    trial: int


@dataclass(frozen=True)
class Released:
    """A worker gives a trial back (it is being shut down); that is not the trial's failure."""

    trial: int


@dataclass(frozen=True)
class Idle:
    """A worker asks for work."""


Event = Reached | Returned | Crashed | Failed | Released | Idle


@dataclass(frozen=True)
class Start:
    """Run a new trial."""

    trial: int


@dataclass(frozen=True)
class Resume:
    """Run a paused or retried trial from its checkpoint."""

    trial: int


@dataclass(frozen=True)
class Continue:
    """The trial goes on in place, up to the next rung."""

    trial: int


@dataclass(frozen=True)
class Pause:
    """The trial stops here with its checkpoint; its worker is free."""

    trial: int


@dataclass(frozen=True)
class Complete:
    """The trial is done."""

    trial: int


@dataclass(frozen=True)
class Retry:
    """The trial is queued again."""

    trial: int


@dataclass(frozen=True)
class Fail:
    """The trial is given up and counts as the worst of its rung."""

    trial: int


@dataclass(frozen=True)
class Wait:
    """Nothing to do now, but running trials may still bring work."""


@dataclass(frozen=True)
class Finish:
    """The search is over."""


Decision = Start | Resume | Continue | Pause | Complete | Retry | Fail | Wait | Finish


def decide(state: SearchState, event: Event) -> tuple[SearchState, Decision]:
    """Apply one event.

    Raises:
        ValueError: a result or a crash of a trial that is not running (or queued, for a crash).
    """
    match event:
        case Reached(number, value):
            return _reached(state, _running(state, number), value)
        case Returned(number, value):
            trial = _running(state, number)
            return state.with_trial(_close(trial, Status.COMPLETED, value)), Complete(number)
        case Crashed(number):
            return _crashed(state, _running(state, number, or_queued=True))
        case Failed(number):
            return state.with_trial(_close(_running(state, number, or_queued=True), Status.FAILED, None)), Fail(number)
        case Released(number):
            trial = _running(state, number)
            return state.with_trial(replace(trial, status=Status.QUEUED)), Retry(number)
        case Idle():
            return _next_work(state)


def promotable(state: SearchState, rung: int) -> list[TrialState]:
    """Trials in the top 1/η of ``rung`` that are paused there, best first."""
    return [trial for trial in _top(state, rung) if trial.status is Status.PAUSED and len(trial.results) == rung + 1]


def _reached(state: SearchState, trial: TrialState, value: float) -> tuple[SearchState, Decision]:
    rung = len(trial.results)
    results = (*trial.results, value)
    if rung + 1 == len(state.rules.budgets):
        return state.with_trial(replace(trial, results=results, status=Status.COMPLETED)), Complete(trial.number)
    state = state.with_trial(replace(trial, results=results))
    if any(top.number == trial.number for top in _top(state, rung)):
        return state, Continue(trial.number)
    return state.with_trial(replace(trial, results=results, status=Status.PAUSED)), Pause(trial.number)


def _crashed(state: SearchState, trial: TrialState) -> tuple[SearchState, Decision]:
    trial = replace(trial, failures=trial.failures + 1)
    if trial.failures > state.rules.max_retries:
        return state.with_trial(_close(trial, Status.FAILED, None)), Fail(trial.number)
    return state.with_trial(replace(trial, status=Status.QUEUED)), Retry(trial.number)


def _next_work(state: SearchState) -> tuple[SearchState, Decision]:
    """Queued before promotable before new; the highest rung first."""
    queued = [trial for trial in state.trials if trial.status is Status.QUEUED]
    if queued:
        trial = max(queued, key=lambda trial: (len(trial.results), -trial.number))
        started = replace(trial, status=Status.RUNNING)
        return state.with_trial(started), Resume(trial.number) if trial.results or trial.failures else Start(trial.number)
    for rung in reversed(range(len(state.rules.budgets) - 1)):
        for trial in promotable(state, rung)[:1]:
            return state.with_trial(replace(trial, status=Status.RUNNING)), Resume(trial.number)
    if len(state.trials) < state.rules.max_trials:
        number = len(state.trials)
        return state.with_trial(TrialState(number, Status.RUNNING)), Start(number)
    if any(trial.status is Status.RUNNING for trial in state.trials):
        return state, Wait()
    return state, Finish()


def _top(state: SearchState, rung: int) -> list[TrialState]:
    """The best 1/η of all results at a rung, failures counted as the worst; ties go to the lower number."""
    at_rung = [trial for trial in state.trials if len(trial.results) > rung]
    quota = len(at_rung) // state.rules.reduction_factor
    sign = -1.0 if state.rules.maximize else 1.0

    def rank(trial: TrialState) -> tuple[bool, float, int]:
        value = trial.results[rung]
        return (value is None, 0.0 if value is None else sign * value, trial.number)

    return [trial for trial in sorted(at_rung, key=rank)[:quota] if trial.results[rung] is not None]


def _close(trial: TrialState, status: Status, value: float | None) -> TrialState:
    return replace(trial, status=status, results=(*trial.results, value))


def _running(state: SearchState, number: int, *, or_queued: bool = False) -> TrialState:
    trial = state.trials[number]
    accepted = {Status.RUNNING, Status.QUEUED} if or_queued else {Status.RUNNING}
    if trial.status not in accepted:
        raise ValueError(f"trial {number} is {trial.status}, not {' or '.join(sorted(accepted))}: this event is not its own")
    return trial


def ranking(state: SearchState) -> list[tuple[TrialState, int]]:
    """Trials with a result, best first, each with the index of its highest rung that has one.

    The rung counts before the objective: a result after 27 epochs says more than a better one after 1.
    """
    sign = -1.0 if state.rules.maximize else 1.0
    placed = []
    for trial in state.trials:
        rungs = [rung for rung, value in enumerate(trial.results) if value is not None]
        if rungs:
            placed.append((trial, rungs[-1]))
    return sorted(placed, key=lambda place: (-place[1], sign * (place[0].results[place[1]] or 0.0), place[0].number))
