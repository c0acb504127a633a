"""Intents: requests for sweeps, which a sensor turns into Dagster's runs.

A server can record an intent while no process of Dagster is there to open the sweep. The intent names the
sweep that it will become, so that the client knows its id at once. At each tick :func:`next_step`, a pure
function of the intent and its run, decides what to do about it.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from secrets import token_hex
from typing import Any, Literal

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
"""Statuses of an intent that is not settled."""

Driver = Literal["sensors", "api"]
"""What runs the sweep's trials: Dagster's sensors, or external loops, which ask the API."""
Kind = Literal["study", "training-run"]

_SOON = timedelta(seconds=60)  # A running daemon looks every few seconds.


class IntentCanceled(HalvingError, RuntimeError):
    """The intent was canceled, so its sweep must not be opened."""


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
    """Ask Dagster for the intent's run; its run key makes sure that it is launched once."""


@dataclass(frozen=True)
class Became:
    """The intent's new status, with the run that led to it and, if it failed, the reason."""

    status: str
    run: str | None
    error: str | None = None


def next_step(
    status: str, known_run: str | None, launched: Launched | None, *, opened: bool
) -> Launch | Became | None:
    """Decide what to do about an intent; None if there is nothing to do.

    Args:
        status, known_run: the intent's.
        launched: its run, if Dagster has one.
        opened: whether its sweep is in the catalog.
    """
    if status not in OPEN:
        return None
    run = known_run
    if launched:
        run = launched.run
    if opened:  # Whatever became of the run, its work is done.
        return Became(DONE, run)
    if launched is None:  # It was never launched, or Dagster has lost its history.
        return Launch()
    if not launched.going_on:
        return Became(FAILED, run, launched.reason)
    if (status, known_run) == (LAUNCHED, run):
        return None
    return Became(LAUNCHED, run)


def waits_for(intent: IntentRow, now: datetime) -> str | None:
    """What an intent waits for, in words for people; None if it is settled."""
    if intent.status == LAUNCHED:
        return f"for Dagster's run {intent.run}, which opens its sweep"
    if intent.status != WAITING:
        return None
    if now - intent.created_at < _SOON:
        return "for Dagster's sensor launch_requested, which looks every few seconds"
    return (
        f"Dagster has not picked it up since {intent.created_at:%Y-%m-%d %H:%M} UTC: is its daemon running, "
        "and the sensor launch_requested on?"
    )


def add(
    session: Session,
    spec: SweepSpec,
    *,
    kind: Kind,
    driver: Driver,
    actor: str,
    projects: Collection[str] | None = None,
) -> IntentRow:
    """Add an intent within the caller's transaction.

    Args:
        projects: the only ones whose sweeps it may learn from, also when ``warm_start`` is resolved later;
            with None all.

    Raises:
        InvalidInput: retention has deleted the checkpoint that the sweep is to start from.
    """
    hold_source(session, spec)
    sweep = f"{spec.name}-{token_hex(4)}"
    while session.get(SweepRow, sweep) is not None:
        sweep = f"{spec.name}-{token_hex(4)}"
    payload: dict[str, Any] = {
        "driver": driver,
        "spec": spec.model_dump(mode="json", by_alias=True, exclude_none=True),
    }
    if projects is not None:
        payload["projects"] = sorted(projects)
    row = IntentRow(
        id=token_hex(8),
        kind=kind,
        payload=payload,
        actor=actor,
        created_at=utcnow(),
        status=WAITING,
        sweep=sweep,
    )
    session.add(row)
    return row


def find(catalog: Catalog, intent: str) -> IntentRow:
    """Find an intent by its id.

    Raises:
        NotFound: no such intent.
    """
    with catalog.read() as session:
        return _get(session, intent)


def of_sweep(catalog: Catalog, sweep: str) -> IntentRow | None:
    """The intent that became, or will become, this sweep; None if the sweep was launched otherwise."""
    with catalog.read() as session:
        return session.scalar(select(IntentRow).where(IntentRow.sweep == sweep))


def project_of(intent: IntentRow) -> str:
    """The project of the sweep that an intent becomes."""
    spec = intent.payload["spec"]
    # Intents that were recorded before sweeps had projects name none.
    return str(spec.get("project", spec["name"]))


def not_open(
    catalog: Catalog, *, projects: Collection[str] | None = None, limit: int = 50
) -> list[IntentRow]:
    """The newest intents whose sweep is not open yet, or never will be.

    Args:
        projects: only sweeps of these projects.
        limit: how many to return at most.
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


def list_unsettled(catalog: Catalog) -> list[tuple[IntentRow, bool]]:
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
    """Write an intent's new status; return False if it was settled before, and then leave it unchanged."""
    with catalog.write(within=within) as session:
        row = _get(session, intent, lock=True)
        if row.status not in OPEN:
            return False
        row.status = became.status
        row.run = became.run
        row.error = became.error
        return True


def begin(catalog: Catalog, intent: str, run: str) -> IntentRow:
    """Record that a run of Dagster begins to carry out an intent; return the intent.

    Raises:
        NotFound: no such intent.
        IntentCanceled: it was canceled.
    """
    become(catalog, intent, Became(LAUNCHED, run))
    row = find(catalog, intent)
    _check_not_canceled(row)
    return row


def carry_out(catalog: Catalog, intent: str, run: str, open_it: Callable[[Session], SweepRow]) -> SweepRow:
    """Open an intent's sweep and settle the intent in one transaction, so that a cancel sees both or neither.

    Args:
        open_it: opens the sweep, or finds it open, within that transaction.

    Raises:
        NotFound: no such intent.
        IntentCanceled: it was canceled, and no sweep was opened.
    """
    with catalog.write() as session:
        row = _get(session, intent, lock=True)
        _check_not_canceled(row)
        sweep = open_it(session)
        become(catalog, intent, Became(DONE, run), session)
        return sweep


def cancel(catalog: Catalog, intent: str, actor: str, within: Session) -> bool:
    """Cancel an intent before its sweep is opened; return False if it is too late for that."""
    return become(
        catalog, intent, Became(CANCELED, None, f"it was canceled by {actor} before it began"), within
    )


def withdraw(catalog: Catalog, sweep: str, actor: str, within: Session) -> IntentRow | None:
    """Cancel the intent of a sweep that is not open yet; a second call changes nothing.

    Returns:
        The intent, canceled now or settled before; None if the sweep is open or has no intent.
    """
    intent = within.scalar(select(IntentRow.id).where(IntentRow.sweep == sweep))
    if intent is None:
        return None
    cancel(catalog, intent, actor, within)
    # The intent is locked now, so the process that carries it out has opened the sweep by now, or never will.
    is_open = within.scalar(select(SweepRow.id).where(SweepRow.id == sweep)) is not None
    if is_open:
        return None
    return within.get_one(IntentRow, intent)


class NotOpen(HalvingError, RuntimeError):
    """The sweep was requested, and is not open."""


def stop_sweep(
    catalog: Catalog, sweep: str, actor: str, within: Session | None = None
) -> SweepRow | IntentRow:
    """End a sweep's search now; if the sweep is not open yet, cancel its intent instead.

    Args:
        actor: who asks; a canceled intent names them.

    Returns:
        The sweep, being stopped, or its canceled intent.

    Raises:
        NotFound: there is neither such a sweep nor an intent for it.
        SweepEnded: its search is over.
        NotOpen: it could not be opened, and never will be.
    """
    with catalog.write(within=within) as session:
        intent = withdraw(catalog, sweep, actor, session)
        if intent is None:
            return sweeps.stop_sweep(catalog, sweep, session, actor=actor)
        if intent.status != CANCELED:
            raise NotOpen(why_not_open(intent))
        return intent


def why_not_open(intent: IntentRow) -> str:
    """Why the sweep of an intent is not open, in words for people."""
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
