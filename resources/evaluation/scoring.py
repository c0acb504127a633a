"""Scores of a checkpoint on rows that it was not trained on."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from halving import Dataset, Evaluation
from halving.errors import InvalidInput
from halving.machine.temporary_folders import scratch_folder
from resources.datasets.row_hashes import column_words, hash_rows
from resources.evaluation.answers import Answer
from resources.evaluation.asking import Answered, PredictionFailed, ask
from resources.evaluation.confusion_metrics import by_class
from resources.evaluation.measures import class_codes, measure
from resources.evaluation.predictions import Predictions, higher_is_better, sorted_classes
from resources.evaluation.predictor_process import Question
from resources.evaluation.resampling import Resampled, interval_of
from resources.evaluation.statistics.clusters import Clusters, among, numbered
from resources.sweep_spec import SweepSpec
from resources.sweep_spec.evaluation import judged_as_number
from resources.sweep_spec.metrics import CLASS_METRICS, NUMBER_METRICS

if TYPE_CHECKING:
    import pyarrow as pa

TEST_SPLIT = "test"
_SUM_TOLERANCE = 1e-3  # of probabilities, which may be of half precision


@dataclass(frozen=True)
class Scores:
    """Metrics of one checkpoint on one split, as the report keeps them.

    Attributes:
        intervals: of each metric that has one: ``low`` and ``high`` at 95 %, and the rows.
        higher_is_better: of each metric.
        main_metric: what versions are compared by where no gate names another.
        without_value: why a metric has none on these rows, such as that there is no row of one of the classes; it is NaN then.
        labels: the classes; None where the target is a number.
        confusion: rows are true classes and columns predicted ones.
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
    """A checkpoint's scores, with what they were computed from, and what its function gave besides."""

    scores: Scores
    predictions: Predictions
    answered: Answered


@dataclass(frozen=True)
class HeldOut:
    """A split that checkpoints are scored on, read once for all of them.

    Attributes:
        dataset: what a checkpoint's function is given; its train split is what that was trained on.
        table: its rows, with the target column.
        truth: the target column's values.
        regression: whether the target is a number to come close to; see :func:`judged_as_number`.
        metrics: the metrics by which a predictor is scored.
        clusters: of each row the number of its group, where the dataset has one and it is of several rows.
        file: its rows without the target column, for a predictor's process (Arrow IPC).
    """

    dataset: Dataset
    table: "pa.Table"
    truth: list[Any]
    regression: bool
    metrics: list[str]
    file: str
    clusters: Clusters | None = None

    def trained_on(self, splits: Sequence[str]) -> "HeldOut":
        """The same rows for a checkpoint that was trained on these splits: to its function they are the dataset's train split."""
        dataset = self.dataset
        return self.seen_with(Dataset(dataset.store, dataset.name, dataset.digest, splits))

    def seen_with(self, dataset: Dataset) -> "HeldOut":
        """The same rows for a checkpoint that was trained on another snapshot, by which its predictor scales them and orders classes."""
        return replace(self, dataset=dataset)


@contextmanager
def held_out(dataset: Dataset, spec: SweepSpec) -> Iterator[HeldOut]:
    """The test split of a snapshot, for as long as checkpoints are scored on it.

    Raises:
        InvalidInput: a metric does not fit the target.
    """
    import pyarrow as pa

    regression = judged_as_number(dataset.manifest["schema"][dataset.target], spec.metrics, spec.gate_metrics)
    metrics = spec.metrics or (NUMBER_METRICS if regression else CLASS_METRICS)
    table = dataset.read(TEST_SPLIT)
    with scratch_folder("rows") as folder:
        file = folder / "rows.arrow"
        features = table.drop_columns([dataset.target])
        with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, features.schema) as writer:
            writer.write_table(features)
        truth = table.column(dataset.target).to_pylist()
        yield HeldOut(dataset, table, truth, regression, list(metrics), str(file), _clusters_of(table, spec.dataset.group or []))


def _clusters_of(table: "pa.Table", columns: Sequence[str]) -> Clusters | None:
    """Rows that have these columns in common belong together; None where no two do."""
    if not columns or not table.num_rows:
        return None
    hashes = [hash_rows(column_words(batch), columns) for batch in table.select(columns).to_batches()]
    return among(numbered(np.concatenate(hashes)), np.arange(table.num_rows))


def judge_checkpoint(rows: HeldOut, spec: SweepSpec, *, params: dict[str, Any], checkpoint: str, serving: bool = False) -> Judged:
    """Have the predictor or evaluator of a spec judge one checkpoint on held-out rows.

    Args:
        spec: of the sweep that the checkpoint is from; the metrics are those of ``rows``.
        serving: also measure what serving costs.

    Raises:
        PredictionFailed: naming the function and what went wrong.
        InvalidInput: the predictions do not have what a metric needs.
    """
    if spec.judged_by is None:
        raise InvalidInput(f"the spec of {spec.name} has neither a predictor nor an evaluator")
    question = Question(
        field="predictor" if spec.predictor else "evaluator",
        function=spec.judged_by,
        root=rows.dataset.store.root,
        dataset=(rows.dataset.name, rows.dataset.digest, rows.dataset.train_on),
        params=params,
        checkpoint=checkpoint,
        split=TEST_SPLIT,
        rows=rows.file if spec.predictor else None,
        serving_seconds=spec.serving.seconds if serving else 0.0,
        serving_batch=spec.serving.batch,
    )
    answered = ask(question, spec.evaluation_limits)
    if isinstance(answered.returned, Evaluation):
        return _of_evaluation(answered, answered.returned, rows, spec.judged_by, spec.gate_metric)
    predictions = replace(predictions_of(answered.returned, rows, spec.judged_by), clusters=rows.clusters)
    return Judged(score(predictions, rows.metrics, spec.gate_metric), predictions, answered)


def score(predictions: Predictions, metrics: Sequence[str], main_metric: str | None = None) -> Scores:
    """Metrics with intervals; of classes also the confusion matrix and a table of them.

    Raises:
        InvalidInput: the predictions do not have what a metric needs, or there are none.
    """
    if not predictions.rows:
        raise InvalidInput("there are no rows to score")
    measured = {metric: measure(predictions, metric) for metric in metrics}
    without = {metric: reason for metric, one in measured.items() if (reason := _why_none(one, predictions))}
    found = {metric: interval_of(one, clusters=predictions.clusters) for metric, one in measured.items()}
    scores = Scores(
        metrics={metric: interval.value for metric, interval in found.items()},
        intervals={metric: interval.as_dict() for metric, interval in found.items()},
        higher_is_better={metric: higher_is_better(metric) for metric in metrics},
        main_metric=main_metric if main_metric in found else _main_of(metrics),
        without_value=without,
    )
    return scores if predictions.classes is None else replace(scores, **_by_class(predictions))


def _why_none(measured: Resampled, predictions: Predictions) -> str | None:
    """Why a metric has no value on all of the rows; None where it has one."""
    if not math.isnan(measured.on(np.arange(predictions.rows))):
        return None
    given = predictions.prediction if predictions.probabilities is None else predictions.probabilities
    if given is not None and np.asarray(given).dtype.kind == "f" and not np.isfinite(given).all():
        return "the predictor returned numbers that are not finite"
    if predictions.classes is not None and len(predictions.classes) == 1:
        return f"all rows and predictions are of one class, {predictions.classes[0]!r}"
    if reasons := getattr(measured, "reasons", ()):
        return str(reasons[0])
    present = set(() if predictions.target is None else predictions.target)
    if absent := [label for label in predictions.classes or () if label not in present]:
        return f"no row of the split is of the class {absent[0]!r}"
    return "it is a ratio whose denominator is 0 on these rows"


def _main_of(metrics: Sequence[str]) -> str:
    """The metric that versions are compared by when the spec names none: the first, but of the usual ones of numbers rmse."""
    return "rmse" if list(metrics) == NUMBER_METRICS else metrics[0]


def _by_class(predictions: Predictions) -> dict[str, Any]:
    labels = list(predictions.classes or ())
    code = {label: number for number, label in enumerate(labels)}
    both = (predictions.target, predictions.prediction)
    truth, predicted = (class_codes(some, code) for some in both if some is not None)
    confusion = np.bincount(truth * len(labels) + predicted, minlength=len(labels) ** 2).reshape(len(labels), -1)
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


def predictions_of(answer: Answer, rows: HeldOut, predictor: str) -> Predictions:
    """What a predictor returned, beside the true values.

    Raises:
        PredictionFailed: it is not one prediction for each row, of the target's kind.
    """
    given = answer.predictions if answer.predictions is not None else answer.probabilities
    returned = len(given) if given is not None else 0
    if returned != len(rows.truth):
        raise PredictionFailed(f"predictor {predictor} returned {returned} predictions for {len(rows.truth)} rows; return one a row")
    try:
        if any(value is None for value in rows.truth):
            raise ValueError("the target column has rows without a value")
        if rows.regression:
            return _numbers(answer, rows.truth)
        return _classes(answer, rows) if answer.predictions is not None else _probabilities(answer, rows)
    except (ValueError, TypeError) as error:
        got = answer.predictions if answer.predictions is not None else answer.classes or ["probabilities"]
        kinds, wanted = (sorted({type(value).__name__ for value in values}) for values in (got, rows.truth))
        raise PredictionFailed(
            f"predictor {predictor} returned {kinds} where the column {rows.dataset.target!r} holds {wanted}: {error}; "
            "return values of its kind"
        ) from error


def _numbers(answer: Answer, truth: list[Any]) -> Predictions:
    if answer.predictions is None:
        raise ValueError("the target is a number, which has no probabilities")
    # What is no number, such as None, has no error; NaN and not a refusal, so that there is a report to look at.
    predicted = [
        float(value) if isinstance(value, int | float) or hasattr(value, "__float__") else math.nan for value in answer.predictions
    ]
    return Predictions(np.array([float(value) for value in truth]), np.array(predicted))


def _classes(answer: Answer, rows: HeldOut) -> Predictions:
    predicted = answer.predictions or []
    if {type(value) for value in predicted} - {type(value) for value in rows.truth}:
        raise TypeError("classes are compared by value, so their types must be the same")
    return Predictions(_held(rows.truth), _held(predicted), classes=sorted_classes(rows.truth, predicted))


def _probabilities(answer: Answer, rows: HeldOut) -> Predictions:
    given = np.asarray(answer.probabilities, np.float64)
    known = answer.classes if answer.classes is not None else sorted_classes(_all_classes(rows.dataset))
    if given.shape[1] != len(known):
        raise ValueError(
            f"probabilities of {given.shape[1]} classes are not accepted: the target has {len(known)}, sorted {list(known)[:20]}"
        )
    if {type(label) for label in known} - {type(value) for value in rows.truth}:
        raise TypeError("classes are compared by value, so their types must be the same")
    finite = np.isfinite(given).all(axis=1)
    wrong = finite & ((given < -_SUM_TOLERANCE).any(axis=1) | (np.abs(given.sum(axis=1) - 1) > _SUM_TOLERANCE))
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise ValueError(
            f"the probabilities of row {row} sum to {given[row].sum():.4g}, smallest {given[row].min():.4g}; they must sum to 1"
        )
    # What half precision rounded: some scorers want a sum of 1 exactly.
    given = np.clip(given, 0.0, None)
    given = given / given.sum(axis=1, keepdims=True)
    classes = sorted_classes(rows.truth, known)
    place = {label: number for number, label in enumerate(classes)}
    whole = np.zeros((len(given), len(classes)))
    whole[:, [place[label] for label in known]] = given
    predicted = [classes[number] for number in np.where(finite, np.nan_to_num(whole).argmax(axis=1), 0)]
    return Predictions(_held(rows.truth), _held(predicted), whole, classes=classes)


def _all_classes(dataset: Dataset) -> list[Any]:
    """The target's values in all splits: rarely all of them are in the test split."""
    values = dataset.read(None, columns=[dataset.target]).column(dataset.target).unique().to_pylist()
    return [value for value in values if value is not None]


def _held(values: Sequence[Any]) -> NDArray[Any]:
    held = np.empty(len(values), object)  # never a numpy type, so that classes stay what they are in the table
    held[:] = list(values)
    return held


def _of_evaluation(answered: Answered, given: Evaluation, rows: HeldOut, evaluator: str, gate_metric: str | None) -> Judged:
    for name, values in given.scores.items():
        if len(values) != rows.table.num_rows:
            raise PredictionFailed(
                f"evaluator {evaluator} returned {len(values)} {name!r} scores for {rows.table.num_rows} rows; return one a row"
            )
    predictions = Predictions(None, None, scores=given.scores, clusters=rows.clusters)
    found = {name: interval_of(measure(predictions, name), clusters=rows.clusters) for name in given.scores}
    metrics = {**{name: interval.value for name, interval in found.items()}, **given.metrics}
    if gate_metric is not None and gate_metric not in metrics:
        raise InvalidInput(f"metric {gate_metric!r} of the gates is not accepted: evaluator {evaluator} gave {', '.join(metrics)}")
    scores = Scores(
        metrics=metrics,
        intervals={name: interval.as_dict() for name, interval in found.items()},
        higher_is_better={name: name not in given.lower_is_better for name in metrics},
        main_metric=gate_metric or next(iter(metrics)),
        without_value={name: "the evaluator gave NaN" for name, value in metrics.items() if math.isnan(value)},
    )
    return Judged(scores, predictions, answered)


__all__ = ["HeldOut", "Judged", "PredictionFailed", "Scores", "held_out", "judge_checkpoint", "predictions_of", "score"]
