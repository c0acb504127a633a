"""A mailbox in the store: how a trial in a pod of its own and its worker speak, with no port between them.

Each end writes messages of its own, numbered and created once, and looks for the next one of the other's:
``runs/project=P/RUN/mail/ATTEMPT/trial-000001.json`` and ``worker-000001.json``. Whoever dies, what was said stays said.
"""

import logging
import time
from functools import partial

from halving.errors import NotFound
from halving.store.retry import retry_while_away
from halving.store.store import Store
from halving.trial.messages import Granted, Message, from_bytes, to_bytes

_FIRST_SECONDS, _LONGEST_SECONDS = 0.05, 1.0  # between two looks: one GET a second for each waiting end
_AWAY_SECONDS = 10.0  # between two looks at a store that is away, at most
_SEND_SECONDS = 300.0  # how long a message waits for a store that is away

_log = logging.getLogger(__name__)


def mail_folder(project: str, run: str, attempt: int) -> str:
    """Where the mail of an attempt lies in the store."""
    return f"runs/project={project}/{run}/mail/{attempt:04d}"


class Mailbox:
    """One end of it; the other end makes its own with ``sends`` and ``reads`` the other way round.

    Args:
        store, folder: where it is.
        sends, reads: whose messages are written and looked for here: ``trial`` or ``worker``.
    """

    def __init__(self, store: Store, folder: str, *, sends: str, reads: str) -> None:
        self._store, self._folder, self._sends, self._reads = store, folder, sends, reads
        self._sent = self._read = 0
        self._pause = _FIRST_SECONDS

    def send(self, message: Message | Granted) -> None:
        """Publish a message; a store that is away is waited for.

        Raises:
            StoreError: it was away for five minutes, or refuses.
            AlreadyExists: somebody else speaks for this end.
        """
        name = f"{self._folder}/{self._sends}-{self._sent + 1:06d}.json"
        retry_while_away(self._store, name, partial(self._store.create, name, to_bytes(message), sole=True), longest=_SEND_SECONDS)
        self._sent += 1
        self._pause = _FIRST_SECONDS  # an answer may come soon

    def receive(self, timeout: float) -> Message | Granted | None:
        """The next message, or None when none has come within ``timeout`` seconds.

        Raises:
            InvalidInput: what has come is no message.
        """
        until = time.monotonic() + timeout
        while True:
            try:
                message = self.look()
                self._pause = min(1.5 * self._pause, _LONGEST_SECONDS)
            except OSError as error:
                message = None
                self._pause = min(2 * self._pause, _AWAY_SECONDS)
                _log.warning("cannot look for messages: %s", error)
            left = until - time.monotonic()
            if message is not None or left <= 0:
                return message
            time.sleep(min(self._pause, left))

    def look(self) -> Message | Granted | None:
        """The next message, if it is there.

        Raises:
            InvalidInput: what is there is no message.
            OSError: the store is away.
        """
        try:
            data = self._store.read(f"{self._folder}/{self._reads}-{self._read + 1:06d}.json")
        except NotFound:
            return None
        self._read += 1
        message = from_bytes(data)
        self._pause = _FIRST_SECONDS
        return message

    def clear(self) -> None:
        """Take away what was said: the attempt is over, and what came of it is in the catalog.

        Raises:
            OSError: the store refused; then it stays.
        """
        for name in self._store.names(self._folder):
            self._store.delete(f"{self._folder}/{name}")
