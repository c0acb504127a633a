"""Suggestions lie in the space, repeat for the same history, and see what is in flight."""

from collections.abc import Callable
from typing import Any

import pytest

from resources.search import Status, TrialState
from resources.search.suggest import Tried, max_trials, suggest
from resources.spec import SweepSpec

SPACE = {
    "lr": {"float": {"low": 1e-5, "high": 1e-1, "log": True}},
    "x": {"float": {"low": -2.0, "high": 2.0}},
    "n": {"int": {"low": 2, "high": 64, "log": True}},
    "kind": {"categorical": ["a", "b", 3, True]},
}
ASHA_TPE = {"asha": {"sampler": "tpe", "max_budget": 9}}


def told(spec: SweepSpec, count: int) -> list[Tried]:
    """A history of so many trials: complete, paused, failed and running ones in turn."""
    history: list[Tried] = []
    for number in range(count):
        params = suggest(spec, history)
        state = [
            TrialState(number, Status.COMPLETED, (0.1, 0.2, params["x"])),
            TrialState(number, Status.PAUSED, (params["x"],)),
            TrialState(number, Status.FAILED, (None,)),
            TrialState(number, Status.RUNNING),
        ][number % 4]
        history.append(Tried(params, state))
    return history


@pytest.mark.parametrize("strategy", [{"random": {}}, ASHA_TPE, {"asha": {"sampler": "random"}}])
def test_every_suggestion_lies_in_the_space_with_the_right_type(small_spec: Callable[..., SweepSpec], strategy: dict[str, Any]) -> None:
    spec = small_spec(space=SPACE, strategy=strategy)
    for tried in told(spec, 24):
        params = tried.params
        assert set(params) == set(SPACE)
        assert 1e-5 <= params["lr"] <= 1e-1
        assert -2 <= params["x"] <= 2
        assert type(params["n"]) is int
        assert 2 <= params["n"] <= 64
        assert params["kind"] in ["a", "b", 3, True]


@pytest.mark.parametrize("strategy", [{"random": {}}, ASHA_TPE])
def test_the_same_seed_and_history_suggest_the_same(small_spec: Callable[..., SweepSpec], strategy: dict[str, Any]) -> None:
    spec = small_spec(space=SPACE, strategy=strategy)
    assert told(spec, 20) == told(spec, 20)
    other = small_spec(space=SPACE, strategy=strategy, seed=1)
    assert [tried.params for tried in told(spec, 3)] != [tried.params for tried in told(other, 3)]


def test_trials_in_flight_change_what_is_suggested_next(small_spec: Callable[..., SweepSpec]) -> None:
    spec = small_spec(space=SPACE, strategy=ASHA_TPE)
    history = told(spec, 16)
    alone = suggest(spec, history)
    in_flight = [*history, Tried(alone, TrialState(16, Status.RUNNING))]
    beside = suggest(spec, in_flight)
    assert beside != alone


def test_tpe_learns_from_paused_trials(small_spec: Callable[..., SweepSpec]) -> None:
    spec = small_spec(space={"x": {"float": {"low": 0.0, "high": 1.0}}}, strategy=ASHA_TPE)
    history: list[Tried] = []
    for number in range(60):
        x = suggest(spec, history)["x"]
        history.append(Tried({"x": x}, TrialState(number, Status.PAUSED, (-abs(x - 0.7),))))
    late = [abs(tried.params["x"] - 0.7) for tried in history[-20:]]
    early = [abs(tried.params["x"] - 0.7) for tried in history[:20]]
    assert sum(late) < 0.5 * sum(early)


def test_a_grid_is_every_combination_once_and_ends_the_sweep_there(small_spec: Callable[..., SweepSpec]) -> None:
    spec = small_spec(space=SPACE, strategy={"grid": {"points": 3}}, max_trials=1000)
    points = [
        suggest(spec, [Tried({}, TrialState(number, Status.RUNNING)) for number in range(count)]) for count in range(max_trials(spec))
    ]
    assert len(points) == 3 * 3 * 3 * 4
    assert len({repr(point) for point in points}) == len(points)
    assert {point["x"] for point in points} == {-2.0, 0.0, 2.0}
    assert {point["n"] for point in points} == {2, 11, 64}
    assert sorted({point["lr"] for point in points})[0] == 1e-5
    assert all(1e-5 <= point["lr"] <= 1e-1 for point in points)
