"""Find features that predict the target by themselves.

Such a feature was usually made of the target, and will not be there when the model is used.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

THRESHOLD = 0.99
"""Lowest balanced accuracy, or R², on the half of the rows that the feature was not fitted to."""

_MAX_VALUES = 1_000  # distinct texts; a column with more holds names or free text
_LEAVES = 64
_MIN_ROWS = 40
_INTEGERS = {32: pa.int32(), 64: pa.int64()}
MAX_COLUMNS = 500


def reason_without_any(columns: int, rows: int) -> str:
    """Why a check passes that found no such column."""
    if rows < _MIN_ROWS:
        return (
            f"columns were not tried as predictors: {rows} rows that are trained on are too few for that, "
            f"{_MIN_ROWS} are needed"
        )
    if columns > MAX_COLUMNS:
        tried = f"of the first {MAX_COLUMNS} (the others were not tried)"
        return f"no single column {tried} predicts the target"
    return "no single column predicts the target"


def score_lone_predictors(
    rows: pa.Table, target: str, has_classes: bool, columns: Sequence[str]
) -> dict[str, float]:
    """Find the columns from which alone a small decision tree predicts the target, with their scores.

    Args:
        has_classes: whether the target's values are classes; otherwise they are numbers.
        columns: those to try; lists, structs and binary values are not.
    """
    from sklearn.metrics import r2_score
    from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

    truth = _numbers(rows[target].combine_chunks())
    if truth is None:
        return {}
    has_target = np.isfinite(truth)
    rows = rows.filter(pa.array(has_target))
    truth = truth[has_target]
    if rows.num_rows < _MIN_ROWS or len(np.unique(truth)) < 2:
        return {}
    order = np.random.RandomState(0).permutation(rows.num_rows)
    fitted_rows = order[::2]
    tested_rows = order[1::2]
    kind: Any = DecisionTreeRegressor
    metric: Callable[..., float] = r2_score
    if has_classes:
        kind = DecisionTreeClassifier
        metric = _balanced_accuracy
    scores = {}
    for name in columns[:MAX_COLUMNS]:
        values = _numbers(rows[name].combine_chunks())
        if values is None:
            continue
        tree = kind(max_leaf_nodes=_LEAVES, random_state=0)
        tree.fit(values[fitted_rows, None], truth[fitted_rows])
        is_fitted_class = np.ones(len(tested_rows), np.bool_)
        if has_classes:
            is_fitted_class = np.isin(truth[tested_rows], truth[fitted_rows])
        if not is_fitted_class.any():
            continue
        predicted = tree.predict(values[tested_rows, None])
        score = metric(truth[tested_rows][is_fitted_class], predicted[is_fitted_class])
        if score >= THRESHOLD:
            scores[name] = float(score)
    return scores


def _balanced_accuracy(truth: NDArray[np.float64], predicted: NDArray[np.float64]) -> float:
    """The mean over classes of the share of rows that is predicted right.

    scikit-learn's own function warns of a predicted class that is not in the truth.
    """
    from sklearn.metrics import recall_score

    return float(recall_score(truth, predicted, labels=np.unique(truth), average="macro"))


def choose_places(rows: pa.Table, target: str, count: int) -> list[int]:
    """The places of some rows that are spread over the target: from low to high, or over its classes.

    Args:
        rows: rows in which something predicts the target.
    """
    truth = _numbers(rows[target].combine_chunks())
    assert truth is not None  # Otherwise nothing would predict it.
    ascending = np.argsort(truth, kind="stable")
    ascending = ascending[np.isfinite(truth[ascending])]
    return [
        int(place)
        for place in ascending[np.unique(np.linspace(0, len(ascending) - 1, count).astype(np.int64))]
    ]


def _numbers(values: pa.Array) -> NDArray[np.float64] | None:
    """Values as numbers that a tree can split on, NaN for null; None if the type has no such numbers."""
    kind = values.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        coded = values.dictionary_encode()
        if len(coded.dictionary) > _MAX_VALUES:
            return None
        values = coded.indices
    elif pa.types.is_temporal(kind):
        values = values.cast(_INTEGERS[kind.bit_width])
    elif pa.types.is_decimal(kind):
        values = values.cast(pa.float64())
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        return None
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.uint8())
    array: NDArray[np.float64] = values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return np.where(np.isfinite(array), array, np.nan)
