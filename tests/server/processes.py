"""A server in a process of its own, and clients of its live streams."""

import contextlib
import functools
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx2

from tests.ports import free_port
from tests.server import plain_http
from tests.waiting import wait_for

# Servers are forked from a process that has imported what they need: to import it again for each took longer
# than most of their tests. It is told where each is to work, and answers with the number of its process.
_FORK = """
import json, os, signal, socket, sys
from server.serving import serve
from server.settings import Settings
signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # who started a server looks at it by itself
line = socket.socket(fileno=int(sys.argv[1]))
for asked in line.makefile():
    if number := os.fork():
        line.sendall(b"%d\\n" % number)
        continue
    line.close()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    root, port, base_path, variables, folder = json.loads(asked)
    os.environ.clear()
    os.environ.update(variables)
    os.chdir(folder)
    sys.exit(serve(Settings(root=root, port=port, base_path=base_path)))
"""


class _Forks:
    """The process that forks servers."""

    def __init__(self) -> None:
        line, its = socket.socketpair()
        with its:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _FORK, str(its.fileno())], pass_fds=[its.fileno()]
            )
        self._line = line
        self._answers = line.makefile()
        self._lock = threading.Lock()

    def server(self, root: str, port: int, base_path: str) -> int:
        """Start a server with the variables and in the folder of now; the number of its process."""
        with self._lock:
            self._line.sendall(
                json.dumps([root, port, base_path, dict(os.environ), str(Path.cwd())]).encode() + b"\n"
            )
            return int(self._answers.readline())


_forks = functools.cache(_Forks)


class Sent(NamedTuple):
    """An event of a stream, and when it came."""

    name: str
    data: Any
    id: str | None
    at: float


class ServerProcess:
    """``halving serve`` on a store, on a port that stays its own when it is started again.

    Args:
        base_path: below which a proxy shows it.
    """

    def __init__(self, root: str, base_path: str = "") -> None:
        self.root = root
        self.port = free_port()
        self._base_path = base_path
        self.address = f"http://127.0.0.1:{self.port}"
        self.start()

    def start(self) -> None:
        self.pid = _forks().server(self.root, self.port, self._base_path)
        try:
            wait_for(self._answers, 120, "the server answers")
        except BaseException:
            self.kill()
            raise

    def kill(self) -> None:
        self._signal(signal.SIGKILL)
        wait_for(lambda: not self._is_alive(), 60, "the server is gone", every=0.01)

    def stop(self, seconds: float = 10.0) -> None:
        self._signal(signal.SIGTERM)
        wait_for(lambda: not self._is_alive(), seconds, "the server has ended", every=0.01)

    def wait_until_it_has_read(self, size: int) -> None:
        """Wait until the server's nameless file of an upload has so many bytes."""

        def read() -> bool:
            for file in Path(f"/proc/{self.pid}/fd").iterdir():
                with contextlib.suppress(OSError):  # it was closed meanwhile
                    if str(file.readlink()).endswith(" (deleted)") and file.stat().st_size >= size:
                        return True
            return False

        wait_for(read, 120, f"{size} bytes of an upload are read")

    def _answers(self) -> bool:
        assert self._is_alive()
        return is_answering(self.address)

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):  # it has ended by itself
            os.kill(self.pid, number)

    def _is_alive(self) -> bool:
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        return True


def is_answering(address: str) -> bool:
    """Whether a server listens at an address, and is healthy."""
    try:
        return plain_http.get(f"{address}/api/v1/health").status_code == 200
    except httpx2.TransportError:
        return False


@contextmanager
def server_of(root: str, base_path: str = "") -> Iterator[ServerProcess]:
    """A server that is killed at the end of the ``with`` block."""
    server = ServerProcess(root, base_path)
    try:
        yield server
    finally:
        server.kill()


class Stream:
    """A client of a live stream, which reads in a thread of its own.

    Args:
        last: the id of the last event that was seen.
    """

    def __init__(self, url: str, params: dict[str, Any], last: str | None = None) -> None:
        self.events: list[Sent] = []
        self.status: queue.Queue[int] = queue.Queue()
        self.ended = threading.Event()
        self._answer: httpx2.Response | None = None
        self._client = plain_http.client(timeout=httpx2.Timeout(5, read=60))
        headers = {"Last-Event-ID": last} if last else {}
        self._thread = threading.Thread(target=self._read, args=(url, params, headers), daemon=True)
        self._thread.start()

    @property
    def last(self) -> str | None:
        """The id that a browser would go on from."""
        return next((event.id for event in reversed(self.events) if event.id), None)

    def events_named(self, name: str) -> list[Any]:
        """The data of all events of a name so far."""
        return [event.data for event in list(self.events) if event.name == name]

    def points(self) -> dict[tuple[str, str, int], float]:
        """What a page shows: by run, key and step the value of the highest attempt that came last."""
        points: dict[tuple[str, str, int], tuple[int, float]] = {}
        for data in self.events_named("points"):
            for step, value in zip(data["x"], data["value"], strict=True):
                place = (data["run"], data["key"], int(step))
                if data["attempt"] >= points.get(place, (0, 0.0))[0]:
                    points[place] = (data["attempt"], value)
        return {place: value for place, (_, value) in points.items()}

    def is_past(self, step: int) -> bool:
        """Whether the point of a step was seen, and after it an id to go on from."""
        events = list(self.events)
        position = next(
            (i for i, event in enumerate(events) if event.name == "points" and step in event.data["x"]),
            len(events),
        )
        return any(event.id for event in events[position:])

    def close(self) -> None:
        """Leave."""
        if self._answer is not None:
            with contextlib.suppress(OSError, RuntimeError, httpx2.HTTPError):
                self._answer.extensions["network_stream"].get_extra_info("socket").shutdown(socket.SHUT_RDWR)
        self._thread.join(10)

    def _read(self, url: str, params: dict[str, Any], headers: dict[str, str]) -> None:
        try:
            with self._client.stream("GET", url, params=params, headers=headers) as answer:
                self._answer = answer
                self.status.put(answer.status_code)
                fields: dict[str, str] = {}
                for line in answer.iter_lines():
                    name, _, value = line.partition(": ")
                    if line:
                        fields[name] = value
                    elif fields:
                        if "event" in fields:
                            self.events.append(
                                Sent(
                                    fields["event"], json.loads(fields["data"]), fields.get("id"), time.time()
                                )
                            )
                        fields = {}
        except (httpx2.HTTPError, httpx2.StreamError, RuntimeError, OSError):
            pass  # the server was killed, or this was closed
        finally:
            self._client.close()
            self.ended.set()
