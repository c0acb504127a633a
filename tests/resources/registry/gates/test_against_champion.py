"""Gates that compare with a champion: their outcomes, figures, thresholds and reasons."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from resources.evaluation.predictions import Predictions
from resources.evaluation.statistics.verdict import non_inferior, planned_seeds
from resources.registry.gates.against_champion import (
    judge_improvement,
    judge_non_inferior,
    judge_slices_against,
)
from resources.registry.gates.verdict import overall
from resources.sweep_spec.gates import Improvement, NonInferior, SliceGate
from tests.resources.registry.gates.reports import ROWS, TARGET, pair, right_but

EQUAL = (right_but(range(30)), right_but(range(10, 40)))
BETTER = (right_but(range(10)), right_but(range(60)))
WORSE = (right_but(range(60)), right_but(range(10)))


@pytest.mark.parametrize(
    ("models", "gate", "outcome", "said"),
    [
        (
            EQUAL,
            {"margin": 0.03},
            "pass",
            (
                "accuracy 0.9700 against 0.9700 of the champion digits 1.0.0 on the same 1,000 rows: worse "
                "by "
                "less"
            ),
        ),
        (
            EQUAL,
            {},
            "too little evidence",
            (
                "whether it is worse by more than the margin 0.00485 cannot be told (gain +0.0000, at 95 % "
                "from -"
            ),
        ),
        (EQUAL, {"margin_percent": 5}, "pass", "the margin 0.0485"),
        (BETTER, {}, "pass", "(gain +0.0500, at 95 % from +0.0"),
        (WORSE, {"margin": 0.03}, "fail", "worse by more than the margin 0.03"),
        (WORSE, {"margin": 0.2}, "pass", "worse by less than the margin 0.2"),
    ],
)
def test_non_inferiority(
    models: tuple[Predictions, Predictions], gate: dict[str, float], outcome: str, said: str
) -> None:
    verdict = judge_non_inferior(NonInferior(**gate), pair(*models))
    assert (verdict.name, verdict.about, verdict.outcome) == ("non_inferior", "accuracy", outcome)
    assert said in verdict.reason
    assert verdict.figure is not None
    assert verdict.threshold is not None
    assert verdict.threshold < 0


@pytest.mark.parametrize(
    ("models", "gate", "outcome", "said"),
    [
        (BETTER, {"effect": 0.01}, "pass", "better (gain +0.0500"),
        (EQUAL, {"effect": 0.03}, "fail", "not better by the effect 0.03 that was asked for"),
        (
            EQUAL,
            {"effect": 0.001},
            "too little evidence",
            "it cannot be told whether it is better, and by 0.001 it still may be",
        ),
        (WORSE, {}, "fail", "not better by the effect 0.00495"),
    ],
)
def test_improvement(
    models: tuple[Predictions, Predictions], gate: dict[str, float], outcome: str, said: str
) -> None:
    verdict = judge_improvement(Improvement(**gate), pair(*models))
    assert verdict.outcome == outcome
    assert said in verdict.reason
    assert verdict.threshold == 0


def test_too_little_evidence_says_how_many_rows_would_settle_it_and_as_many_do() -> None:
    verdict = judge_non_inferior(NonInferior(), pair(*EQUAL))
    assert verdict.needed is not None
    assert (
        f"about {math.ceil(verdict.needed / 1000) * 1000:,} test rows would settle it, there are 1,000"
        in verdict.reason
    )
    many = -(-verdict.needed // ROWS)
    repeated = [
        Predictions(np.tile(TARGET, many), np.tile(of.prediction, many), classes=(0, 1)) for of in EQUAL
    ]  # type: ignore[arg-type]
    assert judge_non_inferior(NonInferior(), pair(repeated[0], repeated[1])).outcome == "pass"


def test_where_seeds_were_trained_it_says_how_many_of_the_recipes_would_tell() -> None:
    both = pair(*EQUAL)
    assert judge_non_inferior(NonInferior(), both).needed_seeds is None
    seeds = [{"metrics": {"accuracy": 0.97}}, {"metrics": {"accuracy": 0.96}}, {"metrics": None}]
    report = {**both.report, "final": {"std": {"accuracy": 0.004}, "seeds": seeds}}
    verdict = judge_non_inferior(NonInferior(), type(both)(report, both.ours, both.theirs, {}))
    assert verdict.needed_seeds == planned_seeds(0.004, 0.005 * 0.97)
    assert (
        f"to compare the recipes, {verdict.needed_seeds} seeds of each are needed, and 2 were trained"
        in verdict.reason
    )
    single = {**report, "final": {"std": {"accuracy": None}, "seeds": seeds[:1]}}
    assert (
        judge_non_inferior(NonInferior(), type(both)(single, both.ours, both.theirs, {})).needed_seeds is None
    )


def test_rows_in_groups_are_less_evidence_and_the_reason_counts_the_groups() -> None:
    groups = np.arange(ROWS) // 10
    alone, grouped = (
        pair(*(replace(predictions, clusters=of) for predictions in EQUAL)) for of in (None, groups)
    )
    assert judge_non_inferior(NonInferior(margin=0.03), alone).outcome == "pass"
    verdict = judge_non_inferior(NonInferior(margin=0.03), grouped)
    assert verdict.outcome == "too little evidence"
    assert "on the same 1,000 rows of 100 groups: whether it is worse" in verdict.reason


def test_without_a_champion_there_is_nothing_to_be_worse_than() -> None:
    alone = pair(EQUAL[0], None)
    for verdict in (
        judge_non_inferior(NonInferior(), alone),
        judge_improvement(Improvement(), alone),
        judge_slices_against(SliceGate(), alone),
    ):
        assert (verdict.outcome, verdict.reason) == ("pass", "there is no champion yet")


@pytest.mark.parametrize(
    ("changes", "gate", "outcome", "said"),
    [
        (
            {"champion": {"error": "its code is gone"}},
            {},
            "fail",
            "could not be evaluated on this test split: its code is gone; correct it, or",
        ),
        ({"metrics": {"accuracy": math.nan}}, {}, "fail", "accuracy is not finite"),
        (
            {"champion": {"metrics": {"accuracy": math.nan}}},
            {},
            "fail",
            "of the champion digits 1.0.0 is not finite on this test split",
        ),
        (
            {},
            {"metric": "roc_auc"},
            "fail",
            "'roc_auc' is no test metric of both: give one of accuracy in gates",
        ),
        (
            {"intervals": {}},
            {},
            "too little evidence",
            "there is no evidence on how certain these two figures are; let the evaluator return scores",
        ),
    ],
)
def test_what_cannot_be_compared_is_not_passed(
    changes: dict[str, Any], gate: dict[str, Any], outcome: str, said: str
) -> None:
    both = pair(*BETTER)
    champion = {**both.report["champion"], **changes.pop("champion", {})}
    report = {**both.report, **changes, "champion": champion}
    verdict = judge_non_inferior(NonInferior(**gate), type(both)(report, both.ours, both.theirs, {}))
    assert verdict.outcome == outcome
    assert said in verdict.reason


def test_an_error_is_compared_downwards_and_any_metric_by_resampling() -> None:
    source = np.random.default_rng(0)
    truth, noise = source.normal(size=(2, 500))
    good = Predictions(truth, truth + 0.1 * noise)
    bad = Predictions(truth, truth + 0.3 * noise)
    assert judge_improvement(Improvement(), pair(good, bad, ("rmse",))).outcome == "pass"
    assert judge_non_inferior(NonInferior(margin_percent=10), pair(bad, good, ("rmse",))).outcome == "fail"
    assert (
        judge_non_inferior(NonInferior(metric="f1_macro"), pair(*BETTER, ("accuracy", "f1_macro"))).about
        == "f1_macro"
    )


GROUPS = {"north": np.arange(0, 500), "south": np.arange(500, 980), "west": np.arange(980, 1000)}


def test_a_slice_that_is_worse_is_found_though_the_whole_is_not() -> None:
    ours = right_but(range(500, 560))
    theirs = right_but(range(60))
    assert judge_non_inferior(NonInferior(margin=0.05), pair(ours, theirs)).outcome == "pass"
    verdict = judge_slices_against(SliceGate(margin=0.05), pair(ours, theirs, groups=GROUPS))
    assert (verdict.outcome, verdict.about) == ("fail", "south")
    assert (
        "accuracy is worse than that of the champion digits 1.0.0 in south by 0.125 (margin 0.05)"
        in verdict.reason
    )
    assert "1 of fewer than 30 rows is not judged" in verdict.reason


def test_slices_without_a_loss_pass_and_those_that_are_too_small_hold_back() -> None:
    both = pair(*EQUAL, groups=GROUPS)
    assert judge_slices_against(SliceGate(margin=0.06), both).outcome == "pass"
    unsure = judge_slices_against(SliceGate(margin=0.005), both)
    assert unsure.outcome == "too little evidence"
    assert unsure.needed is not None
    assert "cannot be told in north (about" in unsure.reason
    assert "rows of this slice would settle it, there are 500" in unsure.reason
    of_slice = non_inferior(both.gain("accuracy", EQUAL[1], GROUPS["south"]), 0.005).needed
    of_north = non_inferior(both.gain("accuracy", EQUAL[1], GROUPS["north"]), 0.005).needed
    assert of_slice
    assert of_north
    assert unsure.needed == max(-(-of_slice * 1_000 // 480), of_north * 2)
    tiny = judge_slices_against(SliceGate(), pair(*EQUAL, groups={"west": GROUPS["west"]}))
    assert (tiny.outcome, tiny.needed) == ("too little evidence", None)
    rows = 30 * 1_000 // len(GROUPS["west"])
    said = (
        f"no slice has 30 rows or more: give about {rows:,} test rows, of which the largest slice has 30, "
        "or other slices"
    )
    assert tiny.reason == said


def test_a_slice_that_could_not_be_judged_holds_back_whatever_the_others_say() -> None:
    unjudged = {"slice": "zip", "error": "the column 'zip' has 80 values"}
    for groups, said in (
        (GROUPS, "a slice could not be judged: zip: the column"),
        ({}, "no slice could be judged: zip: the column"),
    ):
        both = pair(*EQUAL, groups=groups)
        both = replace(both, report={**both.report, "slices": [unjudged, {"slice": "city", "error": None}]})
        verdict = judge_slices_against(SliceGate(margin=0.06), both)
        assert (verdict.outcome, said in verdict.reason) == ("too little evidence", True)


def test_a_slice_without_a_class_is_named_and_does_not_hold_back_the_others() -> None:
    groups = {"mixed": np.arange(500), "negative": np.flatnonzero(TARGET == 0)}
    verdict = judge_slices_against(
        SliceGate(margin_percent=10), pair(*BETTER, metrics=("recall",), groups=groups)
    )
    assert verdict.outcome == "pass"
    assert "in all 1 slices" in verdict.reason
    assert "(negative: recall has no value there, not judged)" in verdict.reason
    alone = judge_slices_against(
        SliceGate(), pair(*BETTER, metrics=("recall",), groups={"negative": groups["negative"]})
    )
    assert (alone.outcome, alone.needed) == ("too little evidence", None)
    assert "no slice could be judged" in alone.reason


def test_where_the_champion_has_nothing_right_the_margin_is_that_of_the_whole_split() -> None:
    ours = right_but()
    theirs = right_but(range(100))
    verdict = judge_slices_against(SliceGate(), pair(ours, theirs, groups={"first": np.arange(100)}))
    assert (verdict.outcome, verdict.threshold) == ("pass", pytest.approx(-0.05 * 0.9))


def test_among_many_slices_of_equal_models_hardly_any_is_called_worse() -> None:
    source = np.random.default_rng(0)
    failed = 0
    groups = {f"slice {number}": np.arange(number * 50, (number + 1) * 50) for number in range(20)}
    for _ in range(60):
        ours, theirs = (right_but(np.flatnonzero(source.random(ROWS) < 0.1).tolist()) for _ in range(2))
        failed += (
            judge_slices_against(SliceGate(margin=0.01), pair(ours, theirs, groups=groups)).outcome == "fail"
        )
    assert failed <= 3


def test_one_failure_outweighs_all_and_one_that_cannot_say_holds_back() -> None:
    passed, failed, unsure = (
        judge_non_inferior(NonInferior(**gate), pair(*models))
        for models, gate in ((BETTER, {}), (WORSE, {}), (EQUAL, {}))
    )
    assert overall([]) == overall([passed]) == "pass"
    assert overall([passed, unsure]) == "too little evidence"
    assert overall([passed, unsure, failed]) == "fail"
