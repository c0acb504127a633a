"""Why a worker is not heard of any more, as whoever started it knows."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Termination:
    """How a worker, or a trial's pod, came to its end.

    Attributes:
        reason: in the words of whoever saw it.
        own_fault: whether the trial caused it and would again (it ran out of memory); else its machine was taken away.
    """

    reason: str
    own_fault: bool


TerminationLookup = Callable[[str], Termination | None]
"""From a worker's name to how it died; None where nothing is known of it."""
