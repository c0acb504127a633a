"""Steps and summaries. Expected values are those that W&B 0.31 itself gave for the same calls, offline."""

import math
from types import ModuleType
from typing import Any

import pytest

from halving import Store
from tests.sdk.wandb.recorded import curves_of, recorded_run


def _own(run: Any) -> dict[str, Any]:
    """The summary without W&B's own values."""
    return {name: value for name, value in run.summary.items() if not name.startswith("_")}


# Each call, the step of the run after it, and what the summary has of the names that it is about.
_CALLS: list[tuple[dict[str, Any], dict[str, Any], int]] = [
    ({"a": 1}, {}, 1),
    ({}, {}, 2),
    ({"a": 2}, {"step": 5}, 5),
    ({"b": 3}, {}, 6),
    ({"a": 9}, {"step": 2}, 6),
    ({"c": 1}, {"commit": False}, 6),
    ({"c": 2, "d": {"x": 1, "y": "s"}}, {}, 7),
    ({"n": None, "s": "text", "nan": math.nan, "inf": math.inf}, {}, 8),
    ({"z": 1}, {"step": 20, "commit": True}, 21),
    ({"z": 2}, {"step": 20}, 21),
    ({"z": 2}, {"step": 30}, 30),
    ({"z": 3}, {"step": 30, "commit": False}, 30),
    ({"y": 3}, {"commit": True}, 31),
]


def test_steps_are_counted_as_wandb_counts_them(wandb: ModuleType, store: Store) -> None:
    run = wandb.init(project="p")
    for data, options, after in _CALLS:
        wandb.log(data, **options)
        assert run.step == after, (data, options)
    run.finish()
    curves = curves_of(store, run)
    assert math.isnan(curves.pop("nan")[0][1])
    assert curves == {
        "a": [(0, 1.0), (5, 2.0)],
        "b": [(5, 3.0)],
        "c": [(6, 2.0)],
        "d/x": [(6, 1.0)],
        "inf": [(7, math.inf)],
        "y": [(30, 3.0)],
        "z": [(20, 1.0), (30, 3.0)],
    }


def test_the_summary_has_the_last_values(wandb: ModuleType) -> None:
    run = wandb.init(project="p")
    for data, options, _ in _CALLS:
        wandb.log(data, **options)
    summary = _own(run)
    assert math.isnan(summary.pop("nan"))
    assert summary == {
        "a": 2,
        "b": 3,
        "c": 2,
        "d": {"x": 1, "y": "s"},
        "inf": math.inf,
        "s": "text",
        "y": 3,
        "z": 3,
    }
    assert run.summary["_step"] == 30


@pytest.mark.parametrize(
    ("data", "step", "message"),
    [
        ([1], None, "wandb.log must be passed a dictionary"),
        ("x", None, "wandb.log must be passed a dictionary"),
        ({1: 2}, None, "Key values passed to `wandb.log` must be strings."),
        ({"a": 1}, "x", "'str' object cannot be interpreted as an integer"),
        ({"a": 1}, 50.0, "'float' object cannot be interpreted as an integer"),
    ],
)
def test_wrong_calls_raise_what_wandb_raises(wandb: ModuleType, data: Any, step: Any, message: str) -> None:
    run = wandb.init(project="p")
    with pytest.raises(TypeError, match=message.replace("(", r"\(")):
        wandb.log(data, step=step)
    assert run.step == 0


def test_defined_metrics_have_their_aggregates_in_the_summary(wandb: ModuleType, store: Store) -> None:
    run = wandb.init(project="p")
    run.define_metric("acc", summary="max")
    run.define_metric("val/*", step_metric="epoch", summary="min,max,mean,last,first")
    run.define_metric("no", summary="none")
    run.define_metric("cp", summary="copy")
    wandb.log({"acc": 1, "val/l": 3, "epoch": 1, "no": 1, "cp": 2})
    wandb.log({"acc": 0.5, "val/l": 1})
    wandb.log({"acc": 0.7, "val/l": 2, "epoch": 7})
    assert _own(run) == {
        "acc": {"max": 1},
        "cp": 2,
        "epoch": 7,
        "val/l": {"last": 2, "first": 3, "max": 3, "min": 1, "mean": 2},
    }
    run.finish()
    info = recorded_run(store, run)
    assert info.summary["acc/max"] == 1.0
    assert info.summary["val/l/mean"] == 2.0
    assert info.defined_metrics["val/*"]["step_metric"] == "epoch"
    assert info.defined_metrics["acc"] == {"summary": ["max"]}


def test_nested_names_are_joined_by_dots_for_define_metric(wandb: ModuleType) -> None:
    run = wandb.init(project="p")
    run.define_metric("d.x", summary="max")
    run.define_metric("e/x", summary="max")
    for value in (5, 1):
        wandb.log({"d": {"x": value}, "e": {"x": value}})
    assert _own(run) == {"d": {"x": {"max": 5}}, "e": {"x": 1}}


def test_an_x_axis_is_logged_with_its_metrics(wandb: ModuleType, store: Store) -> None:
    run = wandb.init(project="p")
    run.define_metric("ep")
    run.define_metric("val/*", step_metric="ep")
    run.define_metric("*", step_metric="g")
    wandb.log({"e": {"x": 5}})
    wandb.log({"val/a": 1})
    wandb.log({"ep": 3})
    wandb.log({"val/a": 2})
    wandb.log({"g": 8}, commit=False)
    wandb.log({"q": 1})
    wandb.log({"q": 2})
    wandb.log({"val/a": 1, "ep": 4})
    run.finish()
    assert curves_of(store, run) == {
        "e/x": [(0, 5.0)],
        "ep": [(1, 0.0), (2, 3.0), (3, 3.0), (6, 4.0)],
        "g": [(0, 0.0), (4, 8.0), (5, 8.0)],
        "q": [(4, 1.0), (5, 2.0)],
        "val/a": [(1, 1.0), (3, 2.0), (6, 1.0)],
    }


def test_an_axis_is_added_on_the_fast_path_as_well(wandb: ModuleType, store: Store) -> None:
    run = wandb.init(project="p")
    for value in range(3):
        wandb.log({"loss": float(value)})
    run.define_metric("loss", step_metric="sample")
    wandb.log({"sample": 100.0})
    for value in range(3):
        wandb.log({"loss": float(value)})
    run.finish()
    assert curves_of(store, run)["sample"] == [(3, 100.0), (4, 100.0), (5, 100.0), (6, 100.0)]


def test_a_nan_makes_aggregates_nan(wandb: ModuleType) -> None:
    run = wandb.init(project="p")
    run.define_metric("m", summary="max,min,mean")
    for value in (math.nan, 2, math.inf, "s"):
        wandb.log({"m": value})
    assert all(math.isnan(value) for value in run.summary["m"]._as_dict().values())
    assert sorted(run.summary["m"].keys()) == ["max", "mean", "min"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": ""}, "define_metric() requires non-empty name argument"),
        ({"name": 3}, "Unhandled define_metric() arg: name type: int"),
        ({"name": "a*b"}, "Unhandled define_metric() arg: name (glob suffixes only): a*b"),
        ({"name": "a", "summary": "median"}, "Unhandled define_metric() arg: summary op: median"),
        ({"name": "a", "hidden": 1}, "Unhandled define_metric() arg: hidden type: int"),
    ],
)
def test_wrong_definitions_are_refused(wandb: ModuleType, arguments: dict[str, Any], message: str) -> None:
    run = wandb.init(project="p")
    with pytest.raises(wandb.Error) as caught:
        run.define_metric(**arguments)
    assert str(caught.value) == message


def test_assigned_summary_values_are_recorded(wandb: ModuleType, store: Store) -> None:
    run = wandb.init(project="p")
    wandb.log({"acc": 0.5})
    run.summary["best"] = 4
    run.summary.update({"u": {"v": 1}})
    run.summary["u"]["w"] = 5
    run.summary["acc"] = 99
    assert run.summary["u"]["v"] == 1
    assert run.summary.get("q") is None
    with pytest.raises(KeyError, match="nope"):
        run.summary["nope"]
    run.summary["gone"] = 1
    del run.summary["gone"]
    run.finish()
    assert recorded_run(store, run).summary == {"acc": 99.0, "best": 4.0, "u/v": 1.0, "u/w": 5.0}


def test_a_later_value_replaces_an_assigned_one(wandb: ModuleType) -> None:
    run = wandb.init(project="p")
    run.summary["acc"] = 99
    wandb.log({"acc": 2})
    assert run.summary["acc"] == 2
