"""What holds in every search, whatever the results, the order, the workers and the faults."""

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from resources.search import Continue, Idle, Rules, SearchState, Start, Status, decide
from resources.search import Resume as ResumeDecision
from tests.resources.search.simulator import Simulation, simulate


@st.composite
def simulations(draw: st.DrawFn) -> Simulation:
    factor = draw(st.integers(2, 4))
    rules = Rules(
        budgets=tuple(factor**rung for rung in range(draw(st.integers(1, 4)))),
        reduction_factor=factor,
        maximize=draw(st.booleans()),
        max_trials=draw(st.integers(1, 40)),
        max_retries=draw(st.integers(0, 2)),
    )
    faults = {name: draw(st.sampled_from([0.0, 0.1, 0.5])) for name in ("crash", "fail")}
    return simulate(
        rules, workers=draw(st.integers(1, 8)), seed=draw(st.integers(0, 10_000)), early=draw(st.sampled_from([0.0, 0.2])), **faults
    )


def better_or_equal(state: SearchState, rung: int, number: int) -> int:
    """How many results at the rung are at least as good as the trial's, by a plain count of our own."""
    sign = 1 if state.rules.maximize else -1
    mine = state.trials[number].results[rung]
    assert mine is not None
    others = [(trial.results[rung], trial.number) for trial in state.trials if len(trial.results) > rung]
    return sum(value is not None and (sign * value, -other) >= (sign * mine, -number) for value, other in others)


@settings(max_examples=150, deadline=None)
@given(simulations())
def test_no_trial_is_promoted_from_below_the_top_share_of_its_rung(simulation: Simulation) -> None:
    for before, event, decision in simulation.history:
        after, _ = decide(before, event)
        if isinstance(decision, Continue) or (
            isinstance(decision, ResumeDecision) and before.trials[decision.trial].status is Status.PAUSED
        ):
            trial = after.trials[decision.trial]
            rung = len(trial.results) - 1
            reached = sum(len(other.results) > rung for other in after.trials)
            assert better_or_equal(after, rung, trial.number) <= reached // after.rules.reduction_factor


@settings(max_examples=150, deadline=None)
@given(simulations())
def test_no_rung_stalls(simulation: Simulation) -> None:
    state = simulation.state
    assert len(state.trials) == state.rules.max_trials
    assert {trial.status for trial in state.trials} <= {Status.PAUSED, Status.COMPLETED, Status.FAILED}
    for rung in range(len(state.rules.budgets) - 1):
        at_rung = [trial for trial in state.trials if len(trial.results) > rung]
        for trial in at_rung:
            if trial.status is Status.PAUSED and len(trial.results) == rung + 1:
                assert better_or_equal(state, rung, trial.number) > len(at_rung) // state.rules.reduction_factor


@settings(max_examples=50, deadline=None)
@given(simulations())
def test_the_same_events_in_the_same_order_give_the_same_decisions(simulation: Simulation) -> None:
    state = SearchState(simulation.state.rules)
    for before, event, decision in simulation.history:
        assert state == before
        state, again = decide(state, event)
        assert again == decision
    assert state == simulation.state


@settings(max_examples=100, deadline=None)
@given(simulations())
def test_no_finished_rung_is_lost_or_trained_again(simulation: Simulation) -> None:
    known: dict[int, tuple[float | None, ...]] = {}
    for before, _, _ in simulation.history:
        for trial in before.trials:
            assert trial.results[: len(known.get(trial.number, ()))] == known.get(trial.number, ())
            known[trial.number] = trial.results


@settings(max_examples=100, deadline=None)
@given(simulations())
def test_no_new_trial_starts_while_a_paused_one_is_promotable(simulation: Simulation) -> None:
    for before, event, decision in simulation.history:
        if isinstance(event, Idle) and isinstance(decision, Start) and decision.trial == len(before.trials):
            for trial in before.trials:
                if trial.status is Status.PAUSED:
                    rung = len(trial.results) - 1
                    reached = sum(len(other.results) > rung for other in before.trials)
                    assert better_or_equal(before, rung, trial.number) > reached // before.rules.reduction_factor


def test_a_large_search_spends_a_fraction_of_the_full_budget_and_still_finds_a_leading_trial() -> None:
    rules = Rules(budgets=(1, 3, 9, 27), reduction_factor=3, maximize=True, max_trials=243, max_retries=0)
    simulation = simulate(rules, workers=16, seed=3)
    spent = sum(rules.budgets[len(trial.results) - 1] for trial in simulation.state.trials)
    assert spent < 0.25 * 243 * 27
    finished = [trial for trial in simulation.state.trials if trial.status is Status.COMPLETED]
    first_rung = sorted((trial.results[0] or -math.inf for trial in simulation.state.trials), reverse=True)
    assert max(trial.results[0] or -math.inf for trial in finished) >= first_rung[5]
