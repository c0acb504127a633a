"""When a gang of pods forms, with how many of them, and when it may grow: pure decisions on what is known of
its pods.
"""

from collections.abc import Sequence
from enum import Enum

SETTLE_SECONDS = 20.0
"""How long an elastic gang waits for all of its pods before it goes on with those it has."""
GROW_AFTER_SECONDS = 300.0
"""How long a gang trains with fewer nodes before it looks for more: saving and starting again must be worth
it.
"""


class PodState(Enum):
    """How far a pod has come on its way into a gang."""

    UNPLACED = "no node"
    STARTING = "has a node"
    STUCK = "cannot start on its node"
    HERE = "waits for the others"


def pods_to_keep(pods: Sequence[PodState], min_nodes: int, seconds: float) -> list[int] | None:
    """The pods that the gang goes on with, once those need no other place: the next gang may form then.

    None while it tries.

    Args:
        pods: of all nodes that were asked for.
        min_nodes: how many it may shrink to; as many as there are if it is not elastic.
        seconds: since the pods were created.
    """
    placed = [number for number, state in enumerate(pods) if state is not PodState.UNPLACED]
    if len(placed) == len(pods) or (seconds >= SETTLE_SECONDS and len(placed) >= min_nodes):
        return placed
    return None


def pods_to_form(pods: Sequence[PodState], min_nodes: int, seconds: float) -> list[int] | None:
    """The pods that form the gang; None while it waits.

    One that pulls its image is waited for, one that cannot start is not.

    Args:
        pods: those that are kept.
        min_nodes, seconds: as in :func:`pods_to_keep`.
    """
    here = [number for number, state in enumerate(pods) if state is PodState.HERE]
    if len(here) == len(pods):
        return here
    others_may_come = any(state in (PodState.STARTING, PodState.UNPLACED) for state in pods)
    return here if len(here) >= min_nodes and seconds >= SETTLE_SECONDS and not others_may_come else None


def may_look_for_more(size: int, nodes: int, seconds: float, *, wanted: bool) -> bool:
    """Whether a gang may have a pod wait for a node, to start again with more once that has one.

    Args:
        size: nodes that it has.
        nodes: that it wants.
        seconds: since it was formed.
        wanted: whether another gang wants to form: its pods come first.
    """
    return size < nodes and seconds >= GROW_AFTER_SECONDS and not wanted
