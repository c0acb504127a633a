"""Whose turn it is to form a gang, as pure functions.

One gang forms at a time; the others wait in a line and hold nothing.

A gang whose pods are placed one by one holds what it has while it waits for the rest. Two gangs that need
three GPUs each would wait for each other forever on a cluster of four. So a gang creates pods only while it
has the turn. Once all its pods have a node, it needs the turn no more. A gang that cannot be placed keeps the
turn while nobody else wants it, because the cluster may be adding a node for it. When others wait, it gives
up its pods and the turn after a while, and goes to the end of the line.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from resources.catalog import AHEAD_SECONDS

LEASE_SECONDS = 15.0
"""How long a gang keeps its place without renewing it; after that its worker counts as lost."""
PATIENCE_SECONDS = 120.0
"""How long a gang may try to form while others wait."""


@dataclass(frozen=True)
class Place:
    """A gang's place in the line. Times are in seconds since the epoch, by the database's clock.

    Attributes:
        gang: its attempt's name.
        since: when it came to the line, or was sent to its end.
        forms_since: since when it has the turn; None while it waits.
        until: when its worker is lost unless it renews this.
    """

    gang: str
    since: float
    forms_since: float | None
    until: float

    @property
    def forms(self) -> bool:
        return self.forms_since is not None


def latest_end(now: float) -> float:
    """The latest possible end of a place.

    A place that ends later was renewed before the clock was set back, and its worker may be lost.
    """
    return now + LEASE_SECONDS + AHEAD_SECONDS


def renew_place(line: Iterable[Place], gang: str, now: float, patience: float = PATIENCE_SECONDS) -> Place:
    """A gang's place from now on: it has the turn, waits, or goes to the end of the line.

    Args:
        line: all places, with that of the gang if it has one; those that have expired do not count.
        gang: the one that wants to form.
        now: seconds since the epoch.
        patience: seconds for which the gang keeps the turn while others wait.
    """
    living = {place.gang: place for place in line if now < place.until <= latest_end(now)}
    own = replace(living.pop(gang, Place(gang, now, None, now)), until=now + LEASE_SECONDS)
    others = list(living.values())
    if own.forms_since is not None:
        if others and now - own.forms_since >= patience:
            return replace(own, since=now, forms_since=None)
        return own
    is_first = all((own.since, own.gang) < (other.since, other.gang) for other in others)
    if is_first and not any(other.forms for other in others):
        return replace(own, forms_since=now)
    return own
