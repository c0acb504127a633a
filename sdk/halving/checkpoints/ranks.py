"""Outcomes of reading and writing a checkpoint that all ranks share."""

import time
from collections.abc import Callable
from typing import TypeVar

from halving.distributed.ranks import Ranks, error_named
from halving.errors import HalvingError, StoreError, StoreUnavailable
from halving.store.backoff import backoff
from halving.store.deadline import Deadline
from halving.store.retry import RETRY_SECONDS, warn
from halving.store.store import Store

_Result = TypeVar("_Result")


def run_together(ranks: Ranks | None, call: str, action: Callable[[], _Result]) -> _Result:
    """Run ``action()`` on each rank; where it fails, every rank raises the first failing rank's error.

    Without ranks (None) this process runs it alone.

    Raises:
        HalvingError: as said. Whatever else an action raises is raised where it happened, and a StoreError by
            the others.
    """
    if ranks is None:
        return action()
    result = None
    own_error = None
    own_failure = None
    try:
        result = action()
    except Exception as error:  # noqa: BLE001  # whatever it is, the other ranks wait for this one
        own_error = error
        own_failure = as_failure(error)
    for rank, failure in enumerate(ranks.gather(call, own_failure)):
        if failure is None:
            continue
        if own_error is not None and rank == ranks.rank:
            raise own_error
        raise error_of(failure, f"rank {rank}: ")
    return result  # type: ignore[return-value]


def retry_together(
    ranks: Ranks,
    store: Store,
    call: str,
    what: str,
    action: Callable[[], _Result],
    longest: float = RETRY_SECONDS,
) -> _Result:
    """Retry as :func:`halving.store.retry.retry_while_unavailable`, with all ranks in step.

    Args:
        call: the collective's name.
        action: it raises the same error on all ranks, as :func:`run_together` does.

    Raises:
        StoreUnavailable: the store was unavailable for all that time.
    """
    deadline = Deadline.after(longest)
    pauses = backoff()
    has_warned = False
    while True:
        try:
            return action()
        except StoreUnavailable as error:
            left = ranks.together(call, deadline.remaining)
            if left <= 0:
                raise
            if ranks.leads and not has_warned:
                has_warned = True
                warn(f"{what} waits for the store {store.root}, up to {left:.0f} s: {error}")
            time.sleep(min(left, error.retry_after + next(pauses)))


def as_failure(error: Exception) -> dict[str, str]:
    """An error as JSON."""
    return {"kind": type(error).__name__, "message": str(error) or type(error).__name__}


def error_of(failure: dict[str, str], where: str = "") -> HalvingError:
    """The error that :func:`as_failure` recorded; a StoreError for one that is not a HalvingError."""
    error = error_named(failure["kind"], f"{where}{failure['message']}")
    return error or StoreError(f"{where}{failure['kind']}: {failure['message']}")
