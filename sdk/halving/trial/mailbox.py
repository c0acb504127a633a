"""A mailbox in the store for a trial in its own pod and its worker, with no network port between them.

Each end writes its own numbered messages, each created once, and looks for the next message of the other end:
``runs/project=P/RUN/mail/ATTEMPT/trial-000001.json`` and ``worker-000001.json``. A message outlives the
process that sent it. The description of the trial is there from the beginning, as ``task.json``. When the
worker wants the trial back, it creates ``asked-back.json``, which has no number, because it is read while the
trial trains, and is written once.
"""

import logging
import time
from contextlib import suppress
from functools import partial

from halving.errors import AlreadyExists, NotFound
from halving.store.backoff import backoff
from halving.store.deadline import Deadline
from halving.store.retry import retry_while_unavailable
from halving.store.store import Store
from halving.trial.messages import Granted, Message, Ready, from_bytes, to_bytes

VARIABLE = "HALVING_MAILBOX"
"""The environment variable with the mailbox of a pod's process."""

# Between two looks there are these pauses, so that each waiting end makes about one GET a second.
_MIN_SECONDS = 0.05
_MAX_SECONDS = 1.0
_SEND_SECONDS = 300.0  # how long a message waits for an unavailable store

_log = logging.getLogger(__name__)


def mail_folder(project: str, run: str, attempt: int) -> str:
    """The folder of an attempt's mailbox in the store."""
    return f"runs/project={project}/{run}/mail/{attempt:04d}"


def post_task(store: Store, folder: str, task: bytes) -> None:
    """Describe a trial in its mailbox, for the pod that will be started.

    Raises:
        StoreError: the store is unavailable, or refuses.
    """
    store.create(_task_file(folder), task)


def read_task(store: Store, folder: str) -> bytes:
    """Read the description of the trial for which a pod was started; wait while the store is unavailable.

    Raises:
        NotFound: there is none.
        StoreError: the store refuses.
    """
    return retry_while_unavailable(store, f"the trial of {folder}", partial(store.read, _task_file(folder)))


class Mailbox:
    """One end of a mailbox. The other end is made with ``sends`` and ``reads`` exchanged.

    Args:
        store, folder: where it is.
        sends: whose messages this end writes: ``trial`` or ``worker``.
        reads: whose messages it looks for.
    """

    def __init__(self, store: Store, folder: str, *, sends: str, reads: str) -> None:
        self._store = store
        self._folder = folder
        self._sends = sends
        self._reads = reads
        self._asking = f"{folder}/asked-back.json"
        self._has_asked_back = False
        self._sent = self._read = 0
        self._retries = backoff()
        self._expect_soon()

    def send(self, message: Message | Granted | Ready) -> None:
        """Publish a message; wait while the store is unavailable.

        Raises:
            StoreError: the store was unavailable for five minutes, or refuses.
            AlreadyExists: another process writes for this end.
        """
        name = f"{self._folder}/{self._sends}-{self._sent + 1:06d}.json"
        retry_while_unavailable(
            self._store,
            name,
            partial(self._store.create, name, to_bytes(message), sole=True),
            longest=_SEND_SECONDS,
        )
        self._sent += 1
        self._expect_soon()

    def ask_back(self) -> None:
        """Tell the trial, as the worker, to end with its epoch; a second call does nothing.

        Raises:
            StoreError: the store is unavailable, or refuses.
        """
        if self._has_asked_back:
            return
        with suppress(AlreadyExists):
            # A trial that has written something else there will end as well.
            self._store.create(self._asking, b"{}", sole=True)
        self._has_asked_back = True

    def is_asked_back(self) -> bool:
        """Whether the worker has called :meth:`ask_back`.

        Raises:
            StoreError: the store is unavailable.
        """
        return self._store.exists(self._asking)

    def catch_up(self) -> None:
        """Continue after the messages that an earlier process has sent for this end.

        Raises:
            StoreError: the store was unavailable for five minutes, or refuses.
        """
        names = retry_while_unavailable(
            self._store, self._folder, partial(self._store.names, self._folder), longest=_SEND_SECONDS
        )
        self._sent = sum(name.startswith(f"{self._sends}-") for name in names)

    def receive(self, timeout: float) -> Message | Granted | Ready | None:
        """Wait for the next message; None when none has come within ``timeout`` seconds.

        Raises:
            InvalidInput: the content is no message.
        """
        deadline = Deadline.after(timeout)
        while True:
            try:
                message = self.look()
                pause = next(self._looks)
                self._retries = backoff()
            except OSError as error:
                message = None
                pause = next(self._retries)
                _log.warning("cannot look for messages: %s", error)
            left = deadline.remaining()
            if message is not None or left <= 0:
                return message
            time.sleep(min(pause, left))

    def look(self) -> Message | Granted | Ready | None:
        """Read the next message, if it is there.

        Raises:
            InvalidInput: the content is no message.
            OSError: the store is unavailable.
        """
        try:
            data = self._store.read(f"{self._folder}/{self._reads}-{self._read + 1:06d}.json")
        except NotFound:
            return None
        self._read += 1
        message = from_bytes(data)
        self._expect_soon()
        return message

    def clear(self) -> None:
        """Delete all messages, when the attempt is over and the catalog has its result.

        Raises:
            OSError: the store refused; then they stay.
        """
        for name in self._store.names(self._folder):
            self._store.delete(f"{self._folder}/{name}")

    def _expect_soon(self) -> None:
        """Begin with short pauses again, because an answer may come soon."""
        self._looks = backoff(_MIN_SECONDS, _MAX_SECONDS)


def _task_file(folder: str) -> str:
    return f"{folder}/task.json"
