"""The code that makes a snapshot's rows: its text, its packages and a digest that changes with it."""

import contextlib
import inspect
import json
from collections.abc import Mapping
from hashlib import sha256
from importlib import metadata
from typing import Any

from halving.errors import InvalidInput
from halving.models.source_code import code_of
from halving.trial.import_string import import_function
from resources.project_code import code_digest
from resources.sweep_spec.dataset import DatasetSource

# Rows may be loaded by any of these.
_PACKAGES = ("pyarrow", "numpy", "pandas", "polars", "duckdb", "deltalake", "pyiceberg")
_MAX_TEXT = 64 * 2**10


def code_texts(source: DatasetSource) -> dict[str, str]:
    """The source text of the functions that a spec names, by field."""
    return {
        field: _text_of(import_function(f"dataset.{field}", path))[:_MAX_TEXT]
        for field, path in _functions(source)
    }


def digest_of_code(source: DatasetSource) -> str:
    """SHA-256, in hex, of the spec's functions and of all project code that they use."""
    digests = [(field, code_digest(f"dataset.{field}", path)) for field, path in _functions(source)]
    return sha256(json.dumps(digests).encode()).hexdigest()


def versions_of_packages(source: DatasetSource) -> dict[str, str]:
    """Versions of the packages that load rows, and of those that the spec's functions import."""
    imported: Mapping[str, str | None] = {}
    with contextlib.suppress(InvalidInput):
        # A module that cannot be read may be one that the functions never use.
        imported = code_of(*(path for _, path in _functions(source))).packages
    versions = {package: version for package, version in imported.items() if version is not None}
    for package in _PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    return versions


def _functions(source: DatasetSource) -> list[tuple[str, str]]:
    named = [source.origin, ("transform", source.transform)]
    return [(field, path) for field, path in named if isinstance(path, str)]


def _text_of(function: Any) -> str:
    """The source text of a function, or its name where there is no text, such as of a built-in."""
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):
        return str(getattr(function, "__qualname__", function))
