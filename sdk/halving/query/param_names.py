"""The names of nested params: with slashes in tables and filters, with dots in the JSON of commands."""

from collections import Counter
from typing import Any


def flatten_params(params: dict[str, Any]) -> dict[str, Any]:
    """Flatten nested params to names like ``optimizer/lr``; where names would collide, they stay nested."""
    return _join_names(params, "/")


def dot_params(params: dict[str, Any]) -> dict[str, Any]:
    """Flatten nested params to names like ``optimizer.lr``; where names would collide, they stay nested."""
    return _join_names(params, ".")


def _join_names(params: dict[str, Any], mark: str) -> dict[str, Any]:
    parts: dict[str, dict[str, Any]] = {}
    for name, value in params.items():
        parts[name] = {}
        if isinstance(value, dict):
            inside = _join_names(value, mark)
            parts[name] = {f"{name}{mark}{inner}": inner_value for inner, inner_value in inside.items()}
    counts = Counter([*params, *(inner for part in parts.values() for inner in part)])
    joined: dict[str, Any] = {}
    for name, value in params.items():
        if parts[name] and all(counts[inner] == 1 for inner in parts[name]):
            joined |= parts[name]
        else:
            joined[name] = value
    return joined
