"""Details beside the metrics: calibration of probabilities, residuals of numbers, and a baseline."""

import math
from typing import Any

import numpy as np

from halving import Dataset
from resources.evaluation.columns import numbers_of, object_array
from resources.evaluation.predictions import Predictions, sorted_classes
from resources.evaluation.target_classes import class_counts
from resources.search.spread import spread

_BINS = 15
_POINTS = 1_000


def calibration(predictions: Predictions) -> dict[str, Any] | None:
    """The reliability of the probability of the predicted class, and the expected calibration error.

    Bins of equal width over 0..1, as in Naeini, Cooper & Hauskrecht 2015 (AAAI) and Guo et al. 2017, equation
    3: the error is the mean over rows of the distance between a bin's accuracy and its mean probability.

    Returns:
        ``error`` and ``bins`` (``low``, ``high``, ``rows``, ``confidence``, ``accuracy``; empty ones are left
        out). None without probabilities, or with some that are not finite.
    """
    probabilities = predictions.probabilities
    if probabilities is None or predictions.target is None or not np.isfinite(probabilities).all():
        return None
    confidence = probabilities.max(axis=1)
    right = (predictions.target == predictions.prediction).astype(np.float64)
    places = np.clip(np.ceil(confidence * _BINS).astype(int) - 1, 0, _BINS - 1)  # (low, high]
    bins = []
    for place in range(_BINS):
        rows = places == place
        if rows.any():
            means = {"confidence": float(confidence[rows].mean()), "accuracy": float(right[rows].mean())}
            bins.append({"low": place / _BINS, "high": (place + 1) / _BINS, "rows": int(rows.sum()), **means})
    distances = [part["rows"] * abs(part["accuracy"] - part["confidence"]) for part in bins]
    error = sum(distances) / len(right)
    return {"error": float(error), "bins": bins}


def residuals(predictions: Predictions) -> dict[str, Any] | None:
    """The distribution of the errors of predicted numbers: predicted minus true.

    Returns:
        ``quantiles`` at 5, 25, 50, 75 and 95 %, ``mean``, and of at most 1,000 rows, evenly spread, ``row``,
        ``predicted`` and ``residual``. None for classes, or where a prediction is not finite.
    """
    if predictions.target is None or predictions.prediction is None or predictions.classes is not None:
        return None
    predicted = np.asarray(predictions.prediction, np.float64)
    errors = predicted - np.asarray(predictions.target, np.float64)
    if not np.isfinite(errors).all():
        return None
    sample = np.array(spread(range(len(errors)), _POINTS))
    quantiles = dict(
        zip(
            ("5", "25", "50", "75", "95"),
            np.quantile(errors, [0.05, 0.25, 0.5, 0.75, 0.95]).tolist(),
            strict=True,
        )
    )
    points = {
        "row": sample.tolist(),
        "predicted": predicted[sample].tolist(),
        "residual": errors[sample].tolist(),
    }
    return {"quantiles": quantiles, "mean": float(errors.mean()), **points}


def baseline(dataset: Dataset, predictions: Predictions) -> tuple[str, Predictions]:
    """Predict the same rows with a model that ignores the features: scikit-learn's dummy for the target.

    Returns:
        A description of the model for people, and its predictions: the mean, or the most frequent class with
        the classes' shares as probabilities.
    """
    from sklearn.dummy import DummyClassifier

    fold = None
    if dataset.folds:
        fold = 0
    if predictions.classes is None:
        mean = np.full(predictions.rows, _mean(dataset, fold))
        return "the mean of the training split", Predictions(
            predictions.target, mean, clusters=predictions.clusters
        )
    counts = class_counts(dataset, "train", fold)
    target = predictions.target
    if target is None:
        target = np.empty(0, object)
    classes = sorted_classes(target, counts)
    code = {label: number for number, label in enumerate(classes)}
    nothing = np.zeros((len(counts), 1))
    codes = [code[label] for label in counts]
    prior = DummyClassifier(strategy="prior").fit(nothing, codes, sample_weight=list(counts.values()))
    probabilities = np.zeros((predictions.rows, len(classes)))
    probabilities[:, prior.classes_] = prior.predict_proba(nothing[:1])
    predicted = object_array(list(classes))[np.full(predictions.rows, prior.predict(nothing[:1])[0])]
    return "the most frequent class of the training split", Predictions(
        target, predicted, probabilities, classes=classes, clusters=predictions.clusters
    )


def _mean(dataset: Dataset, fold: int | None) -> float:
    """The mean of the training split's target."""
    total = 0.0
    rows = 0
    for batch in dataset.batches("train", columns=[dataset.target], fold=fold):
        numbers = numbers_of(batch.column(0).drop_null())
        total += float(numbers.sum())
        rows += len(numbers)
    if not rows:
        return math.nan
    return total / rows
