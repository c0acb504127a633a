"""What follows from the order into which a class's probability brings the rows: the area under the ROC curve,
and average precision.

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
    """Of each row of a class how many rows are ranked higher, or as high as it and higher.

    Shape (…, rows of the class), but for the sums.

    Attributes:
        times: how often it counts.
        higher, not_lower: all rows; each of them as often as it counts.
        own_higher, own_not_lower: those of the class.
        own, every: the class, and all rows, in sum, shape (…, 1).
    """

    times: NDArray[Any]
    higher: NDArray[Any]
    not_lower: NDArray[Any]
    own_higher: NDArray[Any]
    own_not_lower: NDArray[Any]
    own: NDArray[Any]
    every: NDArray[Any]


def _area(ranks: Ranks) -> Floats:
    """ROC AUC: the share of pairs of rows, one of the class and one other, of which the first is ranked
    higher; ties count half (Hanley & McNeil, Radiology 143 (1982)).
    """
    others = (ranks.every - ranks.own).astype(np.float64)  # pairs of 100,000 rows are more than 32 bits count
    beaten = others - (ranks.higher - ranks.own_higher + ranks.not_lower - ranks.own_not_lower) / 2
    area: Floats = (ranks.times * beaten).sum(axis=-1) / (ranks.own * others)[..., 0]
    return area


def _average_precision(ranks: Ranks) -> Floats:
    """The precision at each row of the class, among all that are ranked as high or higher, on average; tied
    rows are taken at once.
    """
    precision: Floats = (ranks.times * (ranks.own_not_lower / np.maximum(ranks.not_lower, 1))).sum(
        axis=-1
    ) / ranks.own[..., 0]
    return precision


OF_RANKS: dict[str, Callable[[Ranks], Floats]] = {
    "average_precision": _average_precision,
    "roc_auc": _area,
    "roc_auc_ovr": _area,
}
"""By the scorer's name."""


@dataclass(frozen=True)
class _Order:
    """The rows as one class's probability ranks them.

    Attributes:
        rows: all of them, the highest first.
        own: the places of those of the class, in this order.
        before, after: of each of these, where the rows that are tied with it begin and end.
        own_before, own_after: the same among those of the class.
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
        held = sorted_down[own]
        ends = [
            np.searchsorted(among, held, side) for among in (sorted_down, held) for side in ("left", "right")
        ]
        return cls(rows, own, *ends)

    def among(self, kept: NDArray[np.bool_]) -> "_Order":
        """The same of some of the rows, numbered anew. Nothing is sorted again."""
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
    """A metric of the ranking of rows; of several classes the mean over each against the rest, of two that of
    the greater.
    """

    orders: tuple[_Order, ...]
    of_ranks: Callable[[Ranks], Floats]
    rows: int
    most_rows: int = 20_000
    resamples: int = 1_000

    @classmethod
    def of(
        cls, truth: NDArray[np.int64], probabilities: Floats, of_ranks: Callable[[Ranks], Floats]
    ) -> "Ranked":
        """Args: each row's class by its number, and the probabilities, shape (rows, classes)."""
        several = probabilities.shape[1] != 2
        classes = range(probabilities.shape[1]) if several else [1]
        orders = tuple(_Order.of(truth == number, probabilities[:, number]) for number in classes)
        return cls(orders, of_ranks, len(truth), resamples=200 if several else 1_000)

    def weighted(self, weights: NDArray[Any]) -> Floats:
        """Its value where each row counts so often, shape (…, rows) to (…); NaN where there is no row of a
        class.
        """
        with np.errstate(invalid="ignore", divide="ignore"):
            values: Floats = np.mean([self.of_ranks(order.ranks(weights)) for order in self.orders], axis=0)
        return values

    def on(self, rows: NDArray[np.int64]) -> float:
        return float(self.weighted(np.bincount(rows, minlength=self.rows)))

    def among(self, rows: NDArray[np.int64]) -> "Ranked":
        """The same of some of the rows, each given once and ascending: what is resampled then costs no look
        at the others.
        """
        if len(rows) == self.rows:
            return self
        kept = np.zeros(self.rows, np.bool_)
        kept[rows] = True
        return replace(self, orders=tuple(order.among(kept) for order in self.orders), rows=len(rows))

    def bootstrap(self, rows: NDArray[np.int64], rng: np.random.Generator, size: int) -> Floats:
        held, places = np.unique(rows, return_inverse=True)
        if len(held) < self.rows:
            return self.among(held).bootstrap(places, rng, size)
        values = np.empty(self.resamples)
        step = max(1, _AT_ONCE // self.rows)
        for start in range(0, self.resamples, step):
            part = values[start : start + step]
            drawn = (rows[rng.integers(len(rows), size=size)] for _ in part)
            # Of half the width, so that more of what is looked up here and there is near the processor.
            part[:] = self.weighted(
                np.stack([np.bincount(some, minlength=self.rows).astype(np.int32) for some in drawn])
            )
        return values


def _up_to(weights: NDArray[Any]) -> NDArray[Any]:
    """The sums of the first 0, 1, … of them. Shape (…, n) to (…, n + 1)."""
    sums = np.zeros((*weights.shape[:-1], weights.shape[-1] + 1), weights.dtype)
    np.cumsum(weights, axis=-1, out=sums[..., 1:])
    return sums
