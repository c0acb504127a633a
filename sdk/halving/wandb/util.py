"""Small helpers that scripts take from ``wandb.util``."""

import math
import random
import secrets
import string
from collections.abc import Mapping
from typing import Any

_ID_CHARACTERS = string.ascii_lowercase + string.digits


def generate_id(length: int = 8) -> str:
    """A random id for a run, of lowercase letters and digits."""
    return "".join(secrets.choice(_ID_CHARACTERS) for _ in range(length))


def generate_fast_id(length: int = 8) -> str:
    """The same as :func:`generate_id`."""
    return generate_id(length)


def random_string(length: int = 12) -> str:
    """A random text of lowercase letters and digits, which need not be secret."""
    return "".join(random.choice(_ID_CHARACTERS) for _ in range(length))


def make_artifact_name_safe(name: str) -> str:
    """A name with other characters than letters, digits, ``_``, ``-`` and ``.`` replaced by ``_``."""
    cleaned = "".join(
        character if character.isascii() and (character.isalnum() or character in "_-.") else "_"
        for character in name
    )
    if len(cleaned) <= 128:
        return cleaned
    return f"{cleaned[:63]}..{cleaned[-63:]}"


def json_friendly_val(value: Any) -> Any:
    """A value as plain data."""
    from halving.records.config_params import convert_config

    return convert_config({"value": value})[0]["value"]


def json_friendly(value: Any) -> tuple[Any, bool]:
    """A value as plain data, and whether that is another one."""
    converted = json_friendly_val(value)
    return converted, converted is not value


def make_safe_for_json(value: Any) -> Any:
    """A value as plain data, with texts in place of numbers that JSON has no form for."""
    if isinstance(value, Mapping):
        return {str(name): make_safe_for_json(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [make_safe_for_json(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        if math.isnan(value):
            return "NaN"
        return "Infinity" if value > 0 else "-Infinity"
    return json_friendly_val(value)


def get_module(name: str, required: str | bool | None = None, lazy: bool = True) -> Any:
    """Import a module; None if it is not installed and not required.

    Raises:
        Error: it is required and not installed.
    """
    from importlib import import_module

    from halving.wandb.errors import Error

    try:
        return import_module(name)
    except ImportError:
        if required:
            raise Error(str(required)) from None
        return None


def is_numpy_array(value: Any) -> bool:
    """Whether a value is a numpy array."""
    return type(value).__module__ == "numpy" and type(value).__name__ == "ndarray"


def is_pytorch_tensor(value: Any) -> bool:
    """Whether a value is a tensor of torch."""
    return type(value).__module__.startswith("torch") and hasattr(value, "detach")


def auto_project_name(program: str | None = None) -> str:
    """The project of runs that name none."""
    return "uncategorized"


def __getattr__(name: str) -> Any:
    """Refuse what is W&B's own.

    Raises:
        NameMissing: always.
    """
    if name.startswith("__"):
        raise AttributeError(name)
    from halving.wandb.errors import NameMissing

    raise NameMissing(f"wandb.util.{name} is not there in Halving; docs/wandb.md has the table of names")
