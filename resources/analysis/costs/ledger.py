"""Reading the ledger: what attempts held, with what their trials were for, and what runs held that are no
trials.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import ColumnElement, case, exists, func, select
from sqlalchemy.orm import Session

from halving.query.runs import RUNNING, UNFINISHED
from resources.analysis.attempts import is_audit
from resources.analysis.costs.sums import (
    AUDIT,
    FAILED,
    FINAL,
    OPEN,
    OTHERS,
    PRUNED,
    RERUNS,
    SCRIPTS,
    WINNER,
    Held,
)
from resources.analysis.run_index.attempt_rows import ELSEWHERE, RERUN
from resources.catalog import AttemptRow, RunAttemptRow, RungResultRow, RunRow, SweepRow, TrialRow
from resources.catalog.held import held_between, held_seconds, seconds_by_month
from resources.catalog.trial_key import trial_key
from resources.search.state import Status
from resources.tenancy.projects import names_now

# Of runs that are no trials, by their status, as trials' attempts have them; any other status is the script's
# own word.
_OUTCOMES = {
    "finished": "complete",
    "failed": "fail",
    "crashed": "retry",
    UNFINISHED: "preempted",
    RUNNING: None,
}
_PURPOSES = {Status.COMPLETED: OTHERS, Status.FAILED: FAILED, Status.PAUSED: PRUNED, Status.STOPPED: PRUNED}


def held_of(
    session: Session, now: float, *which: ColumnElement[bool], winners: dict[str, int] | None = None
) -> list[Held]:
    """The attempts of sweeps, in the order in which they were handed out, each with the name that its project
    has now.

    Args:
        now: by the catalog's clock, in seconds since the epoch; what runs is counted until then, but not
            beyond its lease.
        which: of which sweeps and trials; all without.
        winners: sweep to the trial that leads, where that is known.
    """
    of = (RungResultRow.sweep, RungResultRow.trial, RungResultRow.attempt)
    told = (
        select(*of, func.sum(RungResultRow.seconds).label("seconds"))
        .where(RungResultRow.value.is_not(None))
        .group_by(*of)
        .subquery()
    )
    attempt = AttemptRow
    shown = (
        attempt.sweep,
        attempt.trial,
        attempt.attempt,
        attempt.rung,
        attempt.outcome,
        attempt.started_at,
        attempt.held_since,
    )
    held = (
        attempt.ended_at,
        attempt.seconds,
        attempt.nodes,
        attempt.gpus,
        attempt.cpus,
        attempt.gpu_type,
        attempt.spot,
    )
    query = (
        select(
            *(*shown, *held),
            *(SweepRow.name.label("model"), SweepRow.project.label("project")),
            *(TrialRow.status, TrialRow.final, TrialRow.audited, TrialRow.lease_until),
            func.coalesce(told.c.seconds, 0.0).label("with_result"),
        )
        .join(SweepRow, SweepRow.id == attempt.sweep)
        .join(TrialRow, (TrialRow.sweep == attempt.sweep) & (TrialRow.number == attempt.trial))
        .outerjoin(
            told,
            (told.c.sweep == attempt.sweep)
            & (told.c.trial == attempt.trial)
            & (told.c.attempt == attempt.attempt),
        )
        .where(*which)
        .order_by(attempt.started_at, attempt.sweep, attempt.trial, attempt.attempt)
    )
    called = names_now(session)
    return [
        _held(row, called.get(row.project, row.project), now, winners or {}) for row in session.execute(query)
    ]


@dataclass(frozen=True)
class RunsHeld:
    """What runs held that are no trials.

    Attributes:
        held: of runs of scripts and reruns; those that are alike are one.
        elsewhere: how many attempts there are of which nobody knows what they held: another tool trained
            them.
    """

    held: list[Held]
    elsewhere: int


def held_by_runs(
    session: Session, projects: Sequence[str] | None, run: str | None = None, *, each: bool = False
) -> RunsHeld:
    """What the index has of runs of scripts and of reruns, summed by the database.

    A run that is a trial's is left out, whose attempts the ledger has: also one that an external loop has
    recorded under its trial's key.

    Args:
        projects: names of those whose runs are meant; None is all.
        run: only the one of this id.
        each: tell single runs apart.
    """
    attempt = RunAttemptRow
    shown: list[Any] = [RunRow.project, attempt.kind, attempt.status, attempt.month, attempt.estimated]
    shown += [attempt.nodes, attempt.gpus, attempt.cpus, attempt.gpu_type]
    shown += [RunRow.run] if each else []
    is_trial = exists().where(TrialRow.sweep == attempt.sweep, TrialRow.number == attempt.trial)
    query = (
        select(
            *shown,
            func.sum(attempt.seconds).label("seconds"),
            func.sum(case((attempt.last, 1), else_=0)).label("attempts"),
        )
        .join(RunRow, RunRow.id == attempt.run_id)
        .where(~is_trial)
        .group_by(*shown)
    )
    query = query if projects is None else query.where(RunRow.project.in_(projects))
    query = query if run is None else query.where(RunRow.run == run)
    called = names_now(session)
    rows = session.execute(query).all()
    held = [
        _held_by_run(row, called.get(row.project, row.project), each=each)
        for row in rows
        if row.kind != ELSEWHERE
    ]
    return RunsHeld(held, sum(row.attempts for row in rows if row.kind == ELSEWHERE))


def _held_by_run(row: Any, project: str, *, each: bool) -> Held:
    purpose = RERUNS if row.kind == RERUN else SCRIPTS
    return Held(
        sweep=purpose,
        project=project,
        model=purpose,
        trial=f"{row.project}/{row.run}" if each else purpose,
        attempt=0,
        purpose=purpose,
        outcome=_OUTCOMES.get(row.status, f"ended as {row.status}"),
        months={row.month: row.seconds},
        seconds=row.seconds,
        with_result=0.0,
        nodes=row.nodes,
        gpus=row.gpus,
        cpus=row.cpus,
        gpu_type=row.gpu_type,
        spot=False,
        attempts=row.attempts,
        estimated=row.estimated,
    )


def _held(row: Any, project: str, now: float, winners: dict[str, int]) -> Held:
    seconds = row.seconds if row.ended_at else held_seconds(row.held_since, now, row.lease_until)
    since = row.held_since or row.ended_at or datetime.fromtimestamp(now, UTC)
    return Held(
        sweep=row.sweep,
        project=project,
        model=row.model,
        trial=trial_key(row.sweep, row.trial),
        attempt=row.attempt,
        purpose=_purpose(row, winners.get(row.sweep)),
        outcome=row.outcome,
        months=seconds_by_month(seconds, *held_between(since, row.ended_at, seconds)),
        seconds=seconds,
        with_result=row.with_result,
        nodes=row.nodes,
        gpus=row.gpus,
        cpus=row.cpus,
        gpu_type=row.gpu_type,
        spot=row.spot,
    )


def _purpose(row: Any, winner: int | None) -> str:
    if row.final is not None:
        return FINAL
    if is_audit(row.rung, row.audited):
        return AUDIT
    if row.trial == winner:
        return WINNER
    if row.audited is not None:  # pruned, whatever its audit made of it
        return PRUNED
    return _PURPOSES.get(Status(row.status), OPEN)
