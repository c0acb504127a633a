"""The ranges that a trial's metrics must stay within."""

import math
from collections.abc import Iterable, Mapping

Range = tuple[float | None, float | None]
"""The smallest and the largest value that are accepted; None leaves an end open."""


def accepted_ranges(finite: Iterable[str], divergence: Mapping[str, Range]) -> dict[str, Range]:
    """The range of each metric that must always be within one; ``(None, None)`` means that it must be finite.

    Args:
        finite: the objectives, and the metrics that must be in bounds at the rungs.
        divergence: bounds that hold all the time.
    """
    return {**dict.fromkeys(finite, (None, None)), **divergence}


def describe_violation(metric: str, value: float, accepted: Range, where: str) -> str | None:
    """Describe a value that is not finite or not in its range; None if it is accepted.

    Args:
        metric: the name in the description.
        where: the step or epoch of the value.
    """
    low, high = accepted
    if not math.isfinite(value):
        return f"{metric} became {value} at {where}"
    if low is not None and value < low:
        return f"{metric} became {value} at {where}, below its bound of {low}"
    if high is not None and value > high:
        return f"{metric} became {value} at {where}, above its bound of {high}"
    return None
