"""Why a worker, or a trial's process, ended without a message."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Termination:
    """How a worker, or a trial's process or pod, ended.

    Attributes:
        reason: in the words of the system that noticed it.
        own_fault: whether the trial caused it and would cause it again, as when it ran out of memory. If not,
            its machine was reclaimed.
    """

    reason: str
    own_fault: bool


TerminationLookup = Callable[[str], Termination | None]
"""From a worker's name to how it ended; None if that is unknown, or if the worker still runs."""
