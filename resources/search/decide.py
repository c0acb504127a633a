"""The decisions of a search: a deterministic state machine of successive halving by promotion.

State and event go in; a decision and the changed trial come out. The algorithm is ASHA in its promotion form
(Li et al., "A System for Massively Parallel Hyperparameter Tuning", MLSys 2020, Algorithm 2): a trial at rung
k may go on when it is in the top 1/η of all results at rung k so far. Two things differ from the paper. A
promotable trial that is still running goes on in place, without a relaunch. And a failed trial counts as the
worst result of its rung, so that no rung waits for it.

Random, grid and model-based search are the same machine with a single rung, and Hyperband is one with several
ladders. The median rule stops trials for good, while halving pauses them. When the search has no more to do,
the final training begins: the winner's params with several seeds. Nothing here knows a clock, randomness, a
database or Dagster.
"""

import math
from bisect import bisect_left
from dataclasses import dataclass, replace
from hashlib import blake2b

from resources.search.pareto import front
from resources.search.state import (
    Control,
    Halving,
    MedianStop,
    Place,
    Result,
    Rung,
    SearchState,
    Status,
    TrialState,
)


@dataclass(frozen=True)
class _OfTrial:
    """An event or a decision about one trial."""

    trial: int


@dataclass(frozen=True)
class Reached(_OfTrial):
    """A running trial has trained to its rung and reports there."""

    result: Result


@dataclass(frozen=True)
class Returned(_OfTrial):
    """A trainable has returned before its rung; ``result`` is its last one."""

    result: Result


class Crashed(_OfTrial):
    """A trial's process died or its trainable raised; it may be tried again."""


class Preempted(_OfTrial):
    """A trial has lost its worker; that does not count as its failure."""


class Failed(_OfTrial):
    """A trial has failed and would fail again: it diverged, or it never reports its objective."""


class Released(_OfTrial):
    """A worker gives a trial back with its checkpoint, because the worker, or the sweep, is to stop."""


class Resized(Released):
    """A trial that goes on has saved and freed its worker, because its next rung has other resources."""


class Halved(Released):
    """A trial has run out of memory, and goes on, once, with half the micro-batch."""


@dataclass(frozen=True)
class Idle:
    """A worker asks for work."""


Event = Reached | Returned | Crashed | Preempted | Failed | Released | Resized | Halved | Idle


class Start(_OfTrial):
    """Run a new trial."""


@dataclass(frozen=True)
class StartFinal(_OfTrial):
    """Run a new trial of the final training, with the params of the trial ``winner``."""

    winner: int


class Resume(_OfTrial):
    """Run a trial from its checkpoint: promoted, tried again, or audited."""


class Continue(_OfTrial):
    """The trial goes on in place, without a new attempt, up to the next rung."""


class Pause(_OfTrial):
    """The trial stops here with its checkpoint; its worker is free."""


class Stop(_OfTrial):
    """The trial ends here, before its last rung."""


class Complete(_OfTrial):
    """The trial is done."""


class Retry(_OfTrial):
    """The trial crashed and is queued again."""


class Requeue(_OfTrial):
    """The trial lost its worker, or gave it up, without a failure of its own, and is queued again."""


class Fail(_OfTrial):
    """The trial is given up and counts as the worst of its rung."""


@dataclass(frozen=True)
class Wait:
    """There is nothing to do now, but running trials or the sweep's user may bring work later."""


@dataclass(frozen=True)
class Finish:
    """The search is over."""


Decision = (
    Start | StartFinal | Resume | Continue | Pause | Stop | Complete | Retry | Requeue | Fail | Wait | Finish
)


def decide(state: SearchState, event: Event) -> tuple[Decision, TrialState | None]:
    """Decide on an event.

    Returns:
        The decision, and the trial in its new state (None if no trial changes). The caller puts the trial
        into ``state``, which is not changed here.

    Raises:
        ValueError: the event is about a trial that is not running.
    """
    if isinstance(event, Idle):
        return _next_work(state)
    trial = state.trial(event.trial)
    if trial.status is not Status.RUNNING:
        raise ValueError(f"trial {trial.number} is {trial.status}, not running: it can have no such event")
    match event:
        case Reached(_, result):
            return _decide_at_rung(state, trial, result)
        case Returned(_, result):
            return Complete(trial.number), _close(trial, Status.COMPLETED, result)
        case Crashed():
            crashed = replace(trial, failures=trial.failures + 1)
            return _try_again(crashed, Retry(trial.number), crashed.failures <= state.rules.max_retries)
        case Preempted():
            preempted = replace(trial, preemptions=trial.preemptions + 1)
            return _try_again(
                preempted, Requeue(trial.number), preempted.preemptions <= state.rules.max_preemptions
            )
        case Failed():
            return Fail(trial.number), _close(trial, Status.FAILED, None)
        case Released():
            return Requeue(trial.number), replace(trial, status=Status.QUEUED)


def ranking(state: SearchState) -> list[tuple[TrialState, int]]:
    """Trials with a result, best first, each with the index of the highest rung at which it has one.

    Feasible trials come first. Then epochs count before the objective, because a result after 27 epochs says
    more than a better one after 1. With several objectives the trials on the Pareto front come first, ordered
    by the first objective.
    """
    places = {}
    for trial in state.trials:
        rungs = [rung for rung, result in enumerate(trial.results) if result is not None]
        if rungs:
            places[trial.number] = rungs[-1]
    best: set[int] = set()
    if len(state.rules.maximize) > 1:
        best = set(pareto_front(state))

    def order(number: int) -> tuple[bool, int, bool, Place]:
        rung = places[number]
        result = state.trials[number].results[rung]
        infeasible = result is not None and result.violation > 0
        return infeasible, -state.rules.ladder(number)[rung], number not in best, state.place(number, result)

    return [(state.trials[number], places[number]) for number in sorted(places, key=order)]


def pareto_front(state: SearchState) -> list[int]:
    """Numbers of the completed, feasible trials that no other trial dominates.

    A trial dominates another one if it is as good in every objective and better in one.
    """
    done = [
        (trial.number, trial.results[-1])
        for trial in state.trials
        if trial.status is Status.COMPLETED
        and trial.results
        and trial.results[-1] is not None
        and trial.results[-1].violation == 0
    ]
    return [
        done[index][0]
        for index in front([result.values for _, result in done if result], state.rules.maximize)
    ]


def winner_of(state: SearchState) -> TrialState | None:
    """The trial whose params the final training takes: the first of the ranking, if it is within bounds."""
    best = next(iter(ranking(state)), None)
    if best is None:
        return None
    trial, rung = best
    result = trial.results[rung]
    if result is None or result.violation != 0:
        return None
    return trial


def pruned_trials(state: SearchState) -> list[TrialState]:
    """Trials that did not get to their last rung because of their results, with those under audit.

    With halving these are the paused trials; a stopped trial was stopped with its sweep.
    """
    by_results = Status.STOPPED
    if isinstance(state.rules.early_stopping, Halving):
        by_results = Status.PAUSED
    return [
        trial
        for trial in state.trials
        if trial.audited is not None
        or (trial.status is by_results and trial.results and trial.results[-1] is not None)
    ]


def _decide_at_rung(state: SearchState, trial: TrialState, result: Result) -> tuple[Decision, TrialState]:
    rung = len(trial.results)
    after = replace(trial, results=(*trial.results, result))
    if rung + 1 == len(state.ladder(trial.number)):
        return Complete(trial.number), replace(after, status=Status.COMPLETED)
    goes_on = trial.audited is not None or _may_go_on(state, trial.number, rung, result)
    if not goes_on and isinstance(state.rules.early_stopping, Halving):
        return Pause(trial.number), replace(after, status=Status.PAUSED)
    if not goes_on:
        return Stop(trial.number), replace(after, status=Status.STOPPED)
    if state.control is not Control.RUN:
        return Requeue(trial.number), replace(after, status=Status.QUEUED)
    return Continue(trial.number), after


def _may_go_on(state: SearchState, number: int, rung: int, result: Result) -> bool:
    """Whether a new result is good enough among the results at its rung, itself included."""
    others = state.rung(number, rung).results
    place = state.place(number, result)
    better = bisect_left(others, place)
    match state.rules.early_stopping:
        case Halving(reduction_factor):
            return better < (len(others) + 1) // reduction_factor
        case MedianStop(min_trials, quantile):
            strictly_better = bisect_left(others, (*place[:2], -1))
            return len(others) < min_trials or strictly_better <= quantile * len(others)
    return True


def _try_again(trial: TrialState, decision: Retry | Requeue, allowed: bool) -> tuple[Decision, TrialState]:
    if not allowed:
        return Fail(trial.number), _close(trial, Status.FAILED, None)
    return decision, replace(trial, status=Status.QUEUED)


def _next_work(state: SearchState) -> tuple[Decision, TrialState | None]:
    """Choose the next trial to run: first queued ones, then promotable ones, then new ones.

    Higher rungs come first. Pruned trials are audited when the search has nothing else to do, and the final
    training comes at the very end.
    """
    if state.control is Control.STOP:
        return _wait_or_finish(state), None
    if state.control is Control.PAUSE:
        return Wait(), None
    if state.queued:
        trial = state.trial(state.queued[0][1])
        return Resume(trial.number), replace(trial, status=Status.RUNNING)
    if state.finals:  # The search is over, even if it could start more trials.
        return _next_final(state)
    if (promoted := _promotable(state)) is not None:
        return Resume(promoted.number), replace(promoted, status=Status.RUNNING)
    if state.suggested:
        return Start(state.suggested[0]), replace(state.trials[state.suggested[0]], status=Status.RUNNING)
    if len(state.trials) < state.max_trials:
        return Start(len(state.trials)), TrialState(len(state.trials), Status.RUNNING)
    if state.rules.audit and (audited := _next_audit(state)) is not None:
        return Resume(audited.number), replace(audited, status=Status.RUNNING, audited=len(audited.results))
    return _next_final(state)


def _next_final(state: SearchState) -> tuple[Decision, TrialState | None]:
    """Start the next seed of the final training, once no trial of the search can change the winner."""
    final = state.rules.final
    begun = len(state.finals)
    if final and begun < final.seeds and not state.searching and (winner := winner_of(state)) is not None:
        number = len(state.trials) + begun
        return StartFinal(number, winner.number), TrialState(number, Status.RUNNING, final=begun)
    return _wait_or_finish(state), None


def _wait_or_finish(state: SearchState) -> Wait | Finish:
    return Wait() if state.running else Finish()


def _promotable(state: SearchState) -> TrialState | None:
    """The best paused trial of the highest rung that has one in its top 1/η."""
    match state.rules.early_stopping:
        case Halving(reduction_factor):
            for rung in state.rungs_from_the_top:
                if rung.paused and _is_in_top(rung, rung.paused[0], reduction_factor):
                    return state.trials[rung.paused[0][2]]
    return None


def _is_in_top(rung: Rung, place: Place, reduction_factor: int) -> bool:
    return bisect_left(rung.results, place) < len(rung.results) // reduction_factor


def _next_audit(state: SearchState) -> TrialState | None:
    """The next pruned trial to train to the end, once no trial of the search itself is running.

    A hash of their numbers decides which trials are audited, so that the sample is unbiased and every process
    picks the same one.
    """
    if state.running > state.audits_running:
        return None
    if state.audit_order is None:  # It is computed once, because idle workers ask many times.
        population = [trial.number for trial in pruned_trials(state)]
        state.audit_order = sorted(
            population, key=lambda number: blake2b(str(number).encode(), digest_size=8).digest()
        )
    chosen = state.audit_order[: math.ceil(state.rules.audit * len(state.audit_order))]
    return next((state.trials[number] for number in chosen if state.trials[number].audited is None), None)


def _close(trial: TrialState, status: Status, result: Result | None) -> TrialState:
    return replace(trial, status=status, results=(*trial.results, result))
