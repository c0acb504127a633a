"""The resources that attempts at trials held, with the purpose, and those that other runs held."""

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
from resources.catalog.held_time import held_interval, held_seconds, seconds_by_month
from resources.catalog.trial_key import trial_key
from resources.search.state import Status
from resources.tenancy.projects import names_now

# The outcome of a run that is no trial, by its status, in the words that trials' attempts have. Any other
# status is the script's own word.
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
    """The attempts of sweeps in the order in which they were handed out, with their projects' present names.

    Args:
        now: the catalog's time, in seconds since the epoch. A running attempt counts until then, but not
            beyond its lease.
        which: conditions on sweeps and trials; none for all of them.
        winners: the leading trial by sweep, if known.
    """
    attempt_key = (RungResultRow.sweep, RungResultRow.trial, RungResultRow.attempt)
    with_result = (
        select(*attempt_key, func.sum(RungResultRow.seconds).label("seconds"))
        .where(RungResultRow.value.is_not(None))
        .group_by(*attempt_key)
        .subquery()
    )
    attempt = AttemptRow
    columns = (
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
            *(*columns, *held),
            *(SweepRow.name.label("model"), SweepRow.project.label("project")),
            *(TrialRow.status, TrialRow.final, TrialRow.audited, TrialRow.lease_until),
            func.coalesce(with_result.c.seconds, 0.0).label("with_result"),
        )
        .join(SweepRow, SweepRow.id == attempt.sweep)
        .join(TrialRow, (TrialRow.sweep == attempt.sweep) & (TrialRow.number == attempt.trial))
        .outerjoin(
            with_result,
            (with_result.c.sweep == attempt.sweep)
            & (with_result.c.trial == attempt.trial)
            & (with_result.c.attempt == attempt.attempt),
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
    """The resources that runs held that are not trials.

    Attributes:
        held: the attempts at runs of scripts and at reruns; attempts that are alike are one entry.
        elsewhere: the number of attempts that another tool trained, whose resources are not known.
    """

    held: list[Held]
    elsewhere: int


def held_by_runs(
    session: Session, projects: Sequence[str] | None, run: str | None = None, *, by_run: bool = False
) -> RunsHeld:
    """The resources that runs of scripts and reruns held according to the index, summed by the database.

    Runs of trials are left out, because the catalog has their attempts. That includes a run that an external
    loop recorded under its trial's key.

    Args:
        projects: the projects whose runs count; None for all.
        run: the id of the only run that counts; None for all.
        by_run: whether single runs are kept apart.
    """
    attempt = RunAttemptRow
    columns: list[Any] = [RunRow.project, attempt.kind, attempt.status, attempt.month, attempt.estimated]
    columns += [attempt.nodes, attempt.gpus, attempt.cpus, attempt.gpu_type]
    if by_run:
        columns.append(RunRow.run)
    is_trial = exists().where(TrialRow.sweep == attempt.sweep, TrialRow.number == attempt.trial)
    query = (
        select(
            *columns,
            func.sum(attempt.seconds).label("seconds"),
            func.sum(case((attempt.last, 1), else_=0)).label("attempts"),
        )
        .join(RunRow, RunRow.id == attempt.run_id)
        .where(~is_trial)
        .group_by(*columns)
    )
    if projects is not None:
        query = query.where(RunRow.project.in_(projects))
    if run is not None:
        query = query.where(RunRow.run == run)
    called = names_now(session)
    rows = session.execute(query).all()
    held = [
        _held_by_run(row, called.get(row.project, row.project), by_run=by_run)
        for row in rows
        if row.kind != ELSEWHERE
    ]
    return RunsHeld(held, sum(row.attempts for row in rows if row.kind == ELSEWHERE))


def _held_by_run(row: Any, project: str, *, by_run: bool) -> Held:
    purpose = SCRIPTS
    if row.kind == RERUN:
        purpose = RERUNS
    trial = purpose
    if by_run:
        trial = f"{row.project}/{row.run}"
    return Held(
        sweep=purpose,
        project=project,
        model=purpose,
        trial=trial,
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
    seconds = row.seconds
    if not row.ended_at:
        seconds = held_seconds(row.held_since, now, row.lease_until)
    since = row.held_since or row.ended_at or datetime.fromtimestamp(now, UTC)
    return Held(
        sweep=row.sweep,
        project=project,
        model=row.model,
        trial=trial_key(row.sweep, row.trial),
        attempt=row.attempt,
        purpose=_purpose(row, winners.get(row.sweep)),
        outcome=row.outcome,
        months=seconds_by_month(seconds, *held_interval(since, row.ended_at, seconds)),
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
    if row.audited is not None:  # it was pruned, whatever became of it in the audit
        return PRUNED
    return _PURPOSES.get(Status(row.status), OPEN)
