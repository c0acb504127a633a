"""Opening a sweep, and controlling it while it runs: pause, resume, stop, extend.

Nothing here deletes anything. A control is a transaction of its own, or a part of the caller's (``within``).
One that changes something is written down with its time and who asked for it (``actor``; None: not known).
"""

from hashlib import sha256

from sqlalchemy import select
from sqlalchemy.orm import Session

from halving.errors import AlreadyExists, HalvingError, InvalidInput
from resources.catalog import Catalog, SweepControlRow, SweepRow, TrialRow, utcnow
from resources.scheduling.checkpoint_sources import hold_source
from resources.scheduling.warm_start import warm_start_sources
from resources.search.rules import max_trials as planned_trials
from resources.search.state import Control
from resources.sweep_spec import SweepSpec, stored_spec
from resources.sweep_spec.strategy import GridSearch
from resources.tenancy.projects import names_of

MAX_TRIALS = 90_000  # Dagster advises fewer than 100,000 partitions for an asset
OPEN = ("searching", "evaluating")
"""Statuses of an unfinished sweep, which another launch of the same spec resumes."""


class SweepEnded(HalvingError, RuntimeError):
    """The sweep's search is over: there is nothing left to pause, stop or extend."""


def open_sweep(
    catalog: Catalog,
    spec: SweepSpec,
    snapshot: str,
    *,
    driver: str,
    commit: str | None,
    sweep: str | None = None,
    sources: list[str] | None = None,
    within: Session | None = None,
) -> SweepRow:
    """Open a sweep, or resume the unfinished one of the same spec, project, snapshot and driver.

    So executing the same spec again after a crash resumes its sweep, and after its end starts another one.
    The project may be named by any name that it has or had. A sweep that is resumed gets the priority of
    ``spec``.

    Args:
        sweep: the sweep's id, whatever others there are: of a new sweep, or of one that was opened with this
            id before, which stays as it is.
        sources: the result of ``warm_start_sources`` for the spec. A caller with a transaction of its own
            reads them before the transaction begins, because that may take a while.

    Raises:
        InvalidInput: ``warm_start`` names a sweep that nothing can be learned from, or retention has deleted
            the checkpoint that the sweep starts from.
        AlreadyExists: the id ``sweep`` belongs to a sweep of another spec.
    """
    # The sources are read before the transaction. Their sweeps have ended, so they do not change.
    if sources is None:
        sources = warm_start_sources(catalog, spec)
    with catalog.write(exclusive=True, within=within) as session:
        same = (SweepRow.spec_digest == spec.digest, SweepRow.snapshot == snapshot, SweepRow.driver == driver)
        earlier = list(session.scalars(select(SweepRow).where(*same).order_by(SweepRow.ordinal.desc())))
        projects = names_of(session, spec.project)
        if sweep is not None and (opened := session.get(SweepRow, sweep)) is not None:
            if opened.project not in projects or not _is_of(opened, spec):
                raise AlreadyExists(f"sweep {sweep} exists with another spec")
            return opened
        if sweep is None and (unfinished := unfinished_sweep(session, spec, snapshot, driver)) is not None:
            if unfinished.spec_digest != spec.digest:  # An earlier version opened it.
                unfinished.spec_digest = spec.digest
                unfinished.ordinal = len(earlier)
            return _with_priority(unfinished, spec.priority)
        hold_source(session, spec)
        row = SweepRow(
            id=sweep or _free_id(session, spec, f"{spec.digest} {snapshot} {driver} {len(earlier)}"),
            name=spec.name,
            project=spec.project,
            priority=spec.priority,
            spec=spec.model_dump(mode="json", by_alias=True, exclude_none=True),
            spec_digest=spec.digest,
            snapshot=snapshot,
            driver=driver,
            ordinal=len(earlier),
            commit=commit,
            status="searching",
            warm_start=sources,
            created_at=utcnow(),
        )
        session.add(row)
        return row


def has_unfinished(
    catalog: Catalog | None, spec: SweepSpec, driver: str, snapshot: str | None = None
) -> bool:
    """Whether a launch of a spec resumes an unfinished sweep.

    Args:
        catalog: None if there is none yet, and then no sweep either.
        snapshot: with None, because it is not taken yet, a sweep on any snapshot counts.
    """
    if catalog is None:
        return False
    with catalog.read() as session:
        return unfinished_sweep(session, spec, snapshot, driver) is not None


def unfinished_sweep(session: Session, spec: SweepSpec, snapshot: str | None, driver: str) -> SweepRow | None:
    """The newest unfinished sweep of a spec on a snapshot; None if there is none.

    The stored digest of the same spec may differ, because an earlier version had fewer fields or other
    defaults.
    """
    of_launch = (
        SweepRow.name == spec.name,
        SweepRow.driver == driver,
        SweepRow.project.in_(names_of(session, spec.project)),
    )
    query = select(SweepRow).where(*of_launch, SweepRow.status.in_(OPEN))
    if snapshot is not None:
        query = query.where(SweepRow.snapshot == snapshot)
    return next(
        (row for row in session.scalars(query.order_by(SweepRow.created_at.desc())) if _is_of(row, spec)),
        None,
    )


def _with_priority(row: SweepRow, priority: int) -> SweepRow:
    if row.priority != priority:
        row.priority = priority
        row.spec = {**row.spec, "priority": priority}
    return row


def _is_of(row: SweepRow, spec: SweepSpec) -> bool:
    """Whether a sweep's stored spec, as it is read now, equals a spec; projects are not compared."""
    if row.spec_digest == spec.digest:
        return True
    try:
        return stored_spec(row.spec).digest == spec.digest
    except InvalidInput:  # It was stored by a version with other fields.
        return False


def pause_sweep(
    catalog: Catalog, sweep: str, within: Session | None = None, *, actor: str | None = None
) -> SweepRow:
    """Pause a sweep: it starts no trials, and running ones save a checkpoint and free their workers.

    Raises:
        NotFound: no such sweep.
        SweepEnded: its search is over.
    """
    return _control(catalog, sweep, Control.PAUSE, within, actor)


def resume_sweep(
    catalog: Catalog, sweep: str, within: Session | None = None, *, actor: str | None = None
) -> SweepRow:
    """Let a paused sweep go on, or take a stop back while its last trials are still ending.

    Raises:
        NotFound: no such sweep.
        SweepEnded: its search is over.
    """
    return _control(catalog, sweep, Control.RUN, within, actor)


def stop_sweep(
    catalog: Catalog, sweep: str, within: Session | None = None, *, actor: str | None = None
) -> SweepRow:
    """End the search now; the best trial so far is evaluated as usual.

    Raises:
        NotFound: no such sweep.
        SweepEnded: its search is over.
    """
    return _control(catalog, sweep, Control.STOP, within, actor)


def extend_sweep(
    catalog: Catalog,
    sweep: str,
    max_trials: int,
    within: Session | None = None,
    *,
    actor: str | None = None,
) -> SweepRow:
    """Let a sweep start up to ``max_trials`` trials in all.

    Raises:
        NotFound: no such sweep.
        SweepEnded: its search is over, or already in its final training.
        InvalidInput: not more than it may start already, too many, or its strategy is a grid.
    """
    with catalog.write(within=within) as session:
        row = _searching(catalog, session, sweep)
        of_final = (
            select(TrialRow.number).where(TrialRow.sweep == sweep, TrialRow.final.is_not(None)).limit(1)
        )
        if session.scalar(of_final) is not None:
            raise _ended_error(sweep, "in its final training")
        spec = stored_spec(row.spec)
        now = row.max_trials or planned_trials(spec)
        if isinstance(spec.strategy.chosen, GridSearch):
            raise InvalidInput(
                f"sweep {sweep} is a grid of {now} points and tries them all: launch another with more points"
            )
        if not now < max_trials <= MAX_TRIALS:
            raise InvalidInput(
                f"max_trials = {max_trials} is not accepted: give more than the {now} of now, at most "
                f"{MAX_TRIALS}"
            )
        row.max_trials = max_trials
        _write_down(session, sweep, "extend", actor, max_trials)
        return row


def _control(
    catalog: Catalog, sweep: str, control: Control, within: Session | None, actor: str | None
) -> SweepRow:
    with catalog.write(within=within) as session:
        row = _searching(catalog, session, sweep)
        if row.control != control:
            row.control = control
            _write_down(session, sweep, control, actor)
        return row


def _write_down(
    session: Session, sweep: str, control: str, actor: str | None, max_trials: int | None = None
) -> None:
    row = SweepControlRow(sweep=sweep, at=utcnow(), control=str(control), max_trials=max_trials, actor=actor)
    session.add(row)


def _searching(catalog: Catalog, session: Session, sweep: str) -> SweepRow:
    row = catalog.sweep(session, sweep, lock=True)
    if row.status != "searching":
        raise _ended_error(sweep, row.status)
    return row


def _ended_error(sweep: str, now: str) -> SweepEnded:
    return SweepEnded(
        f"sweep {sweep} is {now}: its search is over. To search on, launch a spec with more max_trials and "
        f"warm_start: [{sweep}]"
    )


def _free_id(session: Session, spec: SweepSpec, identity: str) -> str:
    """A free id: the sweep's name and 4 hex digits of its identity's hash, or more if those are taken."""
    digits = sha256(identity.encode()).hexdigest()
    for length in range(4, 64):
        candidate = f"{spec.name}-{digits[:length]}"
        if session.get(SweepRow, candidate) is None:
            return candidate
    raise RuntimeError(f"no free id for the sweep {spec.name}")
