"""The final training begins when the search is over, and the search never sees it."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resources.search.audit import audit_of
from resources.search.decide import (
    Complete,
    Crashed,
    Fail,
    Finish,
    Idle,
    Pause,
    Reached,
    Released,
    Requeue,
    Resume,
    Retry,
    Start,
    StartFinal,
    Wait,
    decide,
    pareto_front,
    pruned_trials,
    ranking,
    winner_of,
)
from resources.search.replay import spec_with
from resources.search.simulation import SimulatedWorkers, simulate
from resources.search.state import (
    Control,
    FinalTraining,
    Halving,
    Result,
    Rules,
    SearchState,
    Status,
    TrialState,
)
from resources.sweep_spec import SweepSpec
from resources.sweep_spec.final import Final
from tests.properties import examples
from tests.resources.search.random_searches import crews, run_search, seeds, specs
from tests.resources.search.search_states import run

Spec = Callable[..., SweepSpec]

ASHA = {"asha": {"sampler": "tpe", "min_budget": 1, "max_budget": 9}}
FAULTS = SimulatedWorkers(
    8, speeds=(0.25, 4.0), mean_life=30.0, replaced_after=5.0, crash=0.05, fail=0.02, early=0.02
)


def over(seeds: int = 2, control: Control = Control.RUN, **changes: Any) -> SearchState:
    """A search of three trials that has no more to do: the third one has won."""
    rules = Rules(
        ladders=((1, 3),),
        early_stopping=Halving(3),
        maximize=(True,),
        max_retries=1,
        final=FinalTraining(seeds, 20),
        **changes,
    )
    trials = [
        TrialState(0, Status.PAUSED, (Result((0.1,)),)),
        TrialState(1, Status.PAUSED, (Result((0.2,)),)),
        TrialState(2, Status.COMPLETED, (Result((0.9,)), Result((0.95,)))),
    ]
    return SearchState(rules, 3, trials, control)


def reach_end(number: int) -> Reached:
    return Reached(number, Result((0.99,)))


def test_the_winners_params_are_trained_once_for_each_seed_up_to_their_end() -> None:
    state = over()
    assert run(state, Idle(), Idle(), Idle(), reach_end(3), reach_end(4), Idle()) == [
        StartFinal(3, 2),
        StartFinal(4, 2),
        Wait(),
        Complete(3),
        Complete(4),
        Finish(),
    ]
    assert state.ladder(3) == state.ladder(4) == (20,)
    assert [(trial.number, trial.final) for trial in state.finals] == [(3, 0), (4, 1)]


def test_it_waits_for_every_trial_of_the_search_and_for_its_audits() -> None:
    state = over()
    state.put(TrialState(2, Status.RUNNING, (Result((0.9,)),)))
    assert run(state, Idle()) == [Wait()]
    state = over(audit=1.0)
    assert run(state, Idle(), Idle(), Idle()) == [Resume(0), Resume(1), Wait()]
    assert run(state, reach_end(0), Idle(), reach_end(1), Idle()) == [
        Complete(0),
        Wait(),
        Complete(1),
        StartFinal(3, 0),
    ]


def test_a_final_trial_is_never_paused_or_pruned_however_bad_it_is() -> None:
    state = over(seeds=1)
    assert run(state, Idle(), Reached(3, Result((-100.0,))), Idle()) == [
        StartFinal(3, 2),
        Complete(3),
        Finish(),
    ]


def test_a_crash_is_retried_and_then_given_up_and_the_other_seeds_go_on() -> None:
    state = over()
    assert run(state, Idle(), Crashed(3), Idle(), Crashed(3), Idle(), reach_end(4), Idle()) == [
        StartFinal(3, 2),
        Retry(3),
        Resume(3),
        Fail(3),
        StartFinal(4, 2),
        Complete(4),
        Finish(),
    ]


def test_a_pause_gives_it_back_and_a_stop_begins_no_more() -> None:
    state = over()
    run(state, Idle())
    state.control = Control.PAUSE
    assert run(state, Released(3), Idle()) == [Requeue(3), Wait()]
    state.control = Control.RUN
    assert run(state, Idle()) == [Resume(3)]
    state.control = Control.STOP
    assert run(state, Released(3), Idle()) == [Requeue(3), Finish()]
    assert run(over(control=Control.STOP), Idle()) == [Finish()]


def test_no_search_goes_on_once_it_has_begun() -> None:
    state = over(seeds=1)
    run(state, Idle())
    state.max_trials = 10
    assert run(state, Idle()) == [Wait()]
    assert run(over(), Idle()) == [StartFinal(3, 2)]
    more = over()
    more.max_trials = 4
    assert run(more, Idle()) == [Start(3)]


def test_without_a_result_or_within_no_bounds_there_is_nothing_to_train() -> None:
    rules = over().rules
    failed = SearchState(rules, 1, [TrialState(0, Status.FAILED, (None,))])
    infeasible = SearchState(
        rules, 1, [TrialState(0, Status.COMPLETED, (Result((0.9,)), Result((0.9,), violation=0.1)))]
    )
    assert winner_of(failed) is winner_of(infeasible) is None
    assert run(failed, Idle()) == run(infeasible, Idle()) == [Finish()]


def test_what_final_trials_report_is_in_no_ranking_no_rung_and_no_audit() -> None:
    state = over()
    before = over()
    run(state, Idle(), reach_end(3), Idle(), Crashed(4), Idle(), Crashed(4))
    assert [trial.number for trial, _ in ranking(state)] == [2, 1, 0]
    assert state.rungs == before.rungs
    assert (pareto_front(state), pruned_trials(state), audit_of(state)) == (
        pareto_front(before),
        pruned_trials(before),
        audit_of(before),
    )
    assert run(over(seeds=1), Idle(), reach_end(3))[1] == Complete(3)
    assert isinstance(run(before, Idle())[0], StartFinal)
    assert not any(isinstance(decision, Pause) for decision in run(state, Idle()))


def test_a_state_that_is_made_again_of_its_trials_decides_the_same() -> None:
    state = over()
    run(state, Idle(), Crashed(3))
    again = SearchState(state.rules, state.max_trials, [*state.trials, *state.finals], state.control)
    assert (again.finals, again.queued, again.running) == (state.finals, state.queued, state.running)
    assert decide(again, Idle()) == decide(state, Idle())


@settings(max_examples=examples(60))
@given(specs(), crews(), seeds, st.integers(1, 4))
def test_the_final_training_does_not_change_the_search_and_ends_every_seed(
    spec: SweepSpec, workers: SimulatedWorkers, seed: int, count: int
) -> None:
    without = run_search(spec, workers, seed).end
    search = run_search(spec.model_copy(update={"final": Final(seeds=count, epochs=5)}), workers, seed).end
    assert search.state.trials == without.state.trials
    assert search.state.rungs == without.state.rungs
    winner = winner_of(search.state)
    finals = search.state.finals
    assert [trial.final for trial in finals] == list(range(count if winner else 0))
    for trial in finals:
        assert trial.status in (Status.COMPLETED, Status.FAILED)
        assert winner is not None
        assert search.params[trial.number] == search.params[winner.number]
        assert len(trial.results) == 1


@pytest.mark.parametrize("seed", range(3))
def test_with_lost_workers_every_seed_ends_and_the_search_does_not_change(
    small_spec: Spec, seed: int
) -> None:
    def curve(trial: int, params: dict[str, Any], epochs: int) -> Result:
        return Result((params["x"] * (1 - 0.5**epochs),))

    fields: dict[str, Any] = {"strategy": ASHA, "max_trials": 40, "max_preemptions": 1000}
    spec = small_spec(**fields, final={"seeds": 4, "epochs": 30})
    search, without = (simulate(each, curve, FAULTS, seed=seed) for each in (spec, small_spec(**fields)))
    assert search.state.trials == without.state.trials
    assert search.params[:40] == without.params
    assert audit_of(search.state) == audit_of(without.state)
    assert [trial.final for trial in search.state.finals] == [0, 1, 2, 3]
    assert {trial.status for trial in search.state.finals} <= {Status.COMPLETED, Status.FAILED}
    best = ranking(search.state)[0][0].number
    assert search.params[40:] == [search.params[best]] * 4
    assert set(search.rungs.values()) == {1}
    assert search.epochs - without.epochs >= 30 * sum(
        trial.status is Status.COMPLETED for trial in search.state.finals
    )


def test_another_strategy_is_replayed_without_the_final_training(small_spec: Spec) -> None:
    assert spec_with(small_spec(final={}), "random", 5).final is None
