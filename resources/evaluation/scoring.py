"""Predictions of a checkpoint on rows that it was not trained on, and their scores."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from halving import Dataset, TrainedRun
from halving.errors import HalvingError, InvalidInput
from halving.trial.import_string import import_function, where
from resources.sweep_spec.metrics import CLASS_METRICS, NUMBER_METRICS

if TYPE_CHECKING:
    import pyarrow as pa

TEST_SPLIT = "test"


class PredictionFailed(HalvingError, RuntimeError):
    """The predictor raised an error, or did not return one prediction for each row."""


@dataclass(frozen=True)
class Scores:
    """Metrics of one checkpoint on one split. In the confusion matrix rows are true classes and columns predicted ones."""

    metrics: dict[str, float]
    labels: list[Any] | None
    confusion: list[list[int]] | None
    per_class: list[dict[str, Any]] | None


@dataclass(frozen=True)
class HeldOut:
    """A split that checkpoints are scored on, read once for all of them.

    Attributes:
        features: its rows without the target column.
        truth: the target column.
        regression: whether the target is a number to come close to; see :func:`is_regression`.
    """

    dataset: Dataset
    features: "pa.Table"
    truth: list[Any]
    regression: bool


def held_out(dataset: Dataset, gate_metric: str | None = None) -> HeldOut:
    """The test split of a snapshot.

    Raises:
        InvalidInput: the gate's metric does not fit the target.
    """
    regression = is_regression(dataset.manifest["schema"][dataset.target], gate_metric)
    table = dataset.read(TEST_SPLIT)
    return HeldOut(dataset, table.drop_columns([dataset.target]), table.column(dataset.target).to_pylist(), regression)


def is_regression(target_type: str, gate_metric: str | None) -> bool:
    """Whether the target is a number to come close to, and not a class: floats are, and integers with a gate metric for numbers.

    Raises:
        InvalidInput: the gate's metric does not fit the target.
    """
    real = target_type in ("double", "float", "halffloat") or target_type.startswith("decimal")
    if gate_metric is None:
        return real
    accepted = NUMBER_METRICS if real else [*CLASS_METRICS, *(NUMBER_METRICS if "int" in target_type else [])]
    if gate_metric not in accepted:
        raise InvalidInput(f"gates.metric = {gate_metric!r} is not accepted for a target of type {target_type}: give one of {accepted}")
    return gate_metric in NUMBER_METRICS


def evaluate_checkpoint(rows: HeldOut, *, predictor: str, params: dict[str, Any], checkpoint: str) -> Scores:
    """Run ``predict(run, table)`` on held-out rows, and score what it returns.

    Raises:
        PredictionFailed: naming the predictor and what went wrong.
    """
    dataset, truth = rows.dataset, rows.truth
    predict = import_function("predictor", predictor)
    run = TrainedRun(dataset.store, params=params, dataset=dataset, checkpoint_digest=checkpoint)
    try:
        predicted = predict(run, rows.features)
        answers = [item.item() if hasattr(item, "item") else item for item in predicted]
    except Exception as error:
        raise PredictionFailed(f"predictor {predictor} raised {type(error).__name__} at {where(error)}: {error}") from error
    if len(answers) != len(truth):
        raise PredictionFailed(f"predictor {predictor} returned {len(answers)} predictions for {len(truth)} rows; return one a row")
    try:
        return score(truth, answers, regression=rows.regression)
    except (ValueError, TypeError) as error:
        got, wanted = (sorted({type(value).__name__ for value in values}) for values in (answers, truth))
        raise PredictionFailed(
            f"predictor {predictor} returned {got} where the column {dataset.target!r} holds {wanted}: {error}; return values of its kind"
        ) from error


def score(truth: Sequence[Any], predicted: Sequence[Any], *, regression: bool) -> Scores:
    """R², MAE and RMSE for real numbers; accuracy, macro F1, confusion matrix and per-class table for classes.

    Raises:
        ValueError, TypeError: predictions and truth cannot be compared, or the truth has rows without a value.
    """
    if not truth:
        raise InvalidInput("there are no rows to score")
    if any(value is None for value in truth):
        raise ValueError("the target column has rows without a value")
    if not regression and type(truth[0]) is not type(predicted[0]):
        raise TypeError("classes are compared by value, so their types must be the same")
    return _score_numbers(truth, predicted) if regression else _score_classes(truth, predicted)


def _score_classes(truth: Sequence[Any], predicted: Sequence[Any]) -> Scores:
    from sklearn.metrics import accuracy_score, confusion_matrix, precision_recall_fscore_support

    labels = sorted(set(truth) | set(predicted), key=lambda label: (str(type(label)), label))
    precision, recall, f1, support = precision_recall_fscore_support(truth, predicted, labels=labels, zero_division=0.0)
    per_class = [
        {"label": label, "precision": float(p), "recall": float(r), "f1": float(f), "rows": int(n)}
        for label, p, r, f, n in zip(labels, precision, recall, f1, support, strict=True)
    ]
    metrics = {"accuracy": float(accuracy_score(truth, predicted)), "f1_macro": float(f1.mean())}
    return Scores(metrics, labels, confusion_matrix(truth, predicted, labels=labels).tolist(), per_class)


def _score_numbers(truth: Sequence[float], predicted: Sequence[Any]) -> Scores:
    from sklearn.metrics import mean_absolute_error, r2_score, root_mean_squared_error

    if not all(isinstance(value, int | float) and math.isfinite(value) for value in predicted):
        # NaN and not an error: the gate on finite metrics then stops the promotion, and there is a report to look at.
        return Scores({"r2": math.nan, "mae": math.nan, "rmse": math.nan}, None, None, None)
    metrics = {
        "r2": float(r2_score(truth, predicted)) if len(truth) > 1 else math.nan,
        "mae": float(mean_absolute_error(truth, predicted)),
        "rmse": float(root_mean_squared_error(truth, predicted)),
    }
    return Scores(metrics, None, None, None)
