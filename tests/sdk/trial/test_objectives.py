"""What reports add up to does not depend on where a trial was interrupted."""

import json
from statistics import fmean
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from halving.errors import ObjectiveMissing
from halving.trial.context import ObjectiveRule
from halving.trial.objectives import Tallies
from tests.properties import examples

VALUES = st.lists(st.one_of(st.none(), st.floats(-1e6, 1e6)), min_size=1, max_size=20)


def rules(window: int, maximize: bool) -> tuple[ObjectiveRule, ...]:
    return (
        ObjectiveRule("best", "best", maximize=maximize),
        ObjectiveRule("average", "average", window=window, maximize=maximize),
        ObjectiveRule("end", "end", maximize=maximize),
    )


def reports(value: float | None) -> dict[str, float]:
    return {} if value is None else {"best": value, "average": value, "end": value}


@given(VALUES, st.integers(1, 5), st.booleans(), st.data())
@settings(max_examples=examples(200))
def test_summaries_after_a_resume_are_those_of_the_curve_that_counts(
    values: list[float | None], window: int, maximize: bool, data: Any
) -> None:
    values.append(data.draw(st.floats(-1e6, 1e6)))
    at = data.draw(st.integers(0, len(values) - 1))
    lost = data.draw(st.integers(at, len(values)))
    tallies = Tallies(rules(window, maximize), ())
    record = None
    for epoch in range(1, lost + 1):  # the attempt that was killed after its checkpoint of epoch ``at``
        tallies.add(epoch, reports(values[epoch - 1]), f"a{epoch}")
        record = json.dumps(tallies.as_record()) if epoch == at else record
    tallies = Tallies(rules(window, maximize), (), json.loads(record) if record else None)
    for epoch in range(at + 1, len(values) + 1):
        tallies.add(epoch, reports(values[epoch - 1]), f"b{epoch}")
    counted = [value for value in values if value is not None]
    best = (max if maximize else min)(counted)
    summaries = tallies.values(len(values), reports(values[-1]))
    assert summaries["best"] == best
    assert summaries["end"] == values[-1]
    assert summaries["average"] == pytest.approx(fmean(counted[-window:]))
    first = values.index(best) + 1
    assert tallies.best_checkpoint == f"{'a' if first <= at else 'b'}{first}"


def test_a_bounded_metric_counts_with_its_last_value_however_long_ago() -> None:
    tallies = Tallies((ObjectiveRule("loss", maximize=False),), ("latency",))
    tallies.add(1, {"loss": 3.0, "latency": 20.0}, None)
    tallies.add(2, {"loss": 2.0, "latency": 10.0}, None)
    tallies.add(3, {"loss": 1.0}, None)
    assert tallies.values(3, {"loss": 1.0}) == {"loss": 1.0, "latency": 10.0}
    assert tallies.best_checkpoint is None


def test_an_objective_that_is_bounded_too_is_counted_once() -> None:
    tallies = Tallies((ObjectiveRule("loss", "average", window=3, maximize=False),), ("loss",))
    for epoch in (1, 2, 3):
        tallies.add(epoch, {"loss": float(epoch)}, None)
    assert tallies.values(3, {"loss": 3.0}) == {"loss": 2.0}


@pytest.mark.parametrize(
    ("summary", "missing", "message"),
    [
        (
            "end",
            "later",
            (
                r"objective 'score' was not reported in epoch 2: it reported \['latency'\]; call "
                r"run\.report\(score=…\)"
            ),
        ),
        ("best", "always", r"objective 'score' was not reported in epoch 2"),
        ("average", "always", r"objective 'score' was not reported in epoch 2"),
        (
            "end",
            "bound",
            (
                r"metric 'latency', which the sweep bounds, was not reported up to epoch 2: it reported "
                r"\['score'\]"
            ),
        ),
    ],
)
def test_a_metric_that_is_missing_is_named(summary: str, missing: str, message: str) -> None:
    tallies = Tallies((ObjectiveRule("score", summary, window=2),), ("latency",))
    first = {"later": {"score": 0.5, "latency": 1.0}, "always": {"latency": 1.0}, "bound": {"score": 0.5}}[
        missing
    ]
    second = {"score": 0.5} if missing == "bound" else {"latency": 1.0}
    tallies.add(1, first, None)
    tallies.add(2, second, None)
    with pytest.raises(ObjectiveMissing, match=message):
        tallies.values(2, second)


def test_the_best_so_far_and_an_average_need_no_report_in_the_rungs_own_epoch() -> None:
    tallies = Tallies((ObjectiveRule("a", "best"), ObjectiveRule("b", "average", window=2)), ())
    tallies.add(1, {"a": 1.0, "b": 3.0}, "x")
    tallies.add(2, {}, "y")
    assert tallies.values(2, {}) == {"a": 1.0, "b": 3.0}
    assert tallies.best_checkpoint == "x"
