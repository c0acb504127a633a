"""Three outcomes, what would settle the third, and correction for many tests."""

import numpy as np
import pytest
from scipy import stats

from resources.evaluation.statistics.bootstrap import bootstrap_mean
from resources.evaluation.statistics.evidence import ALPHA
from resources.evaluation.statistics.proportions import PairedProportions
from resources.evaluation.statistics.verdict import (
    POWER,
    holm,
    non_inferior,
    planned_rows,
    planned_seeds,
    superior,
)


@pytest.mark.parametrize(
    ("won", "lost", "n", "margin", "outcome"),
    [
        (20, 20, 10_000, 0.005, "pass"),
        (20, 120, 10_000, 0.005, "fail"),
        (20, 60, 10_000, 0.005, "too little evidence"),
        (2, 2, 360, 0.005, "too little evidence"),
        (0, 0, 360, 0.005, "too little evidence"),
        (0, 30, 360, 0.005, "fail"),
        (60, 10, 360, 0.0, "pass"),
        (0, 0, 0, 0.5, "too little evidence"),
    ],
)
def test_non_inferiority_has_three_outcomes(won: int, lost: int, n: int, margin: float, outcome: str) -> None:
    concluded = non_inferior(PairedProportions(won, lost, n), margin)
    assert concluded.outcome == outcome
    assert (concluded.needed is not None) == (outcome == "too little evidence" and n > 0)
    assert concluded.needed is None or concluded.needed > n


@pytest.mark.parametrize(
    ("won", "lost", "n", "outcome"),
    [
        (60, 20, 10_000, "pass"),
        (22, 20, 10_000, "fail"),
        (20, 60, 10_000, "fail"),
        (3, 0, 360, "too little evidence"),
    ],
)
def test_an_improvement_has_three_outcomes(won: int, lost: int, n: int, outcome: str) -> None:
    assert superior(PairedProportions(won, lost, n), effect=0.01).outcome == outcome


@pytest.mark.parametrize("truth", [0.0, 0.05])
def test_as_many_rows_as_are_asked_for_settle_it_with_the_promised_power(truth: float) -> None:
    source = np.random.default_rng(0)
    effect = margin = 0.05
    if truth:
        threshold = 0.0
        first = superior(bootstrap_mean(source.normal(0.01, 1, 100)), effect)
    else:
        threshold = -margin
        first = non_inferior(bootstrap_mean(source.normal(-0.02, 1, 100)), margin)
    assert first.outcome == "too little evidence"
    assert first.needed is not None
    rows = planned_rows(1.0, 0.05)
    assert rows is not None
    assert first.needed == pytest.approx(rows, rel=0.3)  # the spread is that of 100 rows
    passed = 0
    for _ in range(300):
        values = source.normal(truth, 1, rows)
        low = values.mean() - stats.t.ppf(0.975, rows - 1) * values.std(ddof=1) / np.sqrt(rows)
        passed += low > threshold
    assert passed / 300 == pytest.approx(POWER, abs=0.05)
    assert effect == margin


def test_if_the_planned_rows_did_not_settle_it_the_estimate_says_how_many_would() -> None:
    near = non_inferior(bootstrap_mean(np.random.default_rng(0).normal(-0.045, 1, 5_000)), 0.05)
    assert near.outcome == "too little evidence"
    assert near.needed is not None
    assert near.needed > 5_000


def test_a_metric_that_is_not_a_number_is_never_enough() -> None:
    concluded = non_inferior(bootstrap_mean(np.full(100, np.nan)), 0.05)
    assert (concluded.outcome, concluded.needed) == ("too little evidence", None)


@pytest.mark.parametrize("difference", [0.6, 1.0, 2.0])
def test_as_many_seeds_as_are_asked_for_tell_recipes_apart_with_the_promised_power(difference: float) -> None:
    source = np.random.default_rng(0)
    seeds = planned_seeds(1.0, difference)
    assert seeds is not None
    better = source.normal(difference, 1, (2_000, seeds))
    worse = source.normal(0, 1, (2_000, seeds))
    tells_apart = (
        stats.ttest_ind(better, worse, axis=1, equal_var=False, alternative="greater").pvalue <= ALPHA
    )
    assert np.mean(tells_apart) == pytest.approx(POWER, abs=0.04)


def test_holms_p_values_are_those_of_the_paper_and_of_scipys_tests() -> None:
    # Holm (1979), section 3: sorted, the i-th of n is multiplied by n - i + 1 and never falls.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([]) == []
    assert holm([0.5, 0.9]) == [1.0, 1.0]


def test_among_many_equal_slices_holm_rejects_none_more_often_than_one_test_would() -> None:
    source = np.random.default_rng(0)
    any_rejected = [min(holm(list(source.uniform(size=20)))) <= 0.05 for _ in range(2_000)]
    assert np.mean(any_rejected) == pytest.approx(0.05, abs=0.015)
