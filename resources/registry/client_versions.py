"""Versions that clients register themselves, and MLflow's stages and aliases of any version.

A version has two names: ours, such as 1.0.1, and MLflow's number. Our champion has MLflow's alias
``champion``, and its stage Production unless it was made champion by that alias.
"""

from sqlalchemy import select
from sqlalchemy.orm import Session

from halving.errors import InvalidInput, NotFound
from resources.catalog import ModelVersionRow, RegisteredModelRow, utcnow
from resources.catalog.models import champion_of, versions_of
from resources.registry.events import ALIAS, ARCHIVED, CHAMPION, DELETED, REGISTERED, STAGED, add_event
from resources.registry.registered_models import now_ms
from resources.registry.stages import make_champion
from resources.registry.verdicts import check_promotable
from resources.registry.versions import next_version, number_version

STAGES = {"None": "staging", "Staging": "staging", "Production": "champion", "Archived": "archived"}
"""Our stage for each of MLflow's."""


def add_version(
    session: Session, model: RegisteredModelRow, new: ModelVersionRow, *, actor: str
) -> ModelVersionRow:
    """Add a version to a model, in an exclusive transaction.

    Args:
        new: a row with ``source``, ``storage``, ``project``, ``run``, ``run_link``, ``description`` and
            ``tags``.
    """
    new.model = model.name
    new.stage = "staging"
    new.mlflow_stage = "None"
    new.framework = "mlflow"
    new.input_schema = {}
    new.output_schema = {}
    new.metrics = {}
    new.version = next_version(versions_of(session, model.name), new, model.newest)
    new.created_at = utcnow()
    number_version(model, new)
    session.add(new)
    session.flush()
    add_event(session, model.name, REGISTERED, actor, version=new, after=new.stage)
    return new


def find_version(session: Session, model: str, number: int) -> ModelVersionRow:
    """The version of this number.

    Raises:
        NotFound: there is none.
    """
    row = session.scalar(
        select(ModelVersionRow).where(ModelVersionRow.model == model, ModelVersionRow.number == number)
    )
    if row is None:
        raise NotFound(f"Model Version (name={model}, version={number}) not found")
    return row


def change_stage(
    session: Session,
    model: RegisteredModelRow,
    row: ModelVersionRow,
    stage: str,
    *,
    archive_others: bool,
    actor: str,
) -> None:
    """Set a version's stage, in an exclusive transaction.

    Args:
        stage: MLflow's stage. With Production the version becomes our champion; other versions may stay in
            Production, but are archived for us.
        archive_others: whether the versions that were in this stage are archived.

    Raises:
        PromotionRefused: it would become our champion, and its gates or people hold it back.
    """
    others = [
        other
        for other in versions_of(session, model.name)
        if other is not row and other.mlflow_stage == stage
    ]
    if STAGES[stage] == CHAMPION:
        before = champion_of(session, model.name)
        _promote(session, row, actor)
        if before is not None and before is not row:
            before.mlflow_stage = "Production"
    else:
        _move(session, row, STAGES[stage], actor)
    row.mlflow_stage = stage
    row.updated = now_ms()
    if archive_others:
        for other in others:
            _move(session, other, "archived", actor)
            other.mlflow_stage = "Archived"
            other.updated = row.updated
    model.updated = row.updated
    session.flush()


def delete_version(session: Session, model: RegisteredModelRow, row: ModelVersionRow, *, actor: str) -> None:
    """Delete a version that a client registered; its number is not used again.

    Raises:
        InvalidInput: it is the winner of a sweep, which is archived instead.
    """
    if row.sweep is not None:
        raise InvalidInput(
            f"version {row.number} of model {model.name!r} is the winner of sweep {row.sweep}: archive it "
            "instead"
        )
    model.aliases = {alias: number for alias, number in model.aliases.items() if number != row.number}
    model.updated = now_ms()
    add_event(session, model.name, DELETED, actor, version=row, before=row.stage)
    session.delete(row)
    session.flush()


def aliases_of(session: Session, model: RegisteredModelRow) -> dict[str, int]:
    """The numbers of versions by alias, with our champion's."""
    aliases = dict(model.aliases)
    if champion := champion_of(session, model.name):
        aliases[CHAMPION] = champion.number
    return aliases


def set_alias(
    session: Session, model: RegisteredModelRow, alias: str, row: ModelVersionRow, *, actor: str
) -> None:
    """Point an alias to a version, in an exclusive transaction; the alias ``champion`` promotes it.

    MLflow's stages stay.

    Raises:
        PromotionRefused: it would become the champion, and its gates or people hold it back.
    """
    if alias == CHAMPION:
        before = champion_of(session, model.name)
        stages = [(version, version.mlflow_stage, version.updated) for version in (before, row) if version]
        _promote(session, row, actor)
        for version, stage, updated in stages:
            version.mlflow_stage = stage
            version.updated = updated
    else:
        before_number = model.aliases.get(alias)
        if before_number != row.number:
            replaced = session.scalar(
                select(ModelVersionRow.version).where(
                    ModelVersionRow.model == model.name, ModelVersionRow.number == before_number
                )
            )
            add_event(
                session,
                model.name,
                ALIAS,
                actor,
                version=row,
                before=replaced and f"{alias} = {replaced}",
                after=f"{alias} = {row.version}",
            )
        model.aliases = {**model.aliases, alias: row.number}


def delete_alias(session: Session, model: RegisteredModelRow, alias: str, *, actor: str) -> None:
    """Delete an alias, if there is one, in an exclusive transaction; ``champion`` leaves no champion."""
    if alias == CHAMPION:
        champion = champion_of(session, model.name)
        if champion is not None:
            _move(session, champion, "staging", actor)
    elif alias in model.aliases:
        row = session.scalar(
            select(ModelVersionRow).where(
                ModelVersionRow.model == model.name, ModelVersionRow.number == model.aliases[alias]
            )
        )
        before = alias
        if row:
            before = f"{alias} = {row.version}"
        add_event(session, model.name, ALIAS, actor, version=row, before=before)
        model.aliases = {name: number for name, number in model.aliases.items() if name != alias}


def _promote(session: Session, row: ModelVersionRow, actor: str) -> None:
    if row.stage != CHAMPION:
        check_promotable(session, row)
        make_champion(session, row, actor)


def _move(session: Session, row: ModelVersionRow, stage: str, actor: str) -> None:
    if row.stage != stage:
        kind = ARCHIVED if stage == "archived" else STAGED
        add_event(session, row.model, kind, actor, version=row, before=row.stage, after=stage)
    row.stage = stage


def check_alias(alias: str) -> None:
    """Refuse a name that MLflow keeps for itself.

    Raises:
        InvalidInput: it is one.
    """
    if alias.lower() == "latest":
        raise InvalidInput("'latest' alias name (case insensitive) is reserved.")
    if alias[:1] in "vV" and alias[1:].isdecimal():
        raise InvalidInput(f"Version alias name '{alias}' is reserved.")
