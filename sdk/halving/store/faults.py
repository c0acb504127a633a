"""Which faults of an object store are transient, and raising them as Halving's errors."""

import contextlib
import re
from collections.abc import Iterator

from halving.errors import StoreError, StoreUnavailable

# How Arrow words the faults of a network or a server in trouble; anything else (no such bucket, no
# permission) stays as it is.
_TRANSIENT = re.compile(
    r"NETWORK_CONNECTION|SLOW_DOWN|THROTTLING|SERVICE_UNAVAILABLE|INTERNAL_FAILURE|REQUEST_TIMEOUT|"
    r"curlCode|HTTP status (?:429|5\d\d)"
)


def is_transient(fault: str) -> bool:
    """Whether a fault, in Arrow's words, may be gone when the same is tried again."""
    return _TRANSIENT.search(fault) is not None


@contextlib.contextmanager
def store_faults(message: str) -> Iterator[None]:
    """Raise a fault of the store as a StoreError that begins with ``message``.

    A transient fault becomes a :class:`StoreUnavailable`.
    """
    try:
        yield
    except StoreError:
        raise
    except OSError as error:
        text = f"{message}: {error}"
        if is_transient(str(error)):
            raise StoreUnavailable(text) from error
        raise StoreError(text) from error
