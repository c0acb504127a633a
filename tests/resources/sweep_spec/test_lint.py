"""Settings that waste GPU time are reported before it is spent, with field, value, meaning and remedy."""

from collections.abc import Callable
from typing import Any

import pytest

from resources.sweep_spec import SweepSpec, load_spec
from resources.sweep_spec.lint import lint
from tests.backends import CHECKOUT

X = {"float": {"low": 0.0, "high": 1.0}}
FEW = {"max_trials": 1_000}


def asha(**changes: Any) -> dict[str, Any]:
    return {"strategy": {"asha": {"sampler": "random", "max_budget": 27, **changes}}, **FEW}


def training(**changes: Any) -> dict[str, Any]:
    return {"training": changes, **asha()}


def space(**parameters: Any) -> dict[str, Any]:
    return {"space": {"x": X, **parameters}, **asha()}


QUIET = [
    asha(),
    asha(min_budget=4, reduction_factor=3, max_budget=36),
    {**training(warmup_epochs=0.5)},
    {**training(warmup_epochs=3), **asha(min_budget=4, max_budget=108)},
    training(lr_schedule="cosine", schedule_epochs=27),
    training(lr_schedule="step", schedule_epochs=9),
    {**training(lr_schedule="cosine", schedule_epochs=27), "final": {"epochs": 54}},
    {**space(T_max={"constant": 27}), "final": {}},
    training(lr_schedule="constant"),
    space(t_max={"constant": 27}),
    space(warmup={"categorical": ["none", "short"]}),
    {"strategy": {"median": {"max_budget": 100, "min_budget": 5}}, "max_trials": 27},
    {"strategy": {"hyperband": {"max_budget": 27}}, "max_trials": 49},
    {"strategy": {"gp": {}}, "max_trials": 1_000},
    {"strategy": {"tpe": {}}, "max_trials": 11},
    {"strategy": {"asha": {"sampler": "tpe", "options": {"n_startup_trials": 26}}}, "max_trials": 27},
    {"strategy": {"grid": {"points": 3}}, "training": {"lr_schedule": "cosine"}},
    {**asha(), "resources": {"cpus": 0.5}},
    {**asha(), "resources": {"cpus": 2, "processes": 2}},
    {**asha(), "resources": {"nodes": 2}, "image": "train", "elastic": {"min_nodes": 1}},
    {**asha(), "resources": {"nodes": 2, "queue": "q"}, "image": "train"},
    {"strategy": {"random": {}}, "space": {"x": X, "t_max": {"int": {"low": 1, "high": 9}}}},
]

LOUD = [
    (
        {**asha(), "resources": {"nodes": 2, "queue": "q"}, "image": "train", "elastic": {"min_nodes": 1}},
        "elastic.min_nodes = 1: no effect with resources.queue = 'q'",
        "leave out one of the two",
    ),
    (
        {**asha(), "resources": {"gpus": {1: 1, 9: 8}}},
        "resources.cpus = 1: the 8 processes of a trial share",
        "give cpus = 8 or more",
    ),
    (
        training(warmup_epochs=1),
        "training.warmup_epochs = 1: the first rung, at 1 epochs",
        "give strategy.asha.min_budget above 1",
    ),
    (
        space(warmup_epochs={"int": {"low": 0, "high": 5}}),
        "space.warmup_epochs = 5: the first rung",
        "or a shorter warm-up",
    ),
    (
        space(lr_warmup_epochs={"categorical": [0, 4, 2]}),
        "space.lr_warmup_epochs = 4: the first rung",
        "low learning rate look best",
    ),
    (space(warmup={"constant": 2}), "space.warmup = 2: the first rung", "min_budget above 2"),
    (
        {"strategy": {"random": {"budget": 2}}, "training": {"warmup_epochs": 3}},
        "training.warmup_epochs = 3",
        "strategy.random.budget above 3",
    ),
    (
        training(lr_schedule="cosine", schedule_epochs=9),
        "training.schedule_epochs = 9: ",
        "before the last rung, at 27",
    ),
    (
        training(lr_schedule="linear", schedule_epochs=81),
        "training.schedule_epochs = 81: ",
        "no trial reaches the end of its schedule",
    ),
    (training(schedule_epochs=9), "training.schedule_epochs = 9: ", "anneal over run.max_epochs"),
    (space(t_max={"int": {"low": 9, "high": 27}}), "space.t_max is searched", "not comparable"),
    (space(T_max={"constant": 9}), "space.T_max = 9: ", "give 27"),
    (
        training(lr_schedule="cosine"),
        "training.lr_schedule = 'cosine' of unknown length",
        "anneal over run.max_epochs",
    ),
    (
        space(lr_schedule={"categorical": ["step", "linear"]}),
        "space.lr_schedule = 'linear' of unknown length",
        "schedule_epochs = 27",
    ),
    (asha(reduction_factor=2, max_budget=8), "strategy.asha.reduction_factor = 2: ", "3 to 5"),
    (asha(reduction_factor=6, max_budget=36), "strategy.asha.reduction_factor = 6: ", "3 to 5"),
    (asha(max_budget=3), "strategy.asha.min_budget = 1 with max_budget = 3: ", "the rungs 1, 3 are too few"),
    (asha(max_budget=243), "strategy.asha.min_budget = 1 with max_budget = 243: ", "with 6 rungs"),
    (
        {"strategy": {"asha": {"sampler": "random"}}, "max_trials": 26},
        "max_trials = 26: few for the rungs at",
        "max_trials = 27 or more",
    ),
    (
        {"strategy": {"bohb": {}}, "max_trials": 27},
        "max_trials = 27: few for the rungs of bracket 1",
        "give max_trials = 49 or more",
    ),
    (
        {"strategy": {"tpe": {}}, "max_trials": 10},
        "max_trials = 10: the first 10 trials of strategy.tpe",
        "give more than 10",
    ),
    (
        {"strategy": {"median": {"sampler": "gp"}}, "max_trials": 5},
        "max_trials = 5: the first 10 trials of strategy.median",
        "random",
    ),
    (
        {"strategy": {"median": {"options": {"n_startup_trials": 40}}}, "max_trials": 30},
        "max_trials = 30: the first 40 trials of strategy.median (tpe) are random",
        "give more than 40",
    ),
    ({"strategy": {"gp": {}}, "max_trials": 1_001}, "max_trials = 1001: a Gaussian process", "at most 1,000"),
    (
        {**space(T_max={"constant": 27}), "final": {"epochs": 54}},
        "final.epochs = 54: the learning rate, which falls over space.T_max = 27, has reached its end before",
        "anneal over run.max_epochs",
    ),
    (
        {"strategy": {"nsga2": {}}, "max_trials": 50},
        "strategy.nsga2.population_size = 50",
        "smaller population",
    ),
]


@pytest.mark.parametrize(("change", "begins", "says"), LOUD, ids=lambda value: str(value)[:60])
def test_a_wasteful_setting_is_told_with_its_field_its_value_and_what_to_do(
    small_spec: Callable[..., SweepSpec], change: dict[str, Any], begins: str, says: str
) -> None:
    (warning,) = lint(small_spec(**change))
    assert warning.startswith(begins)
    assert says in warning


@pytest.mark.parametrize("change", QUIET, ids=lambda value: str(value)[:60])
def test_settings_that_work_give_no_warning(
    small_spec: Callable[..., SweepSpec], change: dict[str, Any]
) -> None:
    assert lint(small_spec(**change)) == []


def test_the_sweeps_that_ship_give_no_warning() -> None:
    for file in sorted((CHECKOUT / "sweeps").glob("*.yaml")):
        assert lint(load_spec(file)) == []


def test_the_number_of_trials_that_is_advised_gives_no_further_warning(
    small_spec: Callable[..., SweepSpec],
) -> None:
    for strategy, enough in (("asha", 27), ("hyperband", 49), ("bohb", 49)):
        assert lint(small_spec(strategy={strategy: {}}, max_trials=enough)) == []
        assert len(lint(small_spec(strategy={strategy: {}}, max_trials=enough - 1))) == 1
