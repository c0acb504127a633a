"""A predictor's answers for held-out rows, collected batch by batch beside the true values."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from resources.evaluation.columns import Coded, Coding
from resources.evaluation.held_out import HeldOut
from resources.evaluation.predictions import Predictions, sorted_classes
from resources.evaluation.predictor_calls import PredictionFailed
from resources.evaluation.predictor_messages import Answer
from resources.evaluation.target_classes import all_classes

_SUM_TOLERANCE = 1e-3  # of probabilities, which may be of half precision


class Predicted:
    """Collects predictions, with eight bytes for each row, or for each class's probability of a row.

    Args:
        predictor: its ``module:function``, for messages.
    """

    def __init__(self, rows: HeldOut, predictor: str) -> None:
        self._rows = rows
        self._predictor = predictor
        self._kind: str | None = None
        self._count = 0
        self._coding = Coding()
        self._classes: _Classes | None = None
        self._predictions: NDArray[Any] = np.empty(0)
        self._probabilities: NDArray[np.float64] | None = None

    def add(self, answer: Answer) -> None:
        """Add the answer for the next rows.

        Raises:
            PredictionFailed: it is of another kind than the target or the answers before, or has more rows
                than there are.
        """
        self._check_kind(answer)
        count = len(answer)
        if self._count + count > self._rows.rows:
            raise self._wrong_count(self._count + count)
        try:
            if self._rows.without_target:
                raise ValueError("the target column has rows without a value")
            taken = slice(self._count, self._count + count)
            if answer.predictions is None:
                self._add_probabilities(answer, taken)
            else:
                self._add_predictions(answer.predictions, taken)
        except (ValueError, TypeError) as error:
            raise PredictionFailed(
                f"predictor {self._predictor} returned {_types_of(answer)} where the column "
                f"{self._rows.dataset.target!r} holds {_names(self._types())}: {error}; return values of its "
                "kind"
            ) from error
        self._count += count

    def predictions(self) -> Predictions:
        """The predictions for all rows.

        Raises:
            PredictionFailed: there is not one prediction for each row.
        """
        if self._count != self._rows.rows:
            raise self._wrong_count(self._count)
        target = self._rows.target
        if not isinstance(target, Coded):
            return Predictions(target, self._predictions, clusters=self._rows.clusters)
        if self._classes is None:
            values = self._coding.values
            classes = sorted_classes(target.values, values)
        else:
            classes = self._classes.all
            values = list(classes)
        predicted = Coded(values, self._predictions)
        return Predictions(
            target.objects(),
            predicted.objects(),
            self._probabilities,
            classes=classes,
            clusters=self._rows.clusters,
        )

    def _check_kind(self, answer: Answer) -> None:
        if answer.predictions is None:
            kind = "probabilities"
        elif self._rows.regression:
            kind = "numbers"
        else:
            kind = "classes"
        if self._kind is not None and kind != self._kind:
            raise PredictionFailed(
                f"predictor {self._predictor} returned {self._kind} for the first rows and {kind} for rows "
                f"{self._count:,} and later; return one kind for all rows"
            )
        self._kind = kind

    def _wrong_count(self, count: int) -> PredictionFailed:
        return PredictionFailed(
            f"predictor {self._predictor} returned {count} predictions for {self._rows.rows} rows; return "
            "one a row"
        )

    def _types(self) -> set[type]:
        """The types of the target's values."""
        if isinstance(self._rows.target, Coded):
            return self._rows.target.types
        return {float}

    def _add_predictions(self, predictions: Coded | NDArray[np.float64], taken: slice) -> None:
        if self._rows.regression:
            if isinstance(predictions, Coded):
                raise TypeError("the target is judged as a number")
            self._place(predictions, taken, np.float64)
            return
        if not isinstance(predictions, Coded) or predictions.types - self._types():
            raise TypeError("classes are compared by value, so their types must be the same")
        self._place(self._coding.recode(predictions), taken, np.int32)

    def _add_probabilities(self, answer: Answer, taken: slice) -> None:
        target = self._rows.target
        if not isinstance(target, Coded):
            raise TypeError("the target is a number, which has no probabilities")
        probabilities = np.asarray(answer.probabilities, np.float64)
        if self._classes is None:
            named = answer.classes
            if named is None:
                named = sorted_classes(all_classes(self._rows.dataset))
            if {type(label) for label in named} - self._types():
                raise TypeError("classes are compared by value, so their types must be the same")
            self._classes = _Classes(sorted_classes(target.values, named), named)
            self._probabilities = np.zeros((self._rows.rows, len(self._classes.all)))
        labels = answer.classes
        if labels is None:
            labels = self._classes.named
        if set(labels) != set(self._classes.named):
            raise ValueError(
                "probabilities of other classes than for the rows before, which were "
                f"{list(self._classes.named)[:20]}"
            )
        if probabilities.shape[1] != len(labels):
            raise ValueError(
                f"probabilities of {probabilities.shape[1]} classes are not accepted: the target has "
                f"{len(labels)}, sorted {list(labels)[:20]}"
            )
        finite = np.isfinite(probabilities).all(axis=1)
        wrong = finite & (
            (probabilities < -_SUM_TOLERANCE).any(axis=1)
            | (np.abs(probabilities.sum(axis=1) - 1) > _SUM_TOLERANCE)
        )
        if wrong.any():
            row = int(np.flatnonzero(wrong)[0])
            raise ValueError(
                f"the probabilities of row {taken.start + row} sum to {probabilities[row].sum():.4g}, "
                f"smallest {probabilities[row].min():.4g}; they must sum to 1"
            )
        # Half precision rounds, and some scorers want a sum of exactly 1.
        probabilities = np.clip(probabilities, 0.0, None)
        assert self._probabilities is not None
        whole = self._probabilities[taken]
        whole[:, self._classes.places(labels)] = probabilities / probabilities.sum(axis=1, keepdims=True)
        self._place(np.where(finite, np.nan_to_num(whole).argmax(axis=1), 0), taken, np.int32)

    def _place(self, values: NDArray[Any], taken: slice, kind: type) -> None:
        if not len(self._predictions):
            self._predictions = np.zeros(self._rows.rows, kind)
        self._predictions[taken] = values


@dataclass(frozen=True)
class _Classes:
    """The classes of probabilities.

    Attributes:
        all: all classes, sorted.
        named: the classes of the predictor, in its order for the first rows.
    """

    all: tuple[Any, ...]
    named: tuple[Any, ...]

    def places(self, labels: Iterable[Any]) -> list[int]:
        """The places of these labels among all."""
        place = {label: number for number, label in enumerate(self.all)}
        return [place[label] for label in labels]


def _types_of(answer: Answer) -> list[str]:
    if isinstance(answer.predictions, Coded):
        return _names(answer.predictions.types)
    if answer.predictions is not None:
        return _names({float})
    return _names(type(label) for label in answer.classes or ["probabilities"])


def _names(types: Iterable[type]) -> list[str]:
    return sorted({kind.__name__ for kind in types})


__all__ = ["Predicted"]
