"""Whose turn it is: quotas hold, shares come to be as the weights, nobody starves, and two projects never
take a place in turn.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resources.tenancy import shares
from resources.tenancy.shares import (
    Fleet,
    Limits,
    Policy,
    Project,
    Sweep,
    has_turn,
    next_sweep,
    preempt,
    turns,
    why_not,
)
from tests.properties import examples
from tests.resources.tenancy import plain_shares

A = Project("a")
B = Project("b")


def fleet(
    *sweeps: Sweep,
    trials: int | None = None,
    gpus: int | None = None,
    projects: tuple[Project, ...] = (),
    **policy: Any,
) -> Fleet:
    return Fleet(
        Limits(trials, gpus), {project.name: project for project in projects}, sweeps, Policy(**policy)
    )


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


sweeps = st.builds(
    Sweep,
    id=st.just(""),
    project=st.sampled_from("abcd"),
    priority=st.integers(-2, 2),
    trials=st.integers(0, 6),
    wants=st.integers(0, 6),
    needs=st.integers(0, 4),
    waited=st.sampled_from([0.0, 31.0, 500.0]),
)
limits = st.builds(Limits, trials=st.none() | st.integers(0, 12), gpus=st.none() | st.integers(0, 16))
projects = st.lists(
    st.builds(Project, name=st.sampled_from("abc"), weight=st.floats(0.1, 10), quota=limits),
    unique_by=lambda project: project.name,
)


@st.composite
def fleets(draw: st.DrawFn) -> Fleet:
    drawn = [
        replace(
            sweep,
            id=f"s{number}",
            gpus=sweep.trials * sweep.needs,
            smallest=sweep.needs if sweep.trials else 0,
        )
        for number, sweep in enumerate(draw(st.lists(sweeps, max_size=8)))
    ]
    return Fleet(draw(limits), {project.name: project for project in draw(projects)}, drawn)


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
    """Who holds how many places over a while in which trials end in the order in which they began; time
    counts in their lengths.
    """
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
    """Of sweeps of one priority, as long as a trial can be run at all; beside those whose trials are small
    and never stop coming.
    """
    asking = [
        Sweep(f"s{number}", project, wants=100, needs=needs)
        for number, (project, needs) in enumerate(requests)
    ]
    held = play(fleet(*asking, trials=6, gpus=8, projects=(Project("a", weight),)), 60)
    assert {sweep.id for sweep in asking} == set(held)


def test_an_important_sweep_takes_places_of_its_project_and_of_larger_shares() -> None:
    low = Sweep("low", "a", trials=4)
    high = Sweep("high", "a", priority=1, wants=2, waited=30)
    assert preempt(fleet(low, high, trials=4), "high") == [("low", 1)]
    assert preempt(fleet(low, replace(high, waited=29), trials=4), "high") == []
    assert preempt(fleet(low, replace(high, priority=0), trials=4), "high") == []
    assert preempt(fleet(replace(low, project="b"), replace(high, priority=0), trials=4), "high") == [
        ("low", 1)
    ]
    assert preempt(fleet(replace(low, leaving=1), high, trials=4), "high") == []  # one is on its way already


def test_no_more_than_so_many_trials_are_asked_back_at_once_and_none_in_vain() -> None:
    low = Sweep("low", "a", trials=8, gpus=8, needs=1, smallest=1)
    high = Sweep("high", "a", priority=1, wants=2, needs=4, waited=30)
    assert preempt(fleet(low, high, gpus=8), "high") == [("low", 4)]
    assert preempt(fleet(low, high, gpus=8, at_once=3), "high") == []
    assert preempt(fleet(low, replace(high, needs=9), gpus=8), "high") == []
    by_rung = replace(low, trials=3, gpus=8)  # the newest of them have 1, the oldest has 6
    assert preempt(fleet(by_rung, replace(high, needs=2), gpus=8), "high") == [("low", 2)]
    assert preempt(fleet(by_rung, high, gpus=8), "high") == [], "all but the last would end in vain"
    other = Sweep("other", "b", trials=9)
    quota = Project("a", quota=Limits(gpus=8))
    # it waits for its own quota
    assert preempt(fleet(replace(low, priority=1), other, high, gpus=99, projects=(quota,)), "high") == []


def test_nobody_who_gives_none_of_what_is_short_is_asked_back_or_hides_who_does() -> None:
    cpu = Sweep("cpu", "a", priority=-1, trials=10)
    gpu = Sweep("gpu", "a", trials=1, gpus=4, smallest=4)
    high = Sweep("high", "a", priority=5, wants=1, needs=4, waited=30)
    for trials in (1, 2, 10):
        assert preempt(fleet(replace(cpu, trials=trials), gpu, high, trials=64, gpus=4), "high") == [
            ("gpu", 1)
        ]
    elsewhere = replace(cpu, project="b", trials=32), replace(gpu, project="b", trials=2, gpus=8)
    assert preempt(fleet(*elsewhere, high, trials=64, gpus=8), "high") == [("gpu", 1)]
    quota = Project("a", quota=Limits(gpus=4))
    assert preempt(fleet(cpu, gpu, high, projects=(quota,)), "high") == [("gpu", 1)]
    other = Sweep("other", "b", trials=9, gpus=9, smallest=1)
    assert (
        preempt(
            fleet(cpu, replace(gpu, priority=9), other, high, trials=99, gpus=99, projects=(quota,)), "high"
        )
        == []
    )


def test_who_gives_a_place_alone_is_left_alone_where_who_gives_gpus_gives_it_too() -> None:
    cpu = Sweep("cpu", "a", priority=-1, trials=10)
    gpu = Sweep("gpu", "a", trials=1, gpus=4, smallest=4)
    high = Sweep("high", "a", priority=5, wants=1, needs=4, waited=30)
    for at_once in (1, 4):
        assert preempt(fleet(cpu, gpu, high, trials=11, gpus=4, at_once=at_once), "high") == [("gpu", 1)]
    # of 11 places two were taken back
    assert preempt(fleet(cpu, gpu, high, trials=9, gpus=4), "high") == [("cpu", 2), ("gpu", 1)]
    assert preempt(fleet(cpu, gpu, high, trials=9, gpus=4, at_once=2), "high") == []
    few = replace(gpu, id="few", priority=-1, gpus=1, smallest=1)
    assert preempt(fleet(few, gpu, high, gpus=5), "high") == [("gpu", 1)]
    quota = Project("a", quota=Limits(trials=10))
    other = replace(gpu, id="other", project="b", trials=2, gpus=8)
    assert preempt(fleet(cpu, other, high, gpus=8, projects=(quota,)), "high") == [("cpu", 1), ("other", 1)]


@settings(max_examples=examples(60))
@given(fleets())
def test_two_projects_never_take_the_same_place_from_each_other_in_turn(state: Fleet) -> None:
    by_id = {sweep.id: sweep for sweep in state.sweeps}
    for sweep in state.sweeps:
        taken = preempt(state, sweep.id)
        assert sum(count for _, count in taken) <= state.policy.at_once
        for name, count in taken:
            victim = by_id[name]
            assert count <= victim.trials
            if victim.project == sweep.project:
                assert victim.priority < sweep.priority
                continue
            lost = replace(
                victim,
                trials=victim.trials - count,
                gpus=victim.gpus - count * victim.needs,
                wants=9,
                waited=500.0,
            )
            rest = [lost if each.id == name else replace(each, wants=0, waited=0.0) for each in state.sweeps]
            won = next(each for each in rest if each.id == sweep.id)
            rest = [
                replace(won, trials=won.trials + 1, gpus=won.gpus + sweep.needs)
                if each.id == sweep.id
                else each
                for each in rest
            ]
            assert sweep.id not in dict(preempt(replace(state, sweeps=rest), name))


@st.composite
def busy_fleets(draw: st.DrawFn) -> Fleet:
    """Some of whose trials were asked back already, and which have about as many places as are taken."""
    state = draw(fleets())
    busy = []
    for sweep in state.sweeps:
        leaving = draw(st.integers(0, sweep.trials))
        smallest = sweep.needs if leaving < sweep.trials else 0
        busy.append(
            replace(
                sweep,
                leaving=leaving,
                leaving_gpus=leaving * sweep.needs,
                smallest=smallest,
                needs=draw(st.integers(0, 4)),
            )
        )
    trials, gpus = (
        total + draw(st.integers(-3, 9))
        for total in (sum(other.trials for other in busy), sum(other.gpus for other in busy))
    )
    capacity = Limits(
        draw(st.sampled_from([None, max(0, trials)])), draw(st.sampled_from([None, max(0, gpus)]))
    )
    return Fleet(
        capacity,
        state.projects,
        busy,
        Policy(at_once=sum(other.leaving for other in busy) + draw(st.integers(0, 6))),
    )


@settings(max_examples=examples(200))
@given(busy_fleets())
def test_turns_and_preemptions_equal_those_of_the_plain_algorithm(
    state: Fleet,
) -> None:
    in_order = plain_shares.turns(state)
    assert list(turns(state)) == in_order
    for sweep in state.sweeps:
        assert has_turn(state, sweep.id) == (sweep.id in in_order)
        assert preempt(state, sweep.id) == plain_shares.preempt(state, sweep.id)


@st.composite
def crowded_fleets(draw: st.DrawFn) -> Fleet:
    """In which little is free, and the most important sweep, the first, has waited for long: some hold GPUs,
    some places alone.
    """
    asking = Sweep("s0", "a", priority=9, wants=1, needs=draw(st.integers(0, 4)), waited=500.0)
    held = st.tuples(
        st.sampled_from("ab"), st.integers(-1, 1), st.integers(1, 3), st.sampled_from([0, 0, 1, 2, 4])
    )
    others = [
        Sweep(f"s{number}", project, priority=priority, trials=trials, gpus=trials * each, smallest=each)
        for number, (project, priority, trials, each) in enumerate(
            draw(st.lists(held, min_size=1, max_size=6)), 1
        )
    ]
    trials = sum(sweep.trials for sweep in others)
    gpus = sum(sweep.gpus for sweep in others)
    capacity = Limits(max(1, trials + draw(st.integers(-1, 2))), max(4, gpus + draw(st.integers(-1, 3))))
    quota = Limits(draw(st.none() | st.integers(1, 6)), draw(st.none() | st.integers(4, 9)))
    weight = draw(st.sampled_from([1.0, 9.0]))
    return Fleet(
        capacity,
        {"a": Project("a", weight, quota)},
        [asking, *others],
        Policy(at_once=draw(st.integers(1, 5))),
    )


@settings(max_examples=examples(500))
@given(crowded_fleets())
def test_without_any_of_the_trials_that_are_asked_back_the_sweep_would_not_fit(state: Fleet) -> None:
    asking = state.sweeps[0]
    chosen = Counter(dict(preempt(state, asking.id)))
    assert chosen == Counter(dict(plain_shares.preempt(state, asking.id)))
    assert chosen.total() <= state.policy.at_once
    assert not chosen or _fits_without(state, asking, chosen)
    for name in chosen:
        assert not _fits_without(state, asking, chosen - Counter([name]))


def _fits_without(state: Fleet, sweep: Sweep, chosen: Counter[str]) -> bool:
    """Whether a sweep's trial fits once those that are chosen have ended."""
    quota = state.project(sweep.project).quota
    for limits, sweeps in (
        (state.capacity, state.sweeps),
        (quota, [other for other in state.sweeps if other.project == sweep.project]),
    ):
        trials = sum(other.trials - chosen[other.id] for other in sweeps)
        gpus = sum(other.gpus - chosen[other.id] * other.smallest for other in sweeps)
        free_trials, free_gpus = limits.remaining(trials, gpus)
        if free_trials < 1 or (sweep.needs and free_gpus < sweep.needs):
            return False
    return True


class Counted(list[Sweep]):
    """Sweeps that count how many of them are looked at."""

    looks = 0

    def __iter__(self) -> Iterator[Sweep]:
        for sweep in super().__iter__():
            self.looks += 1
            yield sweep


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often room was compared with what is needed, shares were worked out, and a heap was asked."""
    counts = Counter[str]()

    def count(name: str) -> Callable[..., Any]:
        original = getattr(shares, name)

        def count_calls(*arguments: Any) -> Any:
            counts[name] += 1
            return original(*arguments)

        return count_calls

    for name in ("_fits", "_share", "heappop", "heappush"):
        monkeypatch.setattr(shares, name, count(name))
    return counts


def thousand(projects: int, **fields: Any) -> Counted:
    return Counted(Sweep(f"s{number:04d}", f"p{number % projects:04d}", **fields) for number in range(1000))


def test_a_sweep_that_has_no_room_is_told_so_without_a_look_at_whose_turn_it_is(calls: Counter[str]) -> None:
    sweeps = thousand(50, trials=3, gpus=3, wants=9, needs=1)
    for full in (Fleet(Limits(3000, 9999), {}, sweeps), Fleet(Limits(9999, 3000), {}, sweeps)):
        sweeps.looks = 0
        calls.clear()
        assert not has_turn(full, "s0999")
        assert sweeps.looks <= 2 * 1000
        assert calls.total() <= 2
    quota = Project("p0049", quota=Limits(trials=60))
    assert not has_turn(Fleet(Limits(9999, 9999), {"p0049": quota}, sweeps), "s0999")
    assert calls.total() <= 4


def test_whose_turn_comes_is_known_as_soon_as_it_comes_or_nothing_is_left_for_it(calls: Counter[str]) -> None:
    sweeps = thousand(50, trials=3, wants=9)
    assert has_turn(Fleet(Limits(9999), {}, sweeps), "s0000")
    assert calls["heappop"] == 2, "the first project's first sweep"
    calls.clear()
    needs_much = replace(sweeps[-1], needs=10)
    sweeps[-1] = needs_much
    sweeps[:-1] = [replace(sweep, needs=1) for sweep in sweeps[:-1]]
    assert not has_turn(Fleet(Limits(9999, 10), {}, sweeps), "s0999")
    assert calls["heappop"] == 2, "one place is given, and nine GPUs are too few"
    calls.clear()
    first = Project("p0049", quota=Limits(trials=61))
    assert not has_turn(Fleet(Limits(9999, 9999), {"p0049": first}, sweeps), "s0999")
    assert calls["heappop"] == 2 * 50, "once the other sweep of its project has the last place of its quota"


@pytest.mark.parametrize("projects", [1, 50, 1000])
def test_who_gives_places_back_among_a_thousand_sweeps_takes_a_few_looks_at_each(
    projects: int, calls: Counter[str]
) -> None:
    sweeps = thousand(projects, trials=2, gpus=2, wants=9, needs=1, smallest=1)
    for needs in (1, 40, 64):
        calls.clear()
        asking = Sweep("asks", "new", wants=1, needs=needs, waited=31)
        state = Fleet(
            Limits(2000, 2000), {"new": Project("new", 1000)}, Counted([*sweeps, asking]), Policy(at_once=40)
        )
        assert sum(count for _, count in preempt(state, "asks")) == (needs if needs <= 40 else 0)
        assert state.sweeps.looks <= 6 * 1001  # type: ignore[attr-defined]
        victims = min(needs, 40) + 1
        assert calls["_share"] <= projects + 1 + victims
        assert calls["heappop"] <= 2 * victims


def test_of_a_thousand_sweeps_that_cannot_help_none_is_considered_for_preemption(
    calls: Counter[str],
) -> None:
    cpus = thousand(50, trials=2)
    gpu = Sweep("gpu", "b", trials=8, gpus=8, smallest=1)
    asking = Sweep("asks", "a", wants=1, needs=1, waited=31)
    assert preempt(Fleet(Limits(9999, 8), {}, Counted([*cpus, gpu, asking])), "asks") == [("gpu", 1)]
    assert calls["heappop"] == 2


def test_a_decision_among_a_thousand_sweeps_looks_at_each_of_them_a_few_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks = 0

    def count_calls(needs: int, room: Any) -> bool:
        nonlocal looks
        looks += 1
        return bool(room[0] >= 1 and (needs == 0 or room[1] >= needs))

    monkeypatch.setattr(shares, "_fits", count_calls)
    thousand = [
        Sweep(f"s{number:04d}", f"p{number % 50}", trials=number % 7, gpus=number % 7, wants=9, needs=1)
        for number in range(1000)
    ]
    busy = sum(sweep.trials for sweep in thousand)
    assert next_sweep(fleet(*thousand, trials=busy + 64, gpus=busy + 64)) is not None
    assert looks == 2  # whose turn it is fits
    looks = 0
    assert len(list(turns(fleet(*thousand, trials=busy + 64, gpus=busy + 64)))) == 64
    assert looks < 2 * (64 + 1000) + 1
