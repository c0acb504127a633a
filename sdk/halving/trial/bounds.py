"""The bounds that a trial's metrics must stay within."""

import math

from halving.trial.context import TrialContext

Bounds = tuple[float | None, float | None]  # the least and the greatest value that are accepted


def limits_of(trial: TrialContext) -> dict[str, Bounds]:
    """What a trial's metrics must stay within. Objectives and bounded metrics must be finite at least."""
    finite = [*(rule.metric for rule in trial.objectives), *trial.bounded]
    return {**dict.fromkeys(finite, (None, None)), **trial.divergence}


def problem(metric: str, value: float, bounds: Bounds, where: str) -> str | None:
    """What is wrong with a value, or None.

    Args:
        metric: what to call it.
        where: at which step or epoch it came.
    """
    low, high = bounds
    if not math.isfinite(value):
        return f"{metric} became {value} at {where}"
    if low is not None and value < low:
        return f"{metric} became {value} at {where}, below its bound of {low}"
    if high is not None and value > high:
        return f"{metric} became {value} at {where}, above its bound of {high}"
    return None
