"""Finds the versions of a model in the store, which works while the catalog is away.

The store has these files::

    models/NAME/champion.json   the champion as a version, or null where the model has none
    models/NAME/aliases.json    versions by alias
    models/NAME/1.0.0.json      a version: its artifact, schema, stage, tags

The registry replaces each file atomically after the transaction that changed it
(:mod:`resources.registry.publishing`).
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from halving.errors import InvalidInput, NotFound
from halving.store.store import Store, blob_name

CHAMPION = "champion"
_VERSION = re.compile(r"\d+\.\d+\.\d+")


@dataclass(frozen=True)
class ResolvedModel:
    """A version of a model, as it is published in the store.

    Attributes:
        stage: ``champion``, ``staging`` or ``archived``.
        uri: where the artifact is: a path, or the address of an object. A version that a client registered
            has its source here.
        digest: digest of the checkpoint at ``uri``, ``sha256:…``; None if a client registered the version.
        input_schema: Arrow types by column.
        output_schema: ``type``, and ``classes`` where it has some.
        manifest: digest of its :class:`~halving.models.manifest.Manifest`; None if it has none.
        gates: the verdicts by which it was judged: ``name``, ``passed``, ``reason``.
    """

    model: str
    version: str
    stage: str
    uri: str
    digest: str | None
    input_schema: dict[str, str]
    output_schema: dict[str, Any]
    metrics: dict[str, float | None]
    framework: str
    manifest: str | None
    gates: list[dict[str, Any]]
    tags: dict[str, str]
    description: str | None


def resolve(reference: str, root: str | Path | None = None) -> ResolvedModel:
    """Find a model's version in the store alone: ``digits@champion``, ``digits@1.0.0`` or ``digits@ALIAS``.

    Args:
        root: of the store (default: ``HALVING_ROOT``, then ``./.halving``).

    Raises:
        InvalidInput: the reference is not one.
        NotFound: no such model, version or alias; the message says which there are.
    """
    return find(Store(root), reference)


def find(store: Store, reference: str) -> ResolvedModel:
    """Find a model's version as :func:`resolve` does, in a store that is open."""
    model, suffix = parse_reference(reference)
    if suffix == CHAMPION:
        champion = _read(store, model, CHAMPION).get("version")
        if champion is None:
            raise NotFound(
                f"model {model!r} has no champion now: promote a version, for example by: halving promote "
                f"{model} VERSION"
            )
        return _resolved_model(store, champion)
    version = suffix
    if not _VERSION.fullmatch(suffix):
        version = _version_of_alias(store, model, suffix)
    return _resolved_model(store, _read(store, model, version)["version"])


def parse_reference(reference: str) -> tuple[str, str]:
    """Split ``MODEL@VERSION`` into the model and what is after the ``@``.

    Raises:
        InvalidInput: it has no such form.
    """
    model, _, suffix = reference.rpartition("@")
    if not model or not suffix:
        raise InvalidInput(
            f"model {reference!r} is not accepted: give MODEL@champion, MODEL@1.0.0 or MODEL@ALIAS, for "
            "example digits@champion"
        )
    return model, suffix


def published_name(model: str, file: str) -> str:
    """The name of the file of ``champion``, ``aliases`` or a version in the store."""
    return f"{published_folder(model)}/{file}.json"


def published_folder(model: str) -> str:
    """The folder of a model in the store; the names that clients give models need not be valid folders."""
    quoted = quote(model, safe=" @+=,")
    if not quoted.strip("."):
        quoted = quoted.replace(".", "%2E")
    return f"models/{quoted}"


def _version_of_alias(store: Store, model: str, alias: str) -> str:
    aliases: dict[str, str] = _read(store, model, "aliases")["aliases"]
    if alias not in aliases:
        raise NotFound(
            f"model {model!r} has no alias {alias!r}; it has {', '.join(sorted(aliases)) or 'none'}"
        )
    return aliases[alias]


def _read(store: Store, model: str, file: str) -> dict[str, Any]:
    try:
        data: dict[str, Any] = json.loads(store.read(published_name(model, file)))
    except NotFound:
        names = [name.removesuffix(".json") for name in store.names(published_folder(model))]
        versions = ", ".join(name for name in names if _VERSION.fullmatch(name))
        if versions:
            raise NotFound(
                f"model {model!r} has no version {file!r} in the store {store.root}; it has {versions}"
            ) from None
        raise NotFound(
            f"no model {model!r} in the store {store.root}: nothing of it is in {store.address('models')}"
        ) from None
    return data


def _resolved_model(store: Store, version: dict[str, Any]) -> ResolvedModel:
    digest = version["checkpoint"]
    uri = store.address(blob_name(digest)) if digest else version["source"]
    names = (
        "model",
        "version",
        "stage",
        "input_schema",
        "output_schema",
        "metrics",
        "framework",
        "manifest",
        "gates",
        "tags",
        "description",
    )
    return ResolvedModel(uri=uri, digest=digest, **{name: version[name] for name in names})
