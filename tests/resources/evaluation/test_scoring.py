"""Scores against values worked out by hand, and predictors that do not do what they should."""

import math
from collections.abc import Callable
from typing import Any

import pytest

from halving import Dataset, InvalidInput
from resources.backend import Backend
from resources.datasets.snapshots import take_snapshot
from resources.evaluation.scoring import PredictionFailed, Scores, evaluate_checkpoint, held_out, is_regression, score
from resources.sweep_spec.sweep import DatasetSource
from tests.checkpoints import packed


def test_classes_are_scored_as_by_hand() -> None:
    scores = score(["a", "a", "b", "b", "c"], ["a", "b", "b", "b", "a"], regression=False)
    assert scores.metrics["accuracy"] == pytest.approx(3 / 5)
    # F1: a 2*1/(2*1+1+1)=0.5, b 2*2/(2*2+1+0)=0.8, c 0
    assert scores.metrics["f1_macro"] == pytest.approx((0.5 + 0.8 + 0) / 3)
    assert scores.labels == ["a", "b", "c"]
    assert scores.confusion == [[1, 1, 0], [0, 2, 0], [1, 0, 0]]
    assert scores.per_class is not None
    assert scores.per_class[1] == {"label": "b", "precision": pytest.approx(2 / 3), "recall": 1.0, "f1": pytest.approx(0.8), "rows": 2}


def test_numbers_are_scored_as_by_hand() -> None:
    scores = score([1.0, 2.0, 3.0], [1.0, 2.0, 5.0], regression=True)
    assert scores.metrics == {"r2": pytest.approx(-1.0), "mae": pytest.approx(2 / 3), "rmse": pytest.approx(math.sqrt(4 / 3))}
    assert scores.confusion is None


def test_a_prediction_that_is_not_finite_makes_every_metric_nan() -> None:
    assert all(math.isnan(value) for value in score([1.0, 2.0], [1.0, math.nan], regression=True).metrics.values())


@pytest.fixture
def judged(backend: Backend) -> Callable[..., Scores]:
    def judge(predictor: str, **changes: Any) -> Scores:
        given = {"name": "points", "source": "tests.trainables:data", "target": "label", **changes}
        snapshot = take_snapshot(backend.store, backend.catalog, DatasetSource.model_validate(given))
        checkpoint = backend.store.put_blob(packed({"epochs_seen": [1]}))
        rows = held_out(Dataset(backend.store, snapshot.name, snapshot.digest))
        return evaluate_checkpoint(rows, predictor=f"tests.trainables:{predictor}", params={}, checkpoint=checkpoint)

    return judge


def test_a_predictor_restores_its_checkpoint_and_sees_the_test_rows_without_their_target(judged: Callable[..., Scores]) -> None:
    scores = judged("predict")
    assert scores.metrics["accuracy"] == 1.0
    assert sum(sum(row) for row in scores.confusion or []) == 20, "the rows of the test split"


def test_a_target_of_real_numbers_is_regression(judged: Callable[..., Scores]) -> None:
    scores = judged("predict_numbers", name="numbers", source="tests.trainables:numbers", target="y")
    assert scores.metrics["mae"] == pytest.approx(0.1)


def test_a_predictor_that_returns_too_few_rows_is_named(judged: Callable[..., Scores]) -> None:
    with pytest.raises(PredictionFailed, match=r"tests\.trainables:predict_too_few returned 1 predictions for 20 rows"):
        judged("predict_too_few")


def test_a_predictor_that_raises_is_named_with_its_error(judged: Callable[..., Scores]) -> None:
    with pytest.raises(PredictionFailed, match=r"tests\.trainables:train raised TypeError at scoring\.py:\d+: train\(\) takes 1"):
        judged("train")


@pytest.mark.parametrize(
    ("target", "metric", "expected"),
    [
        ("double", None, True),
        ("float", "rmse", True),
        ("int64", None, False),
        ("int64", "accuracy", False),
        ("int64", "mae", True),
        ("string", "f1_macro", False),
        ("double", "accuracy", "not accepted for a target of type double: give one of"),
        ("string", "rmse", "not accepted for a target of type string: give one of"),
    ],
)
def test_the_task_follows_from_the_target_and_the_gates_metric(target: str, metric: str | None, expected: bool | str) -> None:
    if isinstance(expected, bool):
        assert is_regression(target, metric) is expected
    else:
        with pytest.raises(InvalidInput, match=f"gates.metric = '{metric}' is {expected}"):
            is_regression(target, metric)


def test_predictions_of_another_kind_than_the_target_are_named(judged: Callable[..., Scores]) -> None:
    with pytest.raises(PredictionFailed, match=r"returned \['float'\] where the column 'label' holds \['str'\]"):
        judged("predict_numbers")
