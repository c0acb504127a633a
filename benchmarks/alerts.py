"""Whether every alert reaches its target once, while the processes that send them are killed."""

import contextlib
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from benchmarks.machine import CHECKOUT, Setting
from benchmarks.results import Part, Table, Target

SENDERS = 3
FAILING = 1 / 3
HASTE = 60.0
_KILL_SECONDS = 0.4
_MAX_SECONDS = 600.0
_TEXT = f"""
So many alerts are raised, each a message of its own to a webhook on this machine. {SENDERS} processes send
them, and one of them, by chance, gets SIGKILL every {_KILL_SECONDS:g} s and is started again. The receiver
answers a third of all requests with 503. The pauses between tries and the leases are {HASTE:g} times shorter
than they are, so that it takes a minute and not an hour. A message that a process was killed over, after the
receiver had taken it and before that was written down, is sent again under the same `webhook-id`, by which
every receiver of Standard Webhooks leaves out what it has had: these are counted as *sent again*, and what a
receiver acts upon twice as *twice*.
"""
_SENDER = "import sys; from benchmarks.alerts import send; send(sys.argv[1], float(sys.argv[2]))"


def measure(setting: Setting) -> Part:
    """Count the messages that arrived, that were sent again, and that were lost."""
    from resources.catalog import Catalog

    count = setting.choose(40, 1_000)
    url = f"sqlite:///{setting.work}/catalog.db"
    receiver = _Receiver()
    with closing(Catalog(url)) as catalog, receiver.running():
        _raise_alerts(catalog, receiver.url, count)
        began = time.monotonic()
        kills = _kill_senders_until_done(catalog, url, count)
        seconds = time.monotonic() - began
    distinct = len(receiver.taken)
    again = sum(receiver.taken.values()) - distinct
    part = Part("alerts", "Alerts under kills", _TEXT)
    header = [
        "alerts",
        "delivered",
        "lost",
        "twice",
        "sent again",
        "refused by the receiver",
        "kills",
        "seconds",
    ]
    figures = (count, distinct, count - distinct, receiver.acted_twice, again, receiver.refused, kills)
    part.tables.append(Table(header, [[*(str(figure) for figure in figures), f"{seconds:.0f}"]]))
    part.targets.append(Target("alerts that were not delivered once", "", [count - distinct], 0))
    return part


def send(url: str, haste: float) -> None:
    """Send what is due until the process is killed."""
    from resources.alerts.addresses import parse_networks
    from resources.alerts.delivery import Deliverer
    from resources.catalog import Catalog

    deliverer = Deliverer(Catalog(url), networks=parse_networks(["127.0.0.0/8"]), haste=haste)
    while True:
        if not deliverer.deliver():
            time.sleep(0.05)


def _raise_alerts(catalog: "Catalog", url: str, count: int) -> None:  # noqa: F821
    from resources.alerts.alert import Alert
    from resources.alerts.channels import add_channel
    from resources.alerts.outbox import raise_alert

    with catalog.write() as session:
        add_channel(session, "hook", "webhook", url, actor="bench")
        for number in range(count):
            # Each in a project of its own, or they would be one message.
            name = f"project-{number}"
            alert = Alert(name, "crashed", "run", f"{name}/run", f"{name}/run crashed", project=name)
            raise_alert(session, alert, catalog.now())


def _kill_senders_until_done(catalog: "Catalog", url: str, count: int) -> int:  # noqa: F821
    """Kill and start senders until no message waits; return the number of kills."""
    chance = random.Random(0)
    kills = 0
    senders = [_start_sender(url) for _ in range(SENDERS)]
    deadline = time.monotonic() + _MAX_SECONDS
    try:
        while _waiting(catalog, count) and time.monotonic() < deadline:
            time.sleep(_KILL_SECONDS)
            place = chance.randrange(SENDERS)
            senders[place].send_signal(signal.SIGKILL)
            senders[place].wait()
            kills += 1
            senders[place] = _start_sender(url)
    finally:
        for sender in senders:
            sender.kill()
            sender.wait()
    return kills


def _start_sender(url: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-c", _SENDER, url, str(HASTE)], cwd=CHECKOUT)


def _waiting(catalog: "Catalog", count: int) -> int:  # noqa: F821
    from sqlalchemy import func, select

    from resources.alerts.outbox import SENT
    from resources.catalog import AlertMessageRow

    with catalog.read() as session:
        sent = session.scalar(select(func.count()).where(AlertMessageRow.state == SENT))
    return count - (sent or 0)


class _Receiver:
    """A webhook that fails by chance, and leaves out what it has had, by its id."""

    def __init__(self) -> None:
        self.taken: Counter[str] = Counter()
        self.acted_twice = 0
        self.refused = 0
        self.url = ""
        self._acted: set[str] = set()
        self._lock = threading.Lock()
        self._chance = random.Random(1)

    def take(self, body: bytes, message: str) -> int:
        with self._lock:
            if self._chance.random() < FAILING:
                self.refused += 1
                return 503
            if message not in self.taken:
                if body.decode() in self._acted:
                    self.acted_twice += 1
                self._acted.add(body.decode())
            self.taken[message] += 1
            return 204

    @contextlib.contextmanager
    def running(self):  # type: ignore[no-untyped-def]
        """Answer on a port of this machine for the length of the ``with`` block."""
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(receiver.take(body, self.headers["webhook-id"]))
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        self.url = f"http://127.0.0.1:{server.server_address[1]}/hook"
        try:
            yield
        finally:
            server.shutdown()
            server.server_close()
