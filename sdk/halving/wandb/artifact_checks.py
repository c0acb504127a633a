"""What an artifact's metadata and aliases may be."""

import json
from collections.abc import Mapping
from typing import Any

from halving.wandb.artifact_versions import LATEST


def checked_metadata(metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    """Metadata as JSON has it.

    Raises:
        TypeError: it is no dict, or JSON does not hold it.
    """
    if metadata is None:
        return {}
    if not isinstance(metadata, Mapping):
        raise TypeError(f"metadata must be dict, not {type(metadata)}")
    try:
        values: dict[str, Any] = json.loads(json.dumps(dict(metadata), default=_as_json))
    except (TypeError, ValueError) as error:
        raise TypeError(f"metadata is not accepted: give what JSON holds ({error})") from None
    return values


def _as_json(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    return str(value)


def checked_aliases(aliases: Any) -> list[str]:
    """One alias or several as a list, without ``latest``.

    Raises:
        ValueError: one is not accepted.
    """
    names = [aliases] if isinstance(aliases, str) else list(aliases or ())
    for alias in names:
        if not isinstance(alias, str) or not alias or any(letter in alias for letter in "/:"):
            raise ValueError(f"alias {alias!r} is not accepted: Aliases must not contain '/' or ':'")
        if alias[0] == "v" and alias[1:].isdigit():
            raise ValueError(f"alias {alias!r} is not accepted: it is a version's own name")
    return [alias for alias in names if alias != LATEST]
