"""Decisions by tables: in both directions, with faults, bounds, brackets and a user's orders."""

from typing import Any

import pytest

from resources.search.decide import (
    Complete,
    Continue,
    Crashed,
    Decision,
    Event,
    Fail,
    Failed,
    Finish,
    Halved,
    Idle,
    Pause,
    Preempted,
    Released,
    Requeue,
    Resized,
    Resume,
    Retry,
    Returned,
    Start,
    Stop,
    Wait,
    decide,
    pareto_front,
    ranking,
)
from resources.search.state import Control, MedianStop, Result, Status, TrialState
from tests.resources.search.search_states import HALF, reach, results, run, searching, single, trial

# Three trials at rung 0 in this order of results; the decision on each, and what the next idle worker gets.
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
    state = searching(maximize=(maximize,))
    run(state, Idle(), Idle(), Idle())
    assert run(state, *(reach(number, value) for number, value in enumerate(values))) == expected
    assert run(state, Idle()) == [following]


def test_deciding_changes_nothing_until_the_changed_trial_is_put_in_its_place() -> None:
    state = searching(trial(0, Status.RUNNING))
    before = list(state.trials)
    assert decide(state, reach(0, 0.5)) == decide(state, reach(0, 0.5))
    assert state.trials == before


def test_a_trial_that_goes_on_stays_running_and_a_paused_one_holds_no_worker() -> None:
    state = searching()
    run(state, Idle(), Idle(), Idle(), reach(0, 0.1), reach(1, 0.2), reach(2, 0.9))
    assert [trial.status for trial in state.trials] == [Status.PAUSED, Status.PAUSED, Status.RUNNING]
    assert state.running == 1


def test_the_highest_rung_with_a_promotable_trial_comes_first() -> None:
    trials = [trial(number, Status.PAUSED, 0.5 - number / 100) for number in range(12)]
    # Rung 1 has three results; trial 0 is its best and waits there, as trial 8 does at rung 0.
    trials[0] = trial(0, Status.PAUSED, 0.9, 0.9)
    trials[6] = trial(6, Status.PAUSED, 0.95, 0.5)
    trials[7] = trial(7, Status.PAUSED, 0.96, 0.4)
    trials[8] = trial(8, Status.PAUSED, 0.91)
    assert run(searching(*trials, max_trials=50), Idle(), Idle()) == [Resume(0), Resume(8)]


def test_queued_comes_before_promotable_before_suggested_before_new() -> None:
    state = searching(
        trial(0, Status.PAUSED, 0.9),
        trial(1, Status.PAUSED, 0.1),
        trial(2, Status.PAUSED, 0.2),
        trial(3, Status.QUEUED, failures=1),
        trial(4, Status.SUGGESTED),
        max_trials=6,
    )
    assert run(state, *[Idle()] * 5) == [Resume(3), Resume(0), Start(4), Start(5), Wait()]


def test_of_the_queued_the_one_that_got_furthest_goes_on_first() -> None:
    state = searching(trial(0, Status.QUEUED), trial(1, Status.QUEUED, 0.1), trial(2, Status.QUEUED, 0.2))
    assert run(state, Idle(), Idle(), Idle()) == [Resume(1), Resume(2), Resume(0)]


def test_a_trial_that_failed_counts_as_the_worst_of_its_rung() -> None:
    state = searching()
    run(state, Idle(), Idle(), Idle())
    assert run(state, Failed(0), reach(1, -1e9), reach(2, -2e9)) == [Fail(0), Pause(1), Pause(2)]
    assert state.trials[0].results == (None,)
    assert run(state, Idle()) == [Resume(1)]


def test_a_rung_of_failures_promotes_none_and_does_not_stall_the_search() -> None:
    state = searching(max_trials=3)
    assert run(state, Idle(), Idle(), Idle(), Failed(0), Failed(1), Failed(2), Idle())[-1] == Finish()
    assert ranking(state) == []


# How an attempt ends, and what it costs the trial: at most max_retries crashes, max_preemptions lost workers,
# any releases.
ENDS: list[tuple[type[Event], dict[str, Any], list[Any]]] = [
    (Crashed, {"max_retries": 2}, [Retry, Retry, Fail]),
    (Crashed, {"max_retries": 0}, [Fail]),
    (Preempted, {"max_preemptions": 2, "max_retries": 0}, [Requeue, Requeue, Fail]),
    (Preempted, {"max_preemptions": 0}, [Fail]),
    (Released, {"max_preemptions": 0, "max_retries": 0}, [Requeue, Requeue, Requeue]),
    (Resized, {"max_preemptions": 0, "max_retries": 0}, [Requeue, Requeue, Requeue]),
    (Halved, {"max_preemptions": 0, "max_retries": 0}, [Requeue]),
    (Failed, {"max_retries": 5}, [Fail]),
]


@pytest.mark.parametrize(("event", "bounds", "expected"), ENDS)
def test_a_trial_is_tried_again_as_often_as_its_bounds_say(
    event: Any, bounds: dict[str, Any], expected: list[Any]
) -> None:
    state = searching(**bounds)
    for attempt, kind in enumerate(expected):
        assert run(state, Idle()) == [Resume(0) if attempt else Start(0)]
        assert run(state, event(0)) == [kind(0)]
    given_up = expected[-1] is Fail
    assert state.trials[0].status is (Status.FAILED if given_up else Status.QUEUED)
    assert state.trials[0].results == ((None,) if given_up else ())


def test_a_lost_worker_is_no_failure_of_its_trial_and_a_crash_no_loss() -> None:
    state = searching()
    run(state, Idle(), Preempted(0), Idle(), Crashed(0), Idle(), Released(0))
    assert state.trials[0] == trial(0, Status.QUEUED, failures=1, preemptions=1)


def test_a_trial_that_is_tried_again_keeps_the_rungs_that_it_finished() -> None:
    state = searching(trial(0, Status.RUNNING, 0.5))
    assert run(state, Crashed(0), Idle(), reach(0, 0.6))[:2] == [Retry(0), Resume(0)]
    assert state.trials[0].results == results(0.5, 0.6)


def test_a_trainable_that_returns_early_ends_its_trial_and_counts_at_its_rung() -> None:
    state = searching(max_trials=3)
    run(state, Idle(), Idle(), Idle())
    assert run(state, Returned(0, Result((0.9,))), reach(1, 0.1), reach(2, 0.2)) == [
        Complete(0),
        Pause(1),
        Pause(2),
    ]
    # The only place in the top third is taken by a trial that cannot go on: the search ends rather than
    # promote another.
    assert run(state, Idle()) == [Finish()]


def test_the_last_rung_completes_a_trial_whatever_its_result() -> None:
    assert run(searching(trial(0, Status.RUNNING, 0.1, 0.1)), reach(0, -5.0)) == [Complete(0)]


def test_a_single_rung_is_random_search() -> None:
    decisions = run(single(max_trials=2), Idle(), Idle(), Idle(), reach(0, 0.1), reach(1, 0.2), Idle())
    assert decisions == [Start(0), Start(1), Wait(), Complete(0), Complete(1), Finish()]


def test_an_idle_worker_waits_while_a_running_trial_may_still_bring_work() -> None:
    assert run(searching(max_trials=1), Idle(), Idle(), reach(0, 0.5), Idle()) == [
        Start(0),
        Wait(),
        Pause(0),
        Finish(),
    ]


@pytest.mark.parametrize(
    "event", [reach(0, 1.0), Returned(0, Result((1.0,))), Released(0), Preempted(0), Crashed(0), Failed(0)]
)
def test_an_event_of_a_trial_that_is_not_running_is_refused(event: Event) -> None:
    with pytest.raises(ValueError, match="trial 0 is paused, not"):
        decide(searching(trial(0, Status.PAUSED, 0.5)), event)


# Bounded metrics: an infeasible result ranks after every feasible one, by how far it is out, and before a
# failed one.
VIOLATIONS = [
    # (value, violation) of three trials at rung 0, who is promoted
    (((0.9, 0.5), (0.1, 0.0), (0.2, 0.0)), 2),
    (((0.9, 0.5), (0.8, 0.1), (0.7, 0.3)), 1),
    (((0.9, 0.0), (0.95, 1e-9), (0.99, 2.0)), 0),
]


@pytest.mark.parametrize(("reports", "best"), VIOLATIONS)
def test_an_infeasible_result_ranks_after_every_feasible_one(
    reports: tuple[tuple[float, float], ...], best: int
) -> None:
    state = searching(max_trials=3)
    run(state, Idle(), Idle(), Idle())
    run(state, *(reach(number, *report) for number, report in enumerate(reports)))
    promoted = [trial.number for trial in state.trials if trial.status is Status.RUNNING] or [
        run(state, Idle())[0].trial
    ]  # type: ignore[union-attr]
    assert promoted == [best]
    assert ranking(state)[0][0].number == best


def test_an_infeasible_result_ranks_before_a_failure() -> None:
    state = searching(max_trials=3)
    run(state, Idle(), Idle(), Idle())
    assert run(state, Failed(0), reach(1, 0.1, 9.0), Failed(2), Idle())[-1] == Resume(1)


# Results of others at the epoch, the trial's own, and whether it stops: only if more than that share of them
# is better.
QUANTILES = [
    # quantile, min_trials, others (maximized), own, stops
    (0.5, 5, (0.1, 0.2, 0.3, 0.4), 0.0, False),  # too few
    (0.5, 5, (0.1, 0.2, 0.3, 0.4, 0.5), 0.29, True),
    (0.5, 5, (0.1, 0.2, 0.3, 0.4, 0.5), 0.3, False),  # no worse than the median
    (0.5, 5, (0.3, 0.3, 0.3, 0.3, 0.3), 0.3, False),  # equal results never stop one another
    (0.25, 4, (0.1, 0.2, 0.3, 0.4), 0.29, True),
    (0.25, 4, (0.1, 0.2, 0.3, 0.4), 0.39, False),
    (0.75, 4, (0.1, 0.2, 0.3, 0.4), 0.15, False),
    (0.75, 4, (0.1, 0.2, 0.3, 0.4), 0.05, True),
    (0.5, 4, (None, None, None, 0.4), 0.0, False),  # worse than nobody but the best
]


@pytest.mark.parametrize("maximize", [True, False])
@pytest.mark.parametrize(("quantile", "min_trials", "others", "own", "stops"), QUANTILES)
def test_a_trial_worse_than_the_quantile_of_the_others_stops_for_good(
    maximize: bool,
    quantile: float,
    min_trials: int,
    others: tuple[float | None, ...],
    own: float,
    stops: bool,
) -> None:
    sign = 1.0 if maximize else -1.0
    trials = []
    for number, value in enumerate(others):
        if value is None:
            trials.append(trial(number, Status.FAILED, None))
        else:
            trials.append(trial(number, Status.STOPPED, sign * value))
    rule = MedianStop(min_trials, quantile)
    state = searching(
        *trials, trial(len(others), Status.RUNNING), max_trials=9, early_stopping=rule, maximize=(maximize,)
    )
    decision = Stop if stops else Continue
    assert run(state, reach(len(others), sign * own)) == [decision(len(others))]


def test_a_trial_that_the_median_rule_stopped_is_not_taken_up_again() -> None:
    state = searching(max_trials=3, early_stopping=HALF)
    run(state, Idle(), Idle(), Idle(), reach(0, 0.5), reach(1, 0.6))
    assert run(state, reach(2, 0.1), reach(0, 0.5), reach(0, 0.5), reach(1, 0.6), reach(1, 0.6), Idle()) == [
        Stop(2),
        Continue(0),
        Complete(0),
        Continue(1),
        Complete(1),
        Finish(),
    ]


BRACKETS: dict[str, Any] = {"ladders": ((1, 3, 9), (3, 9), (9,)), "weights": (9, 5, 3)}


def test_brackets_take_their_share_of_every_stretch_of_trials() -> None:
    rules = searching(**BRACKETS).rules
    assert [[rules.bracket(number) for number in range(17)].count(bracket) for bracket in range(3)] == [
        9,
        5,
        3,
    ]
    assert {rules.bracket(number) for number in range(6)} == {0, 1, 2}
    assert [rules.bracket(number) for number in range(17)] == [
        rules.bracket(number + 17) for number in range(17)
    ]


def test_a_trial_competes_within_its_bracket_alone() -> None:
    state = searching(max_trials=17, **BRACKETS)
    run(state, *[Idle()] * 17)
    first, second, third = (
        [number for number in range(17) if state.rules.bracket(number) == bracket] for bracket in range(3)
    )
    for number, decision in zip(first[:3], (Pause, Pause, Continue), strict=True):
        assert run(state, reach(number, 0.1 + number / 100)) == [decision(number)]
    # Better than all of those, but the first two at their own rung.
    assert run(state, reach(second[0], 0.9), reach(second[1], 0.8)) == [
        Pause(second[0]),
        Pause(second[1]),
    ]
    assert run(state, reach(third[0], 0.0)) == [Complete(third[0])]


def test_of_two_brackets_the_rung_with_more_epochs_is_promoted_from_first() -> None:
    state = searching(max_trials=17, **BRACKETS)
    first, second = (
        [number for number in range(17) if state.rules.bracket(number) == bracket] for bracket in range(2)
    )
    run(state, *[Idle()] * 17)
    run(state, *(reach(number, -float(number)) for number in (*first[:3], *second[:3])))
    assert run(state, Idle(), Idle(), Idle()) == [Resume(second[0]), Resume(first[0]), Wait()]


# What becomes of a running trial, and of an idle worker, when the sweep is paused or stopped.
ORDERS: list[tuple[Control, Event, Decision, Status]] = [
    (Control.PAUSE, Released(0), Requeue(0), Status.QUEUED),
    (Control.PAUSE, Preempted(0), Requeue(0), Status.QUEUED),
    (Control.PAUSE, Crashed(0), Retry(0), Status.QUEUED),
    (Control.PAUSE, reach(0, 9.9), Requeue(0), Status.QUEUED),  # it may go on, but not now
    (Control.PAUSE, reach(0, -9.9), Pause(0), Status.PAUSED),
    (Control.STOP, Released(0), Requeue(0), Status.QUEUED),
    (Control.STOP, Preempted(0), Requeue(0), Status.QUEUED),
    (Control.STOP, Crashed(0), Retry(0), Status.QUEUED),
    (Control.STOP, reach(0, 9.9), Requeue(0), Status.QUEUED),
    (Control.STOP, reach(0, -9.9), Pause(0), Status.PAUSED),
    (Control.STOP, Failed(0), Fail(0), Status.FAILED),
    (Control.STOP, Returned(0, Result((0.1,))), Complete(0), Status.COMPLETED),
]


@pytest.mark.parametrize(("control", "event", "expected", "status"), ORDERS)
def test_a_paused_or_stopped_sweep_lets_its_trials_go(
    control: Control, event: Event, expected: Decision, status: Status
) -> None:
    others = [trial(number, Status.STOPPED, float(-number)) for number in (1, 2)]
    state = searching(trial(0, Status.RUNNING), *others, control=control)
    assert run(state, event) == [expected]
    assert state.trials[0].status is status
    assert run(state, Idle()) == [Wait() if control is Control.PAUSE else Finish()]


@pytest.mark.parametrize("control", [Control.PAUSE, Control.STOP])
def test_nothing_is_handed_out_while_a_sweep_is_paused_or_stopped(control: Control) -> None:
    state = searching(
        trial(0, Status.QUEUED), trial(1, Status.SUGGESTED), trial(2, Status.RUNNING), control=control
    )
    assert run(state, Idle()) == [Wait()]
    state.control = Control.RUN
    assert run(state, Idle(), Idle()) == [Resume(0), Start(1)]


@pytest.mark.parametrize(("maximize", "best_first"), [(True, [3, 1, 2, 0]), (False, [3, 2, 1, 0])])
def test_the_ranking_puts_the_rung_before_the_objective(maximize: bool, best_first: list[int]) -> None:
    state = searching(
        trial(0, Status.FAILED, 0.99 if not maximize else 0.01, None),
        trial(1, Status.PAUSED, 0.5, 0.8),
        trial(2, Status.PAUSED, 0.5, 0.7),
        trial(3, Status.COMPLETED, 0.1, 0.1, 0.1),
        trial(4, Status.FAILED, None),
        maximize=(maximize,),
    )
    assert [ranked.number for ranked, _ in ranking(state)] == best_first


def test_the_ranking_of_brackets_counts_epochs_and_not_rungs() -> None:
    state = searching(max_trials=17, **BRACKETS)
    run(state, *[Idle()] * 17)
    first, second = (
        next(number for number in range(17) if state.rules.bracket(number) == bracket) for bracket in range(2)
    )
    run(state, reach(first, 0.9), reach(second, 0.1))
    assert [trial.number for trial, _ in ranking(state)] == [second, first]


def test_with_several_objectives_the_pareto_front_comes_first() -> None:
    def completed(number: int, *values: float, violation: float = 0.0) -> TrialState:
        return TrialState(number, Status.COMPLETED, (Result(values, violation),))

    state = single(maximize=(True, False), max_trials=9)
    for candidate in [
        completed(0, 0.9, 30.0),
        completed(1, 0.8, 10.0),
        completed(2, 0.85, 30.0),  # dominated by 0
        completed(3, 0.5, 1.0),
        completed(4, 0.99, 0.5, violation=1.0),  # would dominate all, but is infeasible
        completed(5, 0.8, 10.0),  # equal to 1
        TrialState(6, Status.FAILED, (None,)),
    ]:
        state.put(candidate)
    assert pareto_front(state) == [0, 1, 3, 5]
    assert [ranked.number for ranked, _ in ranking(state)] == [0, 1, 5, 3, 2, 4]
