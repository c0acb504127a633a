"""Constraints are only comparisons, and no point is refused for parameters that it lacks."""

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from halving import InvalidInput
from resources.sweep_spec.constraints import Constraint, constraint, is_word, quote_name
from tests.properties import examples


@given(st.integers(-50, 50), st.floats(-9, 9), st.sampled_from(["adam", "sgd"]))
def test_a_constraint_means_what_python_means(n: int, x: float, kind: str) -> None:
    params = {"n": n, "x": x, "kind": kind}
    assert Constraint("n * x <= 20 and -3 < x < abs(n)").holds(params) is (n * x <= 20 and -3 < x < abs(n))
    assert Constraint("not (kind == 'sgd' and x >= 1) or n ** 2 > 100").holds(params) is (
        not (kind == "sgd" and x >= 1) or n**2 > 100
    )
    assert Constraint("max(n, x, 3) // 2 != min(n, 7) % 4").holds(params) is (
        max(n, x, 3) // 2 != min(n, 7) % 4
    )


@pytest.mark.parametrize(
    ("value", "holds"), [(math.e**2 + 1e-9, True), (1.0, False), (0.0, False), (-1.0, False)]
)
def test_a_point_where_the_expression_has_no_value_does_not_meet_it(value: float, holds: bool) -> None:
    assert Constraint("log(x) >= 2").holds({"x": value}) is holds
    assert Constraint("1 / x < 0").holds({"x": 0}) is False


def test_a_name_without_a_value_is_met() -> None:
    rule = constraint("momentum < lr")
    assert rule.names == {"momentum", "lr"}
    assert rule.holds({"lr": 0.1})
    assert not rule.holds({"lr": 0.1, "momentum": 0.9})


@pytest.mark.parametrize(
    ("expression", "params", "holds"),
    [
        ('params["optimizer.lr"] < 0.05', {"optimizer.lr": 0.01}, True),
        ("params['batch-size'] * 2 <= 8", {"batch-size": 5}, False),
        ('params["lambda"] < params["class"]', {"lambda": 1, "class": 2}, True),
        ('max(params["a b"], log) < 5', {"a b": 1, "log": 2}, True),
        ('log(params["log"]) < 1', {"log": 3}, False),
        ('params["3d"] == 3 and größe > 0', {"3d": 3, "größe": 1}, True),
        ('params["größe"] > 0', {"größe": 0}, False),
        ('params["None"] == 1', {"None": 1}, True),
        ('params["it\'s"] < params["µ"]', {"it's": 1, "µ": 2}, True),
        ('params["params"] > 0 and params < 2', {"params": 1}, True),
        ('params["lr"] + lr == 2', {"lr": 1}, True),
        ('-params["a-b"] < min(params["c/d"], 1) <= 1', {"a-b": 1, "c/d": 2}, True),
        (
            'not (params["optimizer.name"] == "sgd" and params["x y"] > 1)',
            {"optimizer.name": "sgd", "x y": 2},
            False,
        ),
        ('params["x/y"] < 1', {"x": 5, "y": 1}, True),  # The parameter is absent.
        ("batch-size < 1", {"batch": 3, "size": 1, "batch-size": 0}, False),  # Unquoted, it is a difference.
    ],
)
def test_a_name_in_quotes_may_be_any(expression: str, params: dict[str, Any], holds: bool) -> None:
    assert Constraint(expression).holds(params) is holds


@settings(max_examples=examples(200))
@given(st.text(min_size=1, max_size=20), st.integers(0, 2))
def test_whatever_its_characters_a_name_in_quotes_is_that_name(name: str, value: int) -> None:
    rule = Constraint(f"{quote_name(name)} < 1")
    assert rule.names == {name}
    assert rule.holds({name: value}) is (value < 1)
    assert Constraint(f"columns[{name!r}] < 1").names == {name}
    if is_word(name):
        assert Constraint(f"{name} < 1").names == {name}


def test_an_expression_is_parsed_once() -> None:
    assert constraint("a < b") is constraint("a < b")


@pytest.mark.parametrize(
    "expression",
    [
        "__import__('os').system('true') == 0",
        "x.__class__ == 1",
        "(lambda: x)() == 1",
        "[y for y in x] == 1",
        "x[0] == 1",
        "params[0] < 1",
        "params[x] < 1",
        "params[b'x'] < 1",
        "params['x', 'y'] < 1",
        "params['x':] < 1",
        "params['x']['y'] < 1",
        "params[params['x']] < 1",
        "params['x'].real < 1",
        "other['x'] < 1",
        "params['min'](x, 1) < 1",
        "params.x < 1",
        "x in (1, 2)",
        "x is 1",
        "f'{x}' == '1'",
        "(y := x) == 1",
        "min(*x) == 1",
        "log(x=1) == x",
        "open(x) == 1",
        "x if x else x",
        "x < 1 or x.real < 1",
        "x < 1 or exec(x) < 1",
        "x < 1 or x ^ 2 < 1",
        "x < 1; x < 2",
        "x = 1",
        "\0",
        "",
    ],
)
def test_whatever_is_no_comparison_is_refused_before_it_is_evaluated(expression: str) -> None:
    with pytest.raises(InvalidInput):
        Constraint(expression)


@pytest.mark.parametrize("expression", ["x ** x ** x ** x > 0", "'a' * x ** 20 > 'b'", "x < 'a'"])
def test_what_cannot_be_answered_is_an_error_with_the_point(expression: str) -> None:
    with pytest.raises(InvalidInput, match=r"no answer for x = 99"):
        Constraint(expression).holds({"x": 99})
