"""Changes that people make to versions by a command or a job, first in the catalog and then in the store."""

import getpass
import os
import re
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from sqlalchemy.orm import Session

from halving.errors import InvalidInput
from resources.backend import Backend
from resources.catalog import ModelVersionRow, RegisteredModelRow, RegistryEventRow
from resources.registry import client_versions, stages
from resources.registry.client_versions import check_alias
from resources.registry.events import CHAMPION, events_of, newest_event
from resources.registry.promotion import register_held_winner
from resources.registry.publishing import publish
from resources.registry.registered_models import find_model
from resources.registry.verdicts import blockers, check_whole

USER_VARIABLE = "HALVING_USER"
_VERSION = re.compile(r"\d+\.\d+\.\d+")
Warn = Callable[[str], None]
"""Called with a sentence for each model whose files in the store could not be updated; the change stands."""


class Decided(NamedTuple):
    """The result of a decision.

    Attributes:
        row: the version after the decision.
        event: the last event that the decision wrote; None if nothing changed.
        missing: the reasons why a staging version cannot become the champion yet.
    """

    row: ModelVersionRow
    event: RegistryEventRow | None
    missing: list[str]


def user() -> str:
    """The person who gives a command: ``HALVING_USER``, else the system's user."""
    if name := os.environ.get(USER_VARIABLE):
        return name
    with suppress(KeyError, OSError):  # A container's user may have no name.
        return getpass.getuser()
    return f"user {os.getuid()}"


def promote(
    backend: Backend,
    model: str,
    version: str,
    warn: Warn,
    *,
    actor: str,
    note: str | None = None,
    force: bool = False,
) -> Decided:
    """Promote a version whose report and checkpoint are whole, and update the store.

    See :func:`resources.registry.stages.promote`.

    Args:
        version: with ``force`` it may be a sweep whose winner its gates hold back; the winner becomes a
            version first, with their verdicts.

    Raises:
        PromotionRefused: something holds it back, its report was altered, or its checkpoint is gone.
    """
    stages.check_note(note, force=force)
    if force and not _VERSION.fullmatch(version):
        version = register_held_winner(backend, model, version, actor=actor, note=str(note)).version
    check_whole(backend.store, backend.catalog, model, version)

    def change(session: Session) -> ModelVersionRow:
        return stages.promote(
            backend.catalog, model, version, actor=actor, note=note, force=force, within=session
        )

    return _decide(backend, model, warn, change)


def rollback(backend: Backend, model: str, warn: Warn, *, actor: str, note: str | None = None) -> Decided:
    """Go back to an earlier champion (:func:`resources.registry.stages.rollback`), and update the store."""
    return _decide(
        backend,
        model,
        warn,
        lambda session: stages.rollback(backend.catalog, model, actor=actor, note=note, within=session),
    )


def archive(
    backend: Backend, model: str, version: str, warn: Warn, *, actor: str, note: str | None = None
) -> Decided:
    """Archive a version (:func:`resources.registry.stages.archive`), and update the store."""
    return _decide(
        backend,
        model,
        warn,
        lambda session: stages.archive(
            backend.catalog, model, version, actor=actor, note=note, within=session
        ),
    )


def approve(backend: Backend, model: str, version: str, warn: Warn, *, actor: str, note: str) -> Decided:
    """Approve a version whose report and checkpoint are whole, and update the store."""
    check_whole(backend.store, backend.catalog, model, version)
    return _decide(
        backend,
        model,
        warn,
        lambda session: stages.approve(
            backend.catalog, model, version, actor=actor, note=note, within=session
        ),
    )


def reject(backend: Backend, model: str, version: str, warn: Warn, *, actor: str, note: str) -> Decided:
    """Reject a version (:func:`resources.registry.stages.reject`), and update the store."""
    return _decide(
        backend,
        model,
        warn,
        lambda session: stages.reject(
            backend.catalog, model, version, actor=actor, note=note, within=session
        ),
    )


def set_alias(
    backend: Backend, model: str, alias: str, version: str | None, warn: Warn, *, actor: str
) -> None:
    """Point an alias to a version, or delete it; only promotion sets ``champion``.

    Raises:
        InvalidInput: the alias is not accepted.
        NotFound: there is no such model or version.
    """
    check_alias(alias)
    if alias == CHAMPION:
        raise InvalidInput(
            f"alias 'champion' is not accepted: halving promote {model} {version or 'VERSION'} makes a "
            "version the champion"
        )
    with backend.catalog.write(exclusive=True) as session:
        row = find_model(session, model)
        if version is None:
            client_versions.delete_alias(session, row, alias, actor=actor)
        else:
            client_versions.set_alias(session, row, alias, stages.find(session, model, version), actor=actor)
    _publish(backend, warn)


def annotate(
    backend: Backend,
    about: str,
    change: Callable[[Session, RegisteredModelRow | ModelVersionRow], None],
    warn: Warn,
) -> tuple[str, str | None]:
    """Change the description or tags of ``MODEL`` or ``MODEL@VERSION``; returns the model and the version.

    Raises:
        NotFound: there is no such model or version.
    """
    with backend.catalog.write(exclusive=True) as session:
        model, _, version = about.rpartition("@")
        # A client's model may have an @ in its name.
        if "@" not in about or session.get(RegisteredModelRow, about) is not None:
            model = about
            version = ""
        if version:
            change(session, stages.find(session, model, version))
        else:
            change(session, find_model(session, model))
    _publish(backend, warn)
    return model, version or None


def _decide(
    backend: Backend, model: str, warn: Warn, change: Callable[[Session], ModelVersionRow]
) -> Decided:
    """Change a version in one transaction, then update the store.

    The transaction is exclusive, so that all new events are those of this change.
    """
    with backend.catalog.write(exclusive=True) as session:
        last = newest_event(session, model)
        row = change(session)
        new_events = events_of(session, model, since=last)
        missing: list[str] = []
        if row.stage == "staging":
            missing = blockers(session, row)
    _publish(backend, warn)
    return Decided(row, next(reversed(new_events), None), missing)


def _publish(backend: Backend, warn: Warn) -> None:
    for problem in publish(backend.store, backend.catalog):
        warn(problem)
