"""The protocol for writing an online store, which a file of SQLite and Redis implement.

Each step is atomic, and may be repeated.

Beside the values of a view, which :mod:`halving.features.online_values` reads, a store keeps two things: when
entities were deleted, so that a withdrawal brings nothing back from before; and up to which generation each
day is settled. Nothing of an older generation is online then, so it is not looked for again.
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
        key: the key of its entity.
        times: its event and known time, in the bytes with which a value begins.
        generation: the newest generation of its day; the online value is of an older one.
        value: the value that takes its place; None if nothing was known before.
    """

    key: bytes
    times: bytes
    generation: int
    value: bytes | None


class Writer(Protocol):
    """Writes to an online store."""

    def define(self, definition: Definition) -> Definition:
        """Register a view before its values; give it with its features in the order of packing."""

    def put(self, view: str, values: Sequence[tuple[bytes, bytes]], ttl: int | None) -> int:
        """Take the values, by entity key, that are newer than those there; give how many."""

    def withdraw(self, view: str, withdrawals: Sequence[Withdrawal], ttl: int | None) -> int:
        """Replace or remove the values of withdrawn rows; give how many."""

    def values_of(
        self, view: str, first: int, end: int, generation: int
    ) -> Iterator[list[tuple[bytes, bytes]]]:
        """Entity keys and headers of older generations' values with events from ``first`` to before ``end``.

        Times are in µs.
        """

    def has(self, view: str) -> bool:
        """Whether the view was defined here."""

    def settled_generations(self, view: str) -> dict[date, int]:
        """The generations up to which days are settled."""

    def settle(self, view: str, generations: Mapping[date, int]) -> None:
        """Note that days are settled at least up to these generations."""

    def delete(self, view: str, key: bytes, deleted_at: int, ttl: int | None) -> bool:
        """Delete an entity's value, so that nothing from before comes back; give whether there was one."""


def deleted_value(value: bytes | None, deleted_at: int) -> bytes:
    """The marker that takes the place of a deleted value, even of one whose event is yet to come."""
    if value is not None:
        deleted_at = max(deleted_at, event_of(value))
    return deletion_mark(deleted_at)


def unless_deleted(value: bytes | None, gone: bytes | None) -> bytes | None:
    """The value, or the marker of a deletion that came after it."""
    if gone is None or (value is not None and value[: HEADER.size] > gone[: HEADER.size]):
        return value
    return gone
