"""Events that wait for clients, bounded for each client and for all of them together."""

import asyncio
import contextlib
import json
import threading
from collections import deque
from collections.abc import Iterable
from typing import Any, NamedTuple

from fastapi.sse import format_sse_event

from server.live.cursor import Run

MAX_BYTES = 8 << 20
MAX_BYTES_OF_ALL = 256 << 20
_BATCH = 128 << 10  # bytes that are taken at once, about: what is on its way to a client is not counted


class Event(NamedTuple):
    """An event's name and its bytes, encoded once for all who get it."""

    name: str
    sent: bytes

    @classmethod
    def of(cls, name: str, data: Any) -> "Event":
        """Create an event with its data as JSON."""
        return cls(name, format_sse_event(event=name, data_str=json.dumps(data, separators=(",", ":"))))


Batch = tuple[list[Event], dict[Run, str] | None]
"""Events, and the runs' positions after them as :func:`~server.live.cursor.text_of` gives them; None where
more events wait already.
"""

RESYNC = "resync"
POINTS = "points"


class Backlog:
    """The events that wait for all clients together.

    Where it is too much, the client for which most waits loses its points first.

    Args:
        max_bytes: that wait for all of them.
    """

    def __init__(self, max_bytes: int = MAX_BYTES_OF_ALL) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._waiting: set[Subscription] = set()
        self.lock = threading.Lock()
        """Held while anything that waits for any client is changed."""

    def count(self, subscription: "Subscription", more: int) -> None:
        """Count waiting bytes; ``more`` may be negative. Called with the lock held."""
        self._bytes += more
        if subscription.bytes:
            self._waiting.add(subscription)
        else:
            self._waiting.discard(subscription)

    def shrink(self) -> None:
        """Drop points until the backlog is small enough. Called with the lock held."""
        while self._bytes > self._max_bytes:
            max(self._waiting, key=lambda each: each.bytes).drop_points()


class Subscription:
    """One client's stream.

    Args:
        runs, keys: what it asked for.
        loop: where it waits.
        max_bytes: that wait for it.
        backlog: that of all clients.

    Attributes:
        bytes: that wait for it.
    """

    def __init__(
        self,
        runs: Iterable[Run],
        keys: Iterable[str],
        loop: asyncio.AbstractEventLoop,
        max_bytes: int = MAX_BYTES,
        backlog: Backlog | None = None,
    ) -> None:
        self.runs = tuple(runs)
        self.keys = frozenset(keys)
        self._loop = loop
        self._max_bytes = max_bytes
        self._backlog = backlog or Backlog()
        self._events: deque[Event] = deque()
        self.bytes = 0
        self._positions: dict[Run, str] = {}
        self._closed = False
        self._news = asyncio.Event()

    def put(self, run: Run, events: Iterable[Event], position: str) -> None:
        """Add events of a run; ``position`` is how far the run is read after them.

        Called by the thread that polls, which wakes the client later.

        A client that does not keep up loses the points that wait, and is told to read the curves again; one
        that takes nothing at all is left, and may come again.
        """
        with self._backlog.lock:
            if self._closed:
                return
            self._positions[run] = position
            new = list(events)
            self._events.extend(new)
            self._resize(self.bytes + _size(new))
            if self.bytes > self._max_bytes:
                self.drop_points()
            self._backlog.shrink()

    def drop_points(self) -> None:
        """Drop the points that wait, and tell the client to read the curves again.

        What the runs have become stays. Called with the backlog's lock held.
        """
        before = self.bytes
        kept = [event for event in self._events if event.name not in (POINTS, RESYNC)]
        self._events = deque([Event.of(RESYNC, {}), *kept])
        self._resize(_size(self._events))
        if self.bytes > self._max_bytes or self.bytes >= before:  # there were no points to drop
            self._end()

    def close(self) -> None:
        """End the stream."""
        with self._backlog.lock:
            self._end()
        self.wake()

    async def next(self) -> Batch | None:
        """Wait for events and return the first of them; None at the stream's end."""
        while not self._closed:
            await self._news.wait()
            self._news.clear()
            with self._backlog.lock:
                taken = []
                size = 0
                while self._events and size < _BATCH:
                    taken.append(self._events.popleft())
                    size += len(taken[-1].sent)
                self._resize(self.bytes - size)
                positions = None
                if not self._events:
                    positions = dict(self._positions)
            if positions is None:
                self._news.set()
            if taken:
                return taken, positions
        return None

    def _end(self) -> None:
        self._closed = True
        self._events.clear()
        self._resize(0)

    def _resize(self, size: int) -> None:
        more = size - self.bytes
        self.bytes = size
        self._backlog.count(self, more)

    @property
    def waits(self) -> bool:
        """Whether there are events for the client, or no more will come."""
        return bool(self._events) or self._closed

    def wake(self) -> None:
        """Let the client take the events that wait."""
        with contextlib.suppress(RuntimeError):  # its loop is closed
            self._loop.call_soon_threadsafe(self._news.set)


def _size(events: Iterable[Event]) -> int:
    return sum(len(event.sent) for event in events)
