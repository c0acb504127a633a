"""Measures against scikit-learn's own scorers, and the intervals that are made of them."""

import math
import time
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import get_scorer, get_scorer_names, precision_recall_fscore_support

from halving import InvalidInput
from resources.evaluation.confusion_metrics import FROM_CONFUSION, SHARES_OF_RIGHT, by_class
from resources.evaluation.measures import Confusion, RowMean, measure, metric_on
from resources.evaluation.predictions import Predictions, sorted_classes
from resources.evaluation.ranked import Ranked
from resources.evaluation.resampling import interval_of, wilson
from resources.sweep_spec.metrics import (
    NUMBER_SCORERS,
    PROBABILITY_SCORERS,
    SCORERS,
    SHORT_NAMES,
    TWO_CLASS_SCORERS,
    higher_is_better,
)
from tests.properties import examples


def class_predictions(seed: int, rows: int = 60, classes: int = 3) -> Predictions:
    rng = np.random.default_rng(seed)
    labels = np.array([f"c{number}" for number in range(classes)], object)
    truth = labels[np.r_[np.arange(classes), rng.integers(classes, size=rows - classes)]]
    probabilities = rng.dirichlet(np.ones(classes), rows)
    return Predictions(truth, labels[probabilities.argmax(axis=1)], probabilities, classes=tuple(labels))


def number_predictions(seed: int, rows: int = 60) -> Predictions:
    rng = np.random.default_rng(seed)
    truth = rng.gamma(2.0, size=rows)
    return Predictions(truth, truth * np.exp(rng.normal(0, 0.3, rows)))


def by_scikit(predictions: Predictions, metric: str, rows: Any) -> float:
    """By the function of ``sklearn.metrics`` that the scorer stands for, called with the values themselves;
    NaN where it raises.
    """
    scorer = get_scorer(SHORT_NAMES.get(metric, metric))
    truth, returned = (np.asarray(some) for some in (predictions.target, predictions.prediction))
    if predictions.classes is not None:
        truth, returned = (
            np.array([predictions.classes.index(label) for label in some]) for some in (truth, returned)
        )
    if metric in PROBABILITY_SCORERS:
        returned = predictions.probabilities
        if len(predictions.classes or ()) == 2:
            returned = returned[:, 1]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            value = float(scorer._score_func(truth[rows], returned[rows], **scorer._kwargs))
    except ValueError:
        return math.nan
    return value * (1 if metric in SHORT_NAMES else scorer._sign)


def test_the_listed_scorers_are_scikit_learns_but_for_clusterings_and_several_labels() -> None:
    left_out = {name for name in get_scorer_names() if name not in SCORERS}
    assert not SCORERS - set(get_scorer_names()) - set(SHORT_NAMES)
    assert {name for name in left_out if not name.endswith("_samples")} == {
        "adjusted_mutual_info_score",
        "adjusted_rand_score",
        "completeness_score",
        "fowlkes_mallows_score",
        "homogeneity_score",
        "mutual_info_score",
        "normalized_mutual_info_score",
        "rand_score",
        "v_measure_score",
    }
    assert [metric for metric in sorted(SCORERS) if not higher_is_better(metric)] == ["mae", "rmse"]


@pytest.mark.parametrize("metric", sorted(SCORERS))
def test_every_metric_has_scikit_learns_value_on_all_rows_and_on_rows_drawn_twice(metric: str) -> None:
    if metric in NUMBER_SCORERS:
        predictions = number_predictions(1)
    else:
        predictions = class_predictions(1, classes=2 if metric in TWO_CLASS_SCORERS else 3)
    measured = measure(predictions, metric)
    rng = np.random.default_rng(0)
    for rows in (np.arange(60), rng.integers(60, size=60)):
        assert measured.on(rows) == pytest.approx(by_scikit(predictions, metric, rows), abs=1e-12)


@settings(max_examples=examples(25))
@given(
    st.integers(1, 3).flatmap(
        lambda last: st.lists(st.tuples(st.integers(0, last), st.integers(0, last)), min_size=1, max_size=12)
    )
)
def test_metrics_of_the_confusion_matrix_are_scikit_learns_whichever_classes_occur(
    pairs: list[tuple[int, int]],
) -> None:
    truth, predicted = (np.array(column, object) for column in zip(*pairs, strict=True))
    predictions = Predictions(truth, predicted, classes=sorted_classes(truth, predicted))
    rows = np.arange(len(pairs))
    two = len(predictions.classes or ()) == 2
    for metric in sorted(FROM_CONFUSION.keys() | SHARES_OF_RIGHT):
        if metric in TWO_CLASS_SCORERS and not two:
            continue
        assert metric_on(predictions, metric, rows) == pytest.approx(
            by_scikit(predictions, metric, rows), abs=1e-12, nan_ok=True
        ), metric


@settings(max_examples=examples(25))
@given(
    st.integers(2, 3).flatmap(
        lambda classes: st.lists(
            st.tuples(st.integers(0, classes - 1), st.integers(0, 3), st.integers(0, 3)),
            min_size=6,
            max_size=14,
        )
    )
)
def test_metrics_of_the_ranking_are_scikit_learns_with_tied_probabilities(
    rows: list[tuple[int, int, int]],
) -> None:
    truth, first, second = (np.array(column) for column in zip(*rows, strict=True))
    labels = np.unique(truth)
    if len(labels) < 2 or not np.array_equal(labels, np.arange(len(labels))):
        return
    weights = np.column_stack([first + 1, second + 1, np.full(len(truth), 2)])[:, : len(labels)].astype(
        np.float64
    )
    probabilities = weights / weights.sum(axis=1, keepdims=True)
    predictions = Predictions(truth, probabilities.argmax(axis=1), probabilities, classes=tuple(labels))
    for metric in ("average_precision", "roc_auc_ovr"):
        assert metric_on(predictions, metric, np.arange(len(truth))) == pytest.approx(
            by_scikit(predictions, metric, np.arange(len(truth)))
        )


@pytest.mark.parametrize("metric", ["roc_auc", "average_precision"])
def test_a_ranking_whose_pairs_exceed_32_bits_has_the_same_value_by_weights(
    metric: str,
) -> None:
    source = np.random.default_rng(0)
    rows = 100_000
    truth = np.arange(rows) % 2
    returned = source.random(rows)
    probabilities = np.column_stack([1 - returned, returned])
    measured = measure(
        Predictions(truth, probabilities.argmax(axis=1), probabilities, classes=(0, 1)), metric
    )
    assert isinstance(measured, Ranked)
    assert measured.at_weights(np.ones((1, rows), np.int32)) == pytest.approx([measured.on(np.arange(rows))])
    assert measured.on(np.arange(rows)) == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize("metric", ["roc_auc_ovr", "average_precision"])
def test_a_ranking_of_some_of_the_rows_is_that_of_these_rows_alone(metric: str) -> None:
    source = np.random.default_rng(1)
    truth = source.integers(0, 3, 90)
    rows = np.flatnonzero(source.random(90) < 0.4)
    tied = source.integers(1, 4, (90, 3)).astype(np.float64)
    whole, alone = (
        measure(
            Predictions(
                truth[some],
                truth[some],
                tied[some] / tied[some].sum(axis=1, keepdims=True),
                classes=(0, 1, 2),
            ),
            metric,
        )
        for some in (np.arange(90), rows)
    )
    assert isinstance(whole, Ranked)
    assert isinstance(alone, Ranked)
    weights = source.integers(0, 4, (5, len(rows)))
    assert whole.among(rows).at_weights(weights) == pytest.approx(alone.at_weights(weights), nan_ok=True)
    drawn, alike = (
        ranked.bootstrap(some, np.random.default_rng(2), 36)
        for ranked, some in ((whole, rows), (alone, np.arange(len(rows))))
    )
    assert drawn == pytest.approx(alike, nan_ok=True)


@pytest.mark.parametrize("metric", sorted(TWO_CLASS_SCORERS - {"roc_auc"}))
def test_a_metric_of_two_classes_has_no_value_where_only_one_is_known(metric: str) -> None:
    assert math.isnan(
        metric_on(
            Predictions(np.zeros(9, np.int64), np.zeros(9, np.int64), classes=(0,)), metric, np.arange(9)
        )
    )


def test_two_classes_have_the_brier_score_and_log_loss_of_scikit_learn() -> None:
    predictions = class_predictions(2, classes=2)
    for metric in ("neg_brier_score", "neg_log_loss", "roc_auc"):
        assert metric_on(predictions, metric, np.arange(60)) == pytest.approx(
            by_scikit(predictions, metric, np.arange(60))
        )


def test_rows_on_which_a_metric_has_no_value_give_nan_without_a_warning() -> None:
    predictions = class_predictions(3, classes=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for metric in ("roc_auc", "f1_macro", "neg_log_loss"):
            assert math.isnan(metric_on(predictions, metric, np.array([], np.int64)))
        assert math.isnan(metric_on(predictions, "roc_auc", np.array([0, 0])))


def test_one_prediction_that_is_not_finite_makes_every_metric_nan() -> None:
    predictions = Predictions(np.array([1.0, 2.0]), np.array([1.0, math.nan]))
    assert all(math.isnan(metric_on(predictions, metric, np.arange(2))) for metric in sorted(NUMBER_SCORERS))
    classes = Predictions(
        np.array(["a", "b"], object),
        np.array(["a", "b"], object),
        np.array([[1, 0], [math.nan, 1]]),
        classes=("a", "b"),
    )
    assert all(math.isnan(metric_on(classes, metric, np.arange(2))) for metric in sorted(PROBABILITY_SCORERS))


@pytest.mark.parametrize(
    ("predictions", "metric", "said"),
    [
        (number_predictions(0), "accuracy", "the target is a number; give one of d2_absolute_error_score"),
        (class_predictions(0), "rmse", "the target is a class; give one of accuracy"),
        (
            class_predictions(0),
            "f1",
            "it is of two classes, and there are 3; give one of f1_macro, f1_micro, f1_weighted",
        ),
        (
            class_predictions(0),
            "positive_likelihood_ratio",
            "it is of two classes, and there are 3; leave it out",
        ),
        (
            Predictions(None, None, scores={"ndcg": np.ones(3)}),
            "accuracy",
            "the evaluator gave scores of ndcg only",
        ),
        (
            Predictions(np.array(["a"], object), np.array(["a"], object), classes=("a",)),
            "neg_log_loss",
            "it needs probabilities, and the predictor returned classes",
        ),
    ],
)
def test_a_metric_that_the_predictions_cannot_have_is_refused_with_the_reason(
    predictions: Predictions, metric: str, said: str
) -> None:
    with pytest.raises(InvalidInput, match=f"metric '{metric}' is not accepted: {said}"):
        measure(predictions, metric)


def test_wilsons_interval_is_as_published() -> None:
    # Newcombe 1998, table I: 81 of 263 and 0 of 20
    assert wilson(81 / 263, 263) == (pytest.approx(0.2553, abs=5e-5), pytest.approx(0.3662, abs=5e-5))
    assert wilson(0.0, 20) == (0.0, pytest.approx(0.1611, abs=5e-5))


@pytest.mark.parametrize(
    "metric",
    ["accuracy", "f1_macro", "neg_log_loss", "roc_auc_ovr", "r2", "rmse", "neg_median_absolute_error"],
)
def test_every_interval_holds_the_value_and_is_the_same_again(metric: str) -> None:
    predictions = number_predictions(4) if metric in NUMBER_SCORERS else class_predictions(4)
    interval = interval_of(measure(predictions, metric))
    assert interval.low <= interval.value <= interval.high
    assert interval == interval_of(measure(predictions, metric))
    assert interval.rows == 60


def test_the_interval_of_a_mean_covers_it_as_often_as_it_says() -> None:
    covered = 0
    for seed in range(300):
        interval = interval_of(RowMean(np.random.default_rng(seed).exponential(size=150), resamples=400))
        covered += interval.low <= 1.0 <= interval.high
    assert 0.90 <= covered / 300 <= 0.98


def test_more_rows_than_are_resampled_give_the_interval_of_all_of_them() -> None:
    values = np.random.default_rng(0).normal(size=40_000)
    whole, bounded = (
        interval_of(RowMean(values, max_rows=max_rows, resamples=1_000)) for max_rows in (40_000, 2_000)
    )
    assert bounded.high - bounded.low == pytest.approx(whole.high - whole.low, rel=0.15)
    assert whole.high - whole.low == pytest.approx(2 * 1.96 / 200, rel=0.15)


def test_the_confusion_matrix_drawn_as_a_whole_spreads_as_rows_drawn_one_by_one() -> None:
    predictions = class_predictions(5, rows=200)
    measured = measure(predictions, "f1_macro")
    assert isinstance(measured, Confusion)
    drawn = measured.bootstrap(np.arange(200), np.random.default_rng(0), 200)
    rng = np.random.default_rng(1)
    by_rows = [measured.on(rng.integers(200, size=200)) for _ in range(1_000)]
    assert np.std(drawn) == pytest.approx(np.std(by_rows), rel=0.1)
    assert np.mean(drawn) == pytest.approx(np.mean(by_rows), abs=0.01)


@pytest.mark.parametrize(
    "metric", ["accuracy", "f1_macro", "roc_auc_ovr", "neg_log_loss", "neg_median_absolute_error"]
)
def test_copies_of_rows_that_come_in_clusters_do_not_make_a_metric_surer(metric: str) -> None:
    once = number_predictions(6, 90) if metric in NUMBER_SCORERS else class_predictions(6, 90)
    rows = np.repeat(np.arange(90), 5)
    alone = interval_of(measure(once, metric))
    copied = interval_of(measure(once, metric), rows, np.arange(90))
    assert (copied.value, copied.rows) == (pytest.approx(alone.value), 450)
    assert copied.high - copied.low == pytest.approx(alone.high - alone.low, rel=0.15)


def test_a_share_that_no_cluster_changes_has_the_interval_of_as_many_rows() -> None:
    right = measure(Predictions(None, None, scores={"hit": np.ones(100)}), "hit")
    interval = interval_of(right, clusters=np.arange(100) // 5)
    assert (interval.low, interval.high) == wilson(1.0, 20)


@pytest.mark.parametrize("clusters", [np.arange(100) // 10, np.minimum(np.arange(100), 40)])
def test_with_too_few_clusters_a_share_has_wilsons_interval_and_others_have_none(
    clusters: np.ndarray,
) -> None:
    values = np.random.default_rng(0).random(100)
    interval = interval_of(RowMean((values < 0.7).astype(np.float64), is_share=True), clusters=clusters)
    assert (interval.low, interval.high) == wilson(
        interval.value, 100**2 // int((np.bincount(clusters) ** 2).sum())
    )
    assert math.isnan(interval_of(RowMean(values), clusters=clusters).low)


def test_the_worst_row_has_no_interval() -> None:
    assert math.isnan(interval_of(measure(number_predictions(4), "neg_max_error")).low)


@pytest.mark.slow
def test_intervals_of_a_million_rows_take_seconds() -> None:
    rng = np.random.default_rng(0)
    labels = np.array(["a", "b"], object)
    probabilities = rng.dirichlet([1, 1], 1_000_000)
    predictions = Predictions(
        labels[rng.integers(2, size=1_000_000)],
        labels[probabilities.argmax(1)],
        probabilities,
        classes=("a", "b"),
    )
    began = time.process_time()
    for metric in ("accuracy", "f1_macro", "neg_log_loss", "roc_auc"):
        interval = interval_of(measure(predictions, metric))
        assert interval.low <= interval.value <= interval.high
        assert interval.high - interval.low < 0.02
    assert time.process_time() - began < 30


@pytest.mark.parametrize("classes", [1, 2, 5])
@pytest.mark.parametrize("rows", [1, 3, 50])
def test_the_table_of_classes_has_scikit_learns_values_for_a_missing_class_too(
    classes: int, rows: int
) -> None:
    drawn = np.random.default_rng(classes * rows)
    truth = drawn.integers(0, classes, rows)
    predicted = drawn.integers(0, classes, rows)
    confusion = (
        np.bincount(truth * classes + predicted, minlength=classes**2)
        .reshape(classes, classes)
        .astype(np.float64)
    )
    expected = precision_recall_fscore_support(truth, predicted, labels=range(classes), zero_division=0.0)
    for name, values in zip(("precision", "recall", "f1", "rows"), expected, strict=True):
        assert by_class(confusion)[name] == pytest.approx(values)
