"""A sample of a long list, for figures and samplers that cannot take it whole."""

from collections.abc import Sequence
from typing import TypeVar

_Item = TypeVar("_Item")


def spread(items: Sequence[_Item], limit: int) -> list[_Item]:
    """At most ``limit`` items: a quarter are the first ones, the others are spread over the rest."""
    if len(items) <= limit:
        return list(items)
    first = limit // 4
    rest = items[first:]
    wanted = limit - first
    return [*items[:first], *(rest[index * len(rest) // wanted] for index in range(wanted))]
