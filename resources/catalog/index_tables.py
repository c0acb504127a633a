"""The tables of the index of runs.

All in them can be made again from the store: see :mod:`resources.analysis.run_index`.

Rows of one name lie side by side (``run_values`` is clustered by name and run), because a filter or an order
asks for a few names of very many runs, and a page of the table for many names of very few. In Postgres, which
keeps rows as they came, the primary keys of ``run_values`` and ``runs`` have the columns that questions ask
for in them, so that both are read in the order of runs.
"""

from sqlalchemy import BigInteger, Index, Integer, SmallInteger, Text, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from resources.catalog.tables import Base

Ordered = Text().with_variant(Text(collation="C"), "postgresql")
"""Text that is compared and ordered by its characters' numbers, as Python and SQLite do it, not by a
language's rules.
"""

NUMBER = 0
TEXT = 1
BOOL = 2
"""The types of a value, :attr:`RunValueRow.type`; also the order of values of different types."""

_HAS_SEGMENTS = text("segments <> 0")
_IS_PAUSED = text("status = 'paused'")


class RunIndexRow(Base):
    """The one row of the index as a whole.

    ``revision`` counts the transactions that changed rows; who changes some counts it first, so such
    transactions take turns. Rows of a revision below ``stale_below`` are to be read again, whatever is known
    of them. ``refreshed_at`` is when a look at what is new was last complete. Until ``lease_until``,
    ``refresher`` is the process that looks. Times are in seconds since the epoch.
    """

    __tablename__ = "run_index"

    id: Mapped[int] = mapped_column(primary_key=True)
    revision: Mapped[int] = mapped_column(BigInteger)
    stale_below: Mapped[int] = mapped_column(BigInteger)
    refreshed_at: Mapped[float | None]
    refresher: Mapped[str | None]
    lease_until: Mapped[float | None]


class RunRow(Base):
    """A run of the store. lifecycle: active, archived or deleted. Times are in seconds since the epoch.

    ``signature`` is what the run's listings were when it was read: while they are the same there is nothing
    new. ``look_again`` is when they are to be listed again. ``segments`` is how many segments its listing
    had, -1 where that is not known: such runs wait for compaction. ``compact_at`` is when compaction is to
    look at it, by the database's clock: who compacts it moves that on, so that no other process does, and
    somebody does if this one dies.
    """

    __tablename__ = "runs"
    __table_args__ = (
        UniqueConstraint("project", "run"),
        Index("runs_to_compact", "compact_at", sqlite_where=_HAS_SEGMENTS, postgresql_where=_HAS_SEGMENTS),
        # of those, the sweeps that have ended
        Index("runs_paused", "sweep", sqlite_where=_IS_PAUSED, postgresql_where=_IS_PAUSED),
        # nearly every question asks for active ones
        Index("runs_by_start", "lifecycle", "started", "project", "run"),
        Index("runs_of_project_by_start", "project", "lifecycle", "started", "run"),
    )

    # Postgres takes a number for each row that is put, also where the run is there already: 32 bits of them
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


class RunAttemptRow(Base):
    """What an attempt at a run held in a month that is no trial's, as its record tells it: attempts of trials
    are in ``attempts``.

    kind: script, rerun, or elsewhere: another tool trained it, or its record does not say on what. ``month``
    is by UTC, as 2026-11; ``last`` says that it is the one in which the attempt ended, or gave its last sign
    of life. ``estimated``: it left no end, so its ``seconds`` go to its last sign of life. It had ``nodes``
    machines, each with ``gpus`` that its processes could see (of ``gpu_type``, as the driver calls the first
    one) and ``cpus``. ``sweep`` and ``trial`` are what its id says if it is a trial's key, as that of a run
    is that an external loop records.
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
    """The name of a param, metric or tag. kind: params, metrics or tags, as in a filter."""

    __tablename__ = "run_names"
    __table_args__ = (UniqueConstraint("kind", "name"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    kind: Mapped[str]
    name: Mapped[str] = mapped_column(Ordered)


class RunValueRow(Base):
    """What a run has under a name.

    ``number`` is a number, or 1 and 0 for true and false. SQLite has no NaN: it is of the type number and
    null. ``text`` is a text, of a long one its beginning; of a param's number from 2**53 on it is the key
    that tells it from its neighbours (:mod:`resources.analysis.run_index.exact_numbers`). Of a metric
    ``number`` is the last value, ``min`` and ``max`` are over finite values, and ``best`` is the one of both
    that its sweep's objective aims at, null where none does.
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
