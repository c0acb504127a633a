"""Configs as training scripts have them, as a run's params."""

import argparse
import enum
import functools
import json
import os
import subprocess
import sys
import types
import uuid
from collections import OrderedDict, UserDict, deque, namedtuple
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path, PurePosixPath
from typing import Any

import attrs
import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

import halving
from halving import InvalidInput, Store
from halving.records.config_params import convert_config
from tests.properties import examples


class Colour(enum.StrEnum):
    RED = "red"


class Size(enum.IntEnum):
    LARGE = 3


class Depth(enum.Enum):
    DEEP = (1, 2)
    ODD = object()


@dataclass
class Settings:
    width: int
    where: Path
    inner: "Settings | None" = None
    kind: Colour = Colour.RED
    extra: dict[Any, Any] = field(default_factory=dict)


@attrs.define
class Attributes:
    lr: float
    colour: Colour = Colour.RED


class Transformers:
    """Knows its values by a method, as the configurations of Transformers do."""

    def to_dict(self) -> dict[str, Any]:
        return {"hidden": 8, "dtype": torch.float16}


class Scheduler:
    """Prints with an address."""


class Silent:
    def __str__(self) -> str:
        raise RuntimeError("it has no text")


class Broken:
    def model_dump(self) -> dict[str, Any]:
        raise RuntimeError("it has no values")


Point = namedtuple("Point", "x y")
CIRCLE: list[Any] = [1]
CIRCLE.append(CIRCLE)
DEEP: list[Any] = []
for _ in range(40):
    DEEP = [DEEP]
HERE = "tests.sdk.records.test_config_params"

AS_VALUES: list[tuple[Any, Any]] = [
    (None, None),
    (True, True),
    (1.5, 1.5),
    (2**70, 2**70),
    (-(10**700), hex(-(10**700))),
    ("1e-3", "1e-3"),
    (Colour.RED, "red"),
    (Size.LARGE, 3),
    (Depth.DEEP, [1, 2]),
    (Depth.ODD, "ODD"),
    (np.float32(0.5), 0.5),
    (np.float64(0.1), 0.1),
    (np.int64(2**62), 2**62),
    (np.bool_(True), True),
    (np.str_("a"), "a"),
    (np.datetime64("2026-03-01"), "2026-03-01"),
    (np.datetime64("2026-03-01T10:00:00", "ns"), "2026-03-01T10:00:00.000000000"),
    (np.array([1.0, 2.5]), [1.0, 2.5]),
    (np.array([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
    (np.array([]), []),
    (np.array(["a", None], dtype=object), ["a", None]),
    (np.array(["2026-03-01"], dtype="datetime64[ns]"), ["2026-03-01T00:00:00.000000000"]),
    (pd.Series([1, 2]), [1, 2]),
    (torch.tensor(3), 3),
    (torch.tensor([1.0, 0.5], dtype=torch.bfloat16), [1.0, 0.5]),
    (torch.nn.Parameter(torch.ones(2)), [1.0, 1.0]),
    (torch.Size([3, 4]), [3, 4]),
    ({"a": (1, {2: Path("x")})}, {"a": [1, {"2": "x"}]}),
    ({3, 1, 2}, [1, 2, 3]),
    (frozenset({"b", "a"}), ["a", "b"]),
    ({1, "a", None}, ["a", 1, None]),
    (deque([1, 2]), [1, 2]),
    (range(3), [0, 1, 2]),
    (OrderedDict(b=1, a=2), {"b": 1, "a": 2}),
    (UserDict({"a": 1}), {"a": 1}),
    ({"a": 1}.keys(), ["a"]),
    (Point(1, (2,)), {"x": 1, "y": [2]}),
    (types.SimpleNamespace(a=types.SimpleNamespace(b=1)), {"a": {"b": 1}}),
    (argparse.Namespace(lr=0.1, resume=None), {"lr": 0.1, "resume": None}),
    (Attributes(0.1), {"lr": 0.1, "colour": "red"}),
    (
        Settings(2, Path("/data"), Settings(1, Path("b"))),
        {
            "width": 2,
            "where": "/data",
            "inner": {"width": 1, "where": "b", "inner": None, "kind": "red", "extra": {}},
            "kind": "red",
            "extra": {},
        },
    ),
    (OmegaConf.create({"a": {"b": [1, 2]}, "c": "${a.b}"}), {"a": {"b": [1, 2]}, "c": [1, 2]}),
    (OmegaConf.create({"a": "${nobody}", "b": "???", "c": 1}), {"a": "${nobody}", "b": "???", "c": 1}),
    (OmegaConf.create([1, {"a": 2}]), [1, {"a": 2}]),
    (dict(OmegaConf.create({"m": {"depth": 3}, "w": [1]})), {"m": {"depth": 3}, "w": [1]}),
    (Path("runs/a"), "runs/a"),
    (PurePosixPath("b"), "b"),
    (uuid.UUID(int=5), "00000000-0000-0000-0000-000000000005"),
    (date(2026, 3, 1), "2026-03-01"),
    (datetime(2026, 3, 1, 10, tzinfo=UTC), "2026-03-01T10:00:00+00:00"),
    (time(10, 30), "10:30:00"),
    (timedelta(hours=26), "1 day, 2:00:00"),
    (Decimal("5"), 5),
    (Decimal("0.1"), 0.1),
    (Decimal("0.1234567890123456789"), "0.1234567890123456789"),
    (Decimal("1e-400"), "1E-400"),
    (Decimal("1e900000"), "1E+900000"),
    (Decimal("Infinity"), float("inf")),
    (Fraction(1, 2), 0.5),
    (Fraction(1, 3), "1/3"),
    (b"\x00\xff", "00ff"),
    (bytearray(b"a"), "61"),
]

AS_TEXT: list[tuple[Any, str]] = [
    (torch.nn.ReLU, "torch.nn.modules.activation.ReLU"),
    (torch.nn.functional.relu, "torch.nn.functional.relu"),
    (len, "builtins.len"),
    (lambda: 1, f"{HERE}.<lambda>"),
    (functools.partial(len), "functools.partial(<built-in function len>)"),
    (torch.float16, "torch.float16"),
    (torch.device("cpu"), "cpu"),
    (Scheduler(), f"<{HERE}.Scheduler object>"),
    (1j, "1j"),
    (np.longdouble("1.5"), "1.5"),
    (np.complex64(1j), "1j"),
    (np.zeros((50, 50), dtype=np.float32), "array of float32, (50, 50)"),
    (torch.zeros(2000), "array of torch.float32, (2000,)"),
    (range(10**12), "range(0, 1000000000000)"),
    (Silent(), "Silent"),
    (Broken(), f"<{HERE}.Broken object>"),
]


@pytest.mark.parametrize(("value", "expected"), AS_VALUES)
def test_values_of_any_kind_become_plain_data(value: Any, expected: Any) -> None:
    params, texts = convert_config({"name": value})
    assert params == {"name": expected}
    assert type(params["name"]) is type(expected)
    assert texts == []
    assert json.loads(json.dumps(params, sort_keys=True)) == params


@pytest.mark.parametrize(("value", "expected"), AS_TEXT)
def test_what_has_no_value_of_its_own_is_text_and_named(value: Any, expected: str) -> None:
    assert convert_config({"outer": [{"name": value}], "x": 1}) == (
        {"outer": [{"name": expected}], "x": 1},
        ["outer.name"],
    )


def test_what_lies_in_itself_or_too_deep_ends_somewhere() -> None:
    own: dict[str, Any] = {"a": 1}
    own["own"] = own
    assert convert_config({"circle": CIRCLE, "own": own}) == (
        {"circle": [1, "list"], "own": {"a": 1, "own": "dict"}},
        ["circle", "own.own"],
    )
    assert convert_config({"deep": DEEP})[1] == ["deep"]
    shared = [1]
    assert convert_config({"a": shared, "b": shared}) == ({"a": [1], "b": [1]}, [])


def test_nan_is_kept() -> None:
    params, texts = convert_config({"x": float("nan"), "y": Decimal("nan"), "z": np.float32("nan")})
    assert [str(value) for value in params.values()] == ["nan"] * 3
    assert texts == []


def test_a_text_is_cut() -> None:
    class Long:
        def __str__(self) -> str:
            return "x" * 5000

    assert convert_config({"x": Long()})[0] == {"x": "x" * 1000}


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({1: "a", 2.5: "b", None: "c", False: "d"}, {"1": "a", "2.5": "b", "None": "c", "False": "d"}),
        ({1: "a", "1": "b", None: "c", False: "d"}, {"1 (int)": "a", "1": "b", "None": "c", "False": "d"}),
        ({"1": "b", 1: "a", Decimal("1.5"): 0, 1.5: 2}, {"1": "b", "1 (int)": "a", "1.5": 2}),
        ({"1": 0, 1: 1, "1 (int)": 2}, {"1": 0, "1 (int) (int)": 1, "1 (int)": 2}),
        ({(1, 2): "a", "[1, 2]": "b"}, {"[1, 2] (tuple)": "a", "[1, 2]": "b"}),
        ({Colour.RED: 1, Size.LARGE: 2}, {"red": 1, "3": 2}),
        ({date(2026, 3, 1): 1, Path("a/b"): 2}, {"2026-03-01": 1, "a/b": 2}),
        ({np.int64(3): 1, "3": 2}, {"3 (int64)": 1, "3": 2}),
        ({len: 1}, {"builtins.len": 1}),
        ({"": 1, "a.b": 2, "a/b": 3, "größe": 4}, {"": 1, "a.b": 2, "a/b": 3, "größe": 4}),
    ],
)
def test_names_become_texts_and_none_is_lost(config: dict[Any, Any], expected: dict[str, Any]) -> None:
    assert convert_config(config)[0] == expected
    assert convert_config({"inner": config})[0] == {"inner": expected}


class Script:
    """A config as a class."""

    lr = 0.1
    _hidden = 1

    def __init__(self) -> None:
        self.depth = 3

    @property
    def both(self) -> float:
        return self.lr * self.depth


class Functions(Script):
    """A config as a class that is given functions, beside its own methods and another class's."""

    activation = torch.nn.functional.relu
    fixed = staticmethod(torch.nn.functional.gelu)
    warmup = lambda step: step / 10  # noqa: E731
    half = functools.partial(pow, 2)
    lr = functools.cached_property(lambda self: 0.1)

    def method(self) -> None: ...

    alias = method

    @classmethod
    def made(cls) -> None: ...

    @staticmethod
    @functools.cache
    def cached() -> None: ...


def test_a_function_that_a_class_is_given_is_a_value_and_its_own_methods_are_none() -> None:
    expected = {
        "activation": "torch.nn.functional.relu",
        "fixed": torch.nn.functional.gelu.__module__ + "." + torch.nn.functional.gelu.__qualname__,
        "warmup": f"{HERE}.Functions.<lambda>",
        "half": "functools.partial(<built-in function pow>, 2)",
    }
    assert convert_config(Functions) == (expected, list(expected))
    assert convert_config(Functions())[0] == expected | {"depth": 3}


@dataclass
class Defaults:
    """Its class has values of all its fields."""

    lr: float = 0.1
    kind: Colour = Colour.RED


def test_a_class_whose_instances_have_the_values_is_refused_with_its_fields_names() -> None:
    import pydantic  # not by the module: the SDK's tests load nothing of the platform

    class Model(pydantic.BaseModel):
        lr: float = 0.1
        colour: Colour = Colour.RED

    classes = {Model: "lr, colour", Attributes: "lr", Settings: "width, where, extra", Point: "x, y"}
    for config, names in classes.items():
        with pytest.raises(
            InvalidInput,
            match=f"class .*{config.__name__} is not accepted: only its instances have values of {names}",
        ):
            convert_config(config)
    assert convert_config(Defaults)[0] == {"lr": 0.1, "kind": "red"}


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (None, {}),
        (Depth, {"DEEP": [1, 2], "ODD": "ODD"}),
        (Size, {"LARGE": 3}),
        ({}, {}),
        (argparse.Namespace(lr=0.1), {"lr": 0.1}),
        (OmegaConf.create({"a": {"b": 1}}), {"a": {"b": 1}}),
        (Attributes(0.2), {"lr": 0.2, "colour": "red"}),
        (Transformers(), {"hidden": 8, "dtype": "torch.float16"}),
        (Point(1, 2), {"x": 1, "y": 2}),
        (Script(), {"lr": 0.1, "depth": 3}),
        (Script, {"lr": 0.1}),
        (type("Own", (), {"model_fields": ["age"], "_fields": None}), {"model_fields": ["age"]}),
        (type("Own", (), {"model_fields": 3}), {"model_fields": 3}),
        (types.MappingProxyType({"a": 1}), {"a": 1}),
    ],
)
def test_a_config_is_anything_that_has_names_and_values(config: Any, expected: dict[str, Any]) -> None:
    assert convert_config(config)[0] == expected


@pytest.mark.parametrize(
    "config",
    [[1], "lr=0.1", 5, 0.5, True, {"a"}, (1, 2), b"x", Colour.RED, OmegaConf.create([1]), json, object()],
)
def test_what_has_no_names_is_refused(config: Any, store: Store) -> None:
    with pytest.raises(InvalidInput, match=r"config = .* is not accepted: give names and values"):
        halving.init("p", config, store.root, id="r")
    assert store.names("") == []


PLAIN_DATA = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=examples(200))
@given(st.dictionaries(st.text(), PLAIN_DATA, max_size=5))
def test_plain_data_comes_back_as_it_is(config: dict[str, Any]) -> None:
    assert convert_config(config) == (config, [])


def test_a_run_has_its_config_as_plain_data_with_one_warning_and_is_continued(store: Store) -> None:
    config = {
        "act": torch.nn.functional.relu,
        "f": lambda: 1,
        "until": date(2026, 3, 1),
        "b": {1: np.array([0.5])},
    }
    with (
        pytest.warns(
            UserWarning,
            match="kept as text in the run's params, since they have no value of their own: act, f$",
        ) as caught,
        halving.init("p", config, store.root, id="r", system_metrics=None) as run,
    ):
        test = test_a_run_has_its_config_as_plain_data_with_one_warning_and_is_continued.__name__
        name = f"{HERE}.{test}.<locals>.<lambda>"
        assert run.params == {
            "act": "torch.nn.functional.relu",
            "f": name,
            "until": "2026-03-01",
            "b": {"1": [0.5]},
        }
    assert sum("kept as text" in str(warning.message) for warning in caught) == 1
    again = {**config, "f": lambda: 1}
    with halving.init("p", again, store.root, id="r", system_metrics=None) as run:
        assert run.attempt == 2
    with halving.init("p", root=store.root, id="r", system_metrics=None) as run:
        assert (run.attempt, run.params["b"]) == (3, {"1": [0.5]})


@pytest.mark.slow
def test_every_process_makes_the_same_of_a_config() -> None:
    code = (
        f"import json; from {HERE} import AS_TEXT, AS_VALUES; from halving.records.config_params import "
        "convert_config\n"
        "print(json.dumps(convert_config({str(at): value for at, (value, _) in enumerate(AS_VALUES + "
        "AS_TEXT)})[0], sort_keys=True))"
    )
    said = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert said[0] == said[1]
    assert json.loads(said[0])


def test_a_model_of_pydantic_is_names_and_values_at_the_top_and_inside() -> None:
    import pydantic  # not by the module: the SDK's tests load nothing of the platform

    class Model(pydantic.BaseModel):
        lr: float = 0.1
        colour: Colour = Colour.RED
        paths: list[Path] = [Path("a")]

    expected = {"lr": 0.1, "colour": "red", "paths": ["a"]}
    assert convert_config(Model()) == (expected, [])
    assert convert_config({"model": Model()}) == ({"model": expected}, [])
