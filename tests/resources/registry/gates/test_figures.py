"""Gates on figures of the winner alone."""

import math
from typing import Any

import numpy as np
import pytest

from resources.evaluation.predictions import Predictions
from resources.registry.gates.figures import (
    judge_bounds,
    judge_finite,
    judge_latency,
    judge_search_bounds,
    judge_size,
)
from resources.sweep_spec.gates import Latency, MetricBounds, Size
from tests.resources.registry.gates.reports import pair, right_but

OURS = right_but(range(50))
REPORT = pair(OURS, None, ("accuracy", "f1_macro")).report
SERVING = {
    "checkpoint_bytes": 3 * 2**20,
    "one_row": {"rows": 1, "calls": 500, "p50_ms": 0.4, "p99_ms": 2.0},
    "batch": {"rows": 256, "calls": 90, "p50_ms": 5.0, "p99_ms": 9.0},
    "peak_memory_bytes": 200 * 2**20,
    "error": None,
}


@pytest.mark.parametrize(
    ("value", "outcome"), [(0.9, "pass"), (math.nan, "fail"), (math.inf, "fail"), (None, "fail")]
)
def test_every_metric_is_finite(value: Any, outcome: str) -> None:
    assert judge_finite({"metrics": {"accuracy": value}}).outcome == outcome


@pytest.mark.parametrize(
    ("bounds", "outcome"),
    [
        ({"min": 0.9}, "pass"),
        ({"min": 0.95}, "too little evidence"),
        ({"min": 0.99}, "fail"),
        ({"max": 0.9}, "fail"),
        ({"max": 0.99}, "pass"),
        ({"min": 0.9, "max": 0.99}, "pass"),
        ({"min": 0.9, "max": 0.951}, "too little evidence"),
    ],
)
@pytest.mark.parametrize("metric", ["accuracy", "f1_macro"])
def test_a_metric_is_within_its_bounds_with_its_whole_interval(
    metric: str, bounds: dict[str, float], outcome: str
) -> None:
    verdict = judge_bounds(MetricBounds(metric=metric, **bounds), REPORT, OURS)
    assert verdict.outcome == outcome
    assert verdict.figure == pytest.approx(0.95, abs=0.001)
    assert ("cannot be told" in verdict.reason) is (outcome == "too little evidence")


@pytest.mark.parametrize(
    ("bounds", "limit"),
    [({"min": 0.5, "max": 0.9}, 0.9), ({"min": 0.9, "max": 2.0}, 0.9), ({"max": 0.99}, 0.99)],
)
def test_the_threshold_is_the_bound_that_is_nearest(bounds: dict[str, float], limit: float) -> None:
    assert judge_bounds(MetricBounds(metric="accuracy", **bounds), REPORT, OURS).threshold == limit


def test_a_bound_on_what_is_no_test_metric_or_not_finite_is_not_passed() -> None:
    assert (
        "'loss' is no test metric: give one of accuracy, f1_macro"
        in judge_bounds(MetricBounds(metric="loss", min=0), REPORT, OURS).reason
    )
    report = {**REPORT, "metrics": {"accuracy": math.nan}}
    assert judge_bounds(MetricBounds(metric="accuracy", min=0), report, OURS).outcome == "fail"


@pytest.mark.parametrize(("value", "outcome"), [(0.5, "pass"), (0.7, "fail")])
def test_a_single_figure_of_an_evaluator_is_held_to_its_bound_as_it_is(value: float, outcome: str) -> None:
    report = {"metrics": {"bias": value}, "intervals": {}}
    assert judge_bounds(MetricBounds(metric="bias", max=0.6), report, OURS).outcome == outcome


@pytest.mark.parametrize(("violation", "outcome"), [(0.0, "pass"), (0.25, "fail")])
def test_the_bounds_of_the_search_hold_for_its_winner(violation: float, outcome: str) -> None:
    winner = {"violation": violation, "metrics": {"score": 0.9, "latency_ms": 20.0 + 80 * violation}}
    verdict = judge_search_bounds({"spec": {"bounds": {"latency_ms": {"max": 20.0}}}, "winner": winner})
    assert verdict.outcome == outcome
    assert verdict.reason.endswith("accepted are latency_ms at most 20")


def test_each_limit_of_latency_and_size_has_a_verdict_of_its_own() -> None:
    report = {"serving": SERVING}
    assert [verdict.outcome for verdict in judge_latency(Latency(p50_ms=1, p99_ms=1), report)] == [
        "pass",
        "fail",
    ]
    (batch,) = judge_latency(Latency(p99_ms=10, batch=True), report)
    assert (batch.outcome, batch.figure, batch.threshold) == ("pass", 9.0, 10)
    assert batch.reason == "p99 of 90 calls with 256 rows: 9 ms, at most 10 ms accepted"
    assert [verdict.outcome for verdict in judge_size(Size(checkpoint_mib=2, memory_mib=300), report)] == [
        "fail",
        "pass",
    ]


def test_what_was_not_measured_is_too_little_evidence() -> None:
    for serving in (
        None,
        {
            **SERVING,
            "one_row": None,
            "peak_memory_bytes": None,
            "error": "ValueError at model.py:3: one row is too few",
        },
    ):
        report = {"serving": serving}
        for verdict in [*judge_latency(Latency(p50_ms=1), report), *judge_size(Size(memory_mib=1), report)]:
            assert verdict.outcome == "too little evidence"
            assert "was not measured" in verdict.reason


def test_a_small_flawless_sample_does_not_show_recall_and_says_how_many_rows_would() -> None:
    target = (np.arange(1_000) < 20).astype(np.int64)
    perfect = Predictions(target, target, classes=(0, 1))
    verdict = judge_bounds(
        MetricBounds(metric="recall", min=0.9), pair(perfect, None, ("recall",)).report, perfect
    )
    assert verdict.outcome == "too little evidence"
    assert verdict.low == pytest.approx(0.025 ** (1 / 20))
    assert "rows of the class that is to be found would settle it, there are 20" in verdict.reason
    assert verdict.needed is not None
    assert verdict.needed % 50 == 0, "and of the whole split fifty times as many"
