"""What may be logged, and as what the store has it."""

import io
import json
import warnings
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import halving
from halving import Store
from tests.sdk.wandb.recorded import curves_of, recorded_run

# W&B 0.31 itself gave these.
PRECISION = [
    ["a", 0.667, 1.0],
    ["a", 1.0, 0.5],
    ["a", 1.0, 0.0],
    ["b", 0.667, 1.0],
    ["b", 1.0, 0.5],
    ["b", 1.0, 0.0],
]
RATES = [
    ["a", 0.0, 0.0],
    ["a", 0.0, 0.5],
    ["a", 0.5, 0.5],
    ["a", 0.5, 1.0],
    ["a", 1.0, 1.0],
    ["b", 0.0, 0.0],
    ["b", 0.0, 0.5],
    ["b", 0.5, 0.5],
    ["b", 0.5, 1.0],
    ["b", 1.0, 1.0],
]


def _media(store: Store, run: Any) -> list[dict[str, Any]]:
    folder = f"runs/project={run.project}/{run.id}/media"
    return sorted(
        (json.loads(store.read(f"{folder}/{name}")) for name in store.names(folder)),
        key=lambda row: str(row["key"]),
    )


def test_numbers_of_numpy_and_of_python_are_points(wandb: ModuleType, store: Store) -> None:
    run = wandb.init(project="p")
    run.log(
        {"f": np.float32(1.5), "i": np.int64(3), "b": True, "one": np.array([[7.0]]), "zero": np.array(2)}
    )
    run.finish()
    values = {key: points[0][1] for key, points in curves_of(store, run).items()}
    assert values == {"f": 1.5, "i": 3.0, "b": 1.0, "one": 7.0, "zero": 2.0}


def test_a_tensor_of_one_value_is_a_point_and_keeps_no_graph(wandb: ModuleType, store: Store) -> None:
    torch = pytest.importorskip("torch")
    run = wandb.init(project="p")
    weight = torch.ones(3, requires_grad=True)
    run.log({"loss": (weight * 2).sum(), "one": torch.tensor([4.0])})
    assert run._history.values["loss"].grad_fn is None
    assert run.summary["loss"] == 6.0
    run.finish()
    assert curves_of(store, run) == {"loss": [(0, 6.0)], "one": [(0, 4.0)]}


def test_texts_large_arrays_and_halvings_own_media_are_media(wandb: ModuleType, store: Store) -> None:
    run = wandb.init(project="p")
    table = halving.Table(columns=["a"], rows=[[1]])
    run.log({"text": "seen", "big": np.arange(1000), "table": table, "in": {"text": "t"}, "number": "NaN"})
    assert run.summary["text"] == "seen"
    assert run.summary["big"] == {"_type": "histogram"}
    run.finish()
    kinds = [(row["key"], row["kind"], row["step"]) for row in _media(store, run)]
    assert kinds == [
        ("big", "histogram", 0),
        ("in/text", "text", 0),
        ("table", "table", 0),
        ("text", "text", 0),
    ]
    assert list(curves_of(store, run)) == ["number"]


def test_what_has_no_form_is_left_out_counted_and_warned_about_once(wandb: ModuleType, store: Store) -> None:
    run = wandb.init(project="p")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            run.log({"loss": 1.0, "few": [1, 2, 3], "object": object()})
    assert len([warning for warning in caught if "'few'" in str(warning.message)]) == 1
    with pytest.warns(UserWarning, match="4 values of"):
        run.finish()
    (attempt,) = recorded_run(store, run).attempts
    assert attempt.rejected_values == 4
    assert curves_of(store, run) == {"loss": [(0, 1.0), (1, 1.0)]}


def test_charts_are_tables(wandb: ModuleType, store: Store) -> None:
    run = wandb.init(project="p")
    matrix = wandb.plot.confusion_matrix(y_true=[0, 1, 1], preds=[0, 1, 0], class_names=["cat", "dog"])
    lines = wandb.plot.line_series([1, 2], [[3, 4], [5, 6]], keys=["a", "b"], split_table=True)
    run.log({"matrix": matrix, "lines": lines, "loss": 1.0})
    run.finish()
    rows = _media(store, run)
    assert [row["key"] for row in rows] == ["Custom Chart Tables/lines_table", "matrix_table"]
    assert [row["rows"] for row in rows] == [4, 4]
    with pytest.raises(wandb.Error, match="instead got int"):
        wandb.plot.line(3, "x", "y")


def test_names_of_wandbs_own_values_are_not_recorded(wandb: ModuleType, store: Store) -> None:
    run = wandb.init(project="p")
    run.log({"_step": 7, "_timestamp": 1.0, "_runtime": 2.0, "a": 1})
    run.finish()
    assert curves_of(store, run) == {"a": [(0, 1.0)]}


def test_a_value_logged_again_at_a_step_counts(wandb: ModuleType, store: Store) -> None:
    run = wandb.init(project="p")
    run.log({"a": 1.0}, step=4)
    run.log({"a": 2.0}, step=4)
    run.log({"a": 3.0})
    run.log({"a": 4.0})
    run.finish()
    assert curves_of(store, run) == {"a": [(4, 3.0), (5, 4.0)]}


def _rows(chart: Any) -> list[list[Any]]:
    table = pq.read_table(io.BytesIO(chart.table.encode()))
    return [list(row.values()) for row in table.to_pylist()]


def test_charts_have_the_values_that_wandb_gives_them(wandb: ModuleType) -> None:
    pytest.importorskip("sklearn")
    truth = [0, 1, 1, 0]
    scores = np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4], [0.3, 0.7]])
    precision = wandb.plot.pr_curve(truth, scores, labels=["a", "b"], interp_size=3)
    assert _rows(precision) == PRECISION
    assert _rows(wandb.plot.roc_curve(truth, scores, labels=["a", "b"])) == RATES
    matrix = wandb.plot.confusion_matrix(y_true=[0, 1, 1], preds=[0, 1, 0], class_names=["cat", "dog"])
    assert _rows(matrix) == [["cat", "cat", 1], ["cat", "dog", 0], ["dog", "cat", 1], ["dog", "dog", 1]]
    lines = wandb.plot.line_series([1, 2], [[3, 4], [5, 6]], keys=["a", "b"])
    assert _rows(lines) == [[1, "a", 3], [2, "a", 4], [1, "b", 5], [2, "b", 6]]


def test_a_text_that_has_no_form_is_counted_and_training_goes_on(wandb: ModuleType, store: Store) -> None:
    run = wandb.init(project="p")
    with pytest.warns(UserWarning, match="half"):
        run.log({"half": "\ud800", "loss": 1.0})
    with pytest.warns(UserWarning, match="1 values of"):
        run.finish()
    assert curves_of(store, run) == {"loss": [(0, 1.0)]}
