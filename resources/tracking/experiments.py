"""Experiments: projects under the names of clients."""

import time
from collections.abc import Iterable

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from halving.errors import AlreadyExists, InvalidInput, NotFound
from halving.identifiers import check_name, sanitize_name
from halving.imports.foreign_run import run_name
from halving.records import amendments
from resources.catalog import ExperimentRow

ACTIVE = amendments.ACTIVE
DELETED = amendments.DELETED


def now_ms() -> int:
    """Now, in ms since 1970."""
    return round(1000 * time.time())


def project_of(session: Session, name: str) -> str:
    """The project for a new experiment: its name if that is accepted, else one derived from it and unused."""
    candidate = project_like(name)
    taken = session.scalar(
        select(func.count()).select_from(ExperimentRow).where(ExperimentRow.project == candidate)
    )
    return check_name("project", candidate if not taken else run_name(name, name))


def project_like(name: str) -> str:
    """The project's name that is most like an experiment's; the same if it is accepted."""
    return sanitize_name(name, otherwise="experiment")


def create_experiment(
    session: Session, name: str, project: str, tags: dict[str, str], artifacts: str | None
) -> ExperimentRow:
    """Add an experiment, in an exclusive transaction.

    Args:
        artifacts: where its clients write artifacts; None: through this server.

    Raises:
        AlreadyExists: there is one of this name, which may be deleted.
    """
    if session.scalar(select(func.count()).select_from(ExperimentRow).where(ExperimentRow.name == name)):
        raise AlreadyExists(f"Experiment(name={name}) already exists.")
    now = now_ms()
    row = ExperimentRow(
        name=name,
        project=project,
        stage=ACTIVE,
        artifacts=artifacts or "",
        created=now,
        updated=now,
        tags=tags,
    )
    session.add(row)
    session.flush()
    row.artifacts = artifacts or f"mlflow-artifacts:/{row.id}"
    return row


def find_experiment(session: Session, experiment: int, *, lock: bool = False) -> ExperimentRow:
    """An experiment, deleted ones too; with ``lock`` nobody else changes it until the transaction ends.

    Raises:
        NotFound: there is none of this id.
    """
    query = select(ExperimentRow).where(ExperimentRow.id == experiment)
    row = session.scalar(query.with_for_update() if lock else query)
    if row is None:
        raise NotFound(f"No Experiment with id={experiment} exists")
    return row


def named_experiment(session: Session, name: str) -> ExperimentRow:
    """The experiment of a name.

    Raises:
        NotFound: there is none.
    """
    row = session.scalar(select(ExperimentRow).where(ExperimentRow.name == name))
    if row is None:
        raise NotFound(f"Could not find experiment with name '{name}'")
    return row


def list_experiments(session: Session, stages: Iterable[str]) -> list[ExperimentRow]:
    """All experiments in these stages, the newest first."""
    return list(
        session.scalars(
            select(ExperimentRow)
            .where(ExperimentRow.stage.in_(list(stages)))
            .order_by(ExperimentRow.id.desc())
        )
    )


def rename_experiment(session: Session, row: ExperimentRow, name: str) -> None:
    """Give a locked experiment another name, in an exclusive transaction; its project stays.

    Raises:
        InvalidInput: it is deleted.
        AlreadyExists: another one has the name.
    """
    check_active(row)
    if (
        session.scalar(select(ExperimentRow.id).where(ExperimentRow.name == name, ExperimentRow.id != row.id))
        is not None
    ):
        raise AlreadyExists(f"Experiment(name={name}) already exists.")
    row.name = name
    row.updated = now_ms()


def set_stage(row: ExperimentRow, stage: str) -> None:
    """Delete or restore a locked experiment whose runs have been
    (:func:`resources.retention.lifecycle.set_lifecycle_of_some`).
    """
    row.stage = stage
    row.updated = now_ms()


def check_stage(row: ExperimentRow, stage: str) -> None:
    """Refuse to delete or restore an experiment once more.

    Raises:
        NotFound: it is in this stage already.
    """
    if row.stage == stage:
        raise NotFound(f"No Experiment with id={row.id} exists")


def check_active(row: ExperimentRow) -> None:
    """Refuse an experiment that is deleted.

    Raises:
        InvalidInput: it is.
    """
    if row.stage != ACTIVE:
        raise InvalidInput(
            f"The experiment {row.id} must be in the 'active' state. Current state is {row.stage}."
        )
