"""Decisions among a thousand sweeps look at each of them a few times."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

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
)
from tests.resources.tenancy.fleets import fleet


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
