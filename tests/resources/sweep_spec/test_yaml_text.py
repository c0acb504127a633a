"""YAML's values are those of YAML 1.2: a number in any notation is a number, and a word is a text."""

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from halving import InvalidInput, Store
from resources.analysis.costs.prices import load_prices
from resources.analysis.strategy_replay import read_strategy
from resources.execution.kubernetes.cluster_config import load_cluster
from resources.features.view import load_view
from resources.retention.policy_file import load_policy
from resources.sweep_spec import load_spec, parse_spec, stored_spec
from resources.sweep_spec.yaml_text import read_yaml
from tests.properties import examples

VALUES = [
    ("1e-3", 0.001),
    ("1E5", 100000.0),
    ("5e-4", 0.0005),
    ("1.5e3", 1500.0),
    (".5e3", 500.0),
    ("-.5", -0.5),
    ("+.5", 0.5),
    ("5.", 5.0),
    ("1e+2", 100.0),
    ("-1e-2", -0.01),
    ("1_000.5", 1000.5),
    ("1e400", math.inf),
    (".inf", math.inf),
    ("-.INF", -math.inf),
    ("9007199254740993", 9007199254740993),
    ("-9223372036854775809", -9223372036854775809),
    ("010", 10),
    ("+7", 7),
    ("0o17", 15),
    ("0x1F", 31),
    ("1_000", 1000),
    ("true", True),
    ("FALSE", False),
    ("~", None),
    ("", None),
    ("Null", None),
    ("no", "no"),
    ("off", "off"),
    ("yes", "yes"),
    ("y", "y"),
    ("1:30", "1:30"),
    ("2026-03-01", "2026-03-01"),
    ("2026-03-01 12:00:00", "2026-03-01 12:00:00"),
    ("1.2.3", "1.2.3"),
    ("1_", "1_"),
    ("1e", "1e"),
    ("e3", "e3"),
    (".", "."),
    ("-", [None]),
    ("nan", "nan"),
    ("=", "="),
    ("'1e-3'", "1e-3"),
    ('"010"', "010"),
    ("[1e-3, no, 010]", [0.001, "no", 10]),
    ("{on: off}", {"on": "off"}),
    ("{<<: {a: 1}, b: 1e1}", {"a": 1, "b": 10.0}),
]


@pytest.mark.parametrize(("text", "value"), VALUES)
def test_a_value_is_what_it_looks_like(text: str, value: Any) -> None:
    read = read_yaml(text)
    assert (type(read), read) == (type(value), value)


def test_nan_is_a_number() -> None:
    assert math.isnan(read_yaml(".nan"))


@pytest.mark.parametrize("text", ["9" * 5000, "!!int no", "!!float no", "{a: 1, a: 2}", "[1, 2", "a: b: c"])
def test_what_cannot_be_read_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(yaml.YAMLError, match="line 1"):
        read_yaml(text)


SPEC = """
name: linear
trainable: tests.trainables:train
dataset: {{name: points, source: tests.trainables:data, target: label}}
objective: {{metric: score, direction: maximize}}
space:
  lr: {{categorical: [{0}, none]}}
  decay: {{constant: {0}}}
  x: {{float: {{low: -1, high: 0.5, log: no}}}}
strategy: {{optuna: {{budget: 1, sampler: 'optuna.samplers:TPESampler', options: {{prior_weight: {1}}}}}}}
start_from: [{{lr: {0}}}]
max_trials: 4
"""


@settings(max_examples=examples(200))
@given(
    st.floats(allow_nan=False, allow_infinity=False), st.sampled_from(["{!r}", "{:e}", "{:.17E}", "{:.17g}"])
)
def test_a_number_is_the_same_wherever_it_stands_and_however_it_is_written(number: float, form: str) -> None:
    text = form.format(number)
    number = float(text)
    option = max(-10_000.0, min(10_000.0, number))
    read = read_yaml(SPEC.format(text, form.format(option)))
    spec = parse_spec(read)
    for value in (
        (spec.space["lr"].choices or [])[0],
        spec.space["decay"].constant,
        spec.start_from[0]["lr"],
    ):
        assert value == number
        assert isinstance(value, int | float)
    assert spec.sampler[1]["prior_weight"] == float(form.format(option))


@pytest.mark.parametrize(
    ("text", "message"), [("1e400", "lr.categorical.0 = inf"), (".nan", "lr.categorical.0 = nan")]
)
def test_a_number_that_is_none_is_refused_in_a_file(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "sweep.yaml").write_text(SPEC.format(text, "1"))
    with pytest.raises(InvalidInput, match=message):
        load_spec(tmp_path / "sweep.yaml")


@pytest.mark.parametrize("text", ["1e-400", "-1E-400", ".5e-330", "0.0001e-321", "1_0.0e-330"])
def test_a_number_that_would_be_rounded_to_zero_is_refused_in_a_file(text: str, tmp_path: Path) -> None:
    (tmp_path / "sweep.yaml").write_text(SPEC.format(text, "1"))
    with pytest.raises(InvalidInput, match=f"{text} is too small for a number and would be 0; give 0"):
        load_spec(tmp_path / "sweep.yaml")


@pytest.mark.parametrize("text", ["9007199254740993.0", "-9007199254740993.", "9_007_199_254_740_993.00"])
def test_a_whole_number_with_a_point_that_would_be_rounded_is_refused(text: str) -> None:
    with pytest.raises(yaml.YAMLError, match=f"{text} is no double; leave out the point"):
        read_yaml(text)
    assert read_yaml(text.partition(".")[0]) == int(text.partition(".")[0])
    assert read_yaml("9007199254740992.0") == 2**53


@pytest.mark.parametrize(
    ("text", "number"), [("0e-400", 0.0), ("-0.0", 0.0), ("0_0.0e5", 0.0), ("5e-324", 5e-324)]
)
def test_zero_and_the_smallest_number_are_numbers(text: str, number: float) -> None:
    assert read_yaml(text) == number


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ("{a: ", "}")])
def test_a_file_of_endless_lists_or_mappings_is_refused(opening: str, closing: str, tmp_path: Path) -> None:
    (tmp_path / "sweep.yaml").write_text(opening * 3000 + "1" + closing * 3000)
    with pytest.raises(
        InvalidInput, match=r"sweep.yaml' is not YAML: its lists and mappings are too deep in one another"
    ):
        load_spec(tmp_path / "sweep.yaml")


def test_a_file_in_another_encoding_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "sweep.yaml").write_bytes("name: größer".encode("latin-1"))
    with pytest.raises(InvalidInput, match=r"sweep.yaml' is not YAML: "):
        load_spec(tmp_path / "sweep.yaml")


@pytest.mark.parametrize(
    ("variable", "read"),
    [
        ("HALVING_PRICES", load_prices),
        ("HALVING_CLUSTER", load_cluster),
        ("HALVING_RETENTION", lambda: load_policy(Store())),
        (None, None),
    ],
)
def test_whoever_reads_yaml_refuses_a_key_that_is_there_twice(
    variable: str | None, read: Callable[[], Any] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "given.yaml"
    path.write_text("days: 1\ndays: 2\n")
    if variable is not None:
        monkeypatch.setenv(variable, str(path))
    with pytest.raises(InvalidInput, match="days is given twice; give it once"):
        (read or partial(load_view, path))()


def test_a_strategy_on_the_command_line_is_read_alike() -> None:
    assert read_strategy("tpe: {options: {prior_weight: 1e-1}}") == {
        "tpe": {"options": {"prior_weight": 0.1}}
    }


def test_a_stored_spec_with_a_text_like_a_number_can_still_be_read() -> None:
    data = read_yaml(SPEC.format("'1e-3'", "1"))
    with pytest.raises(InvalidInput, match=r"space.decay.constant = '1e-3' is not accepted"):
        parse_spec(data)
    assert stored_spec(data).space["decay"].constant == "1e-3"
