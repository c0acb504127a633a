"""What stays of the checkpoints of trials whose sweep has ended: decided here, and written into the catalog
before anything is deleted.

That order is what makes it safe beside whoever wants to go on from such a checkpoint in that moment: they
hold the trial's row while they write down that they will (:mod:`resources.scheduling.checkpoint_sources`),
and so does this. Either they are first and the checkpoint stays, or they are told that it is gone. What was
decided is never taken back.
"""

from collections.abc import Collection, Iterator, Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

from sqlalchemy import func, or_, select
from sqlalchemy.orm import Session

from halving import Store
from halving.errors import InvalidInput
from resources.analysis.summary import state_of
from resources.catalog import Catalog, ModelVersionRow, ReportRow, SweepRow, TrialRow
from resources.catalog.trial_key import trial_key
from resources.retention.policy import Checkpoints
from resources.retention.protection import NONE, going_on_from, in_project, reported_by, warm_starting
from resources.scheduling.sweeps import OPEN
from resources.search.decide import ranking

ALL = "all"
NEWEST = "newest"
_RANK = {ALL: 2, NEWEST: 1, NONE: 0}
_DIGITS = 10  # a database keeps 32 bits of a trial's number


class Trial(NamedTuple):
    """A trial of a sweep that has ended, as far as its checkpoints are concerned.

    Attributes:
        left: what earlier decisions left: ``all``, ``newest`` (and the best one), or ``none``.
        wanted: why it is needed whole, with the checkpoint of every epoch; None: it is not.
        reason: why its newest checkpoint stays; None: there is none.
    """

    number: int
    left: str
    wanted: str | None
    reason: str | None


def decide(trials: Collection[Trial]) -> dict[int, str]:
    """By number, what is left from now on of the trials of whose checkpoints some go. Pure."""
    left = {trial.number: ALL if trial.wanted else NEWEST if trial.reason else NONE for trial in trials}
    return {
        trial.number: left[trial.number] for trial in trials if _RANK[left[trial.number]] < _RANK[trial.left]
    }


def drop_checkpoints(
    store: Store,
    catalog: Catalog,
    project: str,
    policy: Checkpoints,
    *,
    rerun: Collection[str],
    now: datetime,
    dry_run: bool = False,
) -> dict[tuple[str, int], str]:
    """Decide about the trials of a project's sweeps that ended more than ``policy.days`` ago, and write it
    down.

    Args:
        rerun: runs of the project that are being trained again now.
        dry_run: only decide.

    Returns:
        What is left, by sweep and number, of the trials of whose checkpoints some go now.

    Raises:
        NotFound: a report's content is gone from the store, so what it reaches is unknown.
    """
    if policy.days is None:
        return {}
    dropped: dict[tuple[str, int], str] = {}
    for sweep, top_k in _due(catalog, project, policy, now):
        # What takes long is read before the transaction; it does not change any more.
        ranked = _best(catalog, sweep, top_k)
        reported = _reported(store, catalog, project, sweep)
        if ranked is None:
            continue
        known = {**ranked, **reported}
        query = select(TrialRow).where(TrialRow.sweep == sweep).order_by(TrialRow.number)
        with catalog.read() as session:
            decided = decide(
                [*trials_of(session, project, sweep, list(session.scalars(query)), known, rerun)]
            )
        if decided and not dry_run:
            # Again, with the trials' rows held: somebody may have begun to go on from one of them.
            with catalog.write() as session:
                rows = list(session.scalars(query.with_for_update()))
                decided = decide([*trials_of(session, project, sweep, rows, known, rerun)])
                for row in rows:
                    row.checkpoints_left = decided.get(row.number, row.checkpoints_left)
        dropped.update(((sweep, number), left) for number, left in decided.items())
    return dropped


def trials_of(
    session: Session,
    project: str,
    sweep: str,
    rows: Collection[TrialRow],
    known: Mapping[str, str],
    rerun: Collection[str],
) -> Iterator[Trial]:
    """A sweep's trials, with what speaks for each.

    Args:
        known: reasons by run that were found before.
        rerun: runs that are being trained again now.
    """
    versions = {
        row.trial: f"it is {row.version} of the model {row.model}"
        for row in session.scalars(select(ModelVersionRow).where(ModelVersionRow.sweep == sweep))
    }
    sources = going_on_from(session)
    learning = warm_starting(session).get(sweep)
    for row in rows:
        run = trial_key(sweep, row.number)
        source = sources.get((project, run))
        wanted = source.sentence if source else "it is being trained again" if run in rerun else None
        reason = versions.get(row.number) or known.get(run)
        reason = reason or ("it is of the final training" if row.final is not None else None)
        reason = reason or (f"the sweep {learning} learns from its sweep" if learning else None)
        yield Trial(row.number, row.checkpoints_left or ALL, wanted, reason)


def why_it_stays(
    store: Store,
    catalog: Catalog,
    project: str,
    run: str,
    policy: Checkpoints,
    *,
    rerun: Collection[str],
    now: datetime,
) -> str | None:
    """Why a trial of a sweep that has ended keeps checkpoints whenever that was; None: nothing speaks for it,
    or it is no such trial.
    """
    sweep, _, number = run.rpartition(".")
    with catalog.read() as session:
        row = (
            session.get(TrialRow, (sweep, int(number)))
            if number.isdecimal() and len(number) < _DIGITS
            else None
        )
        ended = catalog.sweep(session, sweep).finished_at if row is not None else None
    if row is None:
        return None
    top_k = _kept_best(policy, ended or now, now)
    known = {**(_best(catalog, sweep, top_k) or {}), **_reported(store, catalog, project, sweep)}
    with catalog.read() as session:
        (trial,) = trials_of(session, project, sweep, [row], known, rerun)
    return trial.wanted or trial.reason


def _due(catalog: Catalog, project: str, policy: Checkpoints, now: datetime) -> list[tuple[str, int]]:
    """Sweeps that ended long enough ago and of which something may go, each with the number of its best
    trials that keep checkpoints.

    Something may go where more is left than the newest checkpoints of these.
    """
    moment = func.coalesce(SweepRow.finished_at, SweepRow.created_at)
    some = or_(TrialRow.checkpoints_left.is_(None), TrialRow.checkpoints_left == NEWEST)
    counts = func.count(), func.count(TrialRow.checkpoints_left)
    query = select(SweepRow.id, moment, *counts).join(TrialRow, TrialRow.sweep == SweepRow.id)
    query = query.where(
        in_project(project),
        SweepRow.status.not_in(OPEN),
        moment < now - timedelta(days=policy.days or 0),
        some,
    )
    with catalog.read() as session:
        rows = session.execute(query.group_by(SweepRow.id).order_by(SweepRow.id)).all()
    with_best = [
        (sweep, _kept_best(policy, ended, now), left, decided) for sweep, ended, left, decided in rows
    ]
    return [(sweep, top_k) for sweep, top_k, left, decided in with_best if left > decided or left > top_k]


def _kept_best(policy: Checkpoints, ended: datetime, now: datetime) -> int:
    """How many of the best trials of a sweep that ended then keep checkpoints."""
    is_over = policy.top_k_days is not None and now - ended > timedelta(days=policy.top_k_days)
    return 0 if is_over else policy.top_k


def _best(catalog: Catalog, sweep: str, top_k: int) -> dict[str, str] | None:
    """The runs of a sweep's best trials; None where its spec is of another version, so that nobody knows
    which these are: all stays.
    """
    if top_k == 0:
        return {}
    with catalog.read() as session:
        try:
            state = state_of(session, catalog.sweep(session, sweep))
        except InvalidInput:
            return None
    best = ranking(state)[:top_k]
    return {
        trial_key(sweep, trial.number): f"it is number {place} of its sweep"
        for place, (trial, _) in enumerate(best, 1)
    }


def _reported(store: Store, catalog: Catalog, project: str, sweep: str) -> dict[str, str]:
    with catalog.read() as session:
        report = session.get(ReportRow, sweep)
    return (
        {run: why.sentence for (_, run), why in reported_by(store, report, project).items()} if report else {}
    )
