"""The history of a trial: its params, its status and why it waits, its reports, and every attempt at it."""

from dataclasses import asdict, dataclass, fields
from datetime import datetime
from typing import Any

from sqlalchemy import select

from halving.errors import InvalidInput, NotFound
from resources.analysis.attempts import Attempt, attempts_of
from resources.analysis.reasons import short_reason
from resources.catalog import Catalog, RungResultRow, SweepRow, TrialRow
from resources.catalog.trial_key import parse_trial_key
from resources.search.state import Control, Status
from resources.sweep_spec import stored_spec


@dataclass(frozen=True)
class RungReport:
    """A trial's report at a rung.

    Attributes:
        value: the first objective; None if the trial failed on the way to the rung.
    """

    rung: int
    epochs: int
    value: float | None
    metrics: dict[str, float]
    violation: float
    decision: str
    attempt: int
    seconds: float
    reached_at: datetime
    checkpoint: str | None


@dataclass(frozen=True)
class TrialHistory:
    """A trial, its results and its attempts.

    Attributes:
        project: the project of its run.
        final: for a trial of the final training, the number of its seed, from 0; None for the search's.
        waiting: why a trial that is not over does not train now, in the cluster's words if its pod cannot
            start; otherwise None.
        error: why its last attempt failed or was preempted.
        reason: the error in one line.
        seconds: the training time of all attempts.
    """

    trial: str
    sweep: str
    project: str
    status: str
    waiting: str | None
    params: dict[str, Any]
    metric: str
    failures: int
    preemptions: int
    audited: bool
    final: int | None
    seconds: float
    error: str | None
    reason: str | None
    checkpoint: str | None
    results: list[RungReport]
    attempts: list[Attempt]

    def as_dict(self) -> dict[str, Any]:
        """The history as plain data, for ``--json``."""
        return asdict(self)


def history_of(catalog: Catalog, key: str) -> TrialHistory:
    """Find a trial by its name, for example ``digits-7f3a.0007``.

    Raises:
        InvalidInput: this is not the name of a trial.
        NotFound: no such sweep, or no such trial in it.
    """
    try:
        sweep, number = parse_trial_key(key)
    except ValueError:
        raise InvalidInput(
            f"trial {key!r} is not accepted: give a sweep's id and a number, for example digits-7f3a.0007"
        ) from None
    with catalog.read() as session:
        opened = catalog.sweep(session, sweep)
        trial = session.get(TrialRow, (sweep, number))
        if trial is None:
            raise NotFound(
                f"no trial {key!r} in the catalog: sweep {sweep} has {len(catalog.trials(session, sweep))} "
                "trials, from 0000"
            )
        mine = (RungResultRow.sweep == sweep, RungResultRow.trial == number)
        results = session.scalars(select(RungResultRow).where(*mine).order_by(RungResultRow.rung)).all()
        attempts = attempts_of(session, sweep, stored_spec(opened.spec), number)
    copied = ("status", "params", "failures", "preemptions", "seconds", "error", "checkpoint", "final")
    return TrialHistory(
        trial=key,
        sweep=sweep,
        project=opened.project,
        **{name: getattr(trial, name) for name in copied},
        reason=short_reason(trial.error),
        waiting=waits_for(opened, trial),
        metric=opened.spec["objective"]["metric"],
        audited=trial.audited is not None,
        results=[_report_of(row) for row in results],
        attempts=attempts,
    )


def _report_of(row: RungResultRow) -> RungReport:
    copied = {field.name: getattr(row, field.name) for field in fields(RungReport)}
    return RungReport(**{**copied, "metrics": row.metrics or {}})


def waits_for(sweep: SweepRow, trial: TrialRow) -> str | None:
    """Why a trial that is not over does not train now; None while it trains, and when it is over."""
    if trial.waiting:
        return trial.waiting
    if sweep.status != "searching":
        return None
    if trial.status == Status.RUNNING and trial.worker is None:
        return "for its run, which was launched and has not started yet"
    if trial.doubted_until is not None:
        return (
            f"for worker {trial.worker}, which no longer reports: unless it does so soon, the trial goes "
            "on elsewhere"
        )
    if trial.status not in (Status.QUEUED, Status.SUGGESTED, Status.PAUSED):
        return None
    if sweep.control == Control.PAUSE:
        return "for its sweep, which is paused"
    if sweep.control != Control.RUN:
        return "for nothing: its sweep is being stopped"
    if trial.status == Status.PAUSED:
        return "to be promoted, when it is among the best of its rung"
    if sweep.held_back:
        return f"for its project: {sweep.held_back}"
    return "for a free worker"
