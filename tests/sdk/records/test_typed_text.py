"""The params of MLflow's clients as what they were before they were texts."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from halving.records.typed_text import parse_text, typed_params
from tests.properties import examples


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("True", True),
        ("false", False),
        ("0", 0),
        ("-7", -7),
        ("9007199254740993", 9007199254740993),
        ("1" * 600, int("1" * 600)),
        ("0.5", 0.5),
        ("1e-05", 1e-05),
        ("1e-5", 1e-05),
        ("1E-4", 1e-04),
        ("0.10", 0.1),
        ("-.5", -0.5),
        ("-0.00E-330", -0.0),
        ("5.", 5.0),
        ("1.5e+3", 1500.0),
        ("-1e300", -1e300),
        ("inf", float("inf")),
        ("-Infinity", float("-inf")),
    ],
)
def test_a_text_that_is_a_number_or_a_flag_is_one(text: str, value: Any) -> None:
    assert parse_text(text) == value
    assert type(parse_text(text)) is type(value)


@pytest.mark.parametrize("text", ["nan", "NaN"])
def test_nan_is_a_number(text: str) -> None:
    assert str(parse_text(text)) == "nan"


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "auto",
            "007",
            "-01",
            "+5",
            " 5",
            "5 ",
            "5\n",
            "1_000",
            "1,5",
            "None",
            "TRUE",
            "yes",
            "1e400",
            "1e-400",
            "-0.01E-330",
            ".5e-330",
            "2" * 601,
            "e5",
            ".",
            "-",
            "-.",
        ),
        *("1e", "0x1F", "1.2.3", "2026-03-01", "١٢", "infinity", "1e-5x", "[1, 2]", "1j"),
    ],
)
def test_any_other_text_stays_one(text: str) -> None:
    assert parse_text(text) == text


@settings(max_examples=examples(300))
@given(st.booleans() | st.integers() | st.floats(allow_nan=False))
def test_what_python_writes_of_a_value_is_that_value(value: Any) -> None:
    assert parse_text(str(value)) == value
    assert type(parse_text(str(value))) is type(value)


@pytest.mark.parametrize(
    ("parent", "value"),
    [
        ({"tracked": {"tool": "mlflow"}}, 0.5),
        ({"imported": {"tool": "mlflow"}}, 0.5),
        ({"imported": {"tool": "wandb"}}, "0.5"),
        ({"sweep": "a", "trial": 1}, "0.5"),
        ({}, "0.5"),
    ],
)
def test_texts_of_mlflow_alone_are_taken_for_values(parent: dict[str, Any], value: Any) -> None:
    assert typed_params({"lr": "0.5", "layers": 3, "name": "adam", "nested": {"lr": "0.5"}}, parent) == {
        "lr": value,
        "layers": 3,
        "name": "adam",
        "nested": {"lr": "0.5"},
    }
