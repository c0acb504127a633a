"""The errors of W&B's names, and those of what is not there.

As in W&B, ``wandb.Error`` is the root. What W&B has and this package has not raises :class:`NameMissing` or
:class:`NotSupported`, whose messages say what to do instead.
"""

from typing import Any

from halving.errors import HalvingError

__all__ = [
    "AuthenticationError",
    "CommError",
    "ConfigError",
    "Error",
    "NameMissing",
    "NotSupported",
    "UnsupportedError",
    "UsageError",
    "WandbCoreNotAvailableError",
]


class Error(HalvingError, RuntimeError):
    """The root of W&B's errors."""

    def __init__(self, message: str = "", context: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.context = context or {}


class CommError(Error):
    """The store or the server does not answer, or refuses."""

    def __init__(self, msg: str, exc: Exception | None = None) -> None:
        super().__init__(msg)
        self.exc = exc


class AuthenticationError(CommError):
    """The server does not accept the token."""


class UsageError(Error):
    """A call is not accepted as it is."""


class UnsupportedError(UsageError):
    """Something is not supported."""


class WandbCoreNotAvailableError(Error):
    """W&B's own service is missing; never raised here, because there is none."""


class ConfigError(Error):
    """A value of the config would change."""


class NameMissing(UnsupportedError, AttributeError):
    """W&B has this name, and Halving does not; ``hasattr`` is False for it."""


class NotSupported(UnsupportedError, NotImplementedError):
    """W&B can do this, and Halving cannot."""
