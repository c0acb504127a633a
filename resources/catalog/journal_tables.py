"""The catalog's tables of what people write down, and of what they ask of a sweep that runs."""

from datetime import datetime

from sqlalchemy import BigInteger, ForeignKey, Index, Integer
from sqlalchemy.orm import Mapped, mapped_column

from resources.catalog.index_tables import Ordered
from resources.catalog.tables import Base


class NoteRow(Base):
    """A note in Markdown on a run, a sweep, a model or a project: who wrote it, and when.

    Rows are only ever added, which triggers enforce. They stay when their subject is deleted. ``kind`` is
    run, sweep, model or project. ``subject`` is ``project/run``, a sweep's id, ``model`` or
    ``model@version``, or the project's name when the note was written. ``project`` is the project that the
    subject belonged to then; of a model it is the model's name.
    """

    __tablename__ = "notes"
    __table_args__ = (
        Index("notes_by_time", "at"),
        Index("notes_of_project", "project", "at"),
        Index("notes_of_subject", "kind", "subject", "at"),
    )

    id: Mapped[int] = mapped_column(BigInteger().with_variant(Integer, "sqlite"), primary_key=True)
    at: Mapped[datetime]
    actor: Mapped[str]
    project: Mapped[str] = mapped_column(Ordered)
    kind: Mapped[str]
    subject: Mapped[str] = mapped_column(Ordered)
    text: Mapped[str]


class SweepControlRow(Base):
    """A control of a sweep: what somebody asked of it while it ran, and when.

    ``control`` is pause, run (a pause or a stop was taken back), stop or extend. ``max_trials`` is what the
    sweep was extended to; null for other controls. ``actor`` is who asked; null if that is not known.
    """

    __tablename__ = "sweep_controls"
    __table_args__ = (Index("sweep_controls_by_time", "at"), Index("sweep_controls_of_sweep", "sweep", "at"))

    id: Mapped[int] = mapped_column(BigInteger().with_variant(Integer, "sqlite"), primary_key=True)
    sweep: Mapped[str] = mapped_column(ForeignKey("sweeps.id"))
    at: Mapped[datetime]
    control: Mapped[str]
    max_trials: Mapped[int | None]
    actor: Mapped[str | None]
