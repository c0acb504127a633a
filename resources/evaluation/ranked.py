"""Metrics of the ranking of rows by a class's probability: area under the ROC curve and average precision.

Both are computed for many resamples at once, from how often each row counts in them.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
_AT_ONCE = 1 << 17  # weights, which stay in the cache


@dataclass(frozen=True)
class Ranks:
    """For each row of a class, the weight of the rows that are ranked higher, or at least as high.

    Shape (…, rows of the class) each, except for the sums.

    Attributes:
        times: the weight of the row: how often it counts.
        higher, not_lower: the weights of all rows that are ranked higher, or at least as high.
        own_higher, own_not_lower: the same of the rows of the class only.
        own, every: the weights of all rows of the class, and of all rows. Shape (…, 1).
    """

    times: NDArray[Any]
    higher: NDArray[Any]
    not_lower: NDArray[Any]
    own_higher: NDArray[Any]
    own_not_lower: NDArray[Any]
    own: NDArray[Any]
    every: NDArray[Any]


def _area(ranks: Ranks) -> Floats:
    """ROC AUC: the share of pairs, a row of the class and another, in which the first is ranked higher.

    Ties count half (Hanley & McNeil, Radiology 143 (1982)).
    """
    others = (ranks.every - ranks.own).astype(np.float64)  # 32 bits cannot count the pairs of 100,000 rows
    beaten = others - (ranks.higher - ranks.own_higher + ranks.not_lower - ranks.own_not_lower) / 2
    area: Floats = (ranks.times * beaten).sum(axis=-1) / (ranks.own * others)[..., 0]
    return area


def _average_precision(ranks: Ranks) -> Floats:
    """The average of the precision at each row of the class, among all rows that are ranked at least as high.

    Tied rows are taken at once.
    """
    precisions = ranks.own_not_lower / np.maximum(ranks.not_lower, 1)
    average: Floats = (ranks.times * precisions).sum(axis=-1) / ranks.own[..., 0]
    return average


OF_RANKS: dict[str, Callable[[Ranks], Floats]] = {
    "average_precision": _average_precision,
    "roc_auc": _area,
    "roc_auc_ovr": _area,
}
"""A metric by the name of its scorer in scikit-learn."""


@dataclass(frozen=True)
class _Order:
    """The rows in the order of one class's probability.

    Attributes:
        rows: all rows, the highest first.
        own: the places of the class's rows in this order.
        before, after: for each of the class's rows, the places where the rows tied with it begin and end.
        own_before, own_after: the same among the rows of the class only.
    """

    rows: NDArray[np.int64]
    own: NDArray[np.int64]
    before: NDArray[np.int64]
    after: NDArray[np.int64]
    own_before: NDArray[np.int64]
    own_after: NDArray[np.int64]

    @classmethod
    def of(cls, is_class: NDArray[np.bool_], probability: Floats) -> "_Order":
        rows = np.argsort(-probability, kind="stable")
        sorted_down = -probability[rows]
        own = np.flatnonzero(is_class[rows])
        of_class = sorted_down[own]
        ends = [
            np.searchsorted(among, of_class, side)
            for among in (sorted_down, of_class)
            for side in ("left", "right")
        ]
        return cls(rows, own, *ends)

    def among(self, kept: NDArray[np.bool_]) -> "_Order":
        """The order of some of the rows, numbered anew; nothing is sorted again."""
        numbers = np.cumsum(kept) - 1
        place = _up_to(kept[self.rows].astype(np.int64))
        own = kept[self.rows[self.own]]
        own_place = _up_to(own.astype(np.int64))
        return _Order(
            numbers[self.rows[kept[self.rows]]],
            place[self.own[own]],
            place[self.before[own]],
            place[self.after[own]],
            own_place[self.own_before[own]],
            own_place[self.own_after[own]],
        )

    def ranks(self, weights: NDArray[Any]) -> Ranks:
        sorted_down = np.take(weights, self.rows, axis=-1)
        times = np.take(sorted_down, self.own, axis=-1)
        every = _up_to(sorted_down)
        own = _up_to(times)
        return Ranks(
            times,
            np.take(every, self.before, axis=-1),
            np.take(every, self.after, axis=-1),
            np.take(own, self.own_before, axis=-1),
            np.take(own, self.own_after, axis=-1),
            own[..., -1:],
            every[..., -1:],
        )


@dataclass(frozen=True)
class Ranked:
    """A metric of the ranking of rows: of the second one of two classes, or the mean over more classes."""

    orders: tuple[_Order, ...]
    of_ranks: Callable[[Ranks], Floats]
    rows: int
    max_rows: int = 20_000
    resamples: int = 1_000

    @classmethod
    def of(
        cls, truth: NDArray[np.int64], probabilities: Floats, of_ranks: Callable[[Ranks], Floats]
    ) -> "Ranked":
        """Prepare the metric from each row's class number and probabilities of shape (rows, classes)."""
        if probabilities.shape[1] == 2:
            order = _Order.of(truth == 1, probabilities[:, 1])
            return cls((order,), of_ranks, len(truth))
        orders = tuple(
            _Order.of(truth == number, probabilities[:, number]) for number in range(probabilities.shape[1])
        )
        return cls(orders, of_ranks, len(truth), resamples=200)

    def at_weights(self, weights: NDArray[Any]) -> Floats:
        """The values for weights of rows, shape (…, rows) to (…); NaN where a class has no row."""
        with np.errstate(invalid="ignore", divide="ignore"):
            values: Floats = np.mean([self.of_ranks(order.ranks(weights)) for order in self.orders], axis=0)
        return values

    def on(self, rows: NDArray[np.int64]) -> float:
        return float(self.at_weights(np.bincount(rows, minlength=self.rows)))

    def among(self, rows: NDArray[np.int64]) -> "Ranked":
        """The same metric on some of the rows, which are distinct and ascending; the others cost no time."""
        if len(rows) == self.rows:
            return self
        kept = np.zeros(self.rows, np.bool_)
        kept[rows] = True
        return replace(self, orders=tuple(order.among(kept) for order in self.orders), rows=len(rows))

    def bootstrap(self, rows: NDArray[np.int64], rng: np.random.Generator, size: int) -> Floats:
        distinct, places = np.unique(rows, return_inverse=True)
        if len(distinct) < self.rows:
            return self.among(distinct).bootstrap(places, rng, size)
        values = np.empty(self.resamples)
        step = max(1, _AT_ONCE // self.rows)
        for start in range(0, self.resamples, step):
            part = values[start : start + step]
            drawn = (rows[rng.integers(len(rows), size=size)] for _ in part)
            # int32, so that more of the numbers fit into the cache.
            part[:] = self.at_weights(
                np.stack([np.bincount(resample, minlength=self.rows).astype(np.int32) for resample in drawn])
            )
        return values


def _up_to(weights: NDArray[Any]) -> NDArray[Any]:
    """The sums of the first 0, 1, … weights. Shape (…, n) to (…, n + 1)."""
    sums = np.zeros((*weights.shape[:-1], weights.shape[-1] + 1), weights.dtype)
    np.cumsum(weights, axis=-1, out=sums[..., 1:])
    return sums
