"""The one error tree: every child is also the builtin that fits, so plain ``except ValueError`` works."""


class HalvingError(Exception):
    """Root of everything that Halving raises on purpose."""


class InvalidInput(HalvingError, ValueError):
    """A value that somebody gave is not accepted; the message names the field, the value and what is accepted."""


class NotFound(HalvingError, LookupError):
    """Something named by its name or digest does not exist; the message says what does."""


class AlreadyExists(HalvingError, RuntimeError):
    """A create-once file exists with other content: published files are immutable."""


class StoreError(HalvingError, OSError):
    """The store could not be read or written."""


class StoreAway(StoreError, ConnectionError):
    """The store did not answer, or was in trouble itself: the same call may succeed in a while."""


class Diverged(HalvingError, ArithmeticError):
    """A metric became NaN or infinite, or left the sweep's divergence bounds: the trial ends, its last good checkpoint stays."""


class ObjectiveMissing(HalvingError, LookupError):
    """A rung was reached and the trainable had not reported one of the sweep's objectives, or of the metrics that it bounds."""


class CheckpointMissing(HalvingError, RuntimeError):
    """A rung was reached and the trainable had not saved a checkpoint, so it could neither pause nor be evaluated."""


class CheckpointMismatch(HalvingError, ValueError):
    """A checkpoint holds other names than ``restore`` asks for."""
