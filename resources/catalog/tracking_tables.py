"""The catalog's tables of experiments, runs, artifacts and models that clients track over HTTP.

A run's points, params and tags are in the store. The copies in these tables make queries cheap. They are
written in the transaction that writes to the store, so that a client reads what it has written. JSON is
stored as text, in the form of the answers.
"""

from typing import Any

from sqlalchemy import BigInteger, ForeignKey, Index, Integer
from sqlalchemy.orm import Mapped, mapped_column

from resources.catalog.index_tables import Ordered
from resources.catalog.tables import Base


class ExperimentRow(Base):
    """An experiment: a project under the name that its clients use.

    ``stage`` is active or deleted. Times are in ms since 1970.
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
    """A run of an experiment. Times are in ms since 1970.

    ``status`` is running, scheduled, finished, failed or terminated; ``stage`` is active, archived or
    deleted. ``attempt`` is the newest attempt, ``ended`` the status in its end record, if there is one.
    ``metrics`` (the latest value of each, ordered by key), ``params``, ``tags``, ``inputs`` (datasets),
    ``model_inputs`` and ``outputs`` (models) are JSON arrays. ``of_model`` is true for a run that holds a
    model that was logged outside of a run; MLflow's clients do not see it.
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
    """The newest content at a path of a run's artifacts; ``name`` is the name of its record in the store."""

    __tablename__ = "tracked_artifacts"

    run: Mapped[str] = mapped_column(ForeignKey("tracked_runs.id"), primary_key=True)
    path: Mapped[str] = mapped_column(Ordered, primary_key=True)
    name: Mapped[str]
    digest: Mapped[str]
    bytes: Mapped[int] = mapped_column(BigInteger)


class LoggedModelRow(Base):
    """A model that a run has logged, which need not be in the registry.

    ``message`` is the JSON of the answers; the model's files are artifacts of the run.
    """

    __tablename__ = "logged_models"
    __table_args__ = (Index("logged_models_by_time", "experiment", "created"),)

    id: Mapped[str] = mapped_column(primary_key=True)
    run: Mapped[str] = mapped_column(ForeignKey("tracked_runs.id"), index=True)
    experiment: Mapped[int] = mapped_column(BigInteger, ForeignKey("experiments.id"))
    stage: Mapped[str]
    created: Mapped[int] = mapped_column(BigInteger)
    message: Mapped[str]
