"""Two checkpoints on the same rows: each metric by the test that fits it, above 0 where we are better."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from halving import InvalidInput
from resources.evaluation.comparison import gain_of, value_of
from resources.evaluation.measures import measure
from resources.evaluation.predictions import Predictions
from resources.evaluation.statistics.bootstrap import Bootstrapped, bootstrap
from resources.evaluation.statistics.evidence import ALPHA
from resources.evaluation.statistics.proportions import PairedProportions, Proportion
from resources.evaluation.statistics.too_few import TooFew
from resources.evaluation.statistics.verdict import non_inferior, superior, within
from resources.registry.gates.figures import rows_needed

SOURCE = np.random.default_rng(0)
TARGET = SOURCE.integers(0, 3, 300)
NUMBERS = SOURCE.normal(size=300)


def classifier(right: float, seed: int, probabilities: bool = False) -> Predictions:
    source = np.random.default_rng(seed)
    predicted = np.where(source.random(300) < right, TARGET, (TARGET + 1) % 3)
    probability = np.full((300, 3), 0.1)
    probability[np.arange(300), predicted] = 0.8
    return Predictions(TARGET, predicted, probability if probabilities else None, classes=(0, 1, 2))


def regressor(noise: float, seed: int) -> Predictions:
    return Predictions(NUMBERS, NUMBERS + noise * np.random.default_rng(seed).normal(size=300))


@pytest.mark.parametrize(
    ("metric", "kind"),
    [
        ("accuracy", PairedProportions),
        ("f1_macro", Bootstrapped),
        ("neg_log_loss", Bootstrapped),
        ("matthews_corrcoef", Bootstrapped),
    ],
)
def test_the_better_classifier_has_a_gain_and_the_other_a_loss_of_the_same_size(
    metric: str, kind: type
) -> None:
    good = classifier(0.95, 1, probabilities=True)
    bad = classifier(0.7, 2, probabilities=True)
    gain = gain_of(good, bad, metric)
    loss = gain_of(bad, good, metric)
    assert isinstance(gain, kind)
    assert gain.estimate == pytest.approx(-loss.estimate)
    assert gain.estimate == pytest.approx(
        measure(good, metric).on(np.arange(300)) - measure(bad, metric).on(np.arange(300))
    )
    assert gain.p_above(0) < 0.001
    assert loss.p_below(0) < 0.001


@pytest.mark.parametrize("metric", ["mae", "rmse", "r2", "neg_mean_squared_error"])
def test_of_errors_the_lower_is_the_gain(metric: str) -> None:
    gain = gain_of(regressor(0.1, 1), regressor(0.3, 2), metric)
    assert gain.estimate > 0
    assert gain.p_above(0) < 0.001


def test_what_follows_from_the_confusion_matrix_is_resampled_as_rows_would_be() -> None:
    good = classifier(0.9, 1)
    bad = classifier(0.8, 2)
    drawn = gain_of(good, bad, "f1_macro")
    a = measure(good, "f1_macro")
    b = measure(bad, "f1_macro")
    by_rows = bootstrap(lambda rows: a.on(rows) - b.on(rows), 300)
    assert drawn.estimate == pytest.approx(by_rows.estimate)
    assert drawn.standard_error == pytest.approx(by_rows.standard_error, rel=0.1)
    assert drawn.interval() == pytest.approx(
        by_rows.interval(), abs=0.1 * (by_rows.interval()[1] - by_rows.interval()[0])
    )


def test_only_many_rows_predicted_alike_show_that_models_are_equal() -> None:
    same = classifier(0.9, 1)
    assert non_inferior(gain_of(same, same, "f1_macro"), 0.005).outcome == "too little evidence"
    assert non_inferior(gain_of(same, same, "accuracy"), 0.005).outcome == "too little evidence"
    assert non_inferior(gain_of(same, same, "accuracy"), 0.02).outcome == "pass"


def test_only_the_rows_of_a_slice_count() -> None:
    good = classifier(0.95, 1)
    bad = classifier(0.7, 2)
    rows = np.arange(0, 300, 3)
    gain = gain_of(good, bad, "accuracy", rows)
    assert gain.n == 100
    assert gain.estimate == pytest.approx(
        np.mean((good.prediction == TARGET)[rows]) - np.mean((bad.prediction == TARGET)[rows])
    )
    assert gain_of(good, bad, "f1_macro", rows).n == 100


def test_a_single_metric_is_as_it_is_whichever_way_it_goes() -> None:
    assert value_of(regressor(0.2, 1), "mae").estimate == pytest.approx(0.16, abs=0.02)
    low, high = value_of(classifier(0.9, 1), "accuracy").interval()
    assert 0.85 < low < 0.9 < high < 0.95


@pytest.mark.parametrize("metric", ["neg_log_loss", "rmse", "f1"])
def test_a_metric_that_the_predictions_cannot_have_is_refused(metric: str) -> None:
    with pytest.raises(InvalidInput, match=f"metric '{metric}' is not accepted"):
        gain_of(classifier(0.9, 1), classifier(0.8, 2), metric)


def test_predictions_that_are_not_finite_show_nothing() -> None:
    broken = Predictions(NUMBERS, np.full(300, np.nan))
    assert non_inferior(gain_of(broken, regressor(0.1, 1), "rmse"), 10.0).outcome == "too little evidence"


def rare_class(right: int, rows: int = 1_000) -> Predictions:
    """Ten rows of a class among others; of them so many are found."""
    target = (np.arange(rows) < 10).astype(np.int64)
    return Predictions(target, (np.arange(rows) < right).astype(np.int64), classes=(0, 1))


@pytest.mark.parametrize("metric", ["recall_macro", "balanced_accuracy", "f1_macro", "recall"])
def test_a_rare_class_that_is_no_longer_found_is_not_passed_although_few_rows_differ(metric: str) -> None:
    """Nine rows differ, 0.9 % of accuracy, and the class is lost."""
    gain = gain_of(rare_class(1), rare_class(10), metric)
    assert gain.estimate == pytest.approx(measure(rare_class(1), metric).on(np.arange(1_000)) - 1)
    assert non_inferior(gain, 0.03).outcome != "pass"
    assert superior(gain_of(rare_class(10), rare_class(1), metric), 0.03).outcome != "fail"


@pytest.mark.parametrize("metric", ["balanced_accuracy", "f1_macro"])
def test_predictions_that_are_all_alike_pass_where_the_rarest_class_has_enough_rows(metric: str) -> None:
    assert (
        non_inferior(gain_of(rare_class(10), rare_class(10), metric), 0.03).outcome == "too little evidence"
    )
    same = classifier(0.9, 1)
    assert non_inferior(gain_of(same, same, metric), 0.05).outcome == "pass"


def test_of_models_that_are_worse_by_the_margin_in_a_rare_class_hardly_one_passes() -> None:
    """Recall of a class with 60 rows is worse by 0.06, so balanced accuracy by 0.03; often hardly a row
    differs.
    """
    source = np.random.default_rng(0)
    target = (np.arange(600) < 60).astype(np.int64)
    passed = 0
    theirs = Predictions(target, target, classes=(0, 1))
    for _ in range(150):
        lost = (source.random(600) < 0.06) & (target == 1)
        ours = Predictions(target, np.where(lost, 0, target), classes=(0, 1))
        passed += non_inferior(gain_of(ours, theirs, "balanced_accuracy"), 0.03).outcome == "pass"
    assert passed / 150 <= 0.05


def repeat_rows(predictions: Predictions, times: int) -> Predictions:
    """Each row so many times, as a cluster."""

    def repeat(values: np.ndarray | None) -> np.ndarray | None:
        if values is None:
            return None
        return np.repeat(values, times, axis=0)

    scores = {name: np.repeat(values, times) for name, values in predictions.scores.items()}
    clusters = np.repeat(np.arange(predictions.rows), times)
    return Predictions(
        repeat(predictions.target),
        repeat(predictions.prediction),
        repeat(predictions.probabilities),
        scores,
        predictions.classes,
        clusters,
    )


@pytest.mark.parametrize(
    ("metric", "ours", "theirs"),
    [
        *(
            (name, classifier(0.9, 1, True), classifier(0.85, 2, True))
            for name in ("accuracy", "f1_macro", "neg_log_loss", "roc_auc_ovr")
        ),
        ("rmse", regressor(0.2, 1), regressor(0.21, 2)),
        ("mae", regressor(0.2, 1), regressor(0.21, 2)),
        (
            "hit",
            *(
                Predictions(None, None, scores={"hit": (classifier(0.9, n).prediction == TARGET) * 1.0})
                for n in (1, 2)
            ),
        ),
    ],
)
def test_copies_of_rows_that_come_in_clusters_are_no_more_evidence(
    metric: str, ours: Predictions, theirs: Predictions
) -> None:
    higher = True if metric == "hit" else None
    alone = gain_of(ours, theirs, metric, higher=higher)
    many = gain_of(repeat_rows(ours, 4), repeat_rows(theirs, 4), metric, higher=higher)
    assert (many.n, many.estimate) == (1_200, pytest.approx(alone.estimate))
    assert many.standard_error == pytest.approx(alone.standard_error, rel=0.15)
    assert value_of(repeat_rows(ours, 4), metric).standard_error == pytest.approx(
        value_of(ours, metric).standard_error, rel=0.15
    )


def test_clusters_of_one_row_each_change_nothing() -> None:
    ours, theirs = (
        replace(classifier(right, seed), clusters=np.arange(300)) for right, seed in ((0.9, 1), (0.85, 2))
    )
    assert isinstance(gain_of(ours, theirs, "accuracy"), PairedProportions)
    assert (
        gain_of(ours, theirs, "f1_macro").interval()
        == gain_of(classifier(0.9, 1), classifier(0.85, 2), "f1_macro").interval()
    )


def test_equal_models_with_few_large_differences_are_hardly_ever_promoted() -> None:
    source = np.random.default_rng(5)
    promoted = 0
    for _ in range(150):
        differing = source.binomial(2_000, 0.01)
        ours, theirs = (
            np.r_[source.gamma(0.5, 1.0, differing), np.zeros(2_000 - differing)] for _ in range(2)
        )
        gain = gain_of(*of_scores(ours, theirs), "found", higher=True)
        promoted += superior(gain, 0.01).outcome == "pass"
        if isinstance(gain, Bootstrapped):
            low, high = gain.interval()
            assert gain.p_above(low) == pytest.approx(0.025, rel=0.15)
            assert gain.p_below(high) == pytest.approx(0.025, rel=0.15)
    assert promoted / 150 <= 0.05


def test_few_clusters_in_which_models_differ_tell_nothing_whatever_their_rows() -> None:
    clusters = np.arange(2_000) // 100
    ours, theirs = (
        replace(model, clusters=clusters)
        for model in of_scores(np.arange(2_000) >= 300, np.arange(2_000) >= 0)
    )
    gain = gain_of(ours, theirs, "found", higher=True)
    assert gain == TooFew(pytest.approx(-0.15), 2_000, 3, clusters=20)
    assert "too few groups differ: of 20 groups 3 do" in rows_needed(non_inferior(gain, 0.01))
    same = Predictions(np.arange(2_000) % 2, np.arange(2_000) % 2, classes=(0, 1), clusters=clusters)
    assert non_inferior(gain_of(same, same, "accuracy"), 0.03).outcome == "too little evidence"


@pytest.mark.parametrize("rows", [5_000, 50_000])
def test_where_few_of_many_rows_differ_nothing_is_surer_than_students_t(
    rows: int,
) -> None:
    ours = 0.5 + np.where(np.arange(rows) < 12, 1 + np.random.default_rng(0).exponential(size=rows), 0)
    gain = gain_of(*of_scores(ours, np.full(rows, 0.5)), "found", higher=True)
    t = gain.estimate / gain.standard_error
    assert gain.p_above(0) >= stats.t.sf(t, 11) * 0.999 > stats.norm.sf(t) * 2
    low, high = gain.interval()
    assert high - low >= 2 * stats.t.isf(ALPHA, 11) * gain.standard_error * 0.999


@pytest.mark.parametrize(("clusters", "needed"), [(None, 20), (np.arange(15) // 2, 38)])
def test_of_fewer_rows_or_groups_than_a_bootstrap_takes_as_many_are_asked_for(
    clusters: np.ndarray | None, needed: int
) -> None:
    ours, theirs = (
        replace(model, clusters=clusters) for model in of_scores(5 + np.arange(15) / 10, np.zeros(15))
    )
    conclusion = superior(gain_of(ours, theirs, "found", higher=True), 1.0)
    assert (conclusion.outcome, conclusion.needed) == ("too little evidence", needed)


@pytest.mark.parametrize("metric", ["accuracy", "roc_auc"])
def test_one_cluster_that_has_most_of_the_rows_is_no_more_evidence_than_it_is_one(metric: str) -> None:
    source = np.random.default_rng(0)
    rows = 400
    target = source.integers(0, 2, rows)
    clusters = np.maximum(np.arange(rows) - 340, 0)
    equal, unequal = (
        [
            Predictions(
                target,
                np.where(probability > 0.5, target, 1 - target),
                _probabilities_of(target, probability),
                classes=(0, 1),
                clusters=of,
            )
            for probability in (source.random(rows) * 0.2 + 0.8, source.random(rows))
        ]
        for of in (np.arange(rows) // 7, clusters)
    )
    assert superior(gain_of(*equal, metric), 0.01).outcome == "pass"
    conclusion = superior(gain_of(*unequal, metric), 0.01)
    assert (conclusion.outcome, conclusion.p) == ("too little evidence", 1.0)


def _probabilities_of(target: np.ndarray, right: np.ndarray) -> np.ndarray:
    return np.where(np.arange(2) == target[:, None], right[:, None], 1 - right[:, None])


def test_the_worst_row_is_never_taken_for_evidence() -> None:
    gain = gain_of(regressor(0.01, 1), regressor(1.0, 2), "neg_max_error")
    assert gain.estimate > 0
    assert superior(gain, 0.1).outcome == "too little evidence"
    assert within(value_of(regressor(0.01, 1), "neg_max_error"), -1.0, None).outcome == "too little evidence"


def of_scores(*values: np.ndarray) -> list[Predictions]:
    return [Predictions(None, None, scores={"found": scores.astype(np.float64)}) for scores in values]


@pytest.mark.parametrize("higher", [True, False])
def test_scores_of_zeros_and_ones_are_compared_as_rights_and_wrongs_are(higher: bool) -> None:
    ours, theirs = of_scores(np.arange(100) >= 2, np.arange(100) >= 0)
    gain = gain_of(ours, theirs, "found", higher=higher)
    assert gain == (PairedProportions(0, 2, 100) if higher else PairedProportions(2, 0, 100))
    assert value_of(ours, "found") == Proportion(98, 100)


def test_of_scores_that_differ_on_hardly_a_row_nothing_is_concluded() -> None:
    ours = 0.5 + 0.1 * (np.arange(100) < 3)
    gain = gain_of(*of_scores(ours, np.full(100, 0.5)), "found", higher=True)
    assert gain == TooFew(pytest.approx(0.003), 100, 3)
    conclusion = non_inferior(gain, 0.02)
    assert (conclusion.outcome, conclusion.telling, conclusion.needed) == ("too little evidence", 3, 334)
    assert within(value_of(of_scores(ours)[0], "found"), 0.4, None).outcome == "too little evidence"
    few = Predictions(NUMBERS, NUMBERS + (np.arange(300) < 4))
    assert (
        non_inferior(gain_of(few, Predictions(NUMBERS, NUMBERS), "rmse"), 10.0).outcome
        == "too little evidence"
    )


@pytest.mark.parametrize(
    ("metric", "rows", "outcome"), [("f1_macro", 40, "too little evidence"), ("f1_macro", 2_000, "pass")]
)
def test_a_perfect_small_sample_does_not_show_a_metric_to_be_perfect(
    metric: str, rows: int, outcome: str
) -> None:
    target = np.arange(rows) % 2
    conclusion = within(value_of(Predictions(target, target, classes=(0, 1)), metric), 0.98, None)
    assert conclusion.outcome == outcome
    assert conclusion.low < conclusion.estimate == conclusion.high == 1


def test_areas_that_no_resample_changes_show_nothing() -> None:
    target = np.arange(40) % 2
    probability = np.column_stack([1 - target, target]).astype(np.float64)
    assert (
        within(
            value_of(Predictions(target, target, probability, classes=(0, 1)), "roc_auc"), 0.9, None
        ).outcome
        == "too little evidence"
    )
