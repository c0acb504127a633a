"""The catalog's tables of what clients track over HTTP: experiments, their runs, and the runs' artifacts.

A run's points, params and tags are in the store. What is here of them makes questions cheap, and is written
in the transaction that writes the store, so that a client reads what it has written. JSON is kept as text, in
the form in which it is answered.
"""

from typing import Any

from sqlalchemy import BigInteger, ForeignKey, Index, Integer
from sqlalchemy.orm import Mapped, mapped_column

from resources.catalog.index_tables import Ordered
from resources.catalog.tables import Base


class ExperimentRow(Base):
    """An experiment: a project, by the name that its clients gave it. stage: active or deleted.

    Times are in ms since 1970.
    """

    __tablename__ = "experiments"

    id: Mapped[int] = mapped_column(BigInteger().with_variant(Integer, "sqlite"), primary_key=True)
    name: Mapped[str] = mapped_column(Ordered, unique=True)
    project: Mapped[str] = mapped_column(unique=True)
    stage: Mapped[str]
    artifacts: Mapped[str]
    created: Mapped[int] = mapped_column(BigInteger)
    updated: Mapped[int] = mapped_column(BigInteger)
    tags: Mapped[dict[str, Any]]


class TrackedRunRow(Base):
    """A run of an experiment. status: running, scheduled, finished, failed or terminated. stage: active,
    archived or deleted.

    Times are in ms since 1970.

    ``attempt`` is the newest, ``ended`` the status in its end record, if it has one. ``metrics`` (the latest
    of each), ``params``, ``tags`` ``inputs`` (datasets), ``model_inputs`` and ``outputs`` (models) are JSON
    arrays, as they are answered; metrics by key. ``of_model``: made for a model that was logged outside of a
    run, which MLflow's clients do not know as a run.
    """

    __tablename__ = "tracked_runs"
    __table_args__ = (Index("tracked_runs_by_start", "experiment", "started", "id"),)

    id: Mapped[str] = mapped_column(primary_key=True)
    experiment: Mapped[int] = mapped_column(BigInteger, ForeignKey("experiments.id"))
    name: Mapped[str]
    user: Mapped[str]
    status: Mapped[str]
    stage: Mapped[str]
    started: Mapped[int] = mapped_column(BigInteger)
    ended_at: Mapped[int | None] = mapped_column(BigInteger)
    deleted_at: Mapped[int | None] = mapped_column(BigInteger)
    attempt: Mapped[int]
    ended: Mapped[str | None]
    metrics: Mapped[str]
    params: Mapped[str]
    tags: Mapped[str]
    inputs: Mapped[str]
    model_inputs: Mapped[str]
    outputs: Mapped[str]
    of_model: Mapped[bool]


class TrackedArtifactRow(Base):
    """The newest content at a path among a run's artifacts; ``name`` is that of its record in the store."""

    __tablename__ = "tracked_artifacts"

    run: Mapped[str] = mapped_column(ForeignKey("tracked_runs.id"), primary_key=True)
    path: Mapped[str] = mapped_column(Ordered, primary_key=True)
    name: Mapped[str]
    digest: Mapped[str]
    bytes: Mapped[int] = mapped_column(BigInteger)


class LoggedModelRow(Base):
    """A model that a run has made, beside the registry.

    ``message`` is JSON, as it is answered; its files are artifacts of the run.
    """

    __tablename__ = "logged_models"
    __table_args__ = (Index("logged_models_by_time", "experiment", "created"),)

    id: Mapped[str] = mapped_column(primary_key=True)
    run: Mapped[str] = mapped_column(ForeignKey("tracked_runs.id"), index=True)
    experiment: Mapped[int] = mapped_column(BigInteger, ForeignKey("experiments.id"))
    stage: Mapped[str]
    created: Mapped[int] = mapped_column(BigInteger)
    message: Mapped[str]
