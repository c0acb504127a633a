"""Names that become paths, partition keys and column values."""

import re
import secrets
from datetime import UTC, datetime

from halving.errors import InvalidInput

NAME_RULE = "give 1-128 letters, digits or . _ @ + -, beginning with a letter or digit"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,127}")


def check_name(field: str, value: str) -> str:
    """Give the name back if it is accepted.

    Raises:
        InvalidInput: with the field and the value.
    """
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise InvalidInput(f"{field} {value!r} is not accepted: {NAME_RULE}")
    return value


def new_id() -> str:
    """An id for a run that got none: when it began (UTC), and a random part."""
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"
