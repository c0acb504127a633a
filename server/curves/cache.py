"""A cache of recent answers by their tags, bounded in bytes."""

import threading
from collections import OrderedDict

MAX_BYTES = 128 << 20


class Cache:
    """A bounded cache of answers; the least recently used one goes first."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._bodies: OrderedDict[str, bytes] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, tag: str) -> bytes | None:
        with self._lock:
            if tag in self._bodies:
                self._bodies.move_to_end(tag)
            return self._bodies.get(tag)

    def put(self, tag: str, body: bytes) -> None:
        with self._lock:
            self._bytes += len(body) - len(self._bodies.pop(tag, b""))
            self._bodies[tag] = body
            while self._bytes > self._max_bytes:
                self._bytes -= len(self._bodies.popitem(last=False)[1])
