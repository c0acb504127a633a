"""Every error that Halving raises on purpose.

Each is also the builtin that fits, so that a plain ``except ValueError`` works.
"""


class HalvingError(Exception):
    """The base of all errors that Halving raises on purpose."""


def message_of(error: BaseException) -> str:
    """An error's own message; empty where the error's ``__str__`` raises."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001  # whatever a user's class does
        return ""


class InvalidInput(HalvingError, ValueError):
    """A value is not accepted; the message names the field, the value and what is accepted."""


class NotFound(HalvingError, LookupError):
    """There is no such run, file or blob; the message says what there is."""


class AlreadyExists(HalvingError, RuntimeError):
    """A create-once file exists with other content: published files are immutable."""


class StoreError(HalvingError, OSError):
    """The store could not be read or written."""


class StoreUnavailable(StoreError, ConnectionError):
    """The store is unavailable: it did not answer, or failed for a reason of its own.

    The same call may succeed later.

    Attributes:
        retry_after: seconds that a server wants the next try to wait; 0 if it has not said so.
    """

    retry_after = 0.0


class Damaged(StoreError, ValueError):
    """A file of the store is not what it must be; the message names it."""


class BatchMissing(HalvingError, RuntimeError):
    """A server lacks batches that come before the one that was sent.

    Attributes:
        next: the number of the batch that it waits for.
    """

    def __init__(self, message: str, next_sequence: int) -> None:
        super().__init__(message)
        self.next = next_sequence


class Diverged(HalvingError, ArithmeticError):
    """A metric became NaN or infinite, or left the sweep's divergence bounds.

    The trial ends and keeps its last good checkpoint.
    """


class OutOfMemory(HalvingError, MemoryError):
    """A rank's memory is not enough for what it computes at once.

    The message names the rank, and what was allocated.
    """


class MicroBatchTooLarge(HalvingError, MemoryError):
    """A rank's memory is not enough for a micro-batch.

    The next attempt at the trial begins with half of it.
    """


class ObjectiveMissing(HalvingError, LookupError):
    """The trainable reached a rung without reporting an objective or a bounded metric of the sweep."""


class CheckpointMissing(HalvingError, RuntimeError):
    """The trainable reached a rung without saving a checkpoint.

    So the trial could neither pause nor be evaluated.
    """


class CheckpointMismatch(HalvingError, ValueError):
    """A checkpoint lacks names that ``restore`` asks for."""


class ExtraMissing(HalvingError, ImportError):
    """An optional package that this needs is not installed; the message says how to install it."""
