"""The catalog's tables. A change here needs a migration beside it: ``make migration m="what changed"``."""

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    DateTime,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    Text,
    UniqueConstraint,
    false,
    text,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.types import TypeDecorator

_MAX_EXCERPT = 20_000  # characters
_IS_CHAMPION = text("stage = 'champion'")
_HAS_FAILED = text("outcome IN ('fail', 'retry')")


class UtcTime(TypeDecorator[datetime]):
    """A time in UTC; a time without a zone is taken as UTC.

    SQLite forgets the zone, so it is added on reading. Postgres gives times in the zone of its server.
    """

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Any) -> datetime | None:
        return _in_utc(value)

    def process_result_value(self, value: datetime | None, dialect: Any) -> datetime | None:
        return _in_utc(value)


def _in_utc(value: datetime | None) -> datetime | None:
    if value is None:
        return None
    if value.tzinfo is None:
        return value.replace(tzinfo=UTC)
    return value.astimezone(UTC)


class Excerpt(TypeDecorator[str]):
    """A text from elsewhere, such as an exception or an image's output, in a form that databases accept.

    Only the end of a long text is stored.
    """

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Any) -> str | None:
        # Postgres accepts no NUL, and neither database accepts surrogates, as in names of files that are not
        # UTF-8.
        return value and value[-_MAX_EXCERPT:].encode(errors="replace").decode().replace("\0", "")


class Base(DeclarativeBase):
    type_annotation_map = {
        str: Text,
        dict[str, Any]: JSON,
        list[str]: JSON,
        list[dict[str, Any]]: JSON,
        datetime: UtcTime(),
    }


class SnapshotRow(Base):
    """An immutable dataset snapshot.

    ``recipe`` is the ``dataset`` of the spec that it was taken by; ``deprecated`` is why nothing is launched
    on it any more, null if it is in use.
    """

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
    """A version of a feature view.

    ``definition`` is its present YAML, which may have more features, nullable ones, than at ``created_at``.
    ``code`` has the digests of its functions' code, by the field that names the function; it is empty if they
    are not known. ``accepted`` lists the changes of code that somebody declared to give the same values, each
    with ``at``, ``reason`` and ``changed``, the fields.
    """

    __tablename__ = "feature_views"

    name: Mapped[str] = mapped_column(primary_key=True)
    version: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    definition: Mapped[dict[str, Any]]
    code: Mapped[dict[str, Any]]
    accepted: Mapped[list[dict[str, Any]]]
    created_at: Mapped[datetime]


def _name_of(context: Any) -> str:
    name: str = context.get_current_parameters()["name"]
    return name


class SweepRow(Base):
    """One launch of a sweep spec on one snapshot. Times that are numbers are in seconds since the epoch.

    ``status`` is searching, then evaluating (if the spec has a predictor or an evaluator), and in the end
    finished, rejected (a gate failed), held (a gate had too little evidence) or failed. ``driver`` is job,
    sensors, or api (external loops). ``control`` is what its user wants: run, pause or stop.

    ``project`` is the project of its runs in the store, whose share it uses; it stays when the project is
    renamed. A project's sweeps with a higher ``priority`` come first. ``max_trials`` is the number of trials
    that it was extended to (null: as in the spec), ``warm_start`` the earlier sweeps that it learns from.

    These columns are written only if there are rows of projects: ``waiting`` is why none of its trials is
    started though it has work, a quota or others' shares (null: nothing holds it back), and ``waiting_since``
    the time since when. ``asked_at`` is when it last asked for a place (null: it has no work for one),
    ``asking`` when each worker without a trial last did, by the worker's name, and ``wants_gpus`` the number
    of GPUs of the trial that it asked for. ``places`` is how many trials it may run at a time, at most as
    many as it has workers if these ask (null: any number).

    ``revision`` counts the decisions about it. Rows that a decision changes carry its number, so that a
    process which has the sweep in memory reads only new rows. Until ``suggesting_until`` only one process
    suggests params for its next trials. ``out_of_gpu_hours`` is set if its project has no GPU-hours left in
    this month, and pauses the sweep whatever its ``control`` is; ``gpu_hours_looked_at`` is the time of the
    last check.
    """

    __tablename__ = "sweeps"
    __table_args__ = (
        UniqueConstraint("spec_digest", "snapshot", "driver", "ordinal"),
        Index("sweeps_by_creation", "created_at"),
        Index("sweeps_by_end", "finished_at"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(index=True)
    project: Mapped[str] = mapped_column(default=_name_of, server_default="", index=True)
    priority: Mapped[int] = mapped_column(default=0, server_default="0")
    waiting: Mapped[str | None] = mapped_column(Excerpt)
    waiting_since: Mapped[float | None]
    asked_at: Mapped[float | None]
    places: Mapped[int | None]
    asking: Mapped[dict[str, Any] | None]
    wants_gpus: Mapped[int] = mapped_column(default=0, server_default="0")
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
    out_of_gpu_hours: Mapped[str | None] = mapped_column(Excerpt)
    gpu_hours_looked_at: Mapped[float | None]
    created_at: Mapped[datetime]
    finished_at: Mapped[datetime | None]

    @property
    def held_back(self) -> str | None:
        """Why none of its trials is started though it has work: spent GPU-hours, a quota, or others' shares.

        None if nothing holds it back, or if its search has ended.
        """
        if self.status != "searching":
            return None
        return self.out_of_gpu_hours or self.waiting


class ProjectRow(Base):
    """A project's share of the machines; a project without a row has no quota, and the weight 1.

    ``weight`` is its share relative to other projects'. ``max_trials`` and ``max_gpus`` are its quotas at any
    time, ``gpu_hours`` its quota in a calendar month (UTC); null is no limit. ``former_names`` are its names
    before it was renamed; sweeps with these names still belong to it. In the row ``*``, ``max_trials`` and
    ``max_gpus`` are the totals that all projects share.
    """

    __tablename__ = "projects"

    name: Mapped[str] = mapped_column(primary_key=True)
    owners: Mapped[list[str]]
    weight: Mapped[float] = mapped_column(default=1.0)
    max_trials: Mapped[int | None]
    max_gpus: Mapped[int | None]
    gpu_hours: Mapped[float | None]
    former_names: Mapped[list[str]]
    created_at: Mapped[datetime]


class IntentRow(Base):
    """A request, such as for a study, that a run of Dagster carries out.

    ``status`` is waiting, launched and then done; or failed, or canceled. ``payload`` has the checked spec
    and the driver of the sweep that is to be opened. ``sweep`` is the id that the sweep will have, so that
    the client gets it at once. ``run`` is the id of Dagster's run.
    """

    __tablename__ = "intents"
    __table_args__ = (Index("intents_by_time", "created_at"),)

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

    ``audited`` is how many results it had when it was pruned, if it is trained to the end as a check on
    pruning. ``final`` is the number of its seed, from 0, if it is of the final training, which begins when
    the search has no more to do (null: it is of the search). ``sampler_attrs`` is what the sampler keeps with
    the trial beside its params. ``waiting`` is why its attempt has not started: the cluster's own reason of
    its pod, or the GPUs of a machine that it waits for. ``gpus`` are those that its attempt holds while it
    runs, on all nodes. One that is ``asked_back`` is to save and to give its place to a more important sweep;
    it goes on later. ``checkpoints_left`` is what retention has left of its checkpoints once its sweep had
    ended: ``newest`` (and the best one) or ``none``; null: all. A lease that ran out at ``lease_until`` is
    doubted first, and lost if it has not been renewed by ``doubted_until``; both are in seconds since the
    epoch.
    """

    __tablename__ = "trials"
    __table_args__ = (
        Index("trials_by_revision", "sweep", "revision"),
        Index("trials_by_status", "sweep", "status"),
    )

    sweep: Mapped[str] = mapped_column(ForeignKey("sweeps.id"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    params: Mapped[dict[str, Any]]
    status: Mapped[str]
    failures: Mapped[int] = mapped_column(default=0)
    preemptions: Mapped[int] = mapped_column(default=0, server_default="0")
    audited: Mapped[int | None]
    final: Mapped[int | None]
    attempt: Mapped[int] = mapped_column(default=0)
    worker: Mapped[str | None]
    lease_until: Mapped[float | None]
    doubted_until: Mapped[float | None]
    waiting: Mapped[str | None] = mapped_column(Excerpt)
    gpus: Mapped[int] = mapped_column(default=0, server_default="0")
    asked_back: Mapped[bool] = mapped_column(default=False, server_default=false())
    seconds: Mapped[float] = mapped_column(default=0.0)
    error: Mapped[str | None] = mapped_column(Excerpt)
    checkpoint: Mapped[str | None]
    checkpoints_left: Mapped[str | None]
    sampler_attrs: Mapped[dict[str, Any] | None]
    revision: Mapped[int] = mapped_column(default=0, server_default="0")


class AttemptRow(Base):
    """An attempt at a trial: one start on a worker.

    ``outcome`` is null while it runs, then how it ended: pause, stop, complete, retry, fail, requeue (its
    worker returned it), resized (it goes on with the resources of its next rung), halved (it ran out of
    memory, and goes on with half the micro-batch), or preempted (its worker was reclaimed or lost).

    It held ``nodes`` nodes, each with ``gpus`` GPUs (of ``gpu_type``, as in the spec) and ``cpus``; of a gang
    these are the nodes that it really had. ``held_since`` is when a worker took it or its pods began, null
    before that. ``seconds`` is for how long it held them; 0 until it ends
    (:mod:`resources.catalog.held_time`).
    """

    __tablename__ = "attempts"
    __table_args__ = (
        ForeignKeyConstraint(["sweep", "trial"], ["trials.sweep", "trials.number"]),
        Index("attempts_by_worker", "sweep", "worker"),
        Index("attempts_that_failed", "ended_at", sqlite_where=_HAS_FAILED, postgresql_where=_HAS_FAILED),
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
    held_since: Mapped[datetime | None]
    seconds: Mapped[float] = mapped_column(server_default="0")
    nodes: Mapped[int] = mapped_column(server_default="1")
    gpus: Mapped[int] = mapped_column(server_default="0")
    cpus: Mapped[float] = mapped_column(server_default="0")
    gpu_type: Mapped[str | None]
    spot: Mapped[bool] = mapped_column(server_default=false())


class HeldGpuRow(Base):
    """A GPU of a machine that one attempt uses alone.

    ``device`` is the GPU's name in ``CUDA_VISIBLE_DEVICES``, ``process`` the name of the worker's process,
    ``since`` a time in seconds since the epoch. The GPU is free if the attempt is over or lost and its
    process is gone (:mod:`resources.execution.held_gpus`).
    """

    __tablename__ = "held_gpus"

    machine: Mapped[str] = mapped_column(primary_key=True)
    device: Mapped[str] = mapped_column(primary_key=True)
    sweep: Mapped[str]
    trial: Mapped[int]
    attempt: Mapped[int]
    process: Mapped[str]
    since: Mapped[float]


class FormingGangRow(Base):
    """A gang of several pods that forms or waits to form; of all sweeps' gangs only one forms at a time.

    ``since`` is when it joined the line, ``forms_since`` when its turn began (null while it waits), ``until``
    when its place expires unless its worker renews it; all in seconds since the epoch.
    """

    __tablename__ = "forming_gangs"

    gang: Mapped[str] = mapped_column(primary_key=True)
    since: Mapped[float]
    forms_since: Mapped[float | None]
    until: Mapped[float]


class RungResultRow(Base):
    """A trial's result at a rung, or its failure on the way there.

    ``value`` is the first objective; null for a failure. ``metrics`` has every objective and every bounded
    metric by name, ``violation`` is how far these are out of bounds. ``best_checkpoint`` is the checkpoint of
    the best epoch so far, if the spec's objective is the best value so far.
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
    """The evaluation report of a sweep's winner.

    ``cpu_seconds`` is the time that all its evaluations have taken, in seconds of a core.
    """

    __tablename__ = "reports"
    __table_args__ = (Index("reports_by_time", "created_at"),)

    sweep: Mapped[str] = mapped_column(ForeignKey("sweeps.id"), primary_key=True)
    digest: Mapped[str]
    html: Mapped[str]
    metrics: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]
    cpu_seconds: Mapped[float] = mapped_column(default=0.0, server_default="0")


class SplitLookRow(Base):
    """A winner's checkpoint that a split has judged, and how often (:mod:`resources.evaluation.split_wear`).

    ``content`` is the digest of the names of the split's shards, because several snapshots can have the same
    split.
    """

    __tablename__ = "split_looks"

    content: Mapped[str] = mapped_column(primary_key=True)
    split: Mapped[str] = mapped_column(primary_key=True)
    checkpoint: Mapped[str] = mapped_column(primary_key=True)
    sweep: Mapped[str]
    times: Mapped[int]
    first_at: Mapped[datetime]
    last_at: Mapped[datetime]


class RegisteredModelRow(Base):
    """A model of the registry. Times are in ms since 1970.

    ``newest`` is the last version that was added, ``versions`` the number of all that were added, including
    deleted ones. ``aliases`` are numbers of versions by alias, without ``champion``, which is a stage.
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


class RegistryEventRow(Base):
    """A change in the registry: who made it, when, from what to what, why, and by which report.

    Rows are only ever added, which triggers enforce. They stay when the model or the version is deleted.
    ``before`` and ``after`` are stages, or the values of an alias, a tag or a description. The kinds are in
    :mod:`resources.registry.events`.
    """

    __tablename__ = "registry_events"
    __table_args__ = (
        Index("registry_events_by_model", "model", "id"),
        Index("registry_events_by_time", "at"),
    )

    id: Mapped[int] = mapped_column(BigInteger().with_variant(Integer, "sqlite"), primary_key=True)
    model: Mapped[str]
    version: Mapped[str | None]
    kind: Mapped[str]
    actor: Mapped[str]
    at: Mapped[datetime]
    before: Mapped[str | None]
    after: Mapped[str | None]
    note: Mapped[str | None]
    report: Mapped[str | None]


class PublishedModelRow(Base):
    """The event up to which a model's files in the store are up to date; the model may be deleted."""

    __tablename__ = "published_models"

    model: Mapped[str] = mapped_column(primary_key=True)
    revision: Mapped[int] = mapped_column(BigInteger)


class ModelVersionRow(Base):
    """A version of a model in the registry.

    ``stage`` is staging, champion or archived. A sweep's winner has ``sweep``, ``trial``, ``checkpoint``,
    ``snapshot`` and ``report``. A version that a client registered has a ``source`` instead, and ``storage``,
    the place of its files. ``run`` is a run of ``project``. MLflow's clients use ``number``, which counts a
    model's versions from 1, and ``mlflow_stage``: None, Staging, Production or Archived. ``updated`` is in ms
    since 1970.

    ``gates`` are the verdicts of the gates, each with ``name``, ``passed`` and ``reason``; null if no gate
    has judged it. ``judged_against`` is the champion's version in the report, ``manifest`` the digest of the
    version's manifest.
    """

    __tablename__ = "model_versions"
    __table_args__ = (
        UniqueConstraint("model", "sweep"),
        UniqueConstraint("model", "number", name="model_versions_by_number"),
        Index("one_champion", "model", unique=True, sqlite_where=_IS_CHAMPION, postgresql_where=_IS_CHAMPION),
    )

    model: Mapped[str] = mapped_column(
        ForeignKey("registered_models.name", name="model_of_version"), primary_key=True
    )
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
    gates: Mapped[list[dict[str, Any]] | None]
    judged_against: Mapped[str | None]
    manifest: Mapped[str | None]
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
