"""What commands share: the store and the catalog that they work on, and how they answer."""

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from halving import InvalidInput, Store
from halving.cli.output import console, print_json

if TYPE_CHECKING:
    from rich.console import Console

    from resources.backend import Backend


def answer(arguments: argparse.Namespace, data: Any, show: "Callable[[Console], None]") -> int:
    """Print the data as JSON with ``--json``, else call ``show``; returns the exit status 0."""
    if arguments.json:
        print_json(data)
    else:
        show(console_of(arguments))
    return 0


def backend_of(arguments: argparse.Namespace) -> "Backend":
    """The store of a command's ``--root``, and its catalog."""
    from resources.backend import Backend

    return Backend(root=arguments.root)


def existing_backend(arguments: argparse.Namespace) -> "Backend":
    """The store of a command's ``--root`` and its catalog; unlike :func:`backend_of` it makes no store.

    A command that only reads or deletes must not make a store where a root is misspelt.

    Raises:
        InvalidInput: there is no such folder.
    """
    backend = backend_of(arguments)
    folder = backend.store.folder
    if folder is not None and not folder.is_dir():
        root = backend.store.root
        raise InvalidInput(
            f"root = {root!r} is not accepted: there is no such folder; name a store by --root or "
            "HALVING_ROOT"
        )
    return backend


def dagster_home(store: Store) -> Path:
    """The folder of Dagster's instance: ``DAGSTER_HOME``, else in the store's folder."""
    return Path(os.environ.get("DAGSTER_HOME") or f"{store.root}/dagster")


def newest_sweep(backend: "Backend", spec: Any = None) -> str | None:
    """The id of the newest sweep, of all or of those that ``halving sweep`` launched of a spec."""
    from sqlalchemy import select

    from resources.catalog import SweepRow
    from resources.tenancy.projects import names_of

    query = select(SweepRow.id).order_by(SweepRow.created_at.desc()).limit(1)
    with backend.catalog.read() as session:
        if spec is not None:
            of_project = SweepRow.project.in_(names_of(session, spec.project))
            query = query.where(SweepRow.spec_digest == spec.digest, SweepRow.driver == "job", of_project)
        return session.scalar(query)


def console_of(arguments: argparse.Namespace) -> "Console":
    """The console for people, on the standard error when the standard output is for JSON."""
    return console(stderr=arguments.json, markup=True)
