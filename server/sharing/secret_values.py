"""What runs recorded without what looks like a password or a key: a page goes to people of other houses."""

from typing import Any

from halving.records.redaction import HIDDEN, is_secret_name, text_without_secrets

_PICTURE = "data:image/"
_QUOTES = "\"'`"


def without_secrets(value: Any, name: str = "") -> Any:
    """A value, or those in lists and dicts, with ``…`` for each text that is named like a secret or has one.

    Args:
        name: of the value: a param's path such as ``store/api_key``, or a column such as ``params.api_key``.
    """
    if isinstance(value, str):
        if value.startswith(_PICTURE):
            return value
        if value and is_secret_name(name.rpartition("/")[2].strip(_QUOTES)):
            return HIDDEN
        return text_without_secrets(value)
    if isinstance(value, dict):
        return {key: without_secrets(part, str(key)) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [without_secrets(part, name) for part in value]
    return value
