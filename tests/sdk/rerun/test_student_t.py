"""Quantiles of Student's t are those of printed tables."""

import pytest

from halving.rerun.student_t import t_quantile


@pytest.mark.parametrize(
    ("probability", "degrees", "value"),
    # Abramowitz & Stegun, Handbook of Mathematical Functions, table 26.10
    [
        (0.975, 1, 12.706),
        (0.975, 2, 4.303),
        (0.975, 3, 3.182),
        (0.975, 4, 2.776),
        (0.995, 5, 4.032),
        (0.975, 9, 2.262),
        (0.975, 60, 2.000),
    ],
)
def test_quantiles_are_those_of_the_table(probability: float, degrees: int, value: float) -> None:
    assert t_quantile(probability, degrees) == pytest.approx(value, abs=6e-4)
