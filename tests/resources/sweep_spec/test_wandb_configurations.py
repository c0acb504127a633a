"""What ``halving.wandb.sweep`` makes of W&B's configurations are specs that are accepted as they are."""

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from halving.wandb.sweep_config import FACTS, nested_params, study_spec
from resources.datasets.no_data import NO_DATA
from resources.sweep_spec import parse_spec
from resources.sweep_spec.points import sample
from tests.properties import examples

METRIC = {"name": "val/loss", "goal": "maximize"}
NUMBER = st.floats(1e-6, 1e6, allow_nan=False).map(lambda number: float(f"{number:.6g}"))
ENDS = st.tuples(NUMBER, NUMBER).map(sorted).filter(lambda ends: ends[0] < ends[1])
WHOLE_ENDS = st.tuples(st.integers(-1000, 1000), st.integers(1, 1000)).map(lambda ends: (ends[0], sum(ends)))
VALUE = st.one_of(st.integers(-5, 5), st.text("abc", min_size=1, max_size=3), st.none(), st.booleans())

PARAMETERS = st.one_of(
    VALUE.map(lambda value: {"value": value}),
    st.lists(st.integers(0, 50), min_size=1, max_size=5, unique=True).map(lambda values: {"values": values}),
    WHOLE_ENDS.map(lambda ends: {"min": ends[0], "max": ends[1]}),
    ENDS.map(lambda ends: {"min": ends[0], "max": ends[1], "distribution": "uniform"}),
    ENDS.map(lambda ends: {"min": ends[0], "max": ends[1], "distribution": "log_uniform_values"}),
    st.tuples(st.integers(0, 9), st.integers(1, 9), st.integers(1, 64)).map(
        lambda numbers: {
            "min": numbers[0] * numbers[2],
            "max": (numbers[0] + numbers[1]) * numbers[2],
            "q": numbers[2],
            "distribution": "q_uniform",
        }
    ),
)
NAMES = st.text("abcdef_.-", min_size=1, max_size=8)
SPACES = st.dictionaries(
    NAMES,
    PARAMETERS
    | st.dictionaries(NAMES, PARAMETERS, min_size=1, max_size=3).map(lambda inner: {"parameters": inner}),
    min_size=1,
    max_size=5,
)


def checked(config: dict[str, Any]) -> Any:
    return parse_spec({**study_spec(config, "nets"), "dataset": NO_DATA}, trains=False)


@settings(max_examples=examples(100), deadline=None)
@given(SPACES)
def test_a_space_that_is_translated_is_accepted_and_its_points_are_within(parameters: dict[str, Any]) -> None:
    spec = checked({"method": "random", "metric": METRIC, "parameters": parameters})
    point = sample(spec.space, Random(7))
    nested = nested_params(point)
    assert FACTS not in nested
    assert nested.keys() == parameters.keys()
    for name, fields in parameters.items():
        inner = fields.get("parameters", {name: fields})
        values = nested
        if "parameters" in fields:
            values = nested[name]
        for key, bounds in inner.items():
            if "min" in bounds:
                assert bounds["min"] <= values[key] <= bounds["max"]
            else:
                assert values[key] in bounds.get("values", [bounds.get("value")])


@pytest.mark.parametrize(
    ("method", "stopping"),
    [
        ("grid", None),
        ("random", None),
        ("bayes", None),
        ("random", {"type": "hyperband", "min_iter": 3}),
        ("bayes", {"type": "hyperband", "max_iter": 27, "s": 2, "eta": 3}),
    ],
)
def test_every_method_and_early_termination_is_accepted(method: str, stopping: Any) -> None:
    parameters = {"depth": {"values": [1, 2, 3]}}
    config = {"method": method, "metric": METRIC, "parameters": parameters, "early_terminate": stopping}
    spec = checked(config)
    assert (spec.objective.metric, spec.objective.direction) == ("val/loss", "maximize")
    expected = {"grid": "grid", "random": "random", "bayes": "gp"}[method]
    if stopping:
        expected = "median"
    assert spec.strategy.name == expected
