"""What holds in every search, whatever the results, the order, the workers and the faults."""

import math
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from resources.search.decide import Continue, Decision, Event, Finish, Reached, Resume, Start, Stop, decide
from resources.search.pareto import front
from resources.search.rules import max_trials, rules_of
from resources.search.simulation import SimulatedWorkers
from resources.search.state import Halving, MedianStop, Place, Result, SearchState, Status, TrialState
from resources.sweep_spec import SweepSpec, parse_spec
from tests.backends import SMALL
from tests.properties import examples
from tests.resources.search.random_searches import Search, crews, run_search, seeds, specs


def score(search_rules: Any, result: Result | None) -> tuple[float, float]:
    """How bad a result is, written down once more: failures after the infeasible after the feasible."""
    if result is None:
        return (math.inf, 0.0)
    if result.violation > 0:
        return (1 + result.violation, 0.0)
    return (0.0, -result.value if search_rules.maximize[0] else result.value)


def rung_mates(search_rules: Any, trials: tuple[TrialState, ...], number: int, rung: int) -> list[TrialState]:
    """The trials of the same bracket whose result at the rung counts, by a plain look at all of them."""
    bracket = search_rules.bracket(number)
    return [
        trial
        for trial in trials
        if search_rules.bracket(trial.number) == bracket and len(trial.counted) > rung
    ]


def better(search_rules: Any, trials: tuple[TrialState, ...], number: int, rung: int) -> int:
    """How many results at the rung are better, by a plain count; of equal ones the lower number's."""
    mine = (score(search_rules, trials[number].results[rung]), number)
    return sum(
        (score(search_rules, mate.results[rung]), mate.number) < mine
        for mate in rung_mates(search_rules, trials, number, rung)
    )


def after(trials: tuple[TrialState, ...], event: Event) -> tuple[TrialState, ...]:
    """The trials with the event's result added."""
    if not isinstance(event, Reached):
        return trials
    changed = list(trials)
    changed[event.trial] = replace(
        changed[event.trial], results=(*changed[event.trial].results, event.result)
    )
    return tuple(changed)


def promotions(search: Search) -> list[tuple[tuple[TrialState, ...], int]]:
    """Every promotion by halving, in place or from a pause: the trials before it, and who was promoted."""
    promoted = []
    for trials, event, decision in search.steps:
        if isinstance(decision, Continue) or (
            isinstance(decision, Resume) and trials[decision.trial].status is Status.PAUSED
        ):
            trial = trials[decision.trial]
            for_audit = search.end.state.trials[trial.number].audited == len(trial.results) and isinstance(
                decision, Resume
            )
            if trial.audited is None and not for_audit:
                promoted.append((after(trials, event), trial.number))
    return promoted


def _promotable(search: Search, trials: tuple[TrialState, ...]) -> list[int]:
    search_rules = search.end.state.rules
    if not isinstance(search_rules.early_stopping, Halving):
        return []
    promoted = []
    for trial in trials:
        if trial.status is Status.PAUSED:
            rung = len(trial.results) - 1
            mates = len(rung_mates(search_rules, trials, trial.number, rung))
            if (
                better(search_rules, trials, trial.number, rung)
                < mates // search_rules.early_stopping.reduction_factor
            ):
                promoted.append(trial.number)
    return promoted


@settings(max_examples=examples(80))
@given(specs(kinds=("asha", "hyperband")), crews(), seeds)
def test_no_trial_is_promoted_from_below_the_top_share_of_its_rung(
    spec: SweepSpec, workers: SimulatedWorkers, seed: int
) -> None:
    search = run_search(spec, workers, seed)
    search_rules = search.end.state.rules
    for trials, number in promotions(search):
        rung = len(trials[number].results) - 1
        mates = len(rung_mates(search_rules, trials, number, rung))
        assert (
            better(search_rules, trials, number, rung) < mates // search_rules.early_stopping.reduction_factor
        )  # type: ignore[union-attr]


@settings(max_examples=examples(60))
@given(specs(kinds=("asha", "hyperband")), crews(), seeds)
def test_no_new_trial_starts_and_no_search_ends_while_a_paused_trial_is_promotable(
    spec: SweepSpec, workers: SimulatedWorkers, seed: int
) -> None:
    search = run_search(spec, workers, seed)
    for trials, _, decision in search.steps:
        if isinstance(decision, Start | Finish):
            assert _promotable(search, trials) == []


@settings(max_examples=examples(60))
@given(specs(kinds=("median",)), crews(), seeds)
def test_the_median_rule_stops_whoever_is_worse_than_the_quantile_and_nobody_else(
    spec: SweepSpec, workers: SimulatedWorkers, seed: int
) -> None:
    search = run_search(spec, workers, seed)
    search_rules = search.end.state.rules
    rule = search_rules.early_stopping
    assert isinstance(rule, MedianStop)
    for trials, event, decision in search.steps:
        if isinstance(decision, Stop | Continue) and trials[decision.trial].audited is None:
            rung = len(trials[decision.trial].results)
            assert isinstance(event, Reached)
            others = [
                score(search_rules, mate.results[rung])
                for mate in rung_mates(search_rules, trials, decision.trial, rung)
            ]
            better = sum(other < score(search_rules, event.result) for other in others)
            worse = len(others) >= rule.min_trials and better > rule.quantile * len(others)
            assert isinstance(decision, Stop) == worse


@settings(max_examples=examples(120))
@given(specs(), crews(), seeds)
def test_every_search_ends_with_every_trial_accounted_for_and_no_rung_trained_twice(
    spec: SweepSpec, workers: SimulatedWorkers, seed: int
) -> None:
    search = run_search(spec, workers, seed)
    state = search.end.state
    assert isinstance(search.steps[-1][2], Finish)
    assert state.running == 0
    assert [trial.number for trial in state.trials] == list(range(max_trials(spec)))
    assert {trial.status for trial in state.trials} <= {
        Status.PAUSED,
        Status.COMPLETED,
        Status.FAILED,
        Status.STOPPED,
    }
    assert set(search.end.rungs.values()) <= {1}
    for trial in state.trials:
        assert trial.failures <= spec.max_retries + 1
        assert trial.preemptions <= spec.max_preemptions + 1
        assert len(trial.results) <= len(state.rules.ladder(trial.number))
        if trial.status is Status.FAILED:
            assert trial.results[-1] is None


@settings(max_examples=examples(60))
@given(specs(), crews(), seeds)
def test_no_finished_rung_is_lost_or_changed(spec: SweepSpec, workers: SimulatedWorkers, seed: int) -> None:
    results: dict[int, tuple[Result | None, ...]] = {}
    for trials, _, _ in run_search(spec, workers, seed).steps:
        for trial in trials:
            before = results.get(trial.number, ())
            assert trial.results[: len(before)] == before
            results[trial.number] = trial.results


@settings(max_examples=examples(60))
@given(specs(), crews(), seeds)
def test_the_sorted_lists_equal_a_recount_from_scratch_after_every_event(
    spec: SweepSpec, workers: SimulatedWorkers, seed: int
) -> None:
    def recount(state: SearchState, _event: Event, _decision: Decision) -> None:
        trials = state.trials
        rules = state.rules
        assert state.running == sum(trial.status is Status.RUNNING for trial in trials)
        assert state.suggested == [trial.number for trial in trials if trial.status is Status.SUGGESTED]
        assert state.queued == sorted(
            (-len(trial.results), trial.number) for trial in trials if trial.status is Status.QUEUED
        )
        for bracket, ladder in enumerate(rules.ladders):
            mates = [trial for trial in trials if rules.bracket(trial.number) == bracket]
            for rung in range(len(ladder)):
                at_rung = state.rungs[bracket][rung]
                counted = [(trial, trial.counted[rung]) for trial in mates if len(trial.counted) > rung]
                assert at_rung.results == sorted(
                    state.place(trial.number, result) for trial, result in counted
                )
                waiting = [
                    trial
                    for trial in mates
                    if trial.status is Status.PAUSED and len(trial.results) == rung + 1
                ]
                assert at_rung.paused == sorted(
                    state.place(trial.number, trial.results[rung]) for trial in waiting
                )
                assert _sorted_as_scored(rules, counted, at_rung.results)

    run_search(spec, workers, seed, recount)


def _sorted_as_scored(
    rules: Any, counted: list[tuple[TrialState, Result | None]], places: list[Place]
) -> bool:
    expected = sorted(counted, key=lambda entry: (score(rules, entry[1]), entry[0].number))
    return [trial.number for trial, _ in expected] == [place[2] for place in places]


@settings(max_examples=examples(40))
@given(specs(), crews(), seeds)
def test_a_state_rebuilt_before_any_event_decides_the_same(
    spec: SweepSpec, workers: SimulatedWorkers, seed: int
) -> None:
    """Decisions depend on the trials alone, and not on the order in which they were put."""
    search = run_search(spec, workers, seed)
    limit = max_trials(spec)
    for trials, event, decision in search.steps[:: 1 + len(search.steps) // 40]:
        assert decide(SearchState(rules_of(spec), limit, trials), event)[0] == decision


@settings(max_examples=examples(40))
@given(specs(kinds=("asha", "hyperband", "median"), audits=(0.5,)), crews(), seeds)
def test_whatever_an_audit_finds_the_search_before_it_is_the_same(
    spec: SweepSpec, workers: SimulatedWorkers, seed: int
) -> None:
    strategy = {
        key: {**value, "audit": 0.0} for key, value in spec.strategy.model_dump(exclude_none=True).items()
    }
    unaudited = parse_spec(
        {**spec.model_dump(mode="json", by_alias=True, exclude_none=True), "strategy": strategy}
    )
    audited = run_search(spec, workers, seed)
    without = run_search(unaudited, workers, seed)
    assert [step[1:] for step in audited.steps[: len(without.steps) - 1]] == [
        step[1:] for step in without.steps[:-1]
    ]
    assert [trial.counted for trial in audited.end.state.trials] == [
        trial.results for trial in without.end.state.trials
    ]


@settings(max_examples=examples(60))
@given(specs(kinds=("asha",), audits=(0.0,)), seeds, st.integers(1, 8))
def test_failures_never_block_a_rung(spec: SweepSpec, seed: int, workers: int) -> None:
    search = run_search(spec, SimulatedWorkers(workers, fail=0.7), seed)
    assert _promotable(search, tuple(search.end.state.trials)) == []
    assert isinstance(search.steps[-1][2], Finish)


def test_large_searches_spend_little_of_the_full_budget_and_find_a_leading_trial() -> None:
    leading = 0
    for seed in range(8):
        spec = parse_spec(
            {
                **SMALL,
                "max_trials": 243,
                "seed": seed,
                "strategy": {"asha": {"sampler": "random", "max_budget": 27}},
            }
        )
        search = run_search(spec, SimulatedWorkers(16), seed)
        assert search.end.epochs < 0.25 * 243 * 27
        first = sorted(
            (trial.results[0].value for trial in search.end.state.trials if trial.results[0]), reverse=True
        )
        completed = [
            trial.results[0].value
            for trial in search.end.state.trials
            if trial.status is Status.COMPLETED and trial.results[0]
        ]
        leading += max(completed) >= first[5]
    assert leading >= 7  # what is noise alone at the first rung is found out later


vectors = st.integers(1, 3).flatmap(
    lambda size: st.tuples(
        st.lists(st.tuples(*[st.integers(0, 4).map(float)] * size), max_size=25),
        st.tuples(*[st.booleans()] * size),
    )
)


@settings(max_examples=examples(300))
@given(vectors)
def test_the_pareto_front_is_what_a_comparison_of_all_pairs_leaves(
    given_points: tuple[list[tuple[float, ...]], tuple[bool, ...]],
) -> None:
    points, maximize = given_points

    def dominates(first: tuple[float, ...], other: tuple[float, ...]) -> bool:
        gains = [(a - b) if larger else (b - a) for a, b, larger in zip(first, other, maximize, strict=True)]
        return min(gains) >= 0 and max(gains) > 0

    brute = [
        index for index, point in enumerate(points) if not any(dominates(other, point) for other in points)
    ]
    assert front(points, maximize) == brute
