"""Where a snapshot's rows come from: its recipe, and the code and packages that make its rows."""

import contextlib
import inspect
import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from importlib import metadata
from typing import Any

from halving.errors import InvalidInput
from halving.models.source_code import code_of
from halving.store.json_files import now
from halving.trial.import_string import import_function
from resources.project_code import code_digest
from resources.sweep_spec.dataset import DatasetSource

# Rows may be loaded by any of these.
_PACKAGES = ("pyarrow", "numpy", "pandas", "polars", "duckdb", "deltalake", "pyiceberg")
_MAX_TEXT = 64 * 2**10


@dataclass(frozen=True)
class Provenance:
    """The recipe and the code that make a snapshot's rows.

    Attributes:
        recipe: the spec's dataset, by which the snapshot can be taken again.
        code: source texts of the functions that the spec names, by field.
        code_sha256: SHA-256, in hex, of these functions and of all project code that they use.
    """

    recipe: dict[str, Any]
    code: dict[str, str]
    code_sha256: str


def trace_code(source: DatasetSource) -> Provenance:
    """Read the code of the functions that a spec names.

    Raises:
        InvalidInput: there is no such function.
    """
    functions = _functions(source)
    texts = {
        field: _text_of(import_function(f"dataset.{field}", path))[:_MAX_TEXT] for field, path in functions
    }
    digests = [(field, code_digest(f"dataset.{field}", path)) for field, path in functions]
    return Provenance(
        recipe=source.model_dump(mode="json", exclude_none=True),
        code=texts,
        code_sha256=sha256(json.dumps(digests).encode()).hexdigest(),
    )


def make_lineage(
    provenance: Provenance,
    facts: dict[str, Any],
    packages: dict[str, str],
    newest: str | None,
    made_by: dict[str, Any] | None,
) -> dict[str, Any]:
    """The ``lineage`` of a manifest.

    Args:
        facts: facts about the opened source.
        packages: versions of the packages that load rows.
        newest: digest of the dataset's newest snapshot before this one.
        made_by: who takes the snapshot, such as the Dagster run.
    """
    return {
        "source": facts,
        "code": provenance.code,
        "packages": packages,
        "before": newest,
        "made_by": made_by or {},
        "made_at": now(),
    }


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
    """The functions that a spec names, by field."""
    fields = [source.origin, ("transform", source.transform)]
    return [(field, path) for field, path in fields if isinstance(path, str)]


def _text_of(function: Any) -> str:
    """The source text of a function, or its name where there is no text, such as of a built-in."""
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):
        return str(getattr(function, "__qualname__", function))
