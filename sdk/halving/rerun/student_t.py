"""Quantiles of Student's t without scipy, for the interval of a mean of few values."""

import math


def t_quantile(probability: float, degrees: int) -> float:
    """The quantile of Student's t for a probability between 0.5 and 1, and 1 or more degrees of freedom."""
    low = 0.0
    high = 1.0
    while _below(high, degrees) < probability:
        high *= 2
    while (middle := (low + high) / 2) not in (low, high):
        if _below(middle, degrees) < probability:
            low = middle
        else:
            high = middle
    return high


def _below(value: float, degrees: int) -> float:
    """The distribution function for values from 0 on.

    Source: Abramowitz & Stegun, Handbook of Mathematical Functions, 26.7.3 and 26.7.4.
    """
    angle = math.atan(value / math.sqrt(degrees))
    is_odd = degrees % 2 == 1
    term = math.cos(angle) if is_odd else 1.0
    total = 0.0
    if degrees > 1:
        total = term
    for step in range(2 + is_odd, degrees, 2):
        term *= math.cos(angle) ** 2 * (step - 1) / step
        total += term
    within = math.sin(angle) * total
    if is_odd:
        within = 2 / math.pi * (angle + within)
    return 0.5 + within / 2
