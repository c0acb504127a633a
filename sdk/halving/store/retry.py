"""Retrying while the store is unavailable, and finding out without waiting whether it is."""

import math
import threading
import time
import warnings
from collections.abc import Callable
from typing import TypeVar

from halving.errors import StoreError, StoreUnavailable
from halving.store.backoff import backoff
from halving.store.deadline import Deadline
from halving.store.store import Store

RETRY_SECONDS = 600.0
"""How long the start of a run, ``restore`` and a rung wait for an unavailable store."""

_SUBJECTS: set[str] = set()  # The subjects that this process has warned of.
_ANSWER_SECONDS = 2.0  # Training counts on a store that answers within this time.
_Result = TypeVar("_Result")


class Outage:
    """An outage of a store, shared by the threads that wait for its end; it lasts while one of them waits.

    However many they are, the user is warned once that they wait, and told once that it is over.
    """

    def __init__(self) -> None:
        self._waiting = 0
        self._since = 0.0
        self._changed = threading.RLock()  # a SIGTERM's handler comes here, too, in the main thread

    def begin(self, message: str) -> None:
        """Count a thread that begins to wait."""
        with self._changed:
            self._waiting += 1
            if self._waiting > 1:
                return
            self._since = time.monotonic()
        warn(message, stacklevel=4)

    def end(self, message: str | None) -> None:
        """Count a thread that stops waiting.

        The store has answered, which the message says, or the thread gave up (None).
        """
        with self._changed:
            self._waiting -= 1
            if self._waiting or message is None:
                return
            seconds = time.monotonic() - self._since
        warn(f"{message} after {seconds:.0f} s", stacklevel=4)


def retry_while_unavailable(
    store: Store,
    what: str,
    action: Callable[[], _Result],
    deadline: Deadline | None = None,
    longest: float = RETRY_SECONDS,
    outage: Outage | None = None,
) -> _Result:
    """Run ``action()``, again with growing pauses while the store is unavailable.

    Repeating it must do no harm.

    Args:
        what: what waits; the user is warned of it once.
        outage: of others that wait for the same: then the user is warned of it once for all of them, and told
            of its end.
        deadline: when to stop before ``longest`` seconds are over. It is read again and again, because
            SIGTERM may come at any time.

    Raises:
        StoreUnavailable: the store was unavailable for all that time.
    """
    end = Deadline.after(longest, deadline or Deadline())
    pauses = backoff()
    waits = answered = False
    try:
        while True:
            try:
                result = action()
                answered = True
                return result
            except StoreUnavailable as error:
                left = end.remaining()
                if left <= 0:
                    raise
                if not waits:
                    waits = True
                    limit = ""
                    if math.isfinite(left):
                        limit = f", up to {left:.0f} s"
                    message = f"{what} waits for the store {store.root}{limit}: {error}"
                    if outage is not None:
                        outage.begin(message)
                    else:
                        warn(message)
                again = time.monotonic() + error.retry_after + next(pauses)
            while (now := time.monotonic()) < min(again, end.time):
                time.sleep(min(0.2, again - now))
    finally:
        if waits and outage is not None:
            message = f"{what} goes on: the store {store.root} answers again"
            outage.end(message if answered else None)


class Reach:
    """Whether the store can be reached; asking never holds up training for long.

    When a store does not answer at once, a thread goes on asking until it does.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._answered = threading.Event()
        self._closed = threading.Event()
        self._asking: threading.Thread | None = None

    def is_there(self) -> bool:
        """Whether the store answers, at the cost of one small request and at most 2 s.

        It costs nothing while the thread waits for an answer.
        """
        if self._store.folder is not None:
            return True
        if self._asking is None or not self._asking.is_alive():
            self.begin_to_ask()
            return self._answered.wait(_ANSWER_SECONDS)
        return self._answered.is_set()

    @property
    def has_answered(self) -> bool:
        """Whether the store has answered since :meth:`begin_to_ask`."""
        return self._store.folder is not None or self._answered.is_set()

    def begin_to_ask(self) -> None:
        """Let a thread ask until the store answers."""
        self._answered.clear()
        self._asking = threading.Thread(target=self._ask, name="halving-store-watch", daemon=True)
        try:
            self._asking.start()
        except RuntimeError:
            # The interpreter is ending and starts no threads any more, so the caller has to try.
            self._answered.set()

    def close(self) -> None:
        """Stop asking: the run is over."""
        self._closed.set()

    def _ask(self) -> None:
        """Make a small request again and again until the store answers: what the thread does."""
        for pause in backoff():
            try:
                self._store.exists("reach")
            except StoreUnavailable:
                if self._closed.wait(pause):
                    return
                continue
            except StoreError:
                pass  # a refusal is an answer, too
            except Exception:  # noqa: BLE001
                # The interpreter is exiting, and Arrow's S3 was shut down before this thread.
                return
            self._answered.set()
            return


def warn(message: str, stacklevel: int = 3) -> None:
    """Warn the user, without ever raising.

    Under ``python -W error`` a warning raises; that must not end training, so the error is dropped.

    Args:
        stacklevel: whose line the warning names: 2 for that of the caller, 3 for that of the caller's caller,
            and so on.
    """
    try:
        warnings.warn(f"halving: {message}", stacklevel=stacklevel)
    except Warning:
        return


def warn_once(subject: str, message: str) -> None:
    """Warn only the first time that this process has something to say of a subject.

    The warning names the line of the caller's caller, as :func:`warn` does.
    """
    if subject not in _SUBJECTS:
        _SUBJECTS.add(subject)
        warn(message, stacklevel=4)
