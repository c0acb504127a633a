"""Whose turn it is: quotas hold, shares come to be as the weights, and nobody starves."""

from collections import Counter
from dataclasses import replace
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resources.tenancy.shares import Fleet, Limits, Project, Sweep, has_turn, next_sweep, turns, why_not
from tests.properties import examples
from tests.resources.tenancy.fleets import fleet, fleets


def test_the_next_place_goes_to_the_project_with_the_smallest_weighted_share() -> None:
    many = Sweep("m", "a", trials=3, wants=9)
    few = Sweep("f", "b", trials=2, wants=9)
    assert next_sweep(fleet(many, few, trials=6)) == "f"
    assert next_sweep(fleet(many, few, trials=6, projects=(Project("a", weight=2),))) == "m"


def test_the_example_of_the_paper_gives_equal_dominant_shares() -> None:
    """Ghodsi et al. 2011, section 4.1, with places for CPUs: 18 GPUs; a's tasks need 4 of them and b's 1."""
    places = Counter(
        turns(
            fleet(Sweep("x", "a", wants=99, needs=4), Sweep("y", "b", wants=99, needs=1), trials=9, gpus=18)
        )
    )
    assert places == {"x": 3, "y": 6}  # dominant shares of 2/3 each: 12 of 18 GPUs, 6 of 9 places


def test_within_a_project_the_higher_priority_comes_first_and_then_who_has_least() -> None:
    low = Sweep("a1", "a", wants=2)
    high = Sweep("a2", "a", priority=1, trials=5, wants=2)
    assert list(turns(fleet(low, high, trials=9))) == ["a2", "a2", "a1", "a1"]
    assert list(turns(fleet(low, replace(high, priority=0), trials=9))) == ["a1", "a1", "a2", "a2"]


def test_a_trial_that_fits_is_not_held_up_by_one_that_does_not() -> None:
    large = Sweep("large", "a", wants=1, needs=8)
    small = Sweep("small", "b", trials=1, gpus=1, wants=1, needs=1)
    assert next_sweep(fleet(large, small, gpus=8)) == "small"


def test_room_is_kept_for_a_large_trial_after_a_while_and_others_go_on_beside_it() -> None:
    large = Sweep("large", "a", wants=1, needs=8, waited=120)
    small = Sweep("small", "b", trials=1, gpus=1, wants=1, needs=1)
    without = Sweep("cpu", "b", wants=1)
    assert list(turns(fleet(large, small, without, gpus=8))) == ["cpu"]
    assert "kept" not in why_not(fleet(large, small, gpus=8), "large")
    never = replace(large, needs=9)
    assert list(turns(fleet(never, small, gpus=8))) == ["small"]  # it would be kept for ever
    assert why_not(fleet(never, small, gpus=8), "large").startswith(
        "its trials need 9 GPUs, and all projects together have max_gpus = 8"
    )


def test_a_sweep_that_waits_for_its_own_projects_quota_keeps_no_room_from_the_others() -> None:
    full = Sweep("full", "a", trials=1, wants=1, waited=500)
    more = Sweep("more", "b", wants=10)
    assert list(turns(fleet(full, more, trials=4, projects=(Project("a", quota=Limits(trials=1)),)))) == 3 * [
        "more"
    ]
    full = Sweep("full", "a", trials=1, gpus=1, wants=1, needs=1, waited=5000)
    large = Sweep("large", "b", wants=1, needs=4, waited=4000)
    small = Sweep("small", "c", trials=5, gpus=5, wants=9, needs=1)
    state = fleet(full, large, small, gpus=8, projects=(Project("a", quota=Limits(gpus=1)),))
    assert list(turns(state)) == [], "the two that are free are kept for the large one"


def test_without_limits_everybody_gets_what_they_ask_for() -> None:
    assert Counter(turns(fleet(Sweep("x", "a", wants=3), Sweep("y", "a", wants=2, priority=5, needs=4)))) == {
        "x": 3,
        "y": 2,
    }


@settings(max_examples=examples(60))
@given(fleets())
def test_no_place_exceeds_a_quota_and_every_one_that_fits_is_given_unless_reserved(
    state: Fleet,
) -> None:
    places = Counter(turns(state))
    after = [
        replace(
            sweep, trials=sweep.trials + places[sweep.id], gpus=sweep.gpus + places[sweep.id] * sweep.needs
        )
        for sweep in state.sweeps
    ]
    for limit, among in [(state.capacity, after)] + [
        (project.quota, [sweep for sweep in after if sweep.project == project.name])
        for project in state.projects.values()
    ]:
        before = {sweep.id for sweep in among}
        grew = any(places[name] for name in before)
        grew_gpus = any(places[sweep.id] and sweep.needs for sweep in among)
        trials, gpus = limit.remaining(
            sum(sweep.trials for sweep in among), sum(sweep.gpus for sweep in among)
        )
        assert not grew or trials >= 0
        assert not grew_gpus or gpus >= 0
    if all(sweep.waited < state.policy.reserve_after for sweep in state.sweeps):
        still = Fleet(
            state.capacity,
            state.projects,
            [
                replace(sweep, wants=old.wants - places[sweep.id])
                for sweep, old in zip(after, state.sweeps, strict=True)
            ],
        )
        assert next_sweep(still) is None
    for sweep in state.sweeps:
        assert has_turn(state, sweep.id) == (places[sweep.id] > 0)
        assert places[sweep.id] <= sweep.wants


def play(state: Fleet, steps: int, length: int = 3) -> Counter[str]:
    """How many places each holds over time, weighted by duration; trials end in the order they began."""
    by_id = {sweep.id: sweep for sweep in state.sweeps}
    held = Counter[str]()
    running = list[str]()
    waited = dict.fromkeys(by_id, 0.0)
    for _ in range(steps):
        for ended in running[:length]:
            running.remove(ended)
        now = [
            replace(
                sweep,
                trials=running.count(sweep.id),
                gpus=running.count(sweep.id) * sweep.needs,
                waited=waited[sweep.id],
            )
            for sweep in by_id.values()
        ]
        winners = list(islice(turns(replace(state, sweeps=now)), 100))
        running += winners
        waited = {name: 0.0 if name in winners else seconds + 60 for name, seconds in waited.items()}
        held.update(running)
    return held


@settings(max_examples=examples(10))
@given(st.lists(st.integers(1, 5), min_size=2, max_size=4))
def test_over_time_the_shares_are_as_the_weights(weights: list[int]) -> None:
    named = [Project(f"p{number}", weight) for number, weight in enumerate(weights)]
    asking = [Sweep(f"s{number}", f"p{number}", wants=100) for number in range(len(weights))]
    held = play(fleet(*asking, trials=60, projects=tuple(named)), 30, length=9)
    for number, weight in enumerate(weights):
        assert held[f"s{number}"] / held.total() == pytest.approx(weight / sum(weights), abs=0.04)


@settings(max_examples=examples(20))
@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 8)), min_size=2, max_size=8), st.integers(1, 9)
)
def test_nobody_starves_however_large_its_trials_are(requests: list[tuple[str, int]], weight: int) -> None:
    """Sweeps of one priority whose trials can run, beside one whose small trials never stop coming."""
    asking = [
        Sweep(f"s{number}", project, wants=100, needs=needs)
        for number, (project, needs) in enumerate(requests)
    ]
    held = play(fleet(*asking, trials=6, gpus=8, projects=(Project("a", weight),)), 60)
    assert {sweep.id for sweep in asking} == set(held)
