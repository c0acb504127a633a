"""An evaluation is checked where it is made, in the evaluator."""

import math
from typing import Any

import numpy as np
import pytest

import halving
from halving import InvalidInput


def test_scores_are_columns_and_metrics_numbers() -> None:
    made = halving.Evaluation(
        metrics={"bleu": np.float32(0.5), "nothing": math.nan},
        scores={"loss": [1, 2]},
        lower_is_better=["loss"],
    )
    assert made.metrics["bleu"] == 0.5
    assert made.scores["loss"].tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "without metrics and scores"),
        ({"metrics": {"a": "high"}}, "metrics.a = 'high' is not accepted: give a number"),
        ({"metrics": {"a": math.inf}}, "give a finite number"),
        ({"metrics": {"": 1.0}}, "give a text of 1 to 250 characters"),
        ({"scores": {"target": [1.0]}}, "none of"),
        ({"scores": {"a": [[1.0]]}}, r"the shape \(1, 1\)"),
        ({"scores": {"a": ["x"]}}, "scores.a is not accepted: give a number for each row"),
        ({"scores": {"a": [1.0], "b": [1.0, 2.0]}}, r"scores of \[1, 2\] rows"),
        ({"metrics": {"a": 1.0}, "scores": {"a": [1.0]}}, "it is the mean of scores.a"),
        (
            {"metrics": {"a": 1.0}, "lower_is_better": ["b"]},
            r"lower_is_better = 'b' is not accepted: give names of \['a'\]",
        ),
        (
            {"metrics": {"a": 1.0}, "figures": {"f": 3}},
            "figures.f is a int: give a halving.Image or a Plotly figure",
        ),
    ],
)
def test_what_is_no_evaluation_is_refused_by_name(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        halving.Evaluation(**arguments)
