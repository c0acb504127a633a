"""Promotion by tables: a metric goes in, decisions come out; both directions, with failures and early ends."""

from typing import Any

import pytest

from resources.search import (
    Complete,
    Continue,
    Crashed,
    Decision,
    Event,
    Fail,
    Failed,
    Finish,
    Idle,
    Pause,
    Reached,
    Released,
    Resume,
    Retry,
    Returned,
    Rules,
    SearchState,
    Start,
    Status,
    TrialState,
    Wait,
    decide,
    ranking,
)


def rules(**changes: Any) -> Rules:
    given = {"budgets": (1, 3, 9), "reduction_factor": 3, "maximize": True, "max_trials": 4, "max_retries": 1}
    return Rules(**{**given, **changes})


def run(state: SearchState, *events: Event) -> tuple[SearchState, list[Decision]]:
    decisions = []
    for event in events:
        state, decision = decide(state, event)
        decisions.append(decision)
    return state, decisions


# Three trials at rung 0 in this order of results; the decision on each, and what the next idle worker is told.
RUNG_OF_THREE = [
    # maximize, values, decisions on the results, next
    (True, (0.1, 0.2, 0.9), [Pause(0), Pause(1), Continue(2)], Start(3)),
    (True, (0.9, 0.2, 0.1), [Pause(0), Pause(1), Pause(2)], Resume(0)),
    (True, (0.2, 0.9, 0.1), [Pause(0), Pause(1), Pause(2)], Resume(1)),
    (False, (0.1, 0.2, 0.9), [Pause(0), Pause(1), Pause(2)], Resume(0)),
    (False, (0.9, 0.2, 0.1), [Pause(0), Pause(1), Continue(2)], Start(3)),
    (True, (0.5, 0.5, 0.5), [Pause(0), Pause(1), Pause(2)], Resume(0)),  # a tie goes to the lower number
    (True, (-1.0, -3.0, -2.0), [Pause(0), Pause(1), Pause(2)], Resume(0)),
]


@pytest.mark.parametrize(("maximize", "values", "expected", "following"), RUNG_OF_THREE)
def test_the_best_of_three_is_promoted_in_place_or_from_its_pause(
    maximize: bool, values: tuple[float, ...], expected: list[Decision], following: Decision
) -> None:
    state, _ = run(SearchState(rules(maximize=maximize)), Idle(), Idle(), Idle())
    state, decisions = run(state, *(Reached(number, value) for number, value in enumerate(values)))
    assert decisions == expected
    assert run(state, Idle())[1] == [following]


def test_a_trial_that_goes_on_in_place_stays_running_and_a_paused_one_holds_no_worker() -> None:
    state, _ = run(SearchState(rules()), Idle(), Idle(), Idle(), Reached(0, 0.1), Reached(1, 0.2), Reached(2, 0.9))
    assert [trial.status for trial in state.trials] == [Status.PAUSED, Status.PAUSED, Status.RUNNING]


def test_the_highest_rung_with_a_promotable_trial_comes_first() -> None:
    trials = [TrialState(number, Status.PAUSED, (0.5 - number / 100,)) for number in range(6)]
    # Rung 1 has three results; trial 0 is its best and waits there, as trial 1 does at rung 0.
    trials[0] = TrialState(0, Status.PAUSED, (0.9, 0.9))
    trials += [TrialState(6, Status.PAUSED, (0.95, 0.5)), TrialState(7, Status.PAUSED, (0.96, 0.4))]
    trials += [TrialState(8, Status.PAUSED, (0.91,)), TrialState(9, Status.PAUSED, (0.1,)), TrialState(10, Status.PAUSED, (0.1,))]
    trials += [TrialState(11, Status.PAUSED, (0.1,))]
    state = SearchState(rules(max_trials=50), tuple(trials))
    assert run(state, Idle(), Idle())[1] == [Resume(0), Resume(8)]


def test_a_promotable_trial_is_resumed_before_a_new_one_starts() -> None:
    state = SearchState(rules(), tuple(TrialState(number, Status.PAUSED, (value,)) for number, value in enumerate((0.9, 0.1, 0.2))))
    assert run(state, Idle(), Idle())[1] == [Resume(0), Start(3)]


def test_a_trial_that_failed_counts_as_the_worst_of_its_rung() -> None:
    state, _ = run(SearchState(rules()), Idle(), Idle(), Idle())
    state, decisions = run(state, Failed(0), Reached(1, -1e9), Reached(2, -2e9))
    assert decisions == [Fail(0), Pause(1), Pause(2)]
    assert state.trials[0].results == (None,)
    assert run(state, Idle())[1] == [Resume(1)]


def test_a_rung_of_failures_promotes_none_and_does_not_stall_the_search() -> None:
    state, decisions = run(SearchState(rules(max_trials=3)), Idle(), Idle(), Idle(), Failed(0), Failed(1), Failed(2), Idle())
    assert decisions[-1] == Finish()
    assert ranking(state) == []


def test_a_crashed_trial_is_queued_again_and_given_up_after_its_retries() -> None:
    state, decisions = run(SearchState(rules(max_retries=2)), Idle(), Crashed(0), Idle(), Crashed(0), Idle(), Crashed(0))
    assert decisions == [Start(0), Retry(0), Resume(0), Retry(0), Resume(0), Fail(0)]
    assert state.trials[0].status is Status.FAILED


def test_a_released_trial_is_queued_again_without_counting_as_a_failure() -> None:
    state, decisions = run(SearchState(rules(max_retries=0)), Idle(), Released(0), Idle())
    assert decisions[1] == Retry(0)
    assert state.trials[0] == TrialState(0, Status.RUNNING)


def test_a_retried_trial_keeps_the_rungs_that_it_finished() -> None:
    state = SearchState(rules(), (TrialState(0, Status.RUNNING, (0.5,)),))
    state, decisions = run(state, Crashed(0), Idle(), Reached(0, 0.6))
    assert decisions[:2] == [Retry(0), Resume(0)]
    assert state.trials[0].results == (0.5, 0.6)


def test_a_retried_trial_comes_before_a_promotable_one() -> None:
    trials = (
        TrialState(0, Status.PAUSED, (0.9,)),
        TrialState(1, Status.PAUSED, (0.1,)),
        TrialState(2, Status.PAUSED, (0.2,)),
        TrialState(3, Status.QUEUED, (), failures=1),
    )
    assert run(SearchState(rules(), trials), Idle(), Idle())[1] == [Resume(3), Resume(0)]


def test_a_trainable_that_returns_early_ends_its_trial_and_counts_at_its_rung() -> None:
    state, _ = run(SearchState(rules(max_trials=3)), Idle(), Idle(), Idle())
    state, decisions = run(state, Returned(0, 0.9), Reached(1, 0.1), Reached(2, 0.2))
    assert decisions == [Complete(0), Pause(1), Pause(2)]
    # The only place in the top third is taken by a trial that cannot go on: the search ends rather than promote another.
    assert run(state, Idle())[1] == [Finish()]


def test_the_last_rung_completes_a_trial_whatever_its_result() -> None:
    state = SearchState(rules(), (TrialState(0, Status.RUNNING, (0.1, 0.1)),))
    assert run(state, Reached(0, -5.0))[1] == [Complete(0)]


def test_a_single_rung_is_random_search() -> None:
    _, decisions = run(SearchState(rules(budgets=(9,), max_trials=2)), Idle(), Idle(), Idle(), Reached(0, 0.1), Reached(1, 0.2), Idle())
    assert decisions == [Start(0), Start(1), Wait(), Complete(0), Complete(1), Finish()]


def test_an_idle_worker_waits_while_a_running_trial_may_still_bring_work() -> None:
    _, decisions = run(SearchState(rules(max_trials=1)), Idle(), Idle(), Reached(0, 0.5), Idle())
    assert decisions == [Start(0), Wait(), Pause(0), Finish()]


@pytest.mark.parametrize("event", [Reached(0, 1.0), Returned(0, 1.0), Released(0)])
def test_an_event_of_a_trial_that_is_not_running_is_refused(event: Event) -> None:
    state = SearchState(rules(), (TrialState(0, Status.PAUSED, (0.5,)),))
    with pytest.raises(ValueError, match="trial 0 is paused, not running"):
        decide(state, event)


@pytest.mark.parametrize(
    ("maximize", "best_first"),
    [(True, [3, 1, 2, 0]), (False, [3, 2, 1, 0])],
)
def test_the_ranking_puts_the_rung_before_the_objective(maximize: bool, best_first: list[int]) -> None:
    trials = (
        TrialState(0, Status.FAILED, (0.99 if not maximize else 0.01, None)),
        TrialState(1, Status.PAUSED, (0.5, 0.8)),
        TrialState(2, Status.PAUSED, (0.5, 0.7)),
        TrialState(3, Status.COMPLETED, (0.1, 0.1, 0.1)),
        TrialState(4, Status.FAILED, (None,)),
    )
    assert [trial.number for trial, _ in ranking(SearchState(rules(maximize=maximize), trials))] == best_first
