"""Quantiles of Student's t, for the interval of a mean of few values, without scipy."""

import math


def t_quantile(probability: float, degrees: int) -> float:
    """The value that Student's t with so many degrees of freedom (1 or more) stays below with a probability
    between 0.5 and 1.
    """
    low = 0.0
    high = 1.0
    while _below(high, degrees) < probability:
        high *= 2
    while (middle := (low + high) / 2) not in (low, high):
        low, high = (middle, high) if _below(middle, degrees) < probability else (low, middle)
    return high


def _below(value: float, degrees: int) -> float:
    """The distribution function from 0 on (Abramowitz & Stegun, Handbook of Mathematical Functions, 26.7.3
    and 26.7.4).
    """
    angle = math.atan(value / math.sqrt(degrees))
    term = math.cos(angle) if degrees % 2 else 1.0
    total = term if degrees > 1 else 0.0
    for step in range(2 + degrees % 2, degrees, 2):
        term *= math.cos(angle) ** 2 * (step - 1) / step
        total += term
    within = 2 / math.pi * (angle + math.sin(angle) * total) if degrees % 2 else math.sin(angle) * total
    return 0.5 + within / 2
