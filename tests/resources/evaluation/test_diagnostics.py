"""Calibration, residuals and baselines against values worked out by hand."""

import math

import numpy as np
import pytest

from resources.evaluation.diagnostics import calibration, residuals
from resources.evaluation.predictions import Predictions

CLASSES = ("a", "b")


def two_class_predictions(confidence: list[float], right: list[bool]) -> Predictions:
    probabilities = np.column_stack([confidence, 1 - np.array(confidence)])
    predicted = np.full(len(right), "a", object)
    return Predictions(np.where(right, "a", "b").astype(object), predicted, probabilities, classes=CLASSES)


def test_the_calibration_error_is_the_mean_distance_of_bins() -> None:
    report = calibration(
        two_class_predictions([0.95] * 10 + [0.65] * 10, [True] * 10 + [True] * 5 + [False] * 5)
    )
    assert report is not None
    assert [(part["rows"], part["confidence"], part["accuracy"]) for part in report["bins"]] == [
        (10, pytest.approx(0.65), 0.5),
        (10, pytest.approx(0.95), 1.0),
    ]
    assert report["error"] == pytest.approx((0.15 + 0.05) / 2)


def test_probabilities_drawn_from_what_they_say_have_little_error() -> None:
    rng = np.random.default_rng(0)
    confidence = rng.uniform(0.5, 1, 20_000)
    report = calibration(
        two_class_predictions(confidence.tolist(), (rng.random(20_000) < confidence).tolist())
    )
    assert report is not None
    assert report["error"] < 0.015


def test_there_is_no_calibration_without_probabilities_or_with_nan() -> None:
    assert calibration(Predictions(np.array(["a"], object), np.array(["a"], object), classes=CLASSES)) is None
    assert calibration(two_class_predictions([math.nan], [True])) is None


def test_residuals_are_predicted_minus_true_of_a_bounded_number_of_rows() -> None:
    report = residuals(Predictions(np.arange(5000.0), np.arange(5000.0) + 0.5))
    assert report is not None
    assert (report["mean"], report["quantiles"]["5"], len(report["row"])) == (0.5, 0.5, 1000)
    assert residuals(Predictions(np.array([1.0]), np.array([math.nan]))) is None
    assert residuals(two_class_predictions([0.9], [True])) is None
