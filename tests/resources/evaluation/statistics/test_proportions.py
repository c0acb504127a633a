"""McNemar's and Tango's tests against published values, and their size by enumerating every outcome."""

import numpy as np
import pytest
from scipy import optimize, stats

from resources.evaluation.statistics.evidence import ALPHA
from resources.evaluation.statistics.proportions import PairedProportions, tango, tango_interval


@pytest.mark.parametrize(
    ("won", "lost", "n", "alpha", "published"),
    [
        # Fagerland, Lydersen & Laake, Statistics in Medicine 33 (2014), on the airways of Bentur et al.
        # (2009).
        (1, 7, 21, 0.025, (-0.517, -0.026)),
        (28, 25, 618, 0.05, (-0.0148, 0.0247)),  # R: PropCIs::scoreci.mp(25, 28, 618, 0.9)
    ],
)
def test_the_score_interval_is_the_published_one(
    won: int, lost: int, n: int, alpha: float, published: tuple[float, float]
) -> None:
    digits = len(str(published[0]).split(".")[1])
    assert tuple(round(end, digits) for end in tango_interval(won, lost, n, alpha)) == published


@pytest.mark.parametrize("gain", [-0.2, -0.01, 0.005, 0.1])
@pytest.mark.parametrize(
    ("won", "lost", "n"), [(3, 8, 100), (0, 0, 50), (0, 5, 60), (7, 0, 60), (30, 30, 60)]
)
def test_the_likelihood_that_the_statistic_is_worked_out_for_is_the_greatest(
    won: int, lost: int, n: int, gain: float
) -> None:
    def against(share: float) -> float:
        counts = np.array([won, lost, n - won - lost])
        shares = np.array([share + gain, share, 1 - 2 * share - gain])
        return -float(np.sum(counts[counts > 0] * np.log(np.maximum(shares[counts > 0], 1e-300))))

    low = max(0.0, -gain)
    high = (1 - gain) / 2
    share = optimize.minimize_scalar(
        against, bounds=(low, high), method="bounded", options={"xatol": 1e-10}
    ).x
    deviation = np.sqrt(n * (2 * share + gain * (1 - gain)))
    assert tango(won, lost, n, gain) == pytest.approx((won - lost - n * gain) / deviation, rel=1e-3)


def test_against_no_gain_it_is_mcnemars_exact_test() -> None:
    evidence = PairedProportions(won=10, lost=2, n=500)
    assert evidence.p_above(0) == pytest.approx(stats.binom.sf(9, 12, 0.5))
    assert evidence.p_below(0) == pytest.approx(stats.binom.cdf(10, 12, 0.5))
    assert tango(10, 2, 500, 0.0) == pytest.approx((10 - 2) / np.sqrt(12))
    assert PairedProportions(0, 0, 500).p_above(0) == 1


@pytest.mark.parametrize(("n", "margin"), [(60, 0.0), (60, 0.05), (180, 0.01)])
@pytest.mark.parametrize("share_won", [0.0, 0.003, 0.01, 0.05])
@pytest.mark.parametrize("alpha", [0.05, ALPHA])
def test_of_models_worse_by_the_margin_at_most_the_level_passes(
    n: int, margin: float, share_won: float, alpha: float
) -> None:
    share_lost = share_won + margin
    passed = 0.0
    for discordant in range(n + 1):
        likely = stats.binom.pmf(discordant, n, share_won + share_lost)
        if likely < 1e-6:
            continue
        won = np.arange(discordant + 1)
        chances = (
            stats.binom.pmf(won, discordant, share_won / (share_won + share_lost)) if discordant else [1.0]
        )
        passes = [
            PairedProportions(int(count), int(discordant - count), n).p_above(-margin) <= alpha
            for count in won
        ]
        passed += likely * float(np.sum(np.array(chances)[passes]))
    assert passed <= alpha


def test_no_row_that_differs_leaves_a_difference_of_about_three_rows_possible() -> None:
    low, high = PairedProportions(0, 0, 1000).interval(0.05)
    assert -low == pytest.approx(high)
    assert 0.003 < high < 0.004
    assert PairedProportions(0, 0, 1000).p_above(-0.002) > 0.05
    assert PairedProportions(0, 0, 1000).p_above(-0.004) <= 0.05


@pytest.mark.parametrize(("won", "lost", "n"), [(0, 0, 0), (1, 0, 1), (0, 1, 1), (5, 0, 5), (0, 5, 5)])
def test_a_handful_of_rows_gives_wide_but_ordered_bounds(won: int, lost: int, n: int) -> None:
    low, high = PairedProportions(won, lost, n).interval()
    assert -1 <= low < high <= 1
    assert all(
        0 <= p <= 1 for gain in (-1, -0.5, 0, 0.5, 1) for p in [PairedProportions(won, lost, n).p_above(gain)]
    )
    assert PairedProportions(won, lost, n).standard_error > 0
