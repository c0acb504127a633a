"""Reads exported folders; their files must be unchanged, and their predictor comes from their own code."""

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from halving.errors import InvalidInput, StoreError
from halving.models.manifest import Manifest
from halving.models.weights import STATE, WEIGHTS
from halving.store.json_files import to_json
from halving.store.store import digest_of
from halving.trial.import_string import import_function, where

MANIFEST = "model.json"
CODE = "code"
ONNX = "model.onnx"
_FILES = "files"


def is_exported(folder: Path) -> bool:
    """Whether a folder is an exported model."""
    return (folder / MANIFEST).is_file()


def write_manifest(folder: Path, about: Mapping[str, Any]) -> None:
    """Write ``model.json``: a manifest as a dict, and the digest of each file that answers depend on."""
    state_files = [folder / name for name in (WEIGHTS, STATE, ONNX)]
    paths = [path for path in (*state_files, *sorted((folder / CODE).rglob("*"))) if path.is_file()]
    files = {path.relative_to(folder).as_posix(): digest_of(path) for path in paths}
    (folder / MANIFEST).write_bytes(to_json({**about, _FILES: files}))


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of an exported folder, and check the files against their digests.

    Those are the weights, the state, the code and the graph.

    Raises:
        InvalidInput: it is no exported folder.
        StoreError: it is damaged, or of another version of Halving.
    """
    if not is_exported(folder):
        raise InvalidInput(
            f"folder {str(folder)!r} is not accepted: it has no {MANIFEST}; give one of halving models export"
        )
    subject = f"{MANIFEST} of {folder}"
    try:
        data = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        files = data.pop(_FILES)
        digests = dict(files.items())
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreError(
            f"{subject} is not one that this version of Halving reads: {type(error).__name__}: {error}"
        ) from None
    manifest = Manifest.parse(data, subject)
    _check_files(folder, digests)
    return manifest


def import_predictor(folder: Path, manifest: Manifest) -> Callable[..., Any]:
    """Import the predictor from the folder's code.

    The code stays importable, because a predictor may import more when it is called.

    Raises:
        InvalidInput: it cannot be imported, or other code of its name was imported before.
    """
    path = str((folder / CODE).absolute())
    if path not in sys.path:
        sys.path.insert(0, path)
    predictor = import_named(f"predictor of {folder}", manifest.answered_by)
    for name, text in manifest.code.items():
        module = sys.modules.get(name.removesuffix(".py").removesuffix("/__init__").replace("/", "."))
        origin = getattr(module, "__file__", None)
        if origin and Path(origin).read_text(encoding="utf-8") != text:
            raise InvalidInput(
                f"folder {str(folder)!r} cannot be loaded here: {getattr(module, '__name__', name)} was "
                f"imported from {origin} before, which is other code; load it in a process of its own"
            )
    return predictor


def import_named(field: str, path: str) -> Callable[..., Any]:
    """Import a function by ``module:function``, and report whatever the import raises.

    Raises:
        InvalidInput: there is none, or its module cannot be imported, whatever that raises.
    """
    try:
        return import_function(field, path)
    except InvalidInput:
        raise
    except Exception as error:
        raise InvalidInput(
            f"{field} = {path!r} cannot be imported: {type(error).__name__} at {where(error)}: {error}"
        ) from error


def _check_files(folder: Path, digests: Mapping[str, str]) -> None:
    for name, digest in digests.items():
        try:
            actual = digest_of(folder / name)
        except OSError as error:
            raise StoreError(
                f"the exported model {folder} is damaged: {name} cannot be read: {error}"
            ) from None
        if actual != digest:
            raise StoreError(
                f"the exported model {folder} is damaged: {name} hashes to {actual}, and was exported as "
                f"{digest}; export it once more"
            )
    unknown = sorted(
        path.relative_to(folder).as_posix()
        for path in (folder / CODE).rglob("*.py")
        if path.relative_to(folder).as_posix() not in digests
    )
    if unknown:
        raise StoreError(
            f"the exported model {folder} is damaged: {unknown[0]} was not exported, and would be imported "
            "from its code"
        )
