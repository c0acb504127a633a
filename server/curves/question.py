"""Questions for curves: runs, keys, axis and window, checked against the server's limits."""

import math
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from halving.errors import InvalidInput

MAX_RUNS = 1_000
MAX_KEYS = 100
MAX_POINTS = 5_000
MAX_ROWS = 2_000_000
MAX_JSON_ROWS = 200_000
"""As JSON, which takes ten times the bytes and a hundred times the CPU."""

Axis = Literal["step", "time", "relative"]


class Question(BaseModel):
    """A question for curves.

    Attributes:
        runs: ids, ``project/run``.
        filter, top: instead of ``runs``: the first ``top`` runs that a filter finds, in its order.
        keys: names of metrics.
        x: ``step``; ``time``, seconds since 1970; ``relative``, seconds since the run began.
        max_points: the most rows of a curve; a longer one comes in buckets.
        low, high: the window on the axis, both included; null leaves an end open.
        edges: ``whole`` gives buckets that cross an end of the window as they are, which is faster; ``exact``
            cuts them.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    runs: tuple[str, ...] = Field((), max_length=MAX_RUNS)
    filter: str | None = Field(None, max_length=10_000)
    top: int = Field(100, ge=1, le=MAX_RUNS)
    keys: tuple[str, ...] = Field(min_length=1, max_length=MAX_KEYS)
    x: Axis = "step"
    max_points: int = Field(1_000, ge=1, le=MAX_POINTS)
    low: float | None = None
    high: float | None = None
    edges: Literal["whole", "exact"] = "whole"

    def check_window(self) -> None:
        """Raise InvalidInput if the window is not valid."""
        for name, end in (("low", self.low), ("high", self.high)):
            if end is not None and not math.isfinite(end):
                raise InvalidInput(
                    f"{name} {end!r} is not accepted: give a finite number, or nothing for an open end"
                )
        if self.low is not None and self.high is not None and self.low > self.high:
            raise InvalidInput(f"low {self.low:g} is not accepted: give at most high, which is {self.high:g}")
