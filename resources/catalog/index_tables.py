"""The tables of the index of runs, which can be rebuilt from the store (:mod:`resources.analysis.run_index`).

``run_values`` is clustered by name and run, because a filter or an order needs few names of very many runs,
and a page of the table needs many names of very few runs. Postgres keeps rows in the order in which they were
written, so there the primary keys of ``run_values`` and ``runs`` include the columns that queries need; both
can then be read in the order of runs.
"""

from sqlalchemy import BigInteger, Index, Integer, SmallInteger, Text, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from resources.catalog.tables import Base

Ordered = Text().with_variant(Text(collation="C"), "postgresql")
"""Text that is ordered by its characters' code points, as in Python and SQLite, not by a language's rules."""

NUMBER = 0
TEXT = 1
BOOL = 2
"""The types of a value, :attr:`RunValueRow.type`; values of different types are in this order."""

_HAS_SEGMENTS = text("segments <> 0")
_IS_PAUSED = text("status = 'paused'")
_INDEXES_OF_THE_JOURNAL = {
    "lone_runs_by_start": ("started", "project", "run"),
    "lone_runs_by_end": ("ended", "project", "run"),
    "lone_runs_of_project_by_start": ("project", "started", "run"),
    "lone_runs_of_project_by_end": ("project", "ended", "run"),
}
IS_LONE_AND_ACTIVE = "coalesce(sweep, '') = '' AND lifecycle NOT IN ('archived', 'deleted')"
"""The condition on runs that are no trials, written so that SQLite finds no other index for it.

It has no statistics of this table. For ``lifecycle = 'active'`` it would sort all active runs.
"""
_IS_ALONE = text(IS_LONE_AND_ACTIVE)


class RunIndexRow(Base):
    """The one row on the whole index.

    ``revision`` counts the transactions that changed rows; each increments it first, so that they take turns.
    Rows with a revision below ``stale_below`` are to be read again in any case. ``refreshed_at`` is the time
    of the last complete refresh. Until ``lease_until``, ``refresher`` is the process that refreshes the
    index. Times are in seconds since the epoch.
    """

    __tablename__ = "run_index"

    id: Mapped[int] = mapped_column(primary_key=True)
    revision: Mapped[int] = mapped_column(BigInteger)
    stale_below: Mapped[int] = mapped_column(BigInteger)
    refreshed_at: Mapped[float | None]
    refresher: Mapped[str | None]
    lease_until: Mapped[float | None]


class RunRow(Base):
    """A run of the store. Times are in seconds since the epoch.

    ``lifecycle`` is active, archived or deleted. ``signature`` is the digest of the run's listings when it
    was read; while they are the same, nothing is new. ``look_again`` is the time of the next listing.
    ``segments`` is the number of segments in its listing, -1 if that is not known; runs with segments wait
    for compaction. ``compact_at`` is the time, by the database's clock, from which on it may be compacted. A
    process that compacts it sets a later time, so that no other process does the same, but one will if this
    process dies.

    ``progress`` is the digest of how far its own metrics have come, those of its machine left out, and
    ``progressed_at`` when the index first saw that, by the database's clock: no clock of a machine that
    trains decides whether a run is silent. ``read_at`` is when it was last read from the store, or had not
    changed there. ``silent_after`` is the run's own limit in seconds. ``alerts`` is
    the number of its alert files that were read.
    """

    __tablename__ = "runs"
    __table_args__ = (
        UniqueConstraint("project", "run"),
        Index("runs_to_compact", "compact_at", sqlite_where=_HAS_SEGMENTS, postgresql_where=_HAS_SEGMENTS),
        # Finds the paused runs of sweeps that have ended.
        Index("runs_paused", "sweep", sqlite_where=_IS_PAUSED, postgresql_where=_IS_PAUSED),
        # Nearly every query is for active runs.
        Index("runs_by_start", "lifecycle", "started", "project", "run"),
        Index("runs_of_project_by_start", "project", "lifecycle", "started", "run"),
        # The journal has the begin and the end of runs that are no trials, in their order.
        *(
            Index(name, *columns, sqlite_where=_IS_ALONE, postgresql_where=_IS_ALONE)
            for name, columns in _INDEXES_OF_THE_JOURNAL.items()
        ),
    )

    # Postgres uses a number for each row that is written, even if the run has a row already, so that 32 bits
    # would be used up in months.
    id: Mapped[int] = mapped_column(BigInteger().with_variant(Integer, "sqlite"), primary_key=True)
    project: Mapped[str] = mapped_column(Ordered)
    run: Mapped[str] = mapped_column(Ordered)
    status: Mapped[str] = mapped_column(Ordered)
    lifecycle: Mapped[str] = mapped_column(Ordered, default="active", server_default="active")
    started: Mapped[float]
    ended: Mapped[float | None]
    seconds: Mapped[float | None]
    epoch: Mapped[int | None] = mapped_column(BigInteger)
    attempt: Mapped[int]
    sweep: Mapped[str | None] = mapped_column(Ordered, index=True)
    trial: Mapped[int | None] = mapped_column(BigInteger)
    dataset: Mapped[str | None] = mapped_column(Ordered)
    snapshot: Mapped[str | None] = mapped_column(Ordered)
    commit: Mapped[str | None] = mapped_column(Ordered)
    seed: Mapped[int | None] = mapped_column(BigInteger)
    revision: Mapped[int] = mapped_column(BigInteger, index=True)
    look_again: Mapped[float] = mapped_column(index=True)
    signature: Mapped[str]
    segments: Mapped[int] = mapped_column(default=-1, server_default="-1")
    compact_at: Mapped[float] = mapped_column(default=0.0, server_default="0")
    progress: Mapped[str] = mapped_column(default="", server_default="")
    progressed_at: Mapped[float] = mapped_column(default=0.0, server_default="0")
    read_at: Mapped[float] = mapped_column(default=0.0, server_default="0")
    silent_after: Mapped[float | None]
    alerts: Mapped[int] = mapped_column(default=0, server_default="0")


class RunAttemptRow(Base):
    """The resources that an attempt at a run held in a month, according to the run's record.

    Only runs that are not trials have such rows; the attempts of trials are in ``attempts``.

    ``kind`` is script, rerun, or elsewhere (another tool trained it, or its record does not name the
    hardware). ``month`` is a month of UTC, as 2026-11; ``last`` is true for the month in which the attempt
    ended, or logged its last point. ``estimated`` is true if no end was recorded, so that its ``seconds``
    count until its last point. It had ``nodes`` machines, each with ``cpus``, and with ``gpus`` that its
    processes could see; ``gpu_type`` is the driver's name of the first one. ``sweep`` and ``trial`` are set
    if the run's id is a trial's key, as with runs that an external loop records.
    """

    __tablename__ = "run_attempts"

    run_id: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    attempt: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    kind: Mapped[str]
    status: Mapped[str]
    month: Mapped[str] = mapped_column(primary_key=True)
    last: Mapped[bool]
    seconds: Mapped[float]
    estimated: Mapped[bool]
    nodes: Mapped[int]
    gpus: Mapped[int]
    cpus: Mapped[float]
    gpu_type: Mapped[str | None]
    sweep: Mapped[str | None]
    trial: Mapped[int | None] = mapped_column(BigInteger)


class RunNameRow(Base):
    """The name of a param, metric or tag; ``kind`` is params, metrics or tags, as in a filter."""

    __tablename__ = "run_names"
    __table_args__ = (UniqueConstraint("kind", "name"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    kind: Mapped[str]
    name: Mapped[str] = mapped_column(Ordered)


class RunValueRow(Base):
    """The value of a param, metric or tag of a run.

    ``number`` is a number, or 1 or 0 for true or false; it is null for NaN, which SQLite does not have.
    ``text`` is a text, or the beginning of a long one. For a param's number from 2**53 on, ``text`` is the
    key that tells it from its neighbours (:mod:`resources.analysis.run_index.exact_numbers`).

    The ``number`` of a metric is its last value; ``min`` and ``max`` are those of its finite values. ``best``
    is the one of these two that the sweep's objective aims at; null if the metric is no objective.
    """

    __tablename__ = "run_values"
    __table_args__ = (Index("run_values_of_run", "run_id", "name_id", "type"), {"sqlite_with_rowid": False})

    name_id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    run_id: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    type: Mapped[int] = mapped_column(SmallInteger)
    number: Mapped[float | None]
    text: Mapped[str | None] = mapped_column(Ordered)
    min: Mapped[float | None]
    max: Mapped[float | None]
    best: Mapped[float | None]
