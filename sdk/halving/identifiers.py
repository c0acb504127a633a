"""Names that become paths, partition keys and column values."""

import hashlib
import re
import secrets
from datetime import UTC, datetime

from halving.errors import InvalidInput

NAME_RULE = "give 1-128 letters, digits or . _ @ + -, beginning with a letter or digit"

ARTIFACT_RULE = (
    "give text of 1-2,000 bytes in UTF-8 without control characters: a name, or a path like "
    "plots/loss.png, none of whose parts is empty, . or .."
)
MAX_PATH_BYTES = 2_000
"""The length of an artifact's name in bytes of UTF-8, at most; Postgres indexes no more beside the run."""

_MAX_LENGTH = 128
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,127}")
_MADE = re.compile(r".*-[0-9a-f]{16}", re.DOTALL)
# with halves of surrogate pairs: bytes of a file's name that are no UTF-8
_CONTROL = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")


def check_name(field: str, value: str) -> str:
    """Return a name if it is accepted.

    Raises:
        InvalidInput: with the field and the value.
    """
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise InvalidInput(f"{field} {value!r} is not accepted: {NAME_RULE}")
    return value


def sanitize_name(name: str, *, otherwise: str) -> str:
    """An accepted name as close to ``name`` as possible: ``My runs/a`` becomes ``My-runs-a``.

    Args:
        otherwise: where nothing of ``name`` can be used.
    """
    cleaned = re.sub(r"[^A-Za-z0-9._@+-]+", "-", name).strip("-")
    return re.sub(r"^[^A-Za-z0-9]+", "", cleaned)[:_MAX_LENGTH] or otherwise


def is_artifact_name(value: object) -> bool:
    """Whether a value may name an artifact: a relative path that can be written in one way only."""
    if not isinstance(value, str) or _CONTROL.search(value) or len(value.encode()) > MAX_PATH_BYTES:
        return False
    return all(part not in ("", ".", "..") for part in value.split("/"))


def check_artifact_name(field: str, value: str) -> str:
    """Return the name of an artifact if it is accepted.

    Raises:
        InvalidInput: with the field and the value.
    """
    if not is_artifact_name(value):
        raise InvalidInput(f"{field} {value!r:.200} is not accepted: {ARTIFACT_RULE}")
    return value


def artifact_record(name: str, *, as_is: bool = True) -> str:
    """The name of an artifact's record in the store, without ``.json``.

    It is the artifact's name where that is plain, else one made of it. Two names never get one record: a name
    that looks as if it were made gets another one.

    Args:
        as_is: whether it may be the name itself.
    """
    if as_is and _NAME.fullmatch(name) and not _MADE.fullmatch(name):
        return name
    return f"{sanitize_name(name, otherwise='file')[:111]}-{hashlib.sha256(name.encode()).hexdigest()[:16]}"


def new_id() -> str:
    """An id for a run without one: its start (UTC) and a random part."""
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"
