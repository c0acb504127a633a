"""A receiver of messages on this machine, which may fail and counts what reaches it."""

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from resources.alerts.addresses import parse_networks

THIS_MACHINE = parse_networks(["127.0.0.0/8", "::1/128"])


class Receiver:
    """What a receiver has got.

    Attributes:
        bodies: of the requests that it took, in their order.
        headers: theirs.
        taken: how often it took each message, by the message's id.
        refused: how many requests it refused.
        answers: statuses, with headers, that it gives to the next requests; then 204.
        text: the body of its refusals; ``PATH`` in it is the request's path.
        drips: whether it sends its answer byte by byte, and never to an end.
        failing: the share of requests that it refuses by chance.
    """

    def __init__(self) -> None:
        self.bodies: list[Any] = []
        self.headers: list[dict[str, str]] = []
        self.taken: Counter[str] = Counter()
        self.refused = 0
        self.answers: list[tuple[int, dict[str, str]]] = []
        self.failing = 0.0
        self.text = ""
        self.drips = False
        self.lock = threading.Lock()
        self.chance = random.Random(7)
        self.url = ""

    def take(self, body: bytes, headers: dict[str, str]) -> tuple[int, dict[str, str]]:
        with self.lock:
            answer: tuple[int, dict[str, str]] = (204, {})
            if self.answers:
                answer = self.answers.pop(0)
            elif self.chance.random() < self.failing:
                answer = (503, {})
            if answer[0] >= 300:
                self.refused += 1
                return answer
            self.bodies.append(json.loads(body))
            self.headers.append(headers)
            self.taken[headers.get("webhook-id", "")] += 1
            return answer


@contextmanager
def running_receiver() -> Iterator[Receiver]:
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            while receiver.drips:
                self.wfile.write(b"H")
                time.sleep(0.05)
            status, headers = receiver.take(
                body, {name.lower(): value for name, value in self.headers.items()}
            )
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            text = b""
            if status >= 300:
                text = receiver.text.replace("PATH", self.path).encode()
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            """A client that has gone is no error."""

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    receiver.url = f"http://127.0.0.1:{server.server_address[1]}/hook"
    try:
        yield receiver
    finally:
        receiver.drips = False
        server.shutdown()
        server.server_close()
        thread.join()
