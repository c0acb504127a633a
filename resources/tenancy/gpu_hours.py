"""A project's GPU-hours: how many it may use in a month, and how many it has used.

A month is a calendar month by UTC. One GPU-hour is a GPU of any kind, held for an hour by an attempt at a
trial.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from resources.catalog import AttemptRow, SweepRow, TrialRow
from resources.catalog.held_time import held_interval, held_seconds, month_of, seconds_within
from resources.tenancy.projects import row_of


@dataclass(frozen=True)
class GpuHours:
    """A project's GPU-hours in a month.

    Attributes:
        quota: how many it may use.
        used: how many it has used, with those of running trials until now.
        renewed: when the month ends.
        projects: every name that the project has had; its sweeps have one of them.
    """

    project: str
    quota: float
    used: float
    renewed: datetime
    projects: tuple[str, ...]

    @property
    def left(self) -> float:
        """The hours that the project may still use this month."""
        return max(0.0, self.quota - self.used)

    @property
    def spent(self) -> bool:
        """Whether no hours are left."""
        return self.used >= self.quota

    def remedy(self) -> str:
        """When there are new hours and how to get more, in words for people."""
        return (
            f"they are renewed on {self.renewed:%Y-%m-%d %H:%M} UTC; more at once: halving projects set "
            f"{self.project} --gpu-hours N"
        )

    def why_paused(self) -> str:
        """Why a sweep is paused whose project has none left.

        The text is the same as long as month and quota are the same.
        """
        return (
            f"project {self.project} has used its {self.quota:g} GPU-hours of {self.renewed_from:%Y-%m}; "
            f"{self.remedy()}"
        )

    @property
    def renewed_from(self) -> datetime:
        """When the month began."""
        return month_of(self.renewed.timestamp() - 1)[0]


def gpu_hours_of(session: Session, project: str, now: float) -> GpuHours | None:
    """A project's hours in the month of ``now`` (seconds since the epoch); None if they are not limited."""
    row = row_of(session, project)
    if row is None or row.gpu_hours is None:
        return None
    projects = (row.name, *row.former_names)
    return GpuHours(
        row.name, row.gpu_hours, gpu_hours_used(session, projects, now), month_of(now)[1], projects
    )


def gpu_hours_used(session: Session, projects: Iterable[str], now: float) -> float:
    """How many hours the sweeps of projects have used in the month of ``now``.

    An attempt that began in an earlier month counts with its part of this month, and a running one with what
    it has held until now.

    Args:
        now: seconds since the epoch, by the catalog's clock.
    """
    begin, end = month_of(now)
    attempt = AttemptRow
    of_month = (
        SweepRow.project.in_(list(projects)),
        SweepRow.finished_at.is_(None) | (SweepRow.finished_at >= begin),
        attempt.gpus > 0,
        attempt.held_since < end,
    )
    whole = (attempt.held_since >= begin, attempt.ended_at < end)
    joined = SweepRow.id == attempt.sweep
    ended = session.scalar(
        select(func.coalesce(func.sum(attempt.seconds * attempt.nodes * attempt.gpus), 0.0))
        .join(SweepRow, joined)
        .where(*of_month, *whole)
    )
    columns = (
        attempt.held_since,
        attempt.ended_at,
        attempt.seconds,
        attempt.nodes,
        attempt.gpus,
        TrialRow.lease_until,
    )
    partly = (
        select(*columns)
        .join(SweepRow, joined)
        .join(TrialRow, (TrialRow.sweep == attempt.sweep) & (TrialRow.number == attempt.trial))
        .where(*of_month, attempt.ended_at.is_(None) | (attempt.ended_at >= begin))
        .where((attempt.held_since < begin) | attempt.ended_at.is_(None) | (attempt.ended_at >= end))
    )
    others = sum(
        _seconds_within(row, begin, end, now) * row.nodes * row.gpus for row in session.execute(partly)
    )
    return (float(ended or 0.0) + others) / 3600


def gpu_hours_of_sweep(session: Session, sweep: str, now: float) -> float:
    """How many hours a sweep has used until ``now``, in seconds since the epoch by the catalog's clock."""
    attempt = AttemptRow
    columns = (
        attempt.held_since,
        attempt.ended_at,
        attempt.seconds,
        attempt.nodes,
        attempt.gpus,
        TrialRow.lease_until,
    )
    of_trial = (TrialRow.sweep == attempt.sweep) & (TrialRow.number == attempt.trial)
    rows = session.execute(
        select(*columns).join(TrialRow, of_trial).where(attempt.sweep == sweep, attempt.gpus > 0)
    )
    return sum(_seconds_held(row, now) * row.nodes * row.gpus for row in rows) / 3600


def _seconds_held(row: Any, now: float) -> float:
    if row.ended_at is None:
        return held_seconds(row.held_since, now, row.lease_until)
    return float(row.seconds)


def _seconds_within(row: Any, begin: datetime, end: datetime, now: float) -> float:
    seconds = _seconds_held(row, now)
    return seconds_within(
        seconds, *held_interval(row.held_since, row.ended_at, seconds), begin.timestamp(), end.timestamp()
    )
