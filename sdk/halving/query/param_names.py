"""The names of nested params: with slashes in tables and filters, with dots in the JSON of commands."""

from collections import Counter
from typing import Any


def flatten_params(params: dict[str, Any], before: str = "") -> dict[str, Any]:
    """Give params by name, nested ones as ``optimizer/lr``; lists are left as they are."""
    found: dict[str, Any] = {}
    for name, value in params.items():
        found |= flatten_params(value, f"{before}{name}/") if isinstance(value, dict) and value else {f"{before}{name}": value}
    return found


def dot_params(params: dict[str, Any]) -> dict[str, Any]:
    """Give params by name, nested ones as ``optimizer.lr``; where two would have one name, what they lie in stays nested."""
    parts = {
        name: {f"{name}.{inner}": each for inner, each in dot_params(value).items()} if isinstance(value, dict) and value else {}
        for name, value in params.items()
    }
    counts = Counter([*params, *(inner for part in parts.values() for inner in part)])
    dotted: dict[str, Any] = {}
    for name, value in params.items():
        is_clear = parts[name] and all(counts[inner] == 1 for inner in parts[name])
        dotted |= parts[name] if is_clear else {name: value}
    return dotted
