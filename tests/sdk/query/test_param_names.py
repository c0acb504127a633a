"""The names of nested params."""

from typing import Any

import pytest

from halving.query.param_names import dot_params, flatten_params


@pytest.mark.parametrize(
    ("params", "dotted"),
    [
        ({}, {}),
        ({"lr": 0.1}, {"lr": 0.1}),
        ({"model": {"depth": 3, "widths": [64]}}, {"model.depth": 3, "model.widths": [64]}),
        ({"a": {"b": {"c": 1}}}, {"a.b.c": 1}),
        ({"a": {}}, {"a": {}}),
        ({"a": {"b": {}}}, {"a.b": {}}),
        ({"a.b": 1}, {"a.b": 1}),
        ({"a.b": 1, "a": {"c": 2}}, {"a.b": 1, "a.c": 2}),
        ({"a.b": 1, "a": {"b": 2}}, {"a.b": 1, "a": {"b": 2}}),
        ({"a": {"b": 2}, "a.b": 1}, {"a.b": 1, "a": {"b": 2}}),
        ({"a": {"b.c": 1}, "a.b": {"c": 2}}, {"a": {"b.c": 1}, "a.b": {"c": 2}}),
        ({"a": {"b": 1, "c": 2}, "a.b": {"c": 2}}, {"a": {"b": 1, "c": 2}, "a.b.c": 2}),
        ({"x": {"a": {"b": 1}, "a.b": 2}, "y": None}, {"x.a": {"b": 1}, "x.a.b": 2, "y": None}),
    ],
)
def test_no_param_is_lost_by_its_joined_name(params: dict[str, Any], dotted: dict[str, Any]) -> None:
    assert dot_params(params) == dotted
    assert flatten_params(_with_slashes(params)) == _with_slashes(dotted)


def _with_slashes(params: Any) -> Any:
    return (
        {name.replace(".", "/"): _with_slashes(value) for name, value in params.items()}
        if isinstance(params, dict)
        else params
    )


def test_a_name_with_slashes_says_what_a_param_lies_in() -> None:
    assert flatten_params({"a": {"b": {"c": 1}, "d": {}}, "e": [1]}) == {"a/b/c": 1, "a/d": {}, "e": [1]}
