"""The bootstrap against SciPy's, its coverage, and what it says of nothing."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from resources.evaluation.statistics.bootstrap import Bootstrapped, bootstrap, bootstrap_mean
from resources.evaluation.statistics.too_few import MIN_ROWS

SKEWED = np.random.default_rng(1).exponential(size=150)
PAIRED = np.random.default_rng(2).normal(size=(2, 120)) + np.array([[0.1], [0.0]])


def median(rows: np.ndarray) -> float:
    return float(np.median(SKEWED[rows]))


def correlation(rows: np.ndarray) -> float:
    return float(np.corrcoef(PAIRED[0, rows], PAIRED[1, rows] + PAIRED[0, rows])[0, 1])


@pytest.mark.parametrize(
    ("ours", "data", "statistic"),
    [
        (lambda: bootstrap_mean(SKEWED), (SKEWED,), np.mean),
        (
            lambda: bootstrap(lambda rows: float(SKEWED[rows].mean()), len(SKEWED), resamples=9_999),
            (SKEWED,),
            np.mean,
        ),
        (
            lambda: bootstrap_mean(PAIRED[0] - PAIRED[1]),
            (PAIRED[0], PAIRED[1]),
            lambda a, b, axis=-1: np.mean(a - b, axis=axis),
        ),
        (
            lambda: bootstrap(correlation, 120, resamples=4_999),
            (PAIRED[0], PAIRED[0] + PAIRED[1]),
            lambda a, b: np.corrcoef(a, b)[0, 1],
        ),
    ],
    ids=["mean", "mean-by-loop", "difference-of-paired-means", "correlation"],
)
def test_intervals_are_scipys_but_for_the_widening_to_students_t(
    ours: Callable[[], Bootstrapped], data: Any, statistic: Any
) -> None:
    evidence = ours()
    theirs = stats.bootstrap(
        data,
        statistic,
        paired=True,
        method="BCa",
        n_resamples=9_999,
        confidence_level=0.9,
        rng=np.random.default_rng(0),
    )
    width = theirs.confidence_interval.high - theirs.confidence_interval.low
    assert evidence.interval(0.05) == pytest.approx(tuple(theirs.confidence_interval), abs=0.05 * width)
    assert evidence.standard_error == pytest.approx(theirs.standard_error, rel=0.05)


@pytest.mark.parametrize("alpha", [0.01, 0.05, 0.2])
def test_the_p_value_of_an_intervals_end_is_its_level(alpha: float) -> None:
    evidence = bootstrap_mean(SKEWED)
    low, high = evidence.interval(alpha)
    assert evidence.p_above(low) == pytest.approx(alpha, rel=0.02)
    assert evidence.p_below(high) == pytest.approx(alpha, rel=0.02)
    assert evidence.p_above(low) + evidence.p_below(low) == pytest.approx(1)


def test_the_same_seed_gives_the_same_and_another_about_the_same() -> None:
    assert bootstrap_mean(SKEWED, seed=3).interval() == bootstrap_mean(SKEWED, seed=3).interval()
    assert bootstrap_mean(SKEWED, seed=3).interval() != bootstrap_mean(SKEWED, seed=4).interval()
    assert bootstrap_mean(SKEWED, seed=3).interval() == pytest.approx(
        bootstrap_mean(SKEWED, seed=4).interval(), rel=0.01
    )
    assert (
        bootstrap(median, len(SKEWED), seed=3).interval() == bootstrap(median, len(SKEWED), seed=3).interval()
    )


def test_a_large_split_is_judged_by_the_normal_distribution_as_by_the_bootstrap() -> None:
    many = np.random.default_rng(0).exponential(size=20_001)
    evidence = bootstrap_mean(many)
    by_groups = bootstrap(lambda rows: float(many[rows].mean()), len(many))
    assert len(evidence.replicates) == len(by_groups.replicates) == 0
    error = 1.95996 * evidence.standard_error
    assert evidence.interval() == pytest.approx((evidence.estimate - error, evidence.estimate + error))
    assert by_groups.standard_error == pytest.approx(evidence.standard_error, rel=0.2)
    sampled = bootstrap_mean(many[:4_000])
    normal = replace(sampled, replicates=np.zeros(0))
    width = sampled.interval()[1] - sampled.interval()[0]
    assert normal.interval() == pytest.approx(sampled.interval(), abs=0.03 * width)
    assert normal.p_above(0.97) == pytest.approx(sampled.p_above(0.97), abs=0.01)


@pytest.mark.parametrize("values", [[], [1.0], [1.0] * (MIN_ROWS - 1), [np.nan] * 50, [1.0] * 49 + [np.inf]])
def test_nothing_is_concluded_from_too_few_rows_or_values_that_are_not_finite(values: list[float]) -> None:
    array = np.array(values)
    for evidence in (bootstrap_mean(array), bootstrap(lambda rows: float(array[rows].sum()), len(array))):
        assert (evidence.p_above(-1e9), evidence.p_below(1e9)) == (1, 1)
        assert evidence.interval() == (-np.inf, np.inf)


def test_a_statistic_that_resamples_may_lack_counts_where_most_have_it() -> None:
    rare = np.arange(40) == 7  # in a third of the resamples it is not drawn

    def only_with_it(rows: np.ndarray) -> float:
        return float(SKEWED[rows].mean()) if rare[rows].any() else np.nan

    assert np.isfinite(bootstrap(only_with_it, 40).interval()).all()
    assert bootstrap(
        lambda rows: only_with_it(rows) if len(np.unique(rows)) == len(rows) else np.nan, 40
    ).interval() == (-np.inf, np.inf)


def test_rows_that_are_all_equal_are_certain() -> None:
    evidence = bootstrap_mean(np.full(50, 0.25))
    assert evidence.interval() == (0.25, 0.25)
    assert evidence.p_above(0.2) < 0.001
    assert evidence.p_below(0.3) < 0.001
    assert evidence.p_above(0.3) > 0.999
    assert evidence.p_above(0.25) == pytest.approx(0.5)


def test_the_share_of_intervals_that_miss_is_the_level_also_on_skewed_data() -> None:
    source = np.random.default_rng(0)
    missed = [
        bootstrap_mean(source.exponential(size=40), seed=seed).p_above(1.0) <= 0.05 for seed in range(200)
    ]
    assert np.mean(missed) <= 0.08
