"""Budgets: projects that have used 80 or 100 % of their GPU-hours of a month."""

from collections.abc import Iterator

from sqlalchemy import select
from sqlalchemy.orm import Session

from resources.alerts.alert import Alert, Level
from resources.catalog import ProjectRow
from resources.tenancy.gpu_hours import GpuHours, gpu_hours_of

SHARES = (100, 80)
"""In percent; of those that a project has passed, only the greatest is told."""


def alerts_of_budgets(session: Session, now: float) -> Iterator[Alert]:
    """The greatest share that each project has passed this month, once for each month.

    Args:
        now: by the catalog's clock, in seconds since the epoch.
    """
    limited = select(ProjectRow.name).where(ProjectRow.gpu_hours.is_not(None))
    for name in session.scalars(limited).all():
        hours = gpu_hours_of(session, name, now)
        if hours is None:
            continue
        share = passed_share(hours.used, hours.quota)
        if share is not None:
            yield _alert(hours, share)


def passed_share(used: float, quota: float) -> int | None:
    """The greatest of :data:`SHARES` that is used; None if it is less than all of them."""
    return next((share for share in SHARES if used * 100 >= quota * share), None)


def _alert(hours: GpuHours, share: int) -> Alert:
    level: Level = "warn"
    used = f"{hours.used:.4g} of its {hours.quota:g} GPU-hours this month"
    text = f"They are renewed on {hours.renewed:%Y-%m-%d}: halving projects show {hours.project}"
    if share == 100:
        level = "error"
        text = f"Its sweeps are paused; {hours.remedy()}"
    return Alert(
        key=f"budget:{hours.project}:{hours.renewed:%Y-%m}:{hours.quota:g}:{share}",
        event="budget",
        kind="project",
        subject=hours.project,
        title=f"project {hours.project} has used {used}",
        text=text,
        level=level,
        project=hours.project,
    )
