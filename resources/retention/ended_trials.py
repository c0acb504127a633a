"""Decides which checkpoints of trials stay after their sweep has ended, and records that in the catalog.

It is recorded before anything is deleted, because a training may want to go on from such a checkpoint at the
same time. Both lock the trial's row (:mod:`resources.scheduling.checkpoint_sources`): if the training is
first, the checkpoint stays; otherwise the training is told that the checkpoint is gone. A decision is never
taken back.
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
_MAX_DIGITS = 9  # A database keeps 32 bits of a trial's number.


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
    """Decide what is left of the checkpoints of each trial that loses some, by its number. Pure."""
    decisions: dict[int, str] = {}
    for trial in trials:
        left = NONE
        if trial.wanted:
            left = ALL
        elif trial.reason:
            left = NEWEST
        if _RANK[left] < _RANK[trial.left]:
            decisions[trial.number] = left
    return decisions


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
    """Decide about the trials of sweeps that ended more than ``policy.days`` ago, and write it down.

    Args:
        rerun: runs of the project that are being trained again now.
        dry_run: only decide.

    Returns:
        What is left of each trial that loses checkpoints now, by sweep and number.

    Raises:
        NotFound: a report's content is gone from the store, so what it reaches is unknown.
    """
    if policy.days is None:
        return {}
    dropped: dict[tuple[str, int], str] = {}
    for sweep, top_k in _due(catalog, project, policy, now):
        # This takes long and does not change any more, so it is read before the transaction.
        ranked = _best(catalog, sweep, top_k)
        reported = _reasons_by_report(store, catalog, project, sweep)
        if ranked is None:
            continue
        reasons = {**ranked, **reported}
        query = select(TrialRow).where(TrialRow.sweep == sweep).order_by(TrialRow.number)
        with catalog.read() as session:
            rows = list(session.scalars(query))
            decisions = decide([*trials_of(session, project, sweep, rows, reasons, rerun)])
        if decisions and not dry_run:
            # It is decided again with the trials' rows locked: a training may have begun to go on from one.
            with catalog.write() as session:
                rows = list(session.scalars(query.with_for_update()))
                decisions = decide([*trials_of(session, project, sweep, rows, reasons, rerun)])
                for row in rows:
                    row.checkpoints_left = decisions.get(row.number, row.checkpoints_left)
        dropped.update(((sweep, number), left) for number, left in decisions.items())
    return dropped


def trials_of(
    session: Session,
    project: str,
    sweep: str,
    rows: Collection[TrialRow],
    reasons: Mapping[str, str],
    rerun: Collection[str],
) -> Iterator[Trial]:
    """A sweep's trials, with the reasons to keep their checkpoints.

    Args:
        reasons: by run, by the sweep's ranking and its report.
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
        wanted = None
        if source := sources.get((project, run)):
            wanted = source.sentence
        elif run in rerun:
            wanted = "it is being trained again"
        reason = versions.get(row.number) or reasons.get(run)
        if not reason and row.final is not None:
            reason = "it is of the final training"
        if not reason and learning:
            reason = f"the sweep {learning} learns from its sweep"
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
    """Why a trial keeps checkpoints after its sweep's end; None without a reason, or where it is no trial."""
    sweep, _, number = run.rpartition(".")
    if not number.isdecimal() or len(number) > _MAX_DIGITS:
        return None
    with catalog.read() as session:
        row = session.get(TrialRow, (sweep, int(number)))
        if row is None:
            return None
        ended = catalog.sweep(session, sweep).finished_at
    top_k = _kept_best(policy, ended or now, now)
    ranked = _best(catalog, sweep, top_k) or {}
    reasons = {**ranked, **_reasons_by_report(store, catalog, project, sweep)}
    with catalog.read() as session:
        (trial,) = trials_of(session, project, sweep, [row], reasons, rerun)
    return trial.wanted or trial.reason


def _due(catalog: Catalog, project: str, policy: Checkpoints, now: datetime) -> list[tuple[str, int]]:
    """Sweeps of which checkpoints may go, each with the number of its best trials that keep theirs.

    These are sweeps that ended long enough ago and have more left than the newest checkpoints of the best
    trials.
    """
    end = func.coalesce(SweepRow.finished_at, SweepRow.created_at)
    some = or_(TrialRow.checkpoints_left.is_(None), TrialRow.checkpoints_left == NEWEST)
    counts = func.count(), func.count(TrialRow.checkpoints_left)
    query = select(SweepRow.id, end, *counts).join(TrialRow, TrialRow.sweep == SweepRow.id)
    query = query.where(
        in_project(project),
        SweepRow.status.not_in(OPEN),
        end < now - timedelta(days=policy.days or 0),
        some,
    )
    with catalog.read() as session:
        rows = session.execute(query.group_by(SweepRow.id).order_by(SweepRow.id)).all()
    with_best = [
        (sweep, _kept_best(policy, ended, now), left, decided) for sweep, ended, left, decided in rows
    ]
    return [(sweep, top_k) for sweep, top_k, left, decided in with_best if left > decided or left > top_k]


def _kept_best(policy: Checkpoints, ended: datetime, now: datetime) -> int:
    """How many of a sweep's best trials keep checkpoints, by the time since the sweep ended."""
    if policy.top_k_days is not None and now - ended > timedelta(days=policy.top_k_days):
        return 0
    return policy.top_k


def _best(catalog: Catalog, sweep: str, top_k: int) -> dict[str, str] | None:
    """The runs of a sweep's best trials, with the reason to keep them; None where they are unknown.

    They are unknown where the spec is of another version; then all checkpoints stay.
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


def _reasons_by_report(store: Store, catalog: Catalog, project: str, sweep: str) -> dict[str, str]:
    """The runs that a sweep's report names, with the reason to keep them."""
    with catalog.read() as session:
        report = session.get(ReportRow, sweep)
    if report is None:
        return {}
    return {run: reason.sentence for (_, run), reason in reported_by(store, report, project).items()}
