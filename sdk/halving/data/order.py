"""The order in which a split's rows are handed out.

It is a pure function of the shards' rows, the seed, the epoch and the number of lanes. With N rows in all,
L lanes, ``q, r = divmod(N, L)``, and everything counted from 0:

1. The shards are put in the order of ``key(seed, epoch, 1, shard)``, and their rows thought of as one long
   row of *places* 0 … N-1.
2. Lane l is a contiguous part of them, ``q + 1`` places long for the first r lanes and ``q`` for the others:
   it begins at ``l * q + min(l, r)``.
3. Position p of the epoch is place ``begin(l) + p // L`` of lane ``l = p mod L``. So neighbours come from L
   different parts of the data.
4. Place j within a shard of n rows is row ``π(j)`` of it, where π is a Feistel network of 6 rounds on ``b``
   bits (``b >= 8``, and ``2**b >= n``), walked along its cycle until the result is below n. Its key is
   ``key(seed, epoch, 2, shard)``.

Each step is a bijection, so each position has one row and each row one position. Hashes are SplitMix64's
finalizer (Steele, Lea, Flood: *Fast splittable pseudorandom number generators*, OOPSLA 2014, with Stafford's
variant 13). Not shuffled, the shards stay as they are and ``π(j) = j``. Nothing here may ever change: a
training that is resumed counts on it.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    Numbers = np.ndarray[Any, np.dtype[np.int64]]
    Words = np.ndarray[Any, np.dtype[np.uint64]]

_GAMMA = 0x9E3779B97F4A7C15
_FACTORS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_MASK = (1 << 64) - 1
# What a key is used for.
_SHARDS = 1
_ROWS = 2
# With fewer rounds or bits some permutations of a few rows are visibly more frequent than others.
_ROUNDS = 6
_MIN_BITS = 8


class Order:
    """The order of one epoch's rows, computed from a few numbers for each shard.

    Args:
        rows: of each shard, in stored order.
        seed, epoch: any integers of at most 64 bits.
        lanes: from how many places of the data neighbours come.
        shuffle: False is the stored order where ``lanes`` is 1.

    Attributes:
        total: rows in all: positions are 0 … total - 1.
    """

    def __init__(
        self, rows: Sequence[int], *, seed: int, epoch: int, lanes: int, shuffle: bool = True
    ) -> None:
        self._rows = np.asarray(rows, np.int64)
        self.total = int(self._rows.sum())
        self._lanes = lanes
        self._shuffle = shuffle
        count = np.arange(len(self._rows), dtype=np.uint64)
        self._keys = _mix(np.uint64(_key(seed, epoch, _ROWS)) ^ count)
        self._sequence = count.astype(np.int64)
        if shuffle:
            self._sequence = np.argsort(_mix(np.uint64(_key(seed, epoch, _SHARDS)) ^ count), kind="stable")
        self._ends = np.cumsum(self._rows[self._sequence])  # places
        self._starts = self._ends - self._rows[self._sequence]

    def locate(self, positions: "Numbers") -> "tuple[Numbers, Numbers]":
        """Find the row at each of some positions.

        Returns the shards (their numbers in stored order) and the rows within them: two int64 arrays of the
        positions' shape ``(n,)``.
        """
        lane = positions % self._lanes
        places = self._begin(lane) + positions // self._lanes
        parts = np.searchsorted(self._ends, places, side="right")
        shards = self._sequence[parts]
        rows = places - self._starts[parts]
        if self._shuffle:
            rows = _permute(rows, self._rows[shards], self._keys[shards])
        return shards, rows

    def needs(self) -> "tuple[Numbers, Numbers]":
        """When shards are first needed: ascending positions, and the shard that a lane begins to read there.

        A shard may be listed twice.
        """
        lanes = np.arange(min(self._lanes, self.total), dtype=np.int64)
        begins = self._begin(lanes)
        cuts = np.union1d(begins, self._starts)
        lane = np.searchsorted(begins, cuts, side="right") - 1
        positions = (cuts - begins[lane]) * self._lanes + lane
        order = np.argsort(positions, kind="stable")
        return positions[order], self._sequence[np.searchsorted(self._ends, cuts[order], side="right")]

    def _begin(self, lane: "Numbers") -> "Numbers":
        """The first place of each lane."""
        quotient, longer = divmod(self.total, self._lanes)
        return lane * quotient + np.minimum(lane, longer)


def _permute(places: "Numbers", rows: "Numbers", keys: "Words") -> "Numbers":
    """Apply ``π`` to each place, in a shard of so many rows and with such a key."""
    # The number of bits of n - 1; it is exact below 2**53.
    bits = np.maximum(np.frexp((rows - 1).astype(np.float64))[1], _MIN_BITS).astype(np.uint64)
    sizes = rows.astype(np.uint64)
    permuted = _feistel(places.astype(np.uint64), bits, keys)
    permuted[rows == 1] = 0
    outside = np.flatnonzero(permuted >= sizes)
    while len(outside):
        walked = _feistel(permuted[outside], bits[outside], keys[outside])
        permuted[outside] = walked
        outside = outside[walked >= sizes[outside]]
    return permuted.astype(np.int64)


def _feistel(values: "Words", bits: "Words", keys: "Words") -> "Words":
    """A keyed bijection of the numbers below ``2**bits``.

    The two halves of the bits change in turn, each by a hash of the other.
    """
    high_bits = bits >> np.uint64(1)
    low_bits = bits - high_bits
    high = values >> low_bits
    low = values & ((np.uint64(1) << low_bits) - np.uint64(1))
    high_shift = np.uint64(64) - high_bits
    low_shift = np.uint64(64) - low_bits
    for turn in range(_ROUNDS):
        key = keys + np.uint64((turn + 1) * _GAMMA & _MASK)
        if turn % 2:
            low = low ^ (_mix(high ^ key) >> low_shift)
        else:
            high = high ^ (_mix(low ^ key) >> high_shift)
    return (high << low_bits) | low


def _key(*values: int) -> int:
    """Mix several values into one word: ``mix((word ^ value) + gamma)`` for each in turn."""
    word = 0
    for value in values:
        word = _mix_word(((word ^ value & _MASK) + _GAMMA) & _MASK)
    return word


def _mix_word(word: int) -> int:
    """Apply SplitMix64's finalizer to one word."""
    word = (word ^ (word >> 30)) * _FACTORS[0] & _MASK
    word = (word ^ (word >> 27)) * _FACTORS[1] & _MASK
    return word ^ (word >> 31)


def _mix(words: "Words") -> "Words":
    """Apply SplitMix64's finalizer to each word; multiplication is modulo 2**64."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(_FACTORS[0])
    words = (words ^ (words >> np.uint64(27))) * np.uint64(_FACTORS[1])
    return words ^ (words >> np.uint64(31))
