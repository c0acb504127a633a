"""W&B's configuration of a sweep as a spec: what has an equal is the same space, all else is named."""

import math
from typing import Any

import pytest

from halving.wandb.errors import UsageError
from halving.wandb.sweep_config import BANDS, FACTS, nested_params, study_spec

METRIC = {"name": "loss", "goal": "minimize"}


def config(**changes: Any) -> dict[str, Any]:
    fields = {"method": "random", "metric": METRIC, "parameters": {"lr": {"min": 0.0, "max": 1.0}}, **changes}
    return {name: value for name, value in fields.items() if value is not None}


def space_of(**parameter: Any) -> Any:
    return study_spec(config(parameters={"x": parameter}), "mnist")["space"]["x"]


@pytest.mark.parametrize(
    ("parameter", "expected"),
    [
        ({"value": 3}, {"constant": 3}),
        ({"values": ["adam", "sgd"]}, {"categorical": ["adam", "sgd"]}),
        ({"values": [7]}, {"constant": 7}),
        ({"values": [1, 2], "probabilities": [0.5, 0.5]}, {"categorical": [1, 2]}),
        ({"min": 1, "max": 8}, {"int": {"low": 1, "high": 8}}),
        ({"min": 1, "max": 8.0}, {"float": {"low": 1.0, "high": 8.0}}),
        ({"min": 0, "max": 1, "distribution": "uniform"}, {"float": {"low": 0.0, "high": 1.0}}),
        ({"min": 1, "max": 9, "distribution": "int_uniform"}, {"int": {"low": 1, "high": 9}}),
        (
            {"min": 1e-4, "max": 0.1, "distribution": "log_uniform_values"},
            {"float": {"low": 1e-4, "high": 0.1, "log": True}},
        ),
        (
            {"min": -2, "max": 0, "distribution": "log_uniform"},
            {"float": {"low": math.exp(-2), "high": 1.0, "log": True}},
        ),
        (
            {"min": 32, "max": 256, "q": 32, "distribution": "q_uniform"},
            {"int": {"low": 32, "high": 256, "step": 32}},
        ),
        (
            {"min": 0, "max": 0.5, "q": 0.1, "distribution": "q_uniform"},
            {"float": {"low": 0.0, "high": 0.5, "step": 0.1}},
        ),
    ],
)
def test_a_distribution_with_an_equal_is_the_same_space(parameter: Any, expected: Any) -> None:
    assert space_of(**parameter) == expected


@pytest.mark.parametrize(
    ("parameter", "message"),
    [
        ({"mu": 0, "sigma": 1, "distribution": "normal"}, "distribution normal has no equal here"),
        ({"mu": 0, "sigma": 1, "distribution": "log_normal"}, "distribution log_normal has no equal"),
        ({"distribution": "gamma"}, "distribution = 'gamma' is not accepted"),
        ({"values": [1, 2], "probabilities": [0.9, 0.1]}, "probabilities that differ have no equal"),
        ({"min": 1, "max": 1}, "min = 1 must be below max = 1"),
        ({"min": 0, "max": 1, "distribution": "log_uniform_values"}, "min = 0 must be above 0"),
        ({"min": 1, "max": 9, "q": 2, "distribution": "q_uniform"}, "min = 1 has no equal here"),
        ({"min": 0, "max": 1, "mu": 0.5}, "mu means nothing with distribution int_uniform"),
        ({"min": math.nan, "max": 1}, "min = nan is not accepted"),
        ({"values": []}, "values = [] is not accepted"),
    ],
)
def test_a_distribution_without_an_equal_is_named(parameter: Any, message: str) -> None:
    with pytest.raises(UsageError) as error:
        space_of(**parameter)
    assert f"parameters.x: {message}" in str(error.value)


def test_all_that_is_wrong_is_one_error() -> None:
    wrong = config(
        method="genetic",
        metric={"name": "loss", "goal": "smaller", "target": 0.1},
        parameters={"a": {"distribution": "beta"}, "b/c": {"value": 1}, "d": 3},
        early_terminate={"type": "envelope"},
        run_cap=0,
        controller={"type": "local"},
    )
    with pytest.raises(UsageError) as error:
        study_spec(wrong, "mnist")
    named = [line.split()[1] for line in str(error.value).splitlines()[1:-1]]
    assert named == [
        "controller",
        "method",
        "metric.goal",
        "metric.target",
        "parameters.a:",
        "parameters.b/c",
        "parameters.d",
        "early_terminate",
        "run_cap",
    ]


def test_nested_parameters_are_flat_in_the_spec_and_nested_for_the_function() -> None:
    nested = {
        "opt": {"parameters": {"name": {"value": "sgd"}, "more": {"parameters": {"eps": {"value": 1}}}}}
    }
    spec = study_spec(config(parameters={**nested, "depth": {"value": 2}}), "mnist")
    assert sorted(spec["space"]) == [FACTS, "depth", "opt/more/eps", "opt/name"]
    params = {name: parameter["constant"] for name, parameter in spec["space"].items()}
    assert nested_params(params) == {"opt": {"name": "sgd", "more": {"eps": 1}}, "depth": 2}


@pytest.mark.parametrize(
    ("method", "strategy"),
    [
        ("random", {"random": {"budget": 1}}),
        ("bayes", {"gp": {"budget": 1}}),
        ("grid", {"grid": {"budget": 1}}),
    ],
)
def test_each_method_has_its_sampler_and_trains_trials_to_the_end(method: str, strategy: Any) -> None:
    spec = study_spec(config(method=method, parameters={"lr": {"values": [1, 2]}}), "mnist")
    assert spec["strategy"] == strategy


@pytest.mark.parametrize(
    ("stopping", "bands"),
    [
        ({"type": "hyperband", "max_iter": 27, "s": 2}, [3, 9]),
        ({"type": "hyperband", "max_iter": 9, "s": 5, "eta": 3}, [1, 3]),
        ({"type": "hyperband", "min_iter": 3}, [3 * 3**power for power in range(BANDS)]),
        ({"type": "hyperband", "min_iter": 1, "eta": 1.5}, [1, 2, 3, 5, 7, 11, 17, 25, 38, 57, 86]),
    ],
)
def test_hyperband_compares_after_the_iterations_of_w_and_bs_bands(stopping: Any, bands: list[int]) -> None:
    spec = study_spec(config(early_terminate=stopping), "mnist")
    assert spec["space"][FACTS]["constant"]["bands"] == bands
    (rule,) = spec["strategy"].values()
    assert rule["max_budget"] == len(bands) + 1
    assert rule["quantile"] == 1 / stopping.get("eta", 3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": "grid"}, "parameters.lr has no grid"),
        ({"method": "bayes", "metric": None}, "metric is missing"),
        ({"early_terminate": {"type": "hyperband"}}, "needs min_iter, or max_iter with s"),
        ({"early_terminate": {"type": "hyperband", "max_iter": 9}}, "needs min_iter, or max_iter with s"),
        ({"early_terminate": {"type": "hyperband", "min_iter": 2, "eta": 1}}, "early_terminate.eta = 1"),
        ({"early_terminate": {"type": "hyperband", "min_iter": 2, "strict": True}}, "strict = true"),
        ({"early_terminate": {"type": "hyperband", "min_iter": 2}, "metric": None}, "needs a metric"),
        ({"parameters": {}}, "parameters = {} is not accepted"),
        (
            {"parameters": {"lr": {"distribution": "log_uniform", "min": 1e-4, "max": 1000}}},
            "parameters.lr: max = 1000 is an exponent of e with log_uniform",
        ),
        (
            {"parameters": {"lr": {"values": [1, 2], "probabilities": 0.5}}},
            "parameters.lr: probabilities = 0.5 is not accepted",
        ),
        ({"run_cap": True}, "run_cap = True is not accepted"),
        (
            {
                "method": "grid",
                "parameters": {"a": {"values": [1, 2, 3]}, "b": {"min": 1, "max": 4}},
                "run_cap": 5,
            },
            "run_cap = 5 has no equal here with a grid of 12 points",
        ),
    ],
)
def test_what_contradicts_itself_or_has_no_equal_is_refused(changes: Any, message: str) -> None:
    with pytest.raises(UsageError) as error:
        study_spec(config(**changes), "mnist")
    assert message in str(error.value)


def test_a_sweep_without_a_metric_orders_its_trials_by_their_time() -> None:
    spec = study_spec(config(metric=None), "mnist")
    assert spec["objective"] == {"metric": "_runtime", "direction": "minimize"}
