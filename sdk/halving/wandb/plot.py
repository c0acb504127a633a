"""``wandb.plot``: charts, which are logged as the table of their values, ``NAME_table``, as in W&B's files.

Halving draws no chart of its own from them; the table is on the run's page.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from halving.wandb.errors import Error


@dataclass
class CustomChart:
    """A chart: a table, and how W&B would draw it.

    Attributes:
        table: ``wandb.Table`` or :class:`halving.Table`.
        spec_name, fields, string_fields: how W&B would draw it; not recorded.
        split_table: whether the table's name begins with ``Custom Chart Tables/``.
    """

    table: Any
    spec_name: str = ""
    fields: dict[str, Any] | None = None
    string_fields: dict[str, Any] | None = None
    split_table: bool = False

    def table_key(self, key: str) -> str:
        """The name under which the table is logged."""
        if self.split_table:
            return f"Custom Chart Tables/{key}_table"
        return f"{key}_table"


def plot_table(
    vega_spec_name: str,
    data_table: Any,
    fields: dict[str, Any],
    string_fields: dict[str, Any] | None = None,
    split_table: bool = False,
) -> CustomChart:
    """A chart of a table.

    Raises:
        Error: ``data_table`` is no table.
    """
    if not hasattr(data_table, "columns") and not hasattr(data_table, "media_type"):
        raise Error(
            f"Expected `data_table` to be `wandb.Table` type, instead got {type(data_table).__name__}"
        )
    return CustomChart(data_table, vega_spec_name, fields, string_fields or {}, split_table)


def line(
    table: Any, x: str, y: str, stroke: str | None = None, title: str = "", split_table: bool = False
) -> CustomChart:
    """A line of two columns."""
    fields = {"x": x, "y": y, "stroke": stroke}
    return plot_table("wandb/line/v0", table, fields, {"title": title}, split_table)


def scatter(table: Any, x: str, y: str, title: str = "", split_table: bool = False) -> CustomChart:
    """Points of two columns."""
    return plot_table("wandb/scatter/v0", table, {"x": x, "y": y}, {"title": title}, split_table)


def bar(table: Any, label: str, value: str, title: str = "", split_table: bool = False) -> CustomChart:
    """Bars of two columns."""
    fields = {"label": label, "value": value}
    return plot_table("wandb/bar/v0", table, fields, {"title": title}, split_table)


def histogram(table: Any, value: str, title: str = "", split_table: bool = False) -> CustomChart:
    """The distribution of a column."""
    return plot_table("wandb/histogram/v0", table, {"value": value}, {"title": title}, split_table)


def line_series(
    xs: Sequence[Any],
    ys: Sequence[Sequence[Any]],
    keys: Sequence[str] | None = None,
    title: str = "",
    xname: str = "x",
    split_table: bool = False,
) -> CustomChart:
    """Several lines: a table of ``step``, ``lineKey`` and ``lineVal``.

    Args:
        xs: the values of x of all lines, or of each.

    Raises:
        ValueError: there are not as many ``xs`` or ``keys`` as ``ys``.
    """
    if not isinstance(xs[0], Iterable) or isinstance(xs[0], (str, bytes)):
        xs = [xs] * len(ys)
    names = keys or [f"line_{number}" for number in range(len(ys))]
    if len(xs) != len(ys):
        raise ValueError(f"Number of x-series ({len(xs)}) must match y-series ({len(ys)}).")
    if len(names) != len(ys):
        raise ValueError(f"Number of keys ({len(names)}) must match y-series ({len(ys)}).")
    rows = [
        [x, name, y]
        for name, own_xs, own_ys in zip(names, xs, ys, strict=True)
        for x, y in zip(own_xs, own_ys, strict=False)
    ]
    return _chart("wandb/lineseries/v0", ["step", "lineKey", "lineVal"], rows, title, split_table)


def confusion_matrix(
    probs: Any = None,
    y_true: Sequence[Any] | None = None,
    preds: Sequence[Any] | None = None,
    class_names: Sequence[str] | None = None,
    title: str = "Confusion Matrix Curve",
    split_table: bool = False,
) -> CustomChart:
    """How often each class was predicted as each: a table of ``Actual``, ``Predicted`` and ``nPredictions``.

    Raises:
        ValueError: both or none of ``probs`` and ``preds`` are given, their number is not that of ``y_true``,
            or there are more classes than names.
    """
    import numpy as np

    if (probs is None) == (preds is None):
        raise ValueError("Only one of `probs` or `preds` should be provided, not both.")
    if probs is not None:
        preds = np.argmax(probs, axis=1).tolist()
    predicted = list(preds or ())
    actual = list(y_true if y_true is not None else ())
    if len(predicted) != len(actual):
        raise ValueError("The number of predictions and true labels must be equal.")
    classes = sorted({*predicted, *actual})
    if class_names is not None:
        if len(set(predicted)) > len(class_names):
            raise ValueError("The number of unique predicted classes exceeds the number of class names.")
        if len(set(actual)) > len(class_names):
            raise ValueError("The number of unique true labels exceeds the number of class names.")
        classes = list(range(len(class_names)))
    names = class_names or [f"Class_{number + 1}" for number in range(len(classes))]
    places = {value: place for place, value in enumerate(classes)}
    counts = np.zeros((len(names), len(names)))
    for true, guess in zip(actual, predicted, strict=True):
        counts[places[true], places[guess]] += 1
    rows = [
        [names[row], names[column], float(counts[row, column])]
        for row in range(len(names))
        for column in range(len(names))
    ]
    columns = ["Actual", "Predicted", "nPredictions"]
    return _chart("wandb/confusion_matrix/v1", columns, rows, title, split_table)


def pr_curve(
    y_true: Any,
    y_probas: Any,
    labels: Sequence[str] | None = None,
    classes_to_plot: Sequence[Any] | None = None,
    interp_size: int = 21,
    title: str = "Precision-Recall Curve",
    split_table: bool = False,
) -> CustomChart:
    """Precision at ``interp_size`` recalls from 1 to 0, by class; needs scikit-learn.

    The precision is made monotonic, as W&B does.

    Raises:
        ExtraMissing: scikit-learn is not installed.
    """
    import numpy as np

    measures = _sklearn_metrics()
    recalls = np.linspace(0, 1, interp_size)[::-1]
    rows: list[list[Any]] = []
    for name, positive, scores in _classes(y_true, y_probas, labels, classes_to_plot):
        precision, recall, _ = measures.precision_recall_curve(positive, scores)
        precision = np.maximum.accumulate(precision)[::-1]
        places = np.searchsorted(recall[::-1], recalls, side="left")
        values = zip(precision[places], recalls, strict=True)
        rows += [[name, round(float(value), 3), round(float(at), 3)] for value, at in values]
    columns = ["class", "precision", "recall"]
    return _chart("wandb/area-under-curve/v0", columns, rows, title, split_table)


def roc_curve(
    y_true: Any,
    y_probas: Any,
    labels: Sequence[str] | None = None,
    classes_to_plot: Sequence[Any] | None = None,
    title: str = "ROC Curve",
    split_table: bool = False,
) -> CustomChart:
    """False and true positive rates, by class; needs scikit-learn.

    Raises:
        ExtraMissing: scikit-learn is not installed.
    """
    measures = _sklearn_metrics()
    rows: list[list[Any]] = []
    for name, positive, scores in _classes(y_true, y_probas, labels, classes_to_plot):
        false_rates, true_rates, _ = measures.roc_curve(positive, scores)
        values = zip(false_rates, true_rates, strict=True)
        rows += [[name, round(float(false), 3), round(float(true), 3)] for false, true in values]
    columns = ["class", "fpr", "tpr"]
    return _chart("wandb/area-under-curve/v0", columns, rows, title, split_table)


def _classes(
    y_true: Any, y_probas: Any, labels: Sequence[str] | None, wanted: Sequence[Any] | None
) -> Iterable[tuple[str, Any, Any]]:
    """For each class its name, whether each row is of it, and the rows' scores for it."""
    import numpy as np

    truth = np.array(y_true)
    scores = np.array(y_probas)
    for place, value in enumerate(np.unique(truth)):
        if wanted is not None and value not in wanted:
            continue
        name = str(value)
        if labels is not None and isinstance(value, np.integer):
            name = labels[int(value)]
        yield name, truth == value, scores[..., place]


def _sklearn_metrics() -> Any:
    from halving.errors import ExtraMissing

    try:
        from sklearn import metrics
    except ImportError:
        raise ExtraMissing("this chart needs scikit-learn: `pip install scikit-learn`") from None
    return metrics


def _chart(
    spec_name: str, columns: list[str], rows: list[list[Any]], title: str, split_table: bool
) -> CustomChart:
    from halving.ingest.media import Table

    table = Table(columns=columns, rows=rows)
    return CustomChart(table, spec_name, {name: name for name in columns}, {"title": title}, split_table)
