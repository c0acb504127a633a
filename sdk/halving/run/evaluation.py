"""The result of an evaluator: metrics, scores of each row, and figures."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from halving.errors import InvalidInput

_RESERVED = ("row", "group", "target", "prediction")
_LONGEST = 250


class Evaluation:
    """How good a checkpoint is on a split; your own ``evaluate(run, split)`` returns it.

    Args:
        metrics: finite or NaN numbers by name.
        scores: by name one score or loss for each row of the split, in its stored order, shape (rows,). Its
            mean becomes a metric of that name, with an interval, and is compared row by row with the
            champion's; so give scores where a metric is a mean.
        lower_is_better: the names that are losses or errors.
        figures: by title a :class:`halving.Image`, or a Plotly figure, for the report's page.

    Raises:
        InvalidInput: there is neither a metric nor a score, or an argument is not as described above; the
            message names it.
    """

    def __init__(
        self,
        *,
        metrics: Mapping[str, float] | None = None,
        scores: Mapping[str, Any] | None = None,
        lower_is_better: Sequence[str] = (),
        figures: Mapping[str, Any] | None = None,
    ) -> None:
        self.metrics = {
            _name("metrics", name): _number(name, value) for name, value in (metrics or {}).items()
        }
        self.scores = {
            _name("scores", name): _column(name, values) for name, values in (scores or {}).items()
        }
        self.lower_is_better = tuple(lower_is_better)
        self.figures = dict(figures or {})
        names = {*self.metrics, *self.scores}
        if not names:
            raise InvalidInput(
                "an evaluation without metrics and scores is not accepted: give at least one of them"
            )
        for name in sorted(set(self.metrics) & set(self.scores)):
            raise InvalidInput(
                f"metrics.{name} is not accepted: it is the mean of scores.{name}; give one of the two"
            )
        for name in self.lower_is_better:
            if name not in names:
                raise InvalidInput(
                    f"lower_is_better = {name!r} is not accepted: give names of {sorted(names)}"
                )
        lengths = {len(values) for values in self.scores.values()}
        if len(lengths) > 1:
            raise InvalidInput(
                f"scores of {sorted(lengths)} rows are not accepted: give one value for each row of the "
                "split in all of them"
            )
        for title, figure in self.figures.items():
            is_image = getattr(figure, "kind", None) == "image"
            is_plotly = callable(getattr(figure, "to_json", None))
            if not isinstance(title, str) or not (is_image or is_plotly):
                raise InvalidInput(
                    f"figures.{title} is a {type(figure).__name__}: give a halving.Image or a Plotly figure"
                )


def _name(field: str, name: Any) -> str:
    if not isinstance(name, str) or not 0 < len(name) <= _LONGEST or name in _RESERVED:
        raise InvalidInput(
            f"{field} has the name {name!r:.100}: give a text of 1 to {_LONGEST} characters, but none of "
            f"{_RESERVED}"
        )
    return name


def _number(name: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise InvalidInput(f"metrics.{name} = {value!r:.100} is not accepted: give a number") from None
    if math.isinf(number):
        raise InvalidInput(
            f"metrics.{name} = {number} is not accepted: give a finite number, or NaN where there is none"
        )
    return number


def _column(name: str, values: Any) -> NDArray[np.float64]:
    try:
        column = np.asarray(values, np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"scores.{name} is not accepted: give a number for each row ({error})") from None
    if column.ndim != 1:
        raise InvalidInput(
            f"scores.{name} has the shape {column.shape}: give one number for each row, shape (rows,)"
        )
    return column
