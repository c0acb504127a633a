"""Scores against values worked out by hand, and predictors that do not do what they should."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from halving import Dataset, InvalidInput
from resources.backend import Backend
from resources.datasets.snapshots import take_snapshot
from resources.evaluation.columns import encode
from resources.evaluation.held_out import HeldOut, held_out
from resources.evaluation.measures import measure
from resources.evaluation.predicted import Predicted
from resources.evaluation.predictions import Predictions, sorted_classes
from resources.evaluation.predictor_messages import Answer
from resources.evaluation.resampling import interval_of, wilson
from resources.evaluation.scoring import Judged, PredictionFailed, judge_checkpoint, score
from resources.sweep_spec import SweepSpec
from resources.sweep_spec.evaluation import judged_as_number
from tests.checkpoints import pack_state

Judge = Callable[..., Judged]


def classes(truth: str, predicted: str) -> Predictions:
    return Predictions(
        np.array(list(truth), object),
        np.array(list(predicted), object),
        classes=sorted_classes(truth, predicted),
    )


def test_classes_are_scored_as_by_hand() -> None:
    scores = score(classes("aabbc", "abbba"), ["accuracy", "f1_macro"])
    assert scores.metrics["accuracy"] == pytest.approx(3 / 5)
    # F1: a 2*1/(2*1+1+1)=0.5, b 2*2/(2*2+1+0)=0.8, c 0
    assert scores.metrics["f1_macro"] == pytest.approx((0.5 + 0.8 + 0) / 3)
    assert scores.labels == ["a", "b", "c"]
    assert scores.confusion == [[1, 1, 0], [0, 2, 0], [1, 0, 0]]
    assert scores.per_class is not None
    assert scores.per_class[1] == {
        "label": "b",
        "precision": pytest.approx(2 / 3),
        "recall": 1.0,
        "f1": pytest.approx(0.8),
        "rows": 2,
    }
    assert scores.main_metric == "accuracy"


def test_numbers_are_scored_as_by_hand() -> None:
    scores = score(Predictions(np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.0, 5.0])), ["r2", "mae", "rmse"])
    assert scores.metrics == {
        "r2": pytest.approx(-1.0),
        "mae": pytest.approx(2 / 3),
        "rmse": pytest.approx(math.sqrt(4 / 3)),
    }
    assert (scores.confusion, scores.main_metric) == (None, "rmse")
    assert scores.higher_is_better == {"r2": True, "mae": False, "rmse": False}


def test_every_metric_has_an_interval_that_says_how_few_rows_there_are() -> None:
    few, many = (
        score(classes("ab" * rows, "ab" * rows), ["accuracy"]).intervals["accuracy"] for rows in (5, 500)
    )
    assert few["low"] < 0.75 < 0.99 < many["low"]
    assert few["high"] == many["high"] == 1.0


@pytest.mark.parametrize(
    "metric", ["roc_auc_ovo", "top_k_accuracy", "average_precision", "d2_log_loss_score"]
)
def test_a_metric_without_a_value_on_the_split_is_nan_with_its_reason(metric: str) -> None:
    truth = np.array(["a", "b"] * 20, object)
    labels = ("a", "b", "c")  # no row is of the third
    probabilities = np.random.default_rng(0).dirichlet(np.ones(3), 40)
    predicted = np.array(labels, object)[probabilities.argmax(axis=1)]
    scores = score(Predictions(truth, predicted, probabilities, classes=labels), [metric, "accuracy"])
    assert math.isfinite(scores.metrics["accuracy"])
    assert math.isfinite(scores.metrics[metric]) != bool(scores.without_value.get(metric))


@pytest.mark.parametrize(
    ("predictions", "metric", "said"),
    [
        (
            Predictions(
                np.array(["a"] * 9, object),
                np.array(["a"] * 9, object),
                np.full((9, 2), 0.5),
                classes=("a", "b"),
            ),
            "roc_auc",
            "no row of the split is of the class 'b'",
        ),
        (
            Predictions(np.ones(9, int), np.ones(9, int), classes=(1,)),
            "f1",
            "all rows and predictions are of one class, 1",
        ),
        (
            Predictions(np.ones(9), np.r_[math.nan, np.ones(8)]),
            "rmse",
            "the predictor returned numbers that are not finite",
        ),
    ],
)
def test_every_metric_without_a_value_has_its_reason(
    predictions: Predictions, metric: str, said: str
) -> None:
    scores = score(predictions, [metric])
    assert math.isnan(scores.metrics[metric])
    assert scores.without_value == {metric: said}


def test_perfect_predictions_have_wilsons_interval_or_none_but_none_without_a_width() -> None:
    intervals = score(classes("ab" * 10, "ab" * 10), ["accuracy", "f1_macro", "balanced_accuracy"]).intervals
    assert intervals["accuracy"]["low"] < 0.9
    assert all(
        math.isnan(intervals[metric][end])
        for metric in ("f1_macro", "balanced_accuracy")
        for end in ("low", "high")
    )
    hits = interval_of(measure(Predictions(None, None, scores={"hit": np.ones(20)}), "hit"))
    assert (hits.low, hits.high) == (pytest.approx(0.8389, abs=5e-5), 1.0)


def test_probabilities_of_half_precision_are_scored_by_every_scorer() -> None:
    rng = np.random.default_rng(0)
    probabilities = np.asarray(rng.dirichlet(np.ones(3), 60), np.float16).astype(np.float64)
    truth = [["a", "b", "c"][number] for number in rng.integers(3, size=60)]
    predicted = Predicted(HeldOut(None, 60, False, [], encode(truth)), "m:f")  # type: ignore[arg-type]
    predicted.add(Answer(None, probabilities, ("a", "b", "c")))
    scores = score(predicted.predictions(), ["roc_auc_ovo", "neg_log_loss", "roc_auc_ovr"])
    assert all(map(math.isfinite, scores.metrics.values()))


@pytest.fixture
def judge(backend: Backend, small_spec: Callable[..., SweepSpec]) -> Judge:
    def judge(
        predictor: str,
        *,
        module: str = "tests.predictors",
        dataset: dict[str, Any] | None = None,
        **changes: Any,
    ) -> Judged:
        source = {"name": "points", "source": "tests.trainables:data", "target": "label", **(dataset or {})}
        spec = small_spec(predictor=f"{module}:{predictor}", dataset=source, **changes)
        snapshot = take_snapshot(backend.store, backend.catalog, spec.dataset)
        checkpoint = backend.store.put_blob(pack_state({"epochs_seen": [1]}))
        with held_out(Dataset(backend.store, snapshot.name, snapshot.digest), spec) as rows:
            return judge_checkpoint(rows, spec, params={}, checkpoint=checkpoint)

    return judge


NUMBERS = {"name": "numbers", "source": "tests.trainables:numbers", "target": "y"}


@pytest.mark.slow
def test_a_predictor_restores_its_checkpoint_and_sees_test_rows_without_target(
    judge: Judge,
) -> None:
    scores = judge("predict").scores
    assert scores.metrics["accuracy"] == 1.0
    assert sum(sum(row) for row in scores.confusion or []) == 20, "the rows of the test split"


@pytest.mark.slow
def test_rows_of_a_group_are_one_cluster_in_stored_predictions_and_in_intervals(
    judge: Judge,
) -> None:
    customers = {"source": "tests.trainables:customers", "name": "customers"}
    alone = judge("predict", dataset=customers)
    grouped = judge("predict", dataset={**customers, "group": "customer"})
    assert alone.predictions.clusters is None
    clusters = grouped.predictions.clusters
    assert clusters is not None
    assert np.bincount(clusters).tolist() == [3] * (grouped.predictions.rows // 3)
    assert grouped.scores.metrics == {"accuracy": 1.0, "f1_macro": 1.0}
    assert grouped.scores.intervals["accuracy"]["low"] == wilson(1.0, len(clusters) // 3)[0]


@pytest.mark.slow
def test_a_target_of_real_numbers_is_regression(judge: Judge) -> None:
    assert judge("predict_numbers", dataset=NUMBERS).scores.metrics["mae"] == pytest.approx(0.1)


@pytest.mark.slow
@pytest.mark.parametrize("predictor", ["probabilities", "named_probabilities", "tensor_like_probabilities"])
def test_probabilities_are_scored_in_whichever_form_they_come(judge: Judge, predictor: str) -> None:
    judgement = judge(predictor, metrics=["roc_auc", "neg_log_loss", "accuracy"])
    assert judgement.scores.metrics == {
        "roc_auc": 1.0,
        "neg_log_loss": pytest.approx(math.log(0.8)),
        "accuracy": 1.0,
    }
    assert judgement.predictions.classes == ("high", "low")
    assert judgement.predictions.probabilities is not None
    assert judgement.predictions.probabilities.shape == (20, 2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("predictor", "changes", "said"),
    [
        ("too_few", {}, r"tests\.predictors:too_few returned 1 predictions for 20 rows; return one a row"),
        ("too_few_probabilities", {}, r"too_few_probabilities returned 2 predictions for 20 rows"),
        ("raising", {}, r"tests\.predictors:raising raised KeyError at predictors\.py:\d+: 'no such pixel'"),
        ("predict_numbers", {}, r"returned \['float'\] where the column 'label' holds \['str'\]"),
        ("three_classes", {}, "probabilities of 3 classes are not accepted: the target has 2, sorted"),
        ("logits", {}, "the probabilities of row 0 sum to 3, smallest -1; they must sum to 1"),
        ("exiting", {}, r"exiting ended its process with exit code 3 and without an answer"),
        ("killed", {}, r"killed was killed by SIGKILL"),
        ("nothing", {}, r"nothing raised TypeError"),
        (
            "waiting",
            {"evaluation_limits": {"seconds": 0.2}},
            r"ended after 0\.2 seconds .* the limit evaluation_limits\.seconds",
        ),
        (
            "filling",
            {"evaluation_limits": {"memory": "400Mi"}},
            r"more than the limit of 400Mi \(evaluation_limits\.memory = 400Mi\)",
        ),
    ],
)
def test_a_predictor_that_does_not_do_what_it_should_is_named_with_what_it_did(
    judge: Judge, predictor: str, changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(PredictionFailed, match=said):
        judge(predictor, **changes)


@pytest.mark.slow
def test_a_predictor_whose_code_no_longer_imports_is_named(
    judge: Judge, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    for name, code, said in (
        ("moved_away", "import a_package_that_is_gone", "there is no module 'a_package_that_is_gone'"),
        ("halved", "def predict(", "halved:predict cannot be imported: SyntaxError"),
    ):
        (tmp_path / f"{name}.py").write_text(code)
        with pytest.raises(PredictionFailed, match=said):
            judge("predict", module=name)


@pytest.mark.slow
def test_a_metric_that_needs_probabilities_is_refused_where_there_are_none(judge: Judge) -> None:
    with pytest.raises(
        InvalidInput,
        match="metric 'roc_auc' is not accepted: it needs probabilities, and the predictor returned classes",
    ):
        judge("predict", metrics=["roc_auc"])


@pytest.mark.slow
def test_predictions_that_are_not_finite_give_nan_and_a_report(judge: Judge) -> None:
    assert all(math.isnan(value) for value in judge("nan", dataset=NUMBERS).scores.metrics.values())
    assert math.isnan(judge("nan_probabilities", metrics=["neg_log_loss"]).scores.metrics["neg_log_loss"])


@pytest.mark.parametrize(
    ("target", "metrics", "gate", "expected"),
    [
        ("double", [], None, True),
        ("float", [], "rmse", True),
        ("int64", [], None, False),
        ("int64", [], "accuracy", False),
        ("int64", [], "mae", True),
        ("int64", ["neg_mean_absolute_error"], None, True),
        ("string", [], "f1_macro", False),
        ("string", ["roc_auc"], "roc_auc", False),
        (
            "double",
            [],
            "accuracy",
            (
                "metric = 'accuracy' is not accepted for a target of type double, judged as a number: give "
                "one "
                "of"
            ),
        ),
        (
            "string",
            [],
            "rmse",
            "metric = 'rmse' is not accepted for a target of type string, judged as a class: give one of",
        ),
        ("int64", ["rmse", "accuracy"], None, "metrics.1 = 'accuracy' is not accepted"),
        (
            "string",
            ["roc_auc"],
            "accuracy",
            "metric = 'accuracy' is not accepted: it is not among the metrics; give one of roc_auc",
        ),
    ],
)
def test_the_task_follows_from_the_target_and_the_metrics(
    target: str, metrics: list[str], gate: str | None, expected: bool | str
) -> None:
    named = {"gates.0.non_inferior.metric": gate} if gate else {}
    if isinstance(expected, bool):
        assert judged_as_number(target, metrics, named) is expected
    else:
        with pytest.raises(InvalidInput, match=expected):
            judged_as_number(target, metrics, named)
