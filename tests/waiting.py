"""Waiting for something that another process does."""

import time
from collections.abc import Callable
from typing import TypeVar

_Given = TypeVar("_Given")


def wait_for(condition: Callable[[], _Given], seconds: float, what: str, *, every: float = 0.1) -> _Given:
    """What ``condition`` gives, once that is true.

    Raises:
        TimeoutError: it is not within ``seconds``; names ``what`` was waited for.
    """
    deadline = time.monotonic() + seconds
    while not (given := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {seconds:g} s")
        time.sleep(every)
    return given
