"""The code that gives a snapshot's rows: its text and packages for the lineage, and a digest by which a
change of it is noticed.
"""

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

# that a source's rows may come through
_PACKAGES = ("pyarrow", "numpy", "pandas", "polars", "duckdb", "deltalake", "pyiceberg")
_MAX_TEXT = 64 * 2**10


def code_texts(source: DatasetSource) -> dict[str, str]:
    """The text of the functions that a spec names, by its field."""
    return {
        field: _text_of(import_function(f"dataset.{field}", path))[:_MAX_TEXT]
        for field, path in _functions(source)
    }


def digest_of_code(source: DatasetSource) -> str:
    """SHA-256, in hex, of these functions and of all code of the project that they stand on."""
    digests = [(field, code_digest(f"dataset.{field}", path)) for field, path in _functions(source)]
    return sha256(json.dumps(digests).encode()).hexdigest()


def versions_of_packages(source: DatasetSource) -> dict[str, str]:
    """The versions of the packages that rows may come through, and of those that the functions of a spec
    import.
    """
    imported: Mapping[str, str | None] = {}
    with contextlib.suppress(InvalidInput):
        # of a module that cannot be read, which the functions may never reach
        imported = code_of(*(path for _, path in _functions(source))).packages
    versions = {package: version for package, version in imported.items() if version is not None}
    for package in _PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    return versions


def _functions(source: DatasetSource) -> list[tuple[str, str]]:
    named = [source.given, ("transform", source.transform)]
    return [(field, path) for field, path in named if isinstance(path, str)]


def _text_of(function: Any) -> str:
    """The source text of a function; its name where there is none, as of a built-in."""
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):
        return str(getattr(function, "__qualname__", function))
