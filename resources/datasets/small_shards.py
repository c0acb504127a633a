"""Decide which small shards at the end of a split are rewritten together with appended rows.

Small shards must not become many, and an append must not rewrite what others appended before it. So shards
are merged by tiers of size, like the levels of a log-structured merge tree (O'Neil, Cheng, Gawlick & O'Neil,
Acta Informatica 33, 1996).
"""

from collections.abc import Sequence

_SHARE = 0.25
"""Small shards up to this share of the appended bytes are always merged with them."""

_SHARDS_OF_TIER = 32
"""Shards of one tier that are merged into one; so one append in 32 rewrites what 31 before it wrote."""

_BITS_OF_TIER = 5
"""Sizes within a tier differ by less than a factor of 32, so a full tier makes a shard of the next."""


def find_first_merged(sizes: Sequence[int], added: int, shard_bytes: int) -> int:
    """Find the first shard of a split that is merged with the appended rows; all after it are, too.

    Args:
        sizes: bytes of the split's shards, in order.
        added: bytes of the appended rows.
        shard_bytes: bytes of a full shard; a shard of less than a quarter is small.

    Returns:
        The shard's number; ``len(sizes)`` if none is merged.
    """
    if not added:
        return len(sizes)
    first_small = len(sizes)
    while first_small and sizes[first_small - 1] < shard_bytes // 4:
        first_small -= 1
    first = len(sizes)
    while first > first_small and sum(sizes[first - 1 :]) <= _SHARE * added:
        first -= 1
    for tier in sorted({_tier_of(size) for size in sizes[first_small:]}):
        first_of_tier = len(sizes)
        while first_of_tier > first_small and _tier_of(sizes[first_of_tier - 1]) <= tier:
            first_of_tier -= 1
        if sum(_tier_of(size) == tier for size in sizes[first_of_tier:]) >= _SHARDS_OF_TIER:
            first = min(first, first_of_tier)
    return first


def _tier_of(size: int) -> int:
    return size.bit_length() // _BITS_OF_TIER
