"""Which sweeps give trials back for one that waits: enough, none in vain, and none in turn."""

from collections import Counter
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from resources.tenancy.shares import Fleet, Limits, Policy, Project, Sweep, has_turn, preempt, turns
from tests.properties import examples
from tests.resources.tenancy import plain_shares
from tests.resources.tenancy.fleets import fleet, fleets


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
            rest = {other.id: replace(other, wants=0, waited=0.0) for other in state.sweeps}
            rest[name] = lost
            won = rest[sweep.id]
            rest[won.id] = replace(won, trials=won.trials + 1, gpus=won.gpus + sweep.needs)
            assert sweep.id not in dict(preempt(replace(state, sweeps=list(rest.values())), name))


@st.composite
def busy_fleets(draw: st.DrawFn) -> Fleet:
    """Some of whose trials were asked back already, and which have about as many places as are taken."""
    state = draw(fleets())
    busy = []
    for sweep in state.sweeps:
        leaving = draw(st.integers(0, sweep.trials))
        smallest = 0
        if leaving < sweep.trials:
            smallest = sweep.needs
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
    """Fleets with little room, whose first sweep, the most important one, has waited for long."""
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
