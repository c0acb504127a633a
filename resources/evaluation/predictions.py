"""A checkpoint's predictions for each row of a split, kept in the store for comparisons row by row.

They are one Parquet file, named by its content, with the columns ``row`` (int64, the position in the split),
``target``, ``prediction``, and ``probability_<class>`` for each class if the predictor gave probabilities.
For an evaluator there is one column for each of its scores instead. If the dataset has groups of several
rows, ``group`` (int64) is the number of each row's group.
"""

import json
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from halving import Store
from halving.errors import StoreError
from resources.evaluation.columns import encode_arrow, join_columns
from resources.evaluation.statistics.clusters import Clusters

_ABOUT = b"halving.predictions"
_PROBABILITY = "probability_"
_ROW = "row"
_GROUP = "group"


@dataclass(frozen=True)
class Predictions:
    """Predictions for the rows of a split, in its stored order; all arrays have a value for each row.

    Attributes:
        target: the true values, shape (rows,); None for an evaluator, which knows them itself.
        prediction: the predicted values, of the same kind.
        probabilities: of each class, shape (rows, classes), columns as in ``classes``; None if the predictor
            gave none.
        scores: an evaluator's scores of each row by name, shape (rows,) each.
        classes: all classes that occur, sorted; None where the target is a number.
        clusters: the number of each row's group, shape (rows,), if the dataset has groups. The rows of a
            group are no independent evidence.
    """

    target: NDArray[Any] | None
    prediction: NDArray[Any] | None
    probabilities: NDArray[np.float64] | None = None
    scores: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    classes: tuple[Any, ...] | None = None
    clusters: Clusters | None = None

    @property
    def rows(self) -> int:
        """The number of rows."""
        if self.target is not None:
            return len(self.target)
        return len(next(iter(self.scores.values()), ()))


def write(store: Store, predictions: Predictions) -> str:
    """Write predictions to the store; return the digest that names them."""
    columns: dict[str, pa.Array] = {_ROW: pa.array(np.arange(predictions.rows), pa.int64())}
    if predictions.target is not None and predictions.prediction is not None:
        columns["target"] = _to_arrow(predictions.target)
        columns["prediction"] = _to_arrow(predictions.prediction)
    about: dict[str, Any] = {"classes": predictions.classes is not None, "probabilities": None}
    if predictions.probabilities is not None and predictions.classes is not None:
        about["probabilities"] = list(predictions.classes)
        for label, column in zip(predictions.classes, predictions.probabilities.T, strict=True):
            columns[f"{_PROBABILITY}{label}"] = pa.array(np.ascontiguousarray(column))
    columns |= {name: pa.array(values) for name, values in predictions.scores.items()}
    if predictions.clusters is not None:
        about["groups"] = True
        columns[_GROUP] = pa.array(predictions.clusters)
    table = pa.table(columns).replace_schema_metadata({_ABOUT: json.dumps(about).encode()})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    return store.put_blob(sink.getvalue().to_pybytes())


def _to_arrow(values: NDArray[Any]) -> pa.Array:
    if values.dtype.kind == "f":
        return pa.array(values)
    return pa.array(values.tolist())  # a list of objects that rows share


def read(store: Store, digest: str) -> Predictions:
    """Read the predictions that a digest names.

    Raises:
        NotFound: there are none in the store.
        StoreError: they are damaged, or the digest names something else.
    """
    try:
        table = pq.read_table(pa.BufferReader(store.get_blob(digest)))
        about = json.loads((table.schema.metadata or {})[_ABOUT])
    except (pa.ArrowInvalid, KeyError) as error:
        raise StoreError(f"the blob {digest} holds no predictions: {error}") from error
    predictions = _read(table, about)
    if about.get("groups"):
        predictions = replace(predictions, clusters=table[_GROUP].to_numpy())
    return predictions


def _read(table: pa.Table, about: dict[str, Any]) -> Predictions:
    common = {_ROW, "target", "prediction"}
    if about.get("groups"):
        common.add(_GROUP)
    columns = {name: table[name].to_numpy() for name in table.column_names if name not in common}
    if "target" not in table.column_names:
        return Predictions(None, None, scores=columns)
    target, prediction = (_values(table[name], about["classes"]) for name in ("target", "prediction"))
    if not about["classes"]:
        return Predictions(target, prediction)
    if about["probabilities"] is None:
        return Predictions(target, prediction, classes=sorted_classes(target, prediction))
    classes = tuple(about["probabilities"])
    return Predictions(
        target,
        prediction,
        np.column_stack([columns[f"{_PROBABILITY}{label}"] for label in classes]),
        classes=classes,
    )


def _values(column: pa.ChunkedArray, classes: bool) -> NDArray[Any]:
    if not classes:
        return np.asarray(column.to_numpy(), np.float64)
    return join_columns(map(encode_arrow, column.chunks)).objects()


def sorted_classes(*values: Any) -> tuple[Any, ...]:
    """All classes that occur, in the order of a report: by type, then as scikit-learn sorts them."""
    labels = {value for some in values for value in some}
    return tuple(sorted(labels, key=lambda label: (str(type(label)), label)))
