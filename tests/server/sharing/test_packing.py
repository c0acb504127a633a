"""Packed curves: what is read back of them is within a 16,384th of their range."""

import math
from typing import Any

import hypothesis.strategies as st
import numpy as np
from hypothesis import given as examples_of
from hypothesis import settings

from server.sharing.packing import LEVELS, NAN, NEGATIVE_INFINITY, POSITIVE_INFINITY, Scale, scale_of
from tests.properties import examples

# The page draws float32: larger values are infinite there.
_NUMBERS = st.floats(-1e300, 1e300) | st.sampled_from((math.nan, math.inf, -math.inf))


def _read_back(scale: Scale, codes: Any) -> list[float]:
    others = {NAN: math.nan, POSITIVE_INFINITY: math.inf, NEGATIVE_INFINITY: -math.inf}
    values = []
    for code in codes.tolist():
        even = scale.low + code / LEVELS * (scale.high - scale.low)
        value = even
        if scale.bend is not None:
            value = math.sinh(even) * scale.bend
        values.append(others.get(code, value))
    return values


@settings(max_examples=examples(200))
@examples_of(st.lists(_NUMBERS, min_size=1, max_size=30))
def test_a_value_is_read_back_on_its_scale(numbers: list[float]) -> None:
    values = np.array(numbers)
    scale = scale_of(values)
    codes = scale.quantise(values)
    for value, back in zip(numbers, _read_back(scale, codes), strict=True):
        if not math.isfinite(value):
            assert back == value or (math.isnan(back) and math.isnan(value))
            continue
        if scale.bend is None:
            assert abs(value - back) <= max(scale.high - scale.low, 0) / LEVELS
            continue
        error = abs(math.asinh(value / scale.bend) - math.asinh(back / scale.bend))
        assert error <= 1.01 * (scale.high - scale.low) / LEVELS


def test_values_of_many_decades_keep_their_digits() -> None:
    values = np.geomspace(1e-6, 1e3, 50)
    scale = scale_of(values)
    assert np.allclose(_read_back(scale, scale.quantise(values)), values, rtol=1e-3, atol=0)
