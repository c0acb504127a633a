"""Features that predict the target by themselves: as a rule they were made of it, and will not be there when
the model is used.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

THRESHOLD = 0.99
"""Of balanced accuracy, or R², on the half of the rows that the feature was not fitted to."""

_MOST_VALUES = 1_000  # of a text; one with more is a name or free text
_LEAVES = 64
_LEAST_ROWS = 40
MOST_COLUMNS = 500


def reason_without_any(columns: int, rows: int) -> str:
    """Why a check passes that has found no such column among so many, in so many rows to try them on."""
    if rows < _LEAST_ROWS:
        return (
            f"columns were not tried as predictors: {rows} rows that are trained on are too few for that, "
            f"{_LEAST_ROWS} are needed"
        )
    tried = f" of the first {MOST_COLUMNS} (the others were not tried)" if columns > MOST_COLUMNS else ""
    return f"no single column{tried} predicts the target"


def lone_predictors(
    rows: pa.Table, target: str, has_classes: bool, columns: Sequence[str]
) -> dict[str, float]:
    """The columns from whose value alone a small decision tree gets the target, with its score.

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
    if rows.num_rows < _LEAST_ROWS or len(np.unique(truth)) < 2:
        return {}
    order = np.random.RandomState(0).permutation(rows.num_rows)
    fitted = order[::2]
    tried = order[1::2]
    found = {}
    for name in columns[:MOST_COLUMNS]:
        values = _numbers(rows[name].combine_chunks())
        if values is None:
            continue
        tree: Any = (DecisionTreeClassifier if has_classes else DecisionTreeRegressor)(
            max_leaf_nodes=_LEAVES, random_state=0
        )
        tree.fit(values[fitted, None], truth[fitted])
        known = np.isin(truth[tried], truth[fitted]) if has_classes else np.ones(len(tried), np.bool_)
        if not known.any():
            continue
        score = (_balanced_accuracy if has_classes else r2_score)(
            truth[tried][known], tree.predict(values[tried, None])[known]
        )
        if score >= THRESHOLD:
            found[name] = float(score)
    return found


def _balanced_accuracy(truth: NDArray[np.float64], predicted: NDArray[np.float64]) -> float:
    """The mean share of each class that is predicted right; scikit-learn's own warns of a predicted class
    that is not in the truth.
    """
    from sklearn.metrics import recall_score

    return float(recall_score(truth, predicted, labels=np.unique(truth), average="macro"))


def places_by_target(rows: pa.Table, target: str, count: int) -> list[int]:
    """The places of some rows whose targets differ as far as they can: from the least to the greatest, or
    from class to class.

    Args:
        rows: those in which something predicts the target.
    """
    truth = _numbers(rows[target].combine_chunks())
    assert truth is not None  # otherwise nothing predicts it
    ascending = np.argsort(truth, kind="stable")
    ascending = ascending[np.isfinite(truth[ascending])]
    return [
        int(place)
        for place in ascending[np.unique(np.linspace(0, len(ascending) - 1, count).astype(np.int64))]
    ]


def _numbers(values: pa.Array) -> NDArray[np.float64] | None:
    """Values as numbers that a tree can divide, NaN for null; None: there are none."""
    kind = values.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        coded = values.dictionary_encode()
        if len(coded.dictionary) > _MOST_VALUES:
            return None
        values = coded.indices
    elif pa.types.is_temporal(kind):
        values = values.cast(pa.int32() if kind.bit_width == 32 else pa.int64())
    elif pa.types.is_decimal(kind):
        values = values.cast(pa.float64())
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        return None
    numbers = (
        values.cast(pa.float64(), safe=False)
        if not pa.types.is_boolean(values.type)
        else values.cast(pa.uint8()).cast(pa.float64())
    )
    plain: NDArray[np.float64] = numbers.to_numpy(zero_copy_only=False)
    return np.where(np.isfinite(plain), plain, np.nan)
