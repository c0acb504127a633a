"""What an online store must do to be written; a file of SQLite's and Redis do.

Each step is whole or not done, and may be done again.

Beside the values of a view, which :mod:`halving.features.online_values` reads, a store keeps two things. When
entities were deleted, so that a value that is withdrawn lets nothing come back from before. And up to which
generation each day is settled: nothing of an older one is online, so it is not looked for again.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Protocol

from halving.features.definition import Definition
from halving.features.packing import HEADER, deletion_mark, event_of

WAIT = 30.0
"""Seconds for another writer, or for Redis to answer."""


@dataclass(frozen=True)
class Withdrawal:
    """A row that is in no day any more.

    Attributes:
        key: of its entity.
        times: of its event and from when on it was known, as a value begins with them.
        generation: the newest one of its day: what is online is of an older one.
        value: what takes its place; None where nothing was known before.
    """

    key: bytes
    times: bytes
    generation: int
    value: bytes | None


class Writer(Protocol):
    """An online store as it is written."""

    def define(self, definition: Definition) -> Definition:
        """Register a view before its values; gives it with its features in the order in which they are
        packed.
        """

    def put(self, view: str, values: Sequence[tuple[bytes, bytes]], ttl: int | None) -> int:
        """Take the values, by entity key, that are newer than what is there; how many those are."""

    def withdraw(self, view: str, withdrawals: Sequence[Withdrawal], ttl: int | None) -> int:
        """Replace the values that are of withdrawn rows, or take them away; how many those are."""

    def values_of(
        self, view: str, first: int, end: int, generation: int
    ) -> Iterator[list[tuple[bytes, bytes]]]:
        """Entity keys and headers of all values with an event from ``first`` to before ``end`` (µs) and of an
        older generation.
        """

    def has(self, view: str) -> bool:
        """Whether the view was defined here."""

    def settled(self, view: str) -> dict[date, int]:
        """The generations up to which days are settled."""

    def settle(self, view: str, generations: Mapping[date, int]) -> None:
        """Note that days are settled up to these generations, where they are not further."""

    def delete(self, view: str, key: bytes, moment: int, ttl: int | None) -> bool:
        """Let what is there of an entity be gone, and nothing come back that happened until then; whether
        there was something.
        """


def deleted_value(value: bytes | None, moment: int) -> bytes:
    """What takes the place of a value, also of one whose event is yet to come."""
    return deletion_mark(moment if value is None else max(moment, event_of(value)))


def unless_deleted(value: bytes | None, gone: bytes | None) -> bytes | None:
    """A value, or what is kept in place of a deleted one where it is of before the deletion."""
    if gone is None or (value is not None and value[: HEADER.size] > gone[: HEADER.size]):
        return value
    return gone
