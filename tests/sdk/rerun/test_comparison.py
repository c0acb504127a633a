"""Two runs' curves are equal to the last bit, or differ first at one step of one metric."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from halving.metrics.points import Points
from halving.rerun.comparison import count, first_difference, up_to

VALUES = st.floats() | st.sampled_from([0.0, -0.0, math.nan, math.inf])
CURVES = st.dictionaries(st.sampled_from("abc"), st.dictionaries(st.integers(-5, 5), VALUES, min_size=1))


def points(curve: dict[int, float], *, time: int = 0) -> Points:
    steps = sorted(curve)
    number = len(steps)
    return Points(
        np.ones(number, np.int32),
        np.array(steps, np.int64),
        np.full(number, time),
        np.array([curve[step] for step in steps]),
    )


def text(value: float | None) -> str | None:
    """Two values have the same text where they are the same."""
    return None if value is None else repr(float(value))


@given(CURVES, CURVES)
def test_it_is_the_first_step_at_which_a_plain_comparison_finds_a_difference(
    first: dict[str, dict[int, float]], second: dict[str, dict[int, float]]
) -> None:
    different = sorted(
        (step, metric)
        for metric in first.keys() | second.keys()
        for step in first.get(metric, {}).keys() | second.get(metric, {}).keys()
        if text(first.get(metric, {}).get(step)) != text(second.get(metric, {}).get(step))
    )
    difference = first_difference(
        {key: points(curve) for key, curve in first.items()},
        {key: points(curve) for key, curve in second.items()},
    )
    if not different:
        assert difference is None
        return
    assert difference is not None
    assert (difference.step, difference.metric) == different[0]
    assert (difference.points, difference.metrics) == (
        len(different),
        len({metric for _, metric in different}),
    )
    step, metric = different[0]
    assert (text(difference.recorded), text(difference.rerun)) == (
        text(first.get(metric, {}).get(step)),
        text(second.get(metric, {}).get(step)),
    )
    assert (difference.difference is None) == (difference.recorded is None or difference.rerun is None)


@given(CURVES)
def test_when_a_point_was_logged_and_which_nan_it_is_do_not_count(
    curves: dict[str, dict[int, float]],
) -> None:
    recorded = {key: points(curve) for key, curve in curves.items()}
    again = {
        key: points(curve, time=7)._replace(value=np.negative(np.negative(points(curve).value)))
        for key, curve in curves.items()
    }
    assert first_difference(recorded, again) is None
    assert count(recorded) == sum(map(len, curves.values()))


def points_of(*each: tuple[int, int, float]) -> Points:
    """Points of ``(attempt, step, value)``, in the order of :func:`halving.rerun.comparison.read_points`."""
    attempt, step, value = zip(*each, strict=True)
    return Points(
        np.array(attempt, np.int32),
        np.array(step, np.int64),
        np.zeros(len(each), np.int64),
        np.array(value, np.float64),
    )


def test_each_of_several_points_at_one_step_is_compared() -> None:
    recorded = {"loss": points_of((1, 1, 0.1), (1, 1, 0.2), (1, 1, 0.3), (1, 2, 0.4))}
    difference = first_difference(
        recorded, {"loss": points_of((1, 1, 0.1), (1, 1, 0.9), (1, 1, 0.3), (1, 2, 0.4))}
    )
    assert difference is not None
    assert (difference.step, difference.recorded, difference.rerun, difference.points) == (1, 0.2, 0.9, 1)
    difference = first_difference(recorded, {"loss": points_of((1, 1, 0.1), (1, 1, 0.2), (1, 2, 0.4))})
    assert difference is not None
    assert (difference.step, difference.recorded, difference.rerun, difference.points) == (1, 0.3, None, 1)


def test_of_a_step_that_a_resumed_attempt_logged_again_the_last_point_is_compared() -> None:
    recorded = {"loss": points_of((1, 1, 0.1), (1, 1, 0.2), (1, 2, 7.0), (2, 2, 0.4), (2, 3, 0.5))}
    again = {"loss": points_of((1, 1, 0.1), (1, 1, 0.2), (1, 2, 0.3), (1, 2, 0.4), (1, 3, 0.5))}
    assert first_difference(recorded, again) is None


def test_points_after_the_end_of_a_run_that_was_cut_short_are_left_out_and_counted() -> None:
    whole = {
        "loss": points_of((1, 1, 0.1), (1, 2, 0.2), (1, 2, 0.3), (1, 3, 0.4)),
        "test": points_of((1, 3, 0.9)),
    }
    short = {"loss": points_of((1, 1, 0.1), (1, 2, 0.2))}
    kept, left_out = up_to(whole, short)
    assert first_difference(short, kept) is None
    assert left_out == 3
    assert count(up_to(short, whole)[0]) == 2
