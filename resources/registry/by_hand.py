"""What people do to versions from a command or a job: the change in the catalog, then what the store says of
it.
"""

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
"""Called with each sentence on what the store could not be told; the change stands."""


class Decided(NamedTuple):
    """What came of a decision.

    Attributes:
        row: the version, as it is now.
        event: what was written down of it, the last where it is more; None: nothing changed.
        missing: what still stands between a staging version and the champion's place.
    """

    row: ModelVersionRow
    event: RegistryEventRow | None
    missing: list[str]


def user() -> str:
    """Who gives a command: ``HALVING_USER``, else the system's user."""
    if named := os.environ.get(USER_VARIABLE):
        return named
    with suppress(KeyError, OSError):  # a container's user may have no name
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
    """As :func:`resources.registry.stages.promote`, for a version whose report and checkpoint are whole.

    Args:
        version: with ``force`` also a sweep, whose winner its gates hold back: it becomes a version first,
            with their verdicts.

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
    """As :func:`resources.registry.stages.rollback`."""
    return _decide(
        backend,
        model,
        warn,
        lambda session: stages.rollback(backend.catalog, model, actor=actor, note=note, within=session),
    )


def archive(
    backend: Backend, model: str, version: str, warn: Warn, *, actor: str, note: str | None = None
) -> Decided:
    """As :func:`resources.registry.stages.archive`."""
    return _decide(
        backend,
        model,
        warn,
        lambda session: stages.archive(
            backend.catalog, model, version, actor=actor, note=note, within=session
        ),
    )


def approve(backend: Backend, model: str, version: str, warn: Warn, *, actor: str, note: str) -> Decided:
    """As :func:`resources.registry.stages.approve`, of a version whose report and checkpoint are whole."""
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
    """As :func:`resources.registry.stages.reject`."""
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
    """Let an alias mean a version, or nothing; ``champion`` is what promotion sets.

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
    _tell(publish(backend.store, backend.catalog), warn)


def annotate(
    backend: Backend,
    about: str,
    change: Callable[[Session, RegisteredModelRow | ModelVersionRow], None],
    warn: Warn,
) -> tuple[str, str | None]:
    """Change what is said of ``MODEL`` or ``MODEL@VERSION``; gives the model and the version.

    Raises:
        NotFound: there is no such model or version.
    """
    with backend.catalog.write(exclusive=True) as session:
        # a client's model may have an @ in its name
        whole = "@" not in about or session.get(RegisteredModelRow, about) is not None
        model, _, version = (about, "", "") if whole else about.rpartition("@")
        change(session, stages.find(session, model, version) if version else find_model(session, model))
    _tell(publish(backend.store, backend.catalog), warn)
    return model, version or None


def _decide(
    backend: Backend, model: str, warn: Warn, change: Callable[[Session], ModelVersionRow]
) -> Decided:
    """Change a version in one transaction, in which nobody else's event can come between, then tell the
    store.
    """
    with backend.catalog.write(exclusive=True) as session:
        last = newest_event(session, model)
        row = change(session)
        happened = events_of(session, model, since=last)
        missing = blockers(session, row) if row.stage == "staging" else []
    _tell(publish(backend.store, backend.catalog), warn)
    return Decided(row, happened[-1] if happened else None, missing)


def _tell(problems: list[str], warn: Warn) -> None:
    for problem in problems:
        warn(problem)
