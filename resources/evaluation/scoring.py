"""Scores of a checkpoint on rows that it was not trained on."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from halving import Evaluation
from halving.errors import InvalidInput
from resources.evaluation.confusion_metrics import by_class
from resources.evaluation.held_out import TEST_SPLIT, HeldOut
from resources.evaluation.measures import class_codes, measure
from resources.evaluation.predicted import Predicted
from resources.evaluation.predictions import Predictions
from resources.evaluation.predictor_calls import CallResult, PredictionFailed, call_function
from resources.evaluation.predictor_process import Question
from resources.evaluation.resampling import Resampled, interval_of
from resources.sweep_spec import SweepSpec
from resources.sweep_spec.metrics import NUMBER_METRICS, higher_is_better


@dataclass(frozen=True)
class Scores:
    """Metrics of one checkpoint on one split, in the form of the report.

    Attributes:
        intervals: by metric, if it has one: ``low`` and ``high`` at 95 %, and the rows.
        higher_is_better: by metric.
        main_metric: the metric that versions are compared by, unless a gate names another.
        without_value: why a metric has no value on these rows and is NaN, such as that no row is of one of
            the classes.
        labels: the classes; None where the target is a number.
        confusion: rows are true classes, and columns are predicted ones.
    """

    metrics: dict[str, float]
    intervals: dict[str, dict[str, float]]
    higher_is_better: dict[str, bool]
    main_metric: str
    without_value: dict[str, str] = field(default_factory=dict)
    labels: list[Any] | None = None
    confusion: list[list[int]] | None = None
    per_class: list[dict[str, Any]] | None = None


@dataclass(frozen=True)
class Judged:
    """A checkpoint's scores, the predictions behind them, and the other results of its function."""

    scores: Scores
    predictions: Predictions
    result: CallResult


def judge_checkpoint(
    rows: HeldOut, spec: SweepSpec, *, params: dict[str, Any], checkpoint: str, serving: bool = False
) -> Judged:
    """Have the predictor or evaluator of a spec judge one checkpoint on held-out rows.

    Args:
        spec: the spec of the checkpoint's sweep; the metrics are those of ``rows``.
        serving: whether to measure what serving costs, too.

    Raises:
        PredictionFailed: naming the function and what went wrong.
        InvalidInput: the predictions do not have what a metric needs.
    """
    if spec.judged_by is None:
        raise InvalidInput(f"the spec of {spec.name} has neither a predictor nor an evaluator")
    field_of_spec = "predictor" if spec.predictor else "evaluator"
    serving_seconds = 0.0
    if serving:
        serving_seconds = spec.serving.seconds
    question = Question(
        field=field_of_spec,
        function=spec.judged_by,
        root=rows.dataset.store.root,
        dataset=(rows.dataset.name, rows.dataset.digest, rows.dataset.train_on),
        params=params,
        checkpoint=checkpoint,
        split=TEST_SPLIT,
        rows=rows.file,
        serving_seconds=serving_seconds,
        serving_batch=spec.serving.batch,
        numbers=rows.regression,
    )
    predicted = Predicted(rows, spec.judged_by)
    result = call_function(question, spec.evaluation_limits, predicted.add)
    if result.evaluation is not None:
        return _of_evaluation(result, result.evaluation, rows, spec.judged_by, spec.gate_metric)
    predictions = predicted.predictions()
    return Judged(score(predictions, rows.metrics, spec.gate_metric), predictions, result)


def score(predictions: Predictions, metrics: Sequence[str], main_metric: str | None = None) -> Scores:
    """Compute metrics with intervals; for classes also the confusion matrix and a table of the classes.

    Raises:
        InvalidInput: the predictions do not have what a metric needs, or there are none.
    """
    if not predictions.rows:
        raise InvalidInput("there are no rows to score")
    measured = {metric: measure(predictions, metric) for metric in metrics}
    without_value = {}
    intervals = {}
    for metric, measure_of in measured.items():
        intervals[metric] = interval_of(measure_of, clusters=predictions.clusters)
        reason = _why_no_value(measure_of, predictions)
        if reason:
            without_value[metric] = reason
    if main_metric not in intervals:
        main_metric = _main_of(metrics)
    scores = Scores(
        metrics={metric: interval.value for metric, interval in intervals.items()},
        intervals={metric: interval.as_dict() for metric, interval in intervals.items()},
        higher_is_better={metric: higher_is_better(metric) for metric in metrics},
        main_metric=main_metric,
        without_value=without_value,
    )
    if predictions.classes is None:
        return scores
    return replace(scores, **_by_class(predictions))


def _why_no_value(measured: Resampled, predictions: Predictions) -> str | None:
    """Why a metric has no value on all of the rows; None if it has one."""
    if not math.isnan(measured.on(np.arange(predictions.rows))):
        return None
    returned = predictions.probabilities
    if returned is None:
        returned = predictions.prediction
    if returned is not None and np.asarray(returned).dtype.kind == "f" and not np.isfinite(returned).all():
        return "the predictor returned numbers that are not finite"
    if predictions.classes is not None and len(predictions.classes) == 1:
        return f"all rows and predictions are of one class, {predictions.classes[0]!r}"
    if reasons := getattr(measured, "reasons", ()):
        return str(reasons[0])
    present: set[Any] = set()
    if predictions.target is not None:
        present = set(predictions.target)
    if absent := [label for label in predictions.classes or () if label not in present]:
        return f"no row of the split is of the class {absent[0]!r}"
    return "it is a ratio whose denominator is 0 on these rows"


def _main_of(metrics: Sequence[str]) -> str:
    """The metric that versions are compared by if the spec names none: the first, or rmse by default."""
    if list(metrics) == NUMBER_METRICS:
        return "rmse"
    return metrics[0]


def _by_class(predictions: Predictions) -> dict[str, Any]:
    labels = list(predictions.classes or ())
    code = {label: number for number, label in enumerate(labels)}
    both = (predictions.target, predictions.prediction)
    truth, predicted = (class_codes(some, code) for some in both if some is not None)
    confusion = np.bincount(truth * len(labels) + predicted, minlength=len(labels) ** 2).reshape(
        len(labels), -1
    )
    of_classes = by_class(confusion.astype(np.float64))
    per_class = [
        {
            "label": label,
            **{name: float(of_classes[name][number]) for name in ("precision", "recall", "f1")},
            "rows": int(of_classes["rows"][number]),
        }
        for number, label in enumerate(labels)
    ]
    return {"labels": labels, "confusion": confusion.tolist(), "per_class": per_class}


def _of_evaluation(
    result: CallResult, evaluation: Evaluation, rows: HeldOut, evaluator: str, gate_metric: str | None
) -> Judged:
    for name, values in evaluation.scores.items():
        if len(values) != rows.rows:
            raise PredictionFailed(
                f"evaluator {evaluator} returned {len(values)} {name!r} scores for {rows.rows} rows; "
                "return one a row"
            )
    predictions = Predictions(None, None, scores=evaluation.scores, clusters=rows.clusters)
    intervals = {
        name: interval_of(measure(predictions, name), clusters=rows.clusters) for name in evaluation.scores
    }
    metrics = {**{name: interval.value for name, interval in intervals.items()}, **evaluation.metrics}
    if gate_metric is not None and gate_metric not in metrics:
        raise InvalidInput(
            f"metric {gate_metric!r} of the gates is not accepted: evaluator {evaluator} gave "
            f"{', '.join(metrics)}"
        )
    scores = Scores(
        metrics=metrics,
        intervals={name: interval.as_dict() for name, interval in intervals.items()},
        higher_is_better={name: name not in evaluation.lower_is_better for name in metrics},
        main_metric=gate_metric or next(iter(metrics)),
        without_value={
            name: "the evaluator gave NaN" for name, value in metrics.items() if math.isnan(value)
        },
    )
    return Judged(scores, predictions, result)


__all__ = ["Judged", "PredictionFailed", "Scores", "judge_checkpoint", "score"]
