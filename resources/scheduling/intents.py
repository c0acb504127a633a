"""Intents: sweeps that somebody asked for while no process of Dagster was there to open them.

A sensor makes them Dagster's runs.

An intent names the sweep that it will become, so that whoever asks knows its id at once. What becomes of an
intent is decided by :func:`next_step`, a pure function of the intent and of its run, as often as a tick looks
at it.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from secrets import token_hex
from typing import Literal

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from halving.errors import HalvingError, NotFound
from resources.catalog import Catalog, IntentRow, SweepRow, utcnow
from resources.scheduling import sweeps
from resources.scheduling.checkpoint_sources import hold_source
from resources.sweep_spec import SweepSpec

WAITING = "waiting"
LAUNCHED = "launched"
DONE = "done"
FAILED = "failed"
CANCELED = "canceled"
OPEN = (WAITING, LAUNCHED)
"""Statuses of an intent that is not settled yet."""

Driver = Literal["sensors", "api"]
"""Who drives the sweep that an intent becomes: Dagster's sensors, or external loops, which ask the API."""
Kind = Literal["study", "training-run"]

_SOON = timedelta(seconds=60)  # a daemon that runs looks every few seconds


class IntentCanceled(HalvingError, RuntimeError):
    """The intent was canceled, so its sweep is not to be opened."""


@dataclass(frozen=True)
class Launched:
    """Dagster's run of an intent.

    Attributes:
        going_on: whether it is queued or running.
        reason: how it ended, in Dagster's words.
    """

    run: str
    going_on: bool
    reason: str


@dataclass(frozen=True)
class Launch:
    """Ask Dagster for the intent's run; its run key makes that once."""


@dataclass(frozen=True)
class Became:
    """The intent's new status, with the run that did it and, where it failed, the reason."""

    status: str
    run: str | None
    error: str | None = None


def next_step(
    status: str, known_run: str | None, launched: Launched | None, *, opened: bool
) -> Launch | Became | None:
    """What is to be done about an intent; None if nothing is.

    Args:
        status, known_run: the intent's.
        launched: its run, if Dagster has one.
        opened: whether its sweep is in the catalog.
    """
    if status not in OPEN:
        return None
    run = launched.run if launched else known_run
    if opened:  # whatever became of the run: its work is done
        return Became(DONE, run)
    if launched is None:  # never launched, or Dagster has lost its history
        return Launch()
    if launched.going_on:
        return None if (status, known_run) == (LAUNCHED, run) else Became(LAUNCHED, run)
    return Became(FAILED, run, launched.reason)


def waits_for(intent: IntentRow, now: datetime) -> str | None:
    """Why an intent is not done yet, for people; None if it is settled."""
    if intent.status == WAITING:
        if now - intent.created_at < _SOON:
            return "for Dagster's sensor launch_requested, which looks every few seconds"
        return (
            f"Dagster has not picked it up since {intent.created_at:%Y-%m-%d %H:%M} UTC: is its daemon "
            "running, "
            "and the sensor launch_requested on?"
        )
    return f"for Dagster's run {intent.run}, which opens its sweep" if intent.status == LAUNCHED else None


def add(
    session: Session,
    spec: SweepSpec,
    *,
    kind: Kind,
    driver: Driver,
    actor: str,
    projects: Collection[str] | None = None,
) -> IntentRow:
    """Add an intent in a transaction of the caller's.

    Args:
        projects: the only ones whose sweeps it may learn from, also when ``warm_start`` is resolved later;
            None is all.

    Raises:
        InvalidInput: retention has deleted the checkpoint that it is to go on from.
    """
    hold_source(session, spec)
    sweep = f"{spec.name}-{token_hex(4)}"
    while session.get(SweepRow, sweep) is not None:
        sweep = f"{spec.name}-{token_hex(4)}"
    row = IntentRow(
        id=token_hex(8),
        kind=kind,
        payload={
            "driver": driver,
            "spec": spec.model_dump(mode="json", by_alias=True, exclude_none=True),
            **({} if projects is None else {"projects": sorted(projects)}),
        },
        actor=actor,
        created_at=utcnow(),
        status=WAITING,
        sweep=sweep,
    )
    session.add(row)
    return row


def find(catalog: Catalog, intent: str) -> IntentRow:
    """An intent by its id.

    Raises:
        NotFound: no such intent.
    """
    with catalog.read() as session:
        return _get(session, intent)


def of_sweep(catalog: Catalog, sweep: str) -> IntentRow | None:
    """The intent that became this sweep, or is to become it; None for a sweep that was launched otherwise."""
    with catalog.read() as session:
        return session.scalar(select(IntentRow).where(IntentRow.sweep == sweep))


def project_of(intent: IntentRow) -> str:
    """The project of the sweep that an intent becomes."""
    spec = intent.payload["spec"]
    return str(spec.get("project", spec["name"]))  # an intent from before sweeps had projects names none


def not_open(
    catalog: Catalog, *, projects: Collection[str] | None = None, limit: int = 50
) -> list[IntentRow]:
    """The newest intents whose sweep is not open yet, or never will be.

    Args:
        projects: only sweeps of these projects.
        limit: at most so many.
    """
    query = select(IntentRow).outerjoin(SweepRow, SweepRow.id == IntentRow.sweep).where(SweepRow.id.is_(None))
    if projects is not None:
        spec = IntentRow.payload["spec"]
        query = query.where(
            func.coalesce(spec["project"].as_string(), spec["name"].as_string()).in_(projects)
        )
    with catalog.read() as session:
        return list(
            session.scalars(query.order_by(IntentRow.created_at.desc(), IntentRow.sweep).limit(limit))
        )


def unsettled(catalog: Catalog) -> list[tuple[IntentRow, bool]]:
    """Intents that are waiting or launched, oldest first, each with whether its sweep is open already."""
    with catalog.read() as session:
        query = (
            select(IntentRow, SweepRow.id)
            .outerjoin(SweepRow, SweepRow.id == IntentRow.sweep)
            .where(IntentRow.status.in_(OPEN))
        )
        return [
            (row, sweep is not None)
            for row, sweep in session.execute(query.order_by(IntentRow.created_at, IntentRow.id))
        ]


def become(catalog: Catalog, intent: str, became: Became, within: Session | None = None) -> bool:
    """Write what became of an intent; False if it was settled before, and stays as it was."""
    with catalog.write(within=within) as session:
        row = _get(session, intent, lock=True)
        if row.status not in OPEN:
            return False
        row.status = became.status
        row.run = became.run
        row.error = became.error
        return True


def begin(catalog: Catalog, intent: str, run: str) -> IntentRow:
    """Dagster's run begins to carry out an intent; give the intent.

    Raises:
        NotFound: no such intent.
        IntentCanceled: it is not to be carried out any more.
    """
    become(catalog, intent, Became(LAUNCHED, run))
    row = find(catalog, intent)
    _check_not_canceled(row)
    return row


def carry_out(catalog: Catalog, intent: str, run: str, open_it: Callable[[Session], SweepRow]) -> SweepRow:
    """Open an intent's sweep in the transaction that settles the intent: a cancel finds neither done, or
    both.

    Args:
        open_it: opens the sweep, or finds it open, within that transaction.

    Raises:
        NotFound: no such intent.
        IntentCanceled: it is not to be carried out any more, and no sweep was opened.
    """
    with catalog.write() as session:
        row = _get(session, intent, lock=True)
        _check_not_canceled(row)
        sweep = open_it(session)
        become(catalog, intent, Became(DONE, run), session)
        return sweep


def cancel(catalog: Catalog, intent: str, actor: str, within: Session) -> bool:
    """Settle an intent before its sweep is opened; False if that is too late."""
    return become(
        catalog, intent, Became(CANCELED, None, f"it was canceled by {actor} before it began"), within
    )


def withdraw(catalog: Catalog, sweep: str, actor: str, within: Session) -> IntentRow | None:
    """Cancel the intent of a sweep that is not open yet; twice is as good as once.

    Returns:
        The intent, canceled or settled before; None if the sweep is open, or no intent is to become it.
    """
    intent = within.scalar(select(IntentRow.id).where(IntentRow.sweep == sweep))
    if intent is None:
        return None
    cancel(catalog, intent, actor, within)
    # Looked for behind the intent's lock: whoever carries it out has opened the sweep by now, or never will.
    is_open = within.scalar(select(SweepRow.id).where(SweepRow.id == sweep)) is not None
    return None if is_open else within.get_one(IntentRow, intent)


class NotOpen(HalvingError, RuntimeError):
    """The sweep was asked for, and is not open."""


def stop_sweep(
    catalog: Catalog, sweep: str, actor: str, within: Session | None = None
) -> SweepRow | IntentRow:
    """End a sweep's search now; of one that is not open yet, cancel the intent, so that it is never opened.

    Args:
        actor: who asks, which a canceled intent says.

    Returns:
        The sweep, being stopped, or its canceled intent.

    Raises:
        NotFound: no such sweep, and no intent that is to become it.
        SweepEnded: its search is over.
        NotOpen: it could not be opened, and never will be.
    """
    with catalog.write(within=within) as session:
        intent = withdraw(catalog, sweep, actor, session)
        if intent is None:
            return sweeps.stop_sweep(catalog, sweep, session)
        if intent.status != CANCELED:
            raise NotOpen(why_not_open(intent))
        return intent


def why_not_open(intent: IntentRow) -> str:
    """Why the sweep of an intent is not open, for people."""
    if reason := waits_for(intent, utcnow()):
        return f"sweep {intent.sweep} is not open yet, so it can only be stopped; it waits: {reason}"
    return f"sweep {intent.sweep} was never opened: {intent.error}"


def _check_not_canceled(row: IntentRow) -> None:
    if row.status == CANCELED:
        raise IntentCanceled(f"{row.sweep} is not opened: {row.error}")


def _get(session: Session, intent: str, *, lock: bool = False) -> IntentRow:
    row = session.get(IntentRow, intent, with_for_update=lock)
    if row is None:
        raise NotFound(f"no intent {intent!r} in the catalog")
    return row
