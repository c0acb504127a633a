"""Metrics of predictions, prepared so that values on thousands of sets of rows are cheap, as for intervals.

There are four kinds: the mean of a value of each row, a function of the confusion matrix, a function of the
ranking, and scikit-learn's scorer for all the rest. The values of the first three equal the scorer's.
"""

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from halving.errors import InvalidInput
from halving.text import comma_list
from resources.evaluation.confusion_metrics import FROM_CONFUSION, SHARES_OF_RIGHT
from resources.evaluation.predictions import Predictions
from resources.evaluation.ranked import OF_RANKS, Ranked
from resources.evaluation.resampling import Resampled
from resources.sweep_spec.metrics import (
    CLASS_SCORERS,
    NUMBER_SCORERS,
    PROBABILITY_SCORERS,
    SHORT_NAMES,
    TWO_CLASS_SCORERS,
)

EXTREMES = frozenset({"neg_max_error"})
"""Metrics of a single row, the worst one.

Resamples do not say how far a worse one may be: the bootstrap fails for extremes (Bickel & Freedman, "Some
asymptotic theory for the bootstrap", Annals of Statistics 9 (1981), section 6).
"""

_CELLS = 2_000_000  # counts drawn at a time
_CHUNK = 4_000_000  # row numbers drawn at a time


def measure(predictions: Predictions, metric: str) -> Resampled:
    """Prepare a metric of predictions, which then gives its value on any of their rows.

    Args:
        metric: a scorer's name, ``mae``, ``rmse``, or the name of an evaluator's scores for their mean.

    Raises:
        InvalidInput: the metric does not fit the predictions, or needs what they do not have.
    """
    if metric in predictions.scores:
        values = predictions.scores[metric]
        return RowMean(values, is_share=bool(np.isin(values, (0.0, 1.0)).all()))
    check_fits(predictions, metric)
    if predictions.classes is None:
        return _of_numbers(predictions, metric)
    return _of_classes(predictions, metric)


def metric_on(predictions: Predictions, metric: str, rows: NDArray[np.int64]) -> float:
    """The value of a metric on some of the rows, by their positions; a repeated position counts twice.

    For many sets of rows call :func:`measure` once, which prepares what they
    share.

    Returns:
        NaN if the metric has no value on these rows, such as ROC AUC on rows of one class.

    Raises:
        InvalidInput: the predictions do not have what the metric needs.
    """
    return measure(predictions, metric).on(rows)


def check_fits(predictions: Predictions, metric: str) -> None:
    """Refuse a metric that these predictions cannot have.

    Raises:
        InvalidInput: saying why, and what does fit.
    """
    if predictions.target is None:
        raise InvalidInput(
            f"metric {metric!r} is not accepted: the evaluator gave scores of "
            f"{comma_list(predictions.scores)} only"
        )
    accepted = CLASS_SCORERS
    kind = "a class"
    if predictions.classes is None:
        accepted = NUMBER_SCORERS
        kind = "a number"
    if metric not in accepted:
        raise InvalidInput(
            f"metric {metric!r} is not accepted: the target is {kind}; give one of "
            f"{comma_list(sorted(accepted))}"
        )
    if metric in PROBABILITY_SCORERS and predictions.probabilities is None:
        raise InvalidInput(
            f"metric {metric!r} is not accepted: it needs probabilities, and the predictor returned classes; "
            "return an array of shape (rows, classes), or a dict of one column of probabilities for each "
            "class"
        )
    if metric in TWO_CLASS_SCORERS and predictions.classes is not None and len(predictions.classes) > 2:
        several = sorted(name for name in accepted if name.startswith(f"{metric}_"))
        remedy = "leave it out"
        if several:
            remedy = f"give one of {comma_list(several)}"
        raise InvalidInput(
            f"metric {metric!r} is not accepted: it is of two classes, and there are "
            f"{len(predictions.classes)}; {remedy}"
        )


def _of_numbers(predictions: Predictions, metric: str) -> Resampled:
    truth = np.asarray(predictions.target, np.float64)
    predicted = np.asarray(predictions.prediction, np.float64)
    if not np.isfinite(predicted).all():
        # The metric is NaN, and no error, so that there is a report to look at. The gate on finite metrics
        # then stops the promotion.
        return RowMean(np.full(len(truth), math.nan))
    error = predicted - truth
    means: dict[str, RowMean] = {
        "mae": RowMean(np.abs(error)),
        "neg_mean_absolute_error": RowMean(-np.abs(error)),
        "neg_mean_squared_error": RowMean(-(error**2)),
        "rmse": RowMean(error**2, np.sqrt),
        "r2": RowMean(np.column_stack([error**2, truth - truth.mean(), (truth - truth.mean()) ** 2]), _r2),
        "neg_root_mean_squared_error": RowMean(error**2, lambda mean: -np.sqrt(mean)),
    }
    if metric in means:
        return means[metric]
    resamples = 200
    if metric in EXTREMES:
        resamples = 0
    return Scored(metric, truth, predicted, None, resamples=resamples)


def _r2(means: NDArray[np.float64]) -> NDArray[np.float64]:
    """R² from the means of squared errors, of the truth and of its square, along the last axis.

    Rows of a single true value give 0, or 1 without errors, as in scikit-learn.
    """
    error = means[..., 0]
    variance = means[..., 2] - means[..., 1] ** 2
    constant = variance <= 1e-12 * means[..., 2]
    return np.where(constant, np.where(error == 0, 1.0, 0.0), 1 - error / np.where(constant, 1, variance))


def _of_classes(predictions: Predictions, metric: str) -> Resampled:
    code = {label: number for number, label in enumerate(predictions.classes or ())}
    both = (predictions.target, predictions.prediction)
    truth, predicted = (class_codes(labels, code) for labels in both if labels is not None)
    probabilities = predictions.probabilities
    count = len(code)
    if metric in TWO_CLASS_SCORERS and count < 2:
        return RowMean(np.full(len(truth), math.nan))  # which class would be the positive one is not known
    if metric in SHARES_OF_RIGHT:
        return RowMean((truth == predicted).astype(np.float64), is_share=True)
    if metric in FROM_CONFUSION:
        return Confusion(truth * count + predicted, count, FROM_CONFUSION[metric])
    if metric in PROBABILITY_SCORERS and probabilities is not None:
        if not np.isfinite(probabilities).all():
            return RowMean(np.full(len(truth), math.nan))
        if metric == "neg_log_loss":
            probability = probabilities[np.arange(len(truth)), truth] / probabilities.sum(axis=1)
            return RowMean(np.log(np.clip(probability, np.finfo(np.float64).eps, 1.0)))
        if metric in OF_RANKS:
            return Ranked.of(truth, probabilities, OF_RANKS[metric])
        if metric == "neg_brier_score":
            distance = ((probabilities - np.eye(count)[truth]) ** 2).sum(axis=1)
            if count == 2:
                distance = distance / 2
            return RowMean(-distance)
    return Scored(metric, truth, predicted, probabilities)


def class_codes(labels: NDArray[Any], code: dict[Any, int]) -> NDArray[np.int64]:
    """The number of each row's class. Shape (rows,)."""
    if labels.dtype.kind in "iu":
        # Integers are looked up at once by distinct value. Labels from a store are objects.
        values, places = np.unique(labels, return_inverse=True)
        return np.array([code[value] for value in values.tolist()], np.int64)[places]
    return np.fromiter((code[label] for label in labels), np.int64, len(labels))


def _itself(mean: Any) -> Any:
    return mean


@dataclass(frozen=True)
class RowMean:
    """The mean of a value of each row, or a function of it.

    Attributes:
        values: shape (rows,), or (rows, values) where it takes several means.
        is_share: whether they are zeros and ones.
    """

    values: NDArray[np.float64]
    of_mean: Callable[[Any], Any] = _itself
    is_share: bool = False
    max_rows: int = 20_000
    resamples: int = 1_000

    @property
    def rows(self) -> int:
        return len(self.values)

    @property
    def is_mean(self) -> bool:
        """Whether it is the mean itself, and no function of it."""
        return self.of_mean is _itself

    def of_means(self, means: NDArray[np.float64]) -> NDArray[np.float64]:
        """Its values for means of ``values``, shape (…, values) to (…)."""
        if self.values.ndim == 1:
            means = means[..., 0]
        return np.asarray(self.of_mean(means))

    def on(self, rows: NDArray[np.int64]) -> float:
        if not len(rows):
            return math.nan
        return float(self.of_mean(self.values[rows].mean(axis=0)))

    def bootstrap(self, rows: NDArray[np.int64], rng: np.random.Generator, size: int) -> NDArray[np.float64]:
        values = self.values[rows]
        at_once = max(1, _CHUNK // size)
        means = np.empty((self.resamples, *values.shape[1:]))
        for start in range(0, self.resamples, at_once):
            part = slice(start, min(start + at_once, self.resamples))
            means[part] = values[rng.integers(len(values), size=(part.stop - part.start, size))].mean(axis=1)
        estimates: NDArray[np.float64] = np.asarray(self.of_mean(means), np.float64)
        return estimates


@dataclass(frozen=True)
class Confusion:
    """A metric that depends only on how often each pair of true and predicted class occurs.

    Attributes:
        cells: for each row, its true class times ``classes`` plus its predicted class. Shape (rows,).
        of_counts: the metric as a function of counts, shape (…, classes, classes), true classes first, to
            values, shape (…).
    """

    cells: NDArray[np.int64]
    classes: int
    of_counts: Callable[[NDArray[np.float64]], NDArray[np.float64]]
    max_rows: int = 10_000_000
    resamples: int = 1_000

    @property
    def rows(self) -> int:
        return len(self.cells)

    def on(self, rows: NDArray[np.int64]) -> float:
        if not len(rows):
            return math.nan
        return float(self.of_counts(self._counts(rows)))

    def bootstrap(self, rows: NDArray[np.int64], rng: np.random.Generator, size: int) -> NDArray[np.float64]:
        # The counts of rows drawn with replacement are a multinomial draw, so no rows need to be drawn.
        counts = self._counts(rows)
        shares = (counts / counts.sum()).ravel()
        at_once = max(1, _CELLS // counts.size)
        values = []
        resamples = self.resamples
        if counts.size > _CELLS // 200:
            resamples = 200
        for start in range(0, resamples, at_once):
            drawn = rng.multinomial(size, shares, size=min(at_once, resamples - start))
            values.append(self.of_counts(drawn.reshape(-1, self.classes, self.classes).astype(np.float64)))
        return np.concatenate(values)

    def _counts(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        counts = np.bincount(self.cells[rows], minlength=self.classes**2)
        return counts.reshape(self.classes, self.classes).astype(np.float64)


@dataclass(frozen=True)
class Scored:
    """Any scorer of scikit-learn, called on each resample; because that is slow, on fewer and smaller ones.

    Attributes:
        truth: the true numbers, or the numbers of the true classes. Shape (rows,).
        probabilities: the probabilities of the classes. Shape (rows, classes).
        reasons: the reason of the last call that gave no value; empty if all gave one.
    """

    metric: str
    truth: NDArray[Any]
    predicted: NDArray[Any]
    probabilities: NDArray[np.float64] | None
    max_rows: int = 5_000
    resamples: int = 200
    reasons: list[str] = field(default_factory=list, repr=False)
    _scorer: list[Any] = field(default_factory=list, repr=False)

    @property
    def rows(self) -> int:
        return len(self.truth)

    def on(self, rows: NDArray[np.int64]) -> float:
        if not len(rows):
            return math.nan
        from sklearn.metrics import get_scorer

        if not self._scorer:
            self._scorer.append(get_scorer(SHORT_NAMES.get(self.metric, self.metric)))
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")  # they say that there is no value, and so does NaN
            try:
                value = float(self._scorer[0](_estimator_of(self), rows, self.truth[rows]))
            except ValueError as error:  # for example because no row is of one of the classes
                self.reasons[:] = [str(error)]
                return math.nan
        return value

    def bootstrap(self, rows: NDArray[np.int64], rng: np.random.Generator, size: int) -> NDArray[np.float64]:
        return np.array([self.on(rows[rng.integers(len(rows), size=size)]) for _ in range(self.resamples)])


def _estimator_of(scored: Scored) -> Any:
    """An estimator that returns recorded predictions; its features are the numbers of rows."""
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin

    probabilities = scored.probabilities
    base = RegressorMixin if scored.truth.dtype.kind == "f" else ClassifierMixin

    class Recorded(base, BaseEstimator):  # type: ignore[misc, valid-type]
        def __sklearn_is_fitted__(self) -> bool:
            return True

        def predict(self, rows: NDArray[np.int64]) -> NDArray[Any]:
            return scored.predicted[rows]

        if probabilities is None:
            classes_ = np.unique(scored.truth)
        else:
            classes_ = np.arange(probabilities.shape[1])

            def predict_proba(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
                return probabilities[rows]

    return Recorded()
