"""A store that is away: who has to wait for it, and who must not."""

import math
import random
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from typing import TypeVar

from halving.errors import StoreAway, StoreError
from halving.store.store import Store

RETRY_SECONDS = 600.0
"""How long the beginning of a run, ``restore`` and a rung wait for a store that is away."""

_ANSWER_SECONDS = 2.0  # in which a store has to answer before training counts on it
_PAUSES = (0.5, 1.0, 2.0, 5.0, 10.0)
_JITTER = random.SystemRandom()  # of its own: the global generator is the training's, and its states are checkpointed
_Result = TypeVar("_Result")


def retry_while_away(
    store: Store,
    what: str,
    action: Callable[[], _Result],
    give_up_at: Callable[[], float] = lambda: math.inf,
    longest: float = RETRY_SECONDS,
) -> _Result:
    """``action()``, tried again with growing pauses while the store is away. It must bear to be repeated.

    Args:
        what: what waits, for the one warning that tells of it.
        give_up_at: when to end it before ``longest`` seconds are over, by ``time.monotonic``; asked again and again, because a SIGTERM
            may come.

    Raises:
        StoreAway: it was away for all that time.
    """
    end, pauses = time.monotonic() + longest, _growing()
    told = False
    while True:
        try:
            return action()
        except StoreAway as error:
            left = min(end, give_up_at()) - time.monotonic()
            if left <= 0:
                raise
            if not told:
                told = True
                tell(f"{what} waits for the store {store.root}, up to {left:.0f} s: {error}")
        again = time.monotonic() + next(pauses)
        while (now := time.monotonic()) < min(again, end, give_up_at()):
            time.sleep(min(0.2, again - now))


class Reach:
    """Whether the store can be reached, without training ever waiting long for that.

    A store that does not answer at once is asked on by a thread, until it does.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._answered, self._closed = threading.Event(), threading.Event()
        self._asking: threading.Thread | None = None

    def is_there(self) -> bool:
        """Costs one small request; at most 2 s, and nothing while the store is known to be away."""
        if self._store.folder is not None:
            return True
        if self._asking is None or not self._asking.is_alive():
            self._answered.clear()
            self._asking = threading.Thread(target=self._ask, name="halving-store-watch", daemon=True)
            self._asking.start()
            return self._answered.wait(_ANSWER_SECONDS)
        return self._answered.is_set()

    def close(self) -> None:
        """Let nobody go on asking: the run is over."""
        self._closed.set()

    def _ask(self) -> None:
        for pause in _growing():
            try:
                self._store.exists("reach")
            except StoreAway:
                if self._closed.wait(pause):
                    return
                continue
            except StoreError:
                pass  # it answers, if only to refuse
            except Exception:  # noqa: BLE001  # the interpreter ends, and Arrow's S3 before this thread
                return
            self._answered.set()
            return


def tell(message: str) -> None:
    """Warn; with ``python -W error`` a warning raises, and training must not end by it."""
    try:
        warnings.warn(f"halving: {message}", stacklevel=3)
    except Warning:
        return


def _growing() -> Iterator[float]:
    yield from _PAUSES
    while True:
        yield _PAUSES[-1]


def backoff(first: float = 0.5, longest: float = 10.0) -> Iterator[float]:
    """Pauses in seconds that double from first to longest, each multiplied by a random factor in [0.5, 1.5)."""
    pause = first
    while True:
        yield min(pause, longest) * _JITTER.uniform(0.5, 1.5)
        pause = min(2 * pause, longest)
