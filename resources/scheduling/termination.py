"""Why a worker, or a trial's process, ended without saying so itself."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Termination:
    """How a worker, or a trial's process or pod, ended.

    Attributes:
        reason: in the words of the system that saw it.
        own_fault: whether the trial caused it and would cause it again (it ran out of memory); else its
            machine was reclaimed.
    """

    reason: str
    own_fault: bool


TerminationLookup = Callable[[str], Termination | None]
"""From a worker's name to how it ended; None where that is unknown, or the worker still runs."""
