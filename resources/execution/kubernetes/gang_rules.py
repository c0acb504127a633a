"""When a gang of pods forms, with how many pods, and when it may grow, as pure functions."""

from collections.abc import Sequence
from enum import Enum

SETTLE_SECONDS = 20.0
"""How long an elastic gang waits for all of its pods before it goes on with those that it has."""
GROW_AFTER_SECONDS = 300.0
"""How long a gang trains with fewer nodes before it looks for more; a restart must be worth it."""


class PodState(Enum):
    """How far a pod has come on its way into a gang."""

    UNPLACED = "no node"
    STARTING = "has a node"
    STUCK = "cannot start on its node"
    HERE = "waits for the others"


def pods_to_keep(pods: Sequence[PodState], min_nodes: int, seconds: float) -> list[int] | None:
    """The pods with which the gang goes on, once they are all placed; None until then.

    The next gang may then form.

    Args:
        pods: of all nodes that were requested.
        min_nodes: how many nodes the gang may shrink to; all of them if it is not elastic.
        seconds: since the pods were created.
    """
    placed = [number for number, state in enumerate(pods) if state is not PodState.UNPLACED]
    if len(placed) == len(pods) or (seconds >= SETTLE_SECONDS and len(placed) >= min_nodes):
        return placed
    return None


def pods_to_form(pods: Sequence[PodState], min_nodes: int, seconds: float) -> list[int] | None:
    """The pods that form the gang; None while it waits.

    It waits for a pod that pulls its image, and not for one that cannot start.

    Args:
        pods: those that are kept.
        min_nodes, seconds: as in :func:`pods_to_keep`.
    """
    here = [number for number, state in enumerate(pods) if state is PodState.HERE]
    if len(here) == len(pods):
        return here
    others_may_come = any(state in (PodState.STARTING, PodState.UNPLACED) for state in pods)
    if others_may_come or len(here) < min_nodes or seconds < SETTLE_SECONDS:
        return None
    return here


def may_look_for_more(size: int, nodes: int, seconds: float, *, wanted: bool) -> bool:
    """Whether a gang may let one more pod wait for a node, to start again with it.

    Args:
        size: how many nodes it has.
        nodes: how many it wants.
        seconds: since it was formed.
        wanted: whether another gang wants to form; its pods come first.
    """
    return size < nodes and seconds >= GROW_AFTER_SECONDS and not wanted
