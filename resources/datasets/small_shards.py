"""Which small shards at the end of a split are written again together with the rows that are appended behind
them.

Small shards must not become many, and an append must not write again what others appended before it. So
shards are merged by tiers of size, as the levels of a log-structured merge tree are (O'Neil, Cheng, Gawlick &
O'Neil, Acta Informatica 33, 1996).
"""

from collections.abc import Sequence

_SHARE = 0.25
"""Of the bytes that are appended: as many bytes of small shards are merged with them at any time."""

_GATHERED = 32
"""Shards of one tier that are merged into one. So one append in 32 writes what the 31 before it wrote."""

_BITS_OF_TIER = 5
"""The sizes of a tier differ by less than a factor of 32, so that as many of its shards are one of the tier
above.
"""


def first_merged(sizes: Sequence[int], added: int, shard_bytes: int) -> int:
    """Say from which shard of a split on its shards are merged with the rows that are appended.

    Args:
        sizes: bytes of the split's shards, in their order.
        added: bytes of the rows that are appended.
        shard_bytes: of a full shard; one of less than a quarter is small.

    Returns:
        The shard's number; ``len(sizes)`` where none is merged.
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
        if sum(_tier_of(size) == tier for size in sizes[first_of_tier:]) >= _GATHERED:
            first = min(first, first_of_tier)
    return first


def _tier_of(size: int) -> int:
    return size.bit_length() // _BITS_OF_TIER
