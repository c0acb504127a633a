"""Every strategy says how long trials train, who suggests them and how many rungs they reach."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resources.sweep_spec import SweepSpec
from resources.sweep_spec.strategy import Hyperband


@pytest.mark.parametrize(
    ("low", "high", "factor", "rungs"),
    [
        (1, 27, 3, (1, 3, 9, 27)),
        (1, 1, 3, (1,)),
        (2, 20, 3, (2, 6, 18, 20)),
        (1, 16, 4, (1, 4, 16)),
        (5, 6, 2, (5, 6)),
    ],
)
def test_rungs_rise_by_the_reduction_factor_and_end_at_the_maximum(
    small_spec: Callable[..., SweepSpec], low: int, high: int, factor: int, rungs: tuple[int, ...]
) -> None:
    strategy = {"asha": {"min_budget": low, "max_budget": high, "reduction_factor": factor}}
    assert small_spec(strategy=strategy).ladders == (rungs,)


def test_hyperbands_brackets_are_those_of_the_paper(small_spec: Callable[..., SweepSpec]) -> None:
    # Li et al., JMLR 2018, Algorithm 1 with R = 81 and η = 3.
    strategy = Hyperband(max_budget=81, reduction_factor=3)
    assert strategy.ladders == ((1, 3, 9, 27, 81), (3, 9, 27, 81), (9, 27, 81), (27, 81), (81,))
    assert strategy.weights == (81, 34, 15, 8, 5)
    assert small_spec(strategy={"bohb": {"max_budget": 81}}).ladders == strategy.ladders


@given(st.integers(1, 40), st.integers(0, 400), st.integers(2, 7))
def test_brackets_are_whole_epochs_that_rise_from_the_minimum_to_the_maximum(
    low: int, more: int, factor: int
) -> None:
    strategy = Hyperband(min_budget=low, max_budget=low + more, reduction_factor=factor)
    assert [len(ladder) for ladder in strategy.ladders] == list(range(len(strategy.ladders), 0, -1))
    assert len(strategy.weights) == len(strategy.ladders)
    for ladder in strategy.ladders:
        assert list(ladder) == sorted(set(ladder))
        assert low <= ladder[0]
        assert ladder[-1] == low + more
    assert strategy.ladders[0][0] < low * factor  # No longer ladder would fit.


@pytest.mark.parametrize(
    ("median", "checks"),
    [
        ({"max_budget": 4}, (1, 2, 3, 4)),
        ({"min_budget": 3, "max_budget": 10, "interval": 3}, (3, 6, 9, 10)),
        ({"min_budget": 4, "max_budget": 4}, (4,)),
    ],
)
def test_the_median_rule_checks_at_every_interval_from_its_minimum(
    small_spec: Callable[..., SweepSpec], median: dict[str, Any], checks: tuple[int, ...]
) -> None:
    assert small_spec(strategy={"median": median}).ladders == (checks,)


@pytest.mark.parametrize(
    ("strategy", "sampler", "audit"),
    [
        ({"random": {}}, ("random", {}), 0.0),
        ({"grid": {"points": 2}}, ("random", {}), 0.0),
        ({"tpe": {}}, ("tpe", {}), 0.0),
        ({"gp": {}}, ("gp", {}), 0.0),
        ({"nsga2": {}}, ("nsga2", {"population_size": 50}), 0.0),
        ({"optuna": {"sampler": "m:C", "options": {"a": 1}}}, ("m:C", {"a": 1}), 0.0),
        ({"asha": {"audit": 0.1}}, ("tpe", {}), 0.1),
        ({"asha": {"sampler": "m:C", "options": {"a": 1}}}, ("m:C", {"a": 1}), 0.0),
        ({"hyperband": {"audit": 1}}, ("random", {}), 1.0),
        ({"bohb": {}}, ("tpe", {}), 0.0),
        ({"median": {"sampler": "gp"}}, ("gp", {}), 0.0),
    ],
)
def test_every_strategy_names_its_sampler_and_its_audit(
    small_spec: Callable[..., SweepSpec],
    strategy: dict[str, Any],
    sampler: tuple[str, dict[str, Any]],
    audit: float,
) -> None:
    spec = small_spec(strategy=strategy)
    assert spec.sampler == sampler
    assert spec.audit == audit
    assert spec.budgets == spec.ladders[0]
    assert spec.budgets[-1] == 27


@pytest.mark.parametrize(("trials", "rungs"), [(27, 4), (26, 3), (9, 3), (3, 2), (1, 1)])
def test_few_trials_fill_few_rungs(small_spec: Callable[..., SweepSpec], trials: int, rungs: int) -> None:
    assert small_spec(max_trials=trials, strategy={"asha": {"max_budget": 27}}).reachable(0) == rungs


def test_every_bracket_is_reached_with_the_papers_number_of_trials(
    small_spec: Callable[..., SweepSpec],
) -> None:
    hyperband = {"hyperband": {"max_budget": 27}}
    enough = small_spec(max_trials=49, strategy=hyperband)
    assert [enough.reachable(number) for number in range(4)] == [4, 3, 2, 1]
    assert small_spec(max_trials=48, strategy=hyperband).reachable(0) == 3
    assert small_spec(max_trials=1, strategy={"median": {}}).reachable(0) == 27
