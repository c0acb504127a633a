"""The catalog's tables. A change here needs a migration beside it: ``make migration m="what changed"``."""

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import JSON, BigInteger, DateTime, ForeignKey, ForeignKeyConstraint, Index, Text, UniqueConstraint, text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.types import TypeDecorator

_LONGEST_EXCERPT = 20_000  # characters
_IS_CHAMPION = text("stage = 'champion'")


class UtcTime(TypeDecorator[datetime]):
    """A moment in UTC, which one without a zone is taken for; SQLite forgets the zone, so it is put back on reading."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Any) -> datetime | None:
        return value if value is None else value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Any) -> datetime | None:
        return value.replace(tzinfo=UTC) if value is not None and value.tzinfo is None else value


class Excerpt(TypeDecorator[str]):
    """Text from elsewhere (an exception, an image's output, a cluster's reason) as a database takes it; of a long one, its end."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Any) -> str | None:
        # Postgres takes no NUL, and neither database takes a surrogate, which Python makes of a file name that is not UTF-8.
        return value and value[-_LONGEST_EXCERPT:].encode(errors="replace").decode().replace("\0", "")


class Base(DeclarativeBase):
    type_annotation_map = {str: Text, dict[str, Any]: JSON, list[str]: JSON, datetime: UtcTime()}


class SnapshotRow(Base):
    """An immutable dataset snapshot. ``recipe`` is the spec's ``dataset`` that it was taken by; ``deprecated`` why nothing is launched on
    it any more (null: it may be)."""

    __tablename__ = "snapshots"

    digest: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(index=True)
    rows: Mapped[int] = mapped_column(BigInteger)
    bytes: Mapped[int] = mapped_column(BigInteger)
    schema_sha256: Mapped[str]
    target: Mapped[str]
    splits: Mapped[dict[str, Any]]
    source: Mapped[str]
    recipe: Mapped[dict[str, Any]]
    transform_sha256: Mapped[str]
    deprecated: Mapped[str | None]
    created_at: Mapped[datetime]


class FeatureViewRow(Base):
    """A version of a feature view. ``definition`` is its YAML as it is now, to which features that may be null were added since
    ``created_at``; ``transform_sha256`` is of the transform's code (null: it has none)."""

    __tablename__ = "feature_views"

    name: Mapped[str] = mapped_column(primary_key=True)
    version: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    definition: Mapped[dict[str, Any]]
    transform_sha256: Mapped[str | None]
    created_at: Mapped[datetime]


class SweepRow(Base):
    """One launch of a sweep spec on one snapshot. status: searching → evaluating → finished or rejected; or failed.
    Without a predictor searching → finished. ``driver``: job, sensors, or api (external loops).

    ``revision`` counts the decisions about it. Rows that a decision changes carry its number, so that a process which keeps
    the sweep in memory reads only what is new. ``control`` is what its user wants (run, pause, stop), ``max_trials`` what
    it was extended to (null: as the spec says), ``warm_start`` the earlier sweeps that it learns from.
    Until ``suggesting_until``, in seconds since the epoch, one process chooses params for its next trials and others do not.
    """

    __tablename__ = "sweeps"
    __table_args__ = (UniqueConstraint("spec_digest", "snapshot", "driver", "ordinal"),)

    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(index=True)
    spec: Mapped[dict[str, Any]]
    spec_digest: Mapped[str]
    snapshot: Mapped[str] = mapped_column(ForeignKey("snapshots.digest"))
    driver: Mapped[str]
    ordinal: Mapped[int]
    commit: Mapped[str | None]
    status: Mapped[str] = mapped_column(index=True)
    control: Mapped[str] = mapped_column(default="run", server_default="run")
    max_trials: Mapped[int | None]
    revision: Mapped[int] = mapped_column(default=0, server_default="0")
    sampler_attrs: Mapped[dict[str, Any] | None]
    warm_start: Mapped[list[str] | None]
    suggesting_until: Mapped[float | None]
    created_at: Mapped[datetime]
    finished_at: Mapped[datetime | None]


class IntentRow(Base):
    """What somebody asked for and a Dagster run is to do. status: waiting → launched → done; or failed, or canceled.

    ``payload`` has the checked spec and the driver of the sweep that is to be opened, and ``sweep`` the id that it will have, so that
    whoever asks knows it at once. ``run`` is Dagster's run that does it.
    """

    __tablename__ = "intents"

    id: Mapped[str] = mapped_column(primary_key=True)
    kind: Mapped[str]
    payload: Mapped[dict[str, Any]]
    actor: Mapped[str]
    created_at: Mapped[datetime]
    status: Mapped[str] = mapped_column(index=True)
    error: Mapped[str | None] = mapped_column(Excerpt)
    sweep: Mapped[str] = mapped_column(unique=True)
    run: Mapped[str | None]


class TrialRow(Base):
    """One trial of a sweep. A running trial without a worker has been handed out and not been claimed yet.

    ``audited`` is how many results it had when it was pruned, if it is trained to the end as a check on pruning.
    ``sampler_attrs`` is what the sampler keeps with the trial beside its params. ``waiting`` is the cluster's own reason why
    the pod of its attempt has not started. A lease that ran out at ``lease_until`` is doubted first, and lost if it has not
    been renewed by ``doubted_until``; both are in seconds since the epoch.
    """

    __tablename__ = "trials"
    __table_args__ = (Index("trials_by_revision", "sweep", "revision"), Index("trials_by_status", "sweep", "status"))

    sweep: Mapped[str] = mapped_column(ForeignKey("sweeps.id"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    params: Mapped[dict[str, Any]]
    status: Mapped[str]
    failures: Mapped[int] = mapped_column(default=0)
    preemptions: Mapped[int] = mapped_column(default=0, server_default="0")
    audited: Mapped[int | None]
    attempt: Mapped[int] = mapped_column(default=0)
    worker: Mapped[str | None]
    lease_until: Mapped[float | None]
    doubted_until: Mapped[float | None]
    waiting: Mapped[str | None] = mapped_column(Excerpt)
    seconds: Mapped[float] = mapped_column(default=0.0)
    error: Mapped[str | None] = mapped_column(Excerpt)
    checkpoint: Mapped[str | None]
    sampler_attrs: Mapped[dict[str, Any] | None]
    revision: Mapped[int] = mapped_column(default=0, server_default="0")


class AttemptRow(Base):
    """One hand-out of a trial to a worker.

    outcome: null while it runs, then how it ended: pause, stop, complete, retry, fail, requeue (its worker gave it back),
    or preempted (its worker was reclaimed or lost).
    """

    __tablename__ = "attempts"
    __table_args__ = (
        ForeignKeyConstraint(["sweep", "trial"], ["trials.sweep", "trials.number"]),
        Index("attempts_by_worker", "sweep", "worker"),
    )

    sweep: Mapped[str] = mapped_column(primary_key=True)
    trial: Mapped[int] = mapped_column(primary_key=True)
    attempt: Mapped[int] = mapped_column(primary_key=True)
    rung: Mapped[int]
    worker: Mapped[str | None]
    started_at: Mapped[datetime]
    ended_at: Mapped[datetime | None]
    outcome: Mapped[str | None]
    error: Mapped[str | None] = mapped_column(Excerpt)


class RungResultRow(Base):
    """A trial's result at a rung; ``value`` (the first objective) is null where the trial failed on its way there.

    ``metrics`` has every objective and every bounded metric by name, ``violation`` how far those are out of bounds.
    ``best_checkpoint`` is the checkpoint of the best epoch so far, where the spec's objective is the best value so far.
    """

    __tablename__ = "rung_results"
    __table_args__ = (
        ForeignKeyConstraint(["sweep", "trial"], ["trials.sweep", "trials.number"]),
        Index("rung_results_by_revision", "sweep", "revision"),
    )

    sweep: Mapped[str] = mapped_column(primary_key=True)
    trial: Mapped[int] = mapped_column(primary_key=True)
    rung: Mapped[int] = mapped_column(primary_key=True)
    epochs: Mapped[int]
    value: Mapped[float | None]
    metrics: Mapped[dict[str, Any] | None]
    violation: Mapped[float] = mapped_column(default=0.0, server_default="0")
    checkpoint: Mapped[str | None]
    best_checkpoint: Mapped[str | None]
    decision: Mapped[str]
    attempt: Mapped[int]
    seconds: Mapped[float]
    reached_at: Mapped[datetime]
    materialized: Mapped[bool] = mapped_column(default=False)
    revision: Mapped[int] = mapped_column(default=0, server_default="0")


class ReportRow(Base):
    """The evaluation report of a sweep's winner."""

    __tablename__ = "reports"

    sweep: Mapped[str] = mapped_column(ForeignKey("sweeps.id"), primary_key=True)
    digest: Mapped[str]
    html: Mapped[str]
    metrics: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]


class RegisteredModelRow(Base):
    """A model of the registry: what is said of it apart from its versions. Times are in ms since 1970.

    ``newest`` and ``versions`` are the last version that it was given and how many it was given; some of those may be deleted.
    ``aliases`` are numbers of versions by name; the alias ``champion`` is not among them, because the versions' stages say it.
    """

    __tablename__ = "registered_models"

    name: Mapped[str] = mapped_column(primary_key=True)
    description: Mapped[str]
    tags: Mapped[dict[str, Any]]
    aliases: Mapped[dict[str, Any]]
    newest: Mapped[str | None]
    versions: Mapped[int]
    created: Mapped[int] = mapped_column(BigInteger)
    updated: Mapped[int] = mapped_column(BigInteger)


class ModelVersionRow(Base):
    """A version of a model in the registry. stage: staging → champion → archived.

    Of a sweep's winner ``sweep``, ``trial``, ``checkpoint``, ``snapshot`` and ``report`` are known. One that a client registered has a
    ``source`` instead, and where its files are in ``storage``. ``run`` is one of ``project``. What MLflow's clients know: ``number`` counts
    a model's versions from 1, ``mlflow_stage`` is None, Staging, Production or Archived. ``updated`` is in ms since 1970.
    """

    __tablename__ = "model_versions"
    __table_args__ = (
        UniqueConstraint("model", "sweep"),
        UniqueConstraint("model", "number", name="model_versions_by_number"),
        Index("one_champion", "model", unique=True, sqlite_where=_IS_CHAMPION, postgresql_where=_IS_CHAMPION),
    )

    model: Mapped[str] = mapped_column(ForeignKey("registered_models.name", name="model_of_version"), primary_key=True)
    version: Mapped[str] = mapped_column(primary_key=True)
    number: Mapped[int]
    stage: Mapped[str]
    mlflow_stage: Mapped[str]
    project: Mapped[str | None]
    run: Mapped[str | None]
    sweep: Mapped[str | None] = mapped_column(ForeignKey("sweeps.id"))
    trial: Mapped[int | None]
    checkpoint: Mapped[str | None]
    snapshot: Mapped[str | None] = mapped_column(ForeignKey("snapshots.digest"))
    report: Mapped[str | None]
    source: Mapped[str | None]
    storage: Mapped[str | None]
    run_link: Mapped[str | None]
    framework: Mapped[str]
    input_schema: Mapped[dict[str, Any]]
    output_schema: Mapped[dict[str, Any]]
    metrics: Mapped[dict[str, Any]]
    description: Mapped[str | None]
    tags: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]
    updated: Mapped[int] = mapped_column(BigInteger)
