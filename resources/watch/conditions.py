"""Conditions: what is wrong for a while, so that its end is told as well as its begin.

The decision is pure: from the conditions of the last look and those that hold now to what is told.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from resources.alerts.alert import Alert
from resources.catalog import AlertConditionRow


@dataclass(frozen=True)
class Condition:
    """Something that is wrong now.

    Attributes:
        key: identifies it while it lasts, such as ``silent:digits/7f3a``.
        alert: what is told when it begins.
        attempt: of a run, the attempt that it concerns.
        repeats: whether it can begin a second time, and is told then, too; the alert's key is made of the
            time of its begin.
    """

    key: str
    alert: Alert
    attempt: int | None = None
    repeats: bool = True


@dataclass(frozen=True)
class Ended:
    """A condition that holds no more.

    Attributes:
        text: why it is over, in words; None: it is over for a reason that nobody need hear of.
    """

    key: str
    text: str | None


def begin(condition: Condition, now: float) -> Alert:
    """The alert of a condition that begins now."""
    if not condition.repeats:
        return condition.alert
    return replace(condition.alert, key=f"{condition.key}:{now:.0f}")


def recover(row: AlertConditionRow, text: str, now: float) -> Alert:
    """The alert of a condition that has ended."""
    return Alert(
        key=f"{row.key}:{row.since:.0f}:recovered",
        event="recovered",
        kind=row.kind,
        subject=row.subject,
        title=text,
        level="info",
        project=row.project,
    )


def decide(
    open_rows: Mapping[str, AlertConditionRow],
    holding: Iterable[Condition],
    ended: Iterable[Ended],
    now: float,
) -> tuple[list[Alert], list[Condition], list[str]]:
    """What is told, which conditions are new, and the keys of those that are over.

    Args:
        open_rows: the conditions of the last look, by key.
        holding: those that hold now; a condition of the last look is told no second time.
        ended: those that are over.
    """
    alerts = []
    new = []
    for condition in holding:
        if condition.key not in open_rows:
            new.append(condition)
            alerts.append(begin(condition, now))
    over = []
    for end in ended:
        row = open_rows.get(end.key)
        if row is None:
            continue
        over.append(end.key)
        if end.text is not None:
            alerts.append(recover(row, end.text, now))
    return alerts, new, over


def read_conditions(session: Session) -> dict[str, AlertConditionRow]:
    """The conditions that were wrong at the last look, by key."""
    return {row.key: row for row in session.scalars(select(AlertConditionRow))}


def write_conditions(session: Session, new: Iterable[Condition], over: Iterable[str], now: float) -> None:
    """Write which conditions are wrong now."""
    keys = list(over)
    if keys:
        session.execute(delete(AlertConditionRow).where(AlertConditionRow.key.in_(keys)))
    for condition in new:
        alert = condition.alert
        row = AlertConditionRow(key=condition.key, event=alert.event, project=alert.project, kind=alert.kind)
        row.subject = alert.subject
        row.attempt = condition.attempt
        row.since = now
        session.merge(row)
