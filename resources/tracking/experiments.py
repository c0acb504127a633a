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
    """The current time in ms since 1970."""
    return round(1000 * time.time())


def project_of(session: Session, name: str) -> str:
    """The project for a new experiment: its name if that is accepted, else an unused one derived from it."""
    project = project_like(name)
    if session.scalar(
        select(func.count()).select_from(ExperimentRow).where(ExperimentRow.project == project)
    ):
        project = run_name(name, name)
    return check_name("project", project)


def project_like(name: str) -> str:
    """The project's name that is most like an experiment's; the same if it is accepted."""
    return sanitize_name(name, otherwise="experiment")


def create_experiment(
    session: Session, name: str, project: str, tags: dict[str, str], artifacts: str | None
) -> ExperimentRow:
    """Add an experiment, in an exclusive transaction.

    Args:
        artifacts: the address where its clients write artifacts; None if they write through this server.

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
    """Find an experiment by its id, even a deleted one.

    Args:
        lock: whether nobody else can change it until the transaction ends.

    Raises:
        NotFound: there is none of this id.
    """
    query = select(ExperimentRow).where(ExperimentRow.id == experiment)
    if lock:
        query = query.with_for_update()
    row = session.scalar(query)
    if row is None:
        raise NotFound(f"No Experiment with id={experiment} exists")
    return row


def named_experiment(session: Session, name: str) -> ExperimentRow:
    """Find an experiment by its name, even a deleted one.

    Raises:
        NotFound: there is none.
    """
    row = session.scalar(select(ExperimentRow).where(ExperimentRow.name == name))
    if row is None:
        raise NotFound(f"Could not find experiment with name '{name}'")
    return row


def list_experiments(session: Session, stages: Iterable[str]) -> list[ExperimentRow]:
    """List the experiments in these stages, the newest first."""
    return list(
        session.scalars(
            select(ExperimentRow)
            .where(ExperimentRow.stage.in_(list(stages)))
            .order_by(ExperimentRow.id.desc())
        )
    )


def rename_experiment(session: Session, row: ExperimentRow, name: str) -> None:
    """Rename a locked experiment, in an exclusive transaction; its project stays.

    Raises:
        InvalidInput: it is deleted.
        AlreadyExists: another experiment has the name.
    """
    check_active(row)
    others = select(ExperimentRow.id).where(ExperimentRow.name == name, ExperimentRow.id != row.id)
    if session.scalar(others) is not None:
        raise AlreadyExists(f"Experiment(name={name}) already exists.")
    row.name = name
    row.updated = now_ms()


def set_stage(row: ExperimentRow, stage: str) -> None:
    """Mark a locked experiment as deleted or restored.

    Its runs come first (:func:`resources.retention.lifecycle.set_lifecycle_of_some`).
    """
    row.stage = stage
    row.updated = now_ms()


def check_stage(row: ExperimentRow, stage: str) -> None:
    """Refuse to delete a deleted experiment, and to restore an active one.

    Raises:
        NotFound: it is in this stage already.
    """
    if row.stage == stage:
        raise NotFound(f"No Experiment with id={row.id} exists")


def check_active(row: ExperimentRow) -> None:
    """Refuse a deleted experiment.

    Raises:
        InvalidInput: the experiment is deleted.
    """
    if row.stage != ACTIVE:
        raise InvalidInput(
            f"The experiment {row.id} must be in the 'active' state. Current state is {row.stage}."
        )
