"""Metrics of many confusion matrices at once, equal to scikit-learn's, without reading single rows.

Counts have the shape (…, classes, classes), true classes first; values have the shape (…). A class without
true and predicted rows does not count, and 0 of 0 is 0, as in scikit-learn.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
OfCounts = Callable[[Floats], Floats]
_Part = Callable[[Floats, Floats, Floats], Floats]


def _average(part: _Part, *, weighted: bool) -> OfCounts:
    def of_counts(counts: Floats) -> Floats:
        right, support, predicted = _margins(counts)
        weights = support
        if not weighted:
            weights = ((support + predicted) > 0).astype(np.float64)
        scores: Floats = (part(right, support, predicted) * weights).sum(axis=-1) / weights.sum(axis=-1)
        return scores

    return of_counts


def _of_the_greater(part: _Part) -> OfCounts:
    """The metric of the positive class, which is the greater one of two."""

    def of_counts(counts: Floats) -> Floats:
        return part(*_margins(counts))[..., -1]

    return of_counts


def _balanced_accuracy(counts: Floats) -> Floats:
    right, support, _ = _margins(counts)
    balanced: Floats = _ratio(right, support).sum(axis=-1) / (support > 0).sum(axis=-1)
    return balanced


def _jaccard_micro(counts: Floats) -> Floats:
    right = _margins(counts)[0].sum(axis=-1)
    rows = counts.sum(axis=(-2, -1))
    return _ratio(right, 2 * rows - right)


def _matthews(counts: Floats) -> Floats:
    """Matthews' correlation coefficient; 0 where it has none.

    Gorodkin, "Comparing two K-category assignments by a K-category correlation coefficient" (2004), equation
    8.
    """
    right, support, predicted = _margins(counts)
    rows = support.sum(axis=-1)
    together = right.sum(axis=-1) * rows - (support * predicted).sum(axis=-1)
    alone = (rows**2 - (predicted**2).sum(axis=-1)) * (rows**2 - (support**2).sum(axis=-1))
    return _ratio(together, np.sqrt(alone))


def _positive_likelihood(counts: Floats) -> Floats:
    """How much oftener a row of the positive class is called positive than a row of the other class.

    Altman & Bland, BMJ 309 (1994).
    """
    return _likelihood(counts[..., 1, 1], counts[..., 0, 1], counts)


def _negative_likelihood(counts: Floats) -> Floats:
    """The negated negative likelihood ratio; negated, so that higher is better."""
    return -_likelihood(counts[..., 1, 0], counts[..., 0, 0], counts)


def _likelihood(positive: Floats, negative: Floats, counts: Floats) -> Floats:
    """The positive class's share divided by the other class's share.

    As with scikit-learn's scorer it is 1 if the other share is 0, and NaN if the positive share has no value.
    """
    support = counts.sum(axis=-1)
    below = negative * support[..., 1]
    ratio = np.divide(positive * support[..., 0], below, out=np.full_like(below, np.nan), where=below > 0)
    return np.where(negative > 0, ratio, 1.0)


def _margins(counts: Floats) -> tuple[Floats, Floats, Floats]:
    """The number of each class's rows that are right, that are true, and that are predicted."""
    return np.diagonal(counts, axis1=-2, axis2=-1), counts.sum(axis=-1), counts.sum(axis=-2)


def _ratio(above: Floats, below: Floats) -> Floats:
    return np.divide(above, below, out=np.zeros_like(below), where=below > 0)


_PARTS: dict[str, _Part] = {
    "f1": lambda right, support, predicted: _ratio(2 * right, support + predicted),
    "jaccard": lambda right, support, predicted: _ratio(right, support + predicted - right),
    "precision": lambda right, support, predicted: _ratio(right, predicted),
    "recall": lambda right, support, predicted: _ratio(right, support),
}


def by_class(counts: Floats) -> dict[str, Floats]:
    """``precision``, ``recall``, ``f1`` and ``jaccard`` of each class, and its ``rows``.

    Shape (…, classes) each.
    """
    margins = _margins(counts)
    return {**{name: part(*margins) for name, part in _PARTS.items()}, "rows": margins[1]}


FROM_CONFUSION: dict[str, OfCounts] = {
    "balanced_accuracy": _balanced_accuracy,
    "jaccard_micro": _jaccard_micro,
    "matthews_corrcoef": _matthews,
    "neg_negative_likelihood_ratio": _negative_likelihood,
    "positive_likelihood_ratio": _positive_likelihood,
    **{name: _of_the_greater(part) for name, part in _PARTS.items()},
    **{f"{name}_macro": _average(part, weighted=False) for name, part in _PARTS.items()},
    **{f"{name}_weighted": _average(part, weighted=True) for name, part in _PARTS.items()},
}
"""A metric by the name of its scorer in scikit-learn."""

SHARES_OF_RIGHT = frozenset({"accuracy", "f1_micro", "precision_micro", "recall_micro"})
"""Metrics that equal the share of right rows if each row has one class."""
