"""What one client has coming: events that wait for it, never more than a bound."""

import asyncio
import contextlib
import json
import threading
from collections import deque
from collections.abc import Iterable
from typing import Any, NamedTuple

from fastapi.sse import format_sse_event

from server.live.cursor import Run

MOST_BYTES = 8 << 20


class Event(NamedTuple):
    """An event's name, and the event as it is sent: encoded once for all who get it."""

    name: str
    sent: bytes

    @classmethod
    def of(cls, name: str, data: Any) -> "Event":
        """An event with its data as JSON."""
        return cls(name, format_sse_event(event=name, data_str=json.dumps(data, separators=(",", ":"))))


Batch = tuple[list[Event], dict[Run, str]]
"""Events, and the runs' positions after them as :func:`~server.live.cursor.text_of` gives them."""

RESYNC, POINTS = "resync", "points"


class Subscription:
    """One client's stream.

    Args:
        runs, keys: what it asked for.
        loop: where it waits.
    """

    def __init__(self, runs: Iterable[Run], keys: Iterable[str], loop: asyncio.AbstractEventLoop, most: int = MOST_BYTES) -> None:
        self.runs, self.keys = tuple(runs), frozenset(keys)
        self._loop, self._most = loop, most
        self._events: deque[Event] = deque()
        self._bytes = 0
        self._positions: dict[Run, str] = {}
        self._closed = False
        self._lock = threading.Lock()
        self._news = asyncio.Event()

    def put(self, run: Run, events: Iterable[Event], position: str) -> None:
        """Add events of a run, after which it is read up to ``position``. Called by the thread that polls, which wakes the client later.

        A client that does not keep up loses the points that wait, and is told to read the curves again; one that takes nothing at all
        is left, and may come again.
        """
        with self._lock:
            self._positions[run] = position
            for event in events:
                self._events.append(event)
                self._bytes += len(event.sent)
            if self._bytes > self._most:
                kept = [event for event in self._events if event.name not in (POINTS, RESYNC)]
                self._events = deque([Event.of(RESYNC, {}), *kept])
                self._bytes = sum(len(event.sent) for event in self._events)
                self._closed = self._bytes > self._most

    def close(self) -> None:
        """End the stream."""
        self._closed = True
        self.wake()

    async def next(self) -> Batch | None:
        """Wait for events; gives all that there are and the runs' positions after them. None at the stream's end."""
        while not self._closed:
            await self._news.wait()
            self._news.clear()
            with self._lock:
                events, self._events, self._bytes = list(self._events), deque(), 0
                positions = dict(self._positions)
            if events:
                return events, positions
        return None

    @property
    def waits(self) -> bool:
        """Whether there are events for the client."""
        return bool(self._events)

    def wake(self) -> None:
        """Let the client take what there is."""
        with contextlib.suppress(RuntimeError):  # its loop is closed
            self._loop.call_soon_threadsafe(self._news.set)
