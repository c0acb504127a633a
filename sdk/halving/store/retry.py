"""Trying again while the store is unavailable: the SDK's one schedule of pauses, who waits by it, and who must not wait."""

import math
import random
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeVar

from halving.errors import StoreAway, StoreError

if TYPE_CHECKING:
    from halving.store.store import Store

RETRY_SECONDS = 600.0
"""How long the beginning of a run, ``restore`` and a rung wait for an unavailable store."""

_ANSWER_SECONDS = 2.0  # in which a store has to answer before training counts on it
_JITTER = random.SystemRandom()  # of its own: the global generator is the training's, and its states are checkpointed
_Result = TypeVar("_Result")


def backoff(first: float = 0.5, longest: float = 10.0) -> Iterator[float]:
    """Pauses in seconds that double from first to longest, each multiplied by a random factor in [0.5, 1.5)."""
    pause = first
    while True:
        yield min(pause, longest) * _JITTER.uniform(0.5, 1.5)
        pause = min(2 * pause, longest)


def retry_while_away(
    store: "Store",
    what: str,
    action: Callable[[], _Result],
    give_up_at: Callable[[], float] = lambda: math.inf,
    longest: float = RETRY_SECONDS,
) -> _Result:
    """``action()``, tried again with growing pauses while the store is unavailable. Repeating it must do no harm.

    Args:
        what: what waits; the user is warned of it once.
        give_up_at: when to stop before ``longest`` seconds are over, by ``time.monotonic``. It is called again and again, because
            SIGTERM may come at any time.

    Raises:
        StoreAway: the store was unavailable for all that time.
    """
    end, pauses = time.monotonic() + longest, backoff()
    warned = False
    while True:
        try:
            return action()
        except StoreAway as error:
            left = min(end, give_up_at()) - time.monotonic()
            if left <= 0:
                raise
            if not warned:
                warned = True
                warn(f"{what} waits for the store {store.root}, up to {left:.0f} s: {error}")
        again = time.monotonic() + next(pauses)
        while (now := time.monotonic()) < min(again, end, give_up_at()):
            time.sleep(min(0.2, again - now))


class Reach:
    """Whether the store can be reached; asking never holds up training for long.

    When a store does not answer at once, a thread goes on asking until it does.
    """

    def __init__(self, store: "Store") -> None:
        self._store = store
        self._answered, self._closed = threading.Event(), threading.Event()
        self._asking: threading.Thread | None = None

    def is_there(self) -> bool:
        """Costs one small request and at most 2 s; nothing while the thread waits for an answer."""
        if self._store.folder is not None:
            return True
        if self._asking is None or not self._asking.is_alive():
            self._answered.clear()
            self._asking = threading.Thread(target=self._ask, name="halving-store-watch", daemon=True)
            self._asking.start()
            return self._answered.wait(_ANSWER_SECONDS)
        return self._answered.is_set()

    def close(self) -> None:
        """Stop asking: the run is over."""
        self._closed.set()

    def _ask(self) -> None:
        for pause in backoff():
            try:
                self._store.exists("reach")
            except StoreAway:
                if self._closed.wait(pause):
                    return
                continue
            except StoreError:
                pass  # a refusal is an answer, too
            except Exception:  # noqa: BLE001  # the interpreter is exiting, and Arrow's S3 was shut down before this thread
                return
            self._answered.set()
            return


def warn(message: str) -> None:
    """Warn. Under ``python -W error`` a warning raises; that must not end training, so the error is dropped."""
    try:
        warnings.warn(f"halving: {message}", stacklevel=3)
    except Warning:
        return
