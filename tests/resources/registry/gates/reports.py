"""Reports of a winner and a champion as gates read them, without a sweep."""

from typing import Any

import numpy as np

from resources.evaluation.measures import measure
from resources.evaluation.predictions import Predictions
from resources.registry.gates.against_champion import Groups, Pair

ROWS = 1_000
TARGET = np.arange(ROWS) % 2


def right_but(*wrong: range | list[int]) -> Predictions:
    """Of two classes, wrong in these rows."""
    predicted = TARGET.copy()
    for rows in wrong:
        predicted[list(rows)] ^= 1
    return Predictions(TARGET, predicted, classes=(0, 1))


def pair(
    ours: Predictions,
    theirs: Predictions | None,
    metrics: tuple[str, ...] = ("accuracy",),
    groups: Groups | None = None,
) -> Pair:
    def scores(of: Predictions) -> dict[str, float]:
        return {metric: measure(of, metric).on(np.arange(of.rows)) for metric in metrics}

    report: dict[str, Any] = {
        "metrics": scores(ours),
        "intervals": {metric: {} for metric in metrics},
        "higher_is_better": {metric: metric != "rmse" for metric in metrics},
        "main_metric": metrics[0],
        "champion": theirs
        and {
            "model": "digits",
            "version": "1.0.0",
            "error": None,
            "metrics": scores(theirs),
            "predictions": "sha256:p",
        },
    }
    return Pair(report, ours, theirs, groups or {})
