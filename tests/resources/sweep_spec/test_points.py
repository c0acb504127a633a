"""Points lie in the space, conditional parameters exist where they should, and grids are complete."""

import math
from collections.abc import Callable
from itertools import product
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from halving import InvalidInput
from resources.sweep_spec import SweepSpec, parse_spec
from resources.sweep_spec.points import (
    active,
    axis,
    feasible,
    grid_point,
    grid_size,
    order,
    problems_of,
    sample,
    satisfies,
)
from resources.sweep_spec.space import Parameter
from tests.backends import SMALL
from tests.properties import examples

TREE = {
    "nesterov": {"categorical": [True, False], "when": {"momentum": [0.5, 0.9]}},
    "momentum": {"categorical": [0.0, 0.5, 0.9], "when": {"optimizer": "sgd"}},
    "optimizer": {"categorical": ["adam", "sgd"]},
    "beta": {"float": {"low": 0.8, "high": 1.0, "step": 0.1}, "when": {"optimizer": "adam"}},
    "epochs": {"constant": 3},
}


def spec_of(space: dict[str, Any], **changes: Any) -> SweepSpec:
    return parse_spec(
        {**SMALL, "space": space, "max_trials": 2_000, "strategy": {"grid": {"points": 3}}, **changes}
    )


def grid_of(spec: SweepSpec) -> list[dict[str, Any]]:
    return [grid_point(spec, number) for number in range(grid_size(spec))]


@st.composite
def ranges(draw: st.DrawFn) -> dict[str, Any]:
    kind = draw(
        st.sampled_from(
            [
                "float",
                "log",
                "stepped",
                "int",
                "log int",
                "stepped int",
                "log stepped int",
                "categorical",
                "constant",
            ]
        )
    )
    low = draw(st.integers(1, 50))
    width = draw(st.integers(1, 6))
    match kind:
        case "float" | "log":
            return {"float": {"low": low / 7, "high": (low + width) / 7, "log": kind == "log"}}
        case "stepped":
            return {"float": {"low": low / 10, "high": round(low / 10 + width * 0.1, 1), "step": 0.1}}
        case "int" | "log int":
            return {"int": {"low": low, "high": low + width, "log": kind == "log int"}}
        case "stepped int" | "log stepped int":
            return {"int": {"low": low, "high": low + 3 * width, "step": 3, "log": kind == "log stepped int"}}
        case "categorical":
            return {
                "categorical": draw(
                    st.lists(st.sampled_from(["a", "b", True, 2, 3.5]), min_size=1, max_size=3, unique=True)
                )
            }
    return {"constant": low}


@st.composite
def spaces(draw: st.DrawFn) -> dict[str, Any]:
    """Up to five parameters, some of which depend on choices of earlier ones, in any order."""
    space: dict[str, Any] = {}
    for index in range(draw(st.integers(1, 5))):
        parameter = draw(ranges())
        parents = [name for name, other in space.items() if "categorical" in other]
        if parents and draw(st.booleans()):
            parent = draw(st.sampled_from(parents))
            choices = space[parent]["categorical"]
            parameter = {
                **parameter,
                "when": {parent: draw(st.lists(st.sampled_from(choices), min_size=1, unique=True))},
            }
        space[f"p{index}"] = parameter
    names = draw(st.permutations(list(space)))
    return {name: space[name] for name in names}


@settings(max_examples=examples(100))
@given(spaces(), st.integers(0, 10_000))
def test_a_sampled_point_is_a_point_of_the_space(space: dict[str, Any], seed: int) -> None:
    spec = spec_of(space, strategy={"random": {}})
    params = sample(spec.space, Random(seed))
    assert problems_of(spec, params) == []
    assert list(params) == [name for name in space if name in params]
    for name in space:
        assert (name in params) == active(spec.space, name, params)
        without = {other: value for other, value in params.items() if other != name}
        assert (problems_of(spec, without) != []) == (name in params)
    assert problems_of(spec, {**params, "p9": 1}) != []


def test_random_points_lie_evenly_in_the_range_or_in_its_logarithm() -> None:
    space: dict[str, Any] = {
        "whole": {"int": {"low": 1, "high": 3, "log": True}},
        "step": {"int": {"low": 0, "high": 4, "step": 2}},
        "real": {"float": {"low": 1e-4, "high": 1e-1, "log": True}},
        "choice": {"categorical": ["a", "b"]},
    }
    spec = spec_of(space, strategy={"random": {}})
    points = [sample(spec.space, Random(seed)) for seed in range(6_000)]

    def share(name: str, holds: Callable[[Any], bool]) -> float:
        return sum(holds(point[name]) for point in points) / len(points)

    for value in (1, 2, 3):  # As in Optuna, each has the values that are rounded to it.
        assert share("whole", lambda drawn, value=value: drawn == value) == pytest.approx(
            math.log((value + 0.5) / (value - 0.5)) / math.log(3.5 / 0.5), abs=0.03
        )
    for value in (0, 2, 4):
        assert share("step", lambda drawn, value=value: drawn == value) == pytest.approx(1 / 3, abs=0.03)
    for decade in (1e-3, 1e-2):
        assert share("real", lambda drawn, decade=decade: drawn < decade) == pytest.approx(
            math.log10(decade / 1e-4) / 3, abs=0.03
        )
    assert share("choice", lambda drawn: drawn == "a") == pytest.approx(1 / 2, abs=0.03)


@settings(max_examples=examples(100))
@given(spaces())
def test_parents_come_before_children_and_others_stay_in_order(space: dict[str, Any]) -> None:
    spec = spec_of(space, strategy={"random": {}})
    names = order(spec.space)
    assert sorted(names) == sorted(space)
    assert all(
        names.index(parent) < names.index(name)
        for name, parameter in spec.space.items()
        for parent in parameter.when
    )
    roots = [name for name in space if not spec.space[name].when]
    assert [name for name in names if name in roots] == roots


@settings(max_examples=examples(60))
@given(spaces(), st.booleans())
def test_a_grid_has_every_point_of_the_axes_once(space: dict[str, Any], constrained: bool) -> None:
    numbers = [name for name, parameter in space.items() if "int" in parameter]
    constraints = (
        [f"{numbers[0]} <= {space[numbers[0]]['int']['low'] + 1}"] if constrained and numbers else []
    )
    spec = spec_of(space, constraints=constraints, max_trials=90_000)
    grid = grid_of(spec)
    axes = {name: [(name, value) for value in axis(parameter, 3)] for name, parameter in spec.space.items()}
    # Each combination of all axes, less the parameters that do not exist there.
    expected = {
        tuple((name, value) for name, value in combination if name in _existing(spec, dict(combination)))
        for combination in product(*axes.values())
    }
    expected = {point for point in expected if satisfies(spec, dict(point))}
    assert {tuple(point.items()) for point in grid} == expected
    assert len(grid) == len(expected)
    assert all(problems_of(spec, point) == [] for point in grid)


def _existing(spec: SweepSpec, params: dict[str, Any]) -> set[str]:
    kept: dict[str, Any] = {}
    for name in order(spec.space):
        if active(spec.space, name, kept):
            kept[name] = params[name]
    return set(kept)


def test_a_tree_of_conditions_collapses_where_a_parent_does_not_exist() -> None:
    spec = spec_of(TREE)
    assert order(spec.space) == ("optimizer", "epochs", "momentum", "beta", "nesterov")
    assert grid_of(spec) == [
        {"optimizer": "adam", "beta": 0.8, "epochs": 3},
        {"optimizer": "adam", "beta": 0.9, "epochs": 3},
        {"optimizer": "adam", "beta": 1.0, "epochs": 3},
        {"momentum": 0.0, "optimizer": "sgd", "epochs": 3},
        {"nesterov": True, "momentum": 0.5, "optimizer": "sgd", "epochs": 3},
        {"nesterov": False, "momentum": 0.5, "optimizer": "sgd", "epochs": 3},
        {"nesterov": True, "momentum": 0.9, "optimizer": "sgd", "epochs": 3},
        {"nesterov": False, "momentum": 0.9, "optimizer": "sgd", "epochs": 3},
    ]
    with pytest.raises(IndexError):
        grid_point(spec, 8)


def test_the_last_parameter_of_a_grid_changes_fastest() -> None:
    spec = spec_of({"a": {"categorical": ["x", "y"]}, "b": {"int": {"low": 1, "high": 3}}})
    assert [tuple(point.values()) for point in grid_of(spec)] == [
        ("x", 1),
        ("x", 2),
        ("x", 3),
        ("y", 1),
        ("y", 2),
        ("y", 3),
    ]


@pytest.mark.parametrize(
    ("parameter", "values"),
    [
        ({"float": {"low": 0.0, "high": 0.3, "step": 0.1}}, [0.0, 0.1, 0.2, 0.3]),
        ({"float": {"low": 0.0, "high": 1.0}}, [0.0, 0.5, 1.0]),
        ({"float": {"low": 0.01, "high": 1.0, "log": True}}, [0.01, 0.1, 1.0]),
        ({"int": {"low": 1, "high": 4}}, [1, 3, 4]),
        ({"int": {"low": 1, "high": 3}}, [1, 2, 3]),
        ({"int": {"low": 16, "high": 48, "step": 16}}, [16, 32, 48]),
        ({"int": {"low": 1, "high": 4, "log": True}}, [1, 2, 4]),
        ({"categorical": [True, "a", 2]}, [True, "a", 2]),
        ({"constant": 7}, [7]),
    ],
)
def test_an_axis_has_every_step_or_as_many_values_as_points(
    parameter: dict[str, Any], values: list[Any]
) -> None:
    steps = axis(Parameter.model_validate(parameter), 3)
    assert steps == [
        pytest.approx(value) if parameter.get("float", {}).get("log") else value for value in values
    ]
    assert [type(value) for value in steps] == [type(value) for value in values]


@pytest.mark.parametrize(
    ("low", "high", "more", "points", "values"),
    [
        (16, 1024, {"log": True}, 4, [16, 64, 256, 1024]),
        (16, 1024, {}, 4, [16, 352, 688, 1024]),
        (16, 1024, {"log": True, "step": 16}, 4, [16, 64, 256, 1024]),
        (16, 1024, {"log": True, "step": 48}, 4, [16, 64, 256, 1024]),
        (10, 100, {"log": True, "step": 30}, 3, [10, 40, 100]),
        (1, 3, {}, 8, [1, 2, 3]),
        (1, 3, {"log": True}, 8, [1, 2, 3]),
        (0, 10, {}, 2, [0, 10]),
        (0, 10, {}, None, list(range(11))),
        (-5, 5, {}, 3, [-5, 0, 5]),
        (1, 9, {"log": True}, 8, [1, 2, 3, 4, 5, 7, 9]),
        (1, 9, {"step": 2}, 3, [1, 3, 5, 7, 9]),
        (0, 2**62, {}, 3, [0, 2**61, 2**62]),
        (1, 2**62, {}, 3, [1, 2**61 + 1, 2**62]),
        (3, 2**63 - 1, {"log": True}, 2, [3, 2**63 - 1]),
        (-(2**63), 2**63 - 1, {}, 2, [-(2**63), 2**63 - 1]),
    ],
)
def test_points_space_whole_numbers_as_they_do_others(
    low: int, high: int, more: dict[str, Any], points: int, values: list[int]
) -> None:
    steps = axis(Parameter.model_validate({"int": {"low": low, "high": high, **more}}), points)
    assert steps == values
    assert {type(value) for value in steps} == {int}


@settings(max_examples=examples(300))
@given(st.integers(1, 2**40), st.integers(1, 2**40), st.integers(1, 50), st.integers(2, 40), st.booleans())
def test_a_grid_over_whole_numbers_has_as_many_as_points_at_most(
    low: int, width: int, step: int, points: int, log: bool
) -> None:
    step = step if log else 1
    parameter = Parameter.model_validate(
        {"int": {"low": low, "high": low + width * step, "step": step, "log": log}}
    )
    values = axis(parameter, points)
    assert [values[0], values[-1]] == [low, low + width * step]
    assert values == sorted(set(values))
    assert len(values) <= min(points, width + 1)
    assert log or len(values) == min(points, width + 1)
    assert all((value - low) % step == 0 for value in values)


def test_more_whole_numbers_than_a_grid_may_have_are_refused_with_the_way_out() -> None:
    parameter = Parameter.model_validate({"int": {"low": 0, "high": 2**40}})
    with pytest.raises(
        InvalidInput,
        match=r"1,099,511,627,777 values .* too many for a grid; give it a step, or strategy\.grid\.points",
    ):
        axis(parameter, None)
    assert axis(parameter, 3) == [0, 2**39, 2**40]


def test_a_float_range_without_steps_or_points_has_no_axis() -> None:
    with pytest.raises(InvalidInput, match=r"give it a step, or strategy\.grid\.points"):
        axis(Parameter.model_validate({"float": {"low": 0, "high": 1}}), None)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        (
            {"optimizer": "adam", "epochs": 3},
            "beta is missing; give a number from 0.8 to 1.0 in steps of 0.1",
        ),
        ({"optimizer": "adam", "beta": 0.85, "epochs": 3}, "beta = 0.85"),
        ({"optimizer": "adam", "beta": True, "epochs": 3}, "beta = True"),
        ({"optimizer": "adam", "beta": 0.9, "epochs": 4}, "epochs = 4: give 3"),
        (
            {"optimizer": "adam", "beta": 0.9, "epochs": 3, "momentum": 0.5},
            "momentum = 0.5: it exists only when",
        ),
        ({"optimizer": "rms", "epochs": 3}, "optimizer = 'rms': give one of 'adam', 'sgd'"),
        (
            {"optimizer": "adam", "beta": 0.9, "epochs": 3, "epoch": 3},
            "epoch = 3: there is no such parameter, did you mean 'epochs'",
        ),
    ],
)
def test_what_keeps_params_from_being_a_point_is_named(params: dict[str, Any], message: str) -> None:
    (problem,) = problems_of(spec_of(TREE), params)
    assert problem.startswith(message)


def test_starting_points_may_leave_parameters_out_but_not_parents() -> None:
    spec = spec_of({**TREE, "width": {"int": {"low": 1, "high": 9}, "when": {"epochs": 3}}})
    assert problems_of(spec, {}, partial=True) == []
    assert problems_of(spec, {"width": 4}, partial=True) == []  # Its parent is a constant.
    assert problems_of(spec, {"optimizer": "sgd", "momentum": 0.5}, partial=True) == []
    assert problems_of(spec, {"momentum": 0.5}, partial=True) != []


def test_constraints_are_feasible_where_one_point_is(small_spec: Callable[..., SweepSpec]) -> None:
    square = {"x": {"float": {"low": 0, "high": 1}}, "y": {"float": {"low": 0, "high": 1}}}
    spec = small_spec(space=square, constraints=["x + y < 0.5"])
    assert satisfies(spec, {"x": 0.2, "y": 0.2})
    assert not satisfies(spec, {"x": 0.2, "y": 0.4})
    assert feasible(spec, {"x": 0.4})
    assert not feasible(spec, {"x": 0.6})
