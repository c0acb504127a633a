"""The SQL statements of a decision about a sweep, built only once, because a worker waits for each of them.

Parameters that begin with ``of_`` choose rows; the others are values of columns.
"""

from typing import Any

from sqlalchemy import (
    ColumnElement,
    Table,
    and_,
    bindparam,
    case,
    false,
    func,
    insert,
    null,
    or_,
    select,
    update,
)

from resources.catalog.tables import AttemptRow, Excerpt, ProjectRow, RungResultRow, SweepRow, TrialRow


def _table(row: Any) -> Table:
    table: Table = row.__table__
    return table


def _at(table: Table, *names: str) -> list[ColumnElement[bool]]:
    """The conditions that each of these columns has the value of the parameter ``of_NAME``."""
    return [table.c[name] == bindparam(f"of_{name}") for name in names]


def _set(*names: str) -> dict[str, Any]:
    """The assignments of these columns to the parameters of the same names."""
    return {name: bindparam(name) for name in names}


SWEEPS = _table(SweepRow)
TRIALS = _table(TrialRow)
RESULTS = _table(RungResultRow)
ATTEMPTS = _table(AttemptRow)

_SWEEP = SWEEPS.c.id == bindparam("of_sweep")
_TRIAL = (TRIALS.c.sweep == bindparam("of_sweep"), TRIALS.c.number == bindparam("of_trial"))
_ATTEMPT = _at(ATTEMPTS, "sweep", "trial", "attempt")

# A sweep whose project has no GPU-hours left is paused, unless its user stops it.
_CONTROL = case(
    (and_(SWEEPS.c.control == "run", SWEEPS.c.out_of_gpu_hours.is_not(None)), "pause"), else_=SWEEPS.c.control
).label("control")

# The number of projects with a row tells whether projects share the machines. It is selected with the sweep,
# so that it takes a decision no statement of its own.
_SHARED = select(func.count()).select_from(_table(ProjectRow)).scalar_subquery().label("projects")
_OF_SWEEP = SWEEPS.c[
    "revision", "max_trials", "status", "sampler_attrs", "waiting", "asked_at", "out_of_gpu_hours"
]
SWEEP = select(*_OF_SWEEP, _CONTROL, _SHARED).where(_SWEEP)
SWEEP_LOCKED = SWEEP.with_for_update()

CHANGED_TRIALS = (
    select(
        *TRIALS.c[
            "number",
            "status",
            "failures",
            "preemptions",
            "audited",
            "final",
            "params",
            "sampler_attrs",
            "attempt",
            "checkpoint",
        ]
    )
    .where(TRIALS.c.sweep == bindparam("of_sweep"), TRIALS.c.revision > bindparam("since"))
    .order_by(TRIALS.c.number)
)
NEW_RESULTS = (
    select(RESULTS.c.trial, RESULTS.c.rung, RESULTS.c.value, RESULTS.c.metrics, RESULTS.c.violation)
    .where(RESULTS.c.sweep == bindparam("of_sweep"), RESULTS.c.revision > bindparam("since"))
    .order_by(RESULTS.c.trial, RESULTS.c.rung)
)
RUNNING = (
    select(TRIALS.c.number, TRIALS.c.worker, TRIALS.c.asked_back)
    .where(TRIALS.c.sweep == bindparam("of_sweep"), TRIALS.c.status == "running")
    .order_by(TRIALS.c.number)
)
WORKER = select(TRIALS.c.worker).where(*_TRIAL)
STATUS = select(TRIALS.c.attempt, TRIALS.c.status).where(*_TRIAL)
ATTEMPTS_OF_WORKER = select(ATTEMPTS.c.trial, ATTEMPTS.c.attempt, ATTEMPTS.c.rung).where(
    *_at(ATTEMPTS, "sweep", "worker")
)
_REACHED = (
    select(func.max(RESULTS.c.reached_at)).where(*_at(RESULTS, "sweep", "trial", "attempt")).scalar_subquery()
)
LAST_REPORT_TIME = select(func.coalesce(_REACHED, ATTEMPTS.c.started_at).label("reported_at")).where(
    *_ATTEMPT
)
DECISION = select(RESULTS.c.decision).where(*_at(RESULTS, "sweep", "trial", "attempt", "epochs"))
OUTCOME = select(ATTEMPTS.c.outcome).where(
    *_ATTEMPT, ATTEMPTS.c.error.is_not_distinct_from(bindparam("error", type_=Excerpt))
)

# No lease that begins now ends after the latest time; one that does was taken before the clock was set back.
_NOT_HELD = or_(TRIALS.c.lease_until < bindparam("now"), TRIALS.c.lease_until > bindparam("latest"))
_OVERDUE = (TRIALS.c.sweep == bindparam("of_sweep"), TRIALS.c.status == "running", _NOT_HELD)
_HOLDS = (TRIALS.c.number, TRIALS.c.attempt, TRIALS.c.worker, TRIALS.c.lease_until, TRIALS.c.doubted_until)
OVERDUE = select(*_HOLDS).where(*_OVERDUE).order_by(TRIALS.c.number)
OVERDUE_LOCKED = OVERDUE.with_for_update()  # A heartbeat before it counts; one after it is refused.
_NOT_DOUBTED = or_(TRIALS.c.doubted_until.is_(None), TRIALS.c.doubted_until > bindparam("latest_doubt"))
DOUBT = update(TRIALS).where(*_OVERDUE, _NOT_DOUBTED).values(doubted_until=bindparam("until"))

SET_REVISION = update(SWEEPS).where(_SWEEP).values(_set("revision"))
SUGGESTING_UNTIL = select(SWEEPS.c.suggesting_until).where(_SWEEP)
SET_SUGGESTING = update(SWEEPS).where(_SWEEP).values(suggesting_until=bindparam("until"))
END_SUGGESTING = update(SWEEPS).where(_SWEEP).values(suggesting_until=null())
SET_SAMPLER_ATTRS = update(SWEEPS).where(_SWEEP).values(_set("sampler_attrs"))
END_SEARCH = update(SWEEPS).where(_SWEEP).values(_set("status", "finished_at"))

ADD_TRIAL = insert(TRIALS)
_HEARD_OF = {"doubted_until": null(), "waiting": null()}
_GIVEN_BACK = {"asked_back": false()}
_HANDED_OUT = _set("status", "audited", "attempt", "worker", "lease_until", "gpus", "revision")
HAND_OUT = update(TRIALS).where(*_TRIAL).values({**_HEARD_OF, **_GIVEN_BACK, **_HANDED_OUT})
_DECIDED = {
    **_HEARD_OF,
    **_set("status", "failures", "preemptions", "error", "revision"),
    "seconds": TRIALS.c.seconds + bindparam("more_seconds"),
    "checkpoint": func.coalesce(bindparam("checkpoint"), TRIALS.c.checkpoint),
}
GO_ON = update(TRIALS).where(*_TRIAL).values(_DECIDED)
END_ATTEMPT = (
    update(TRIALS).where(*_TRIAL).values({**_DECIDED, **_GIVEN_BACK, "worker": null(), "lease_until": null()})
)
CLAIM = update(TRIALS).where(*_TRIAL).values({**_HEARD_OF, **_set("worker", "lease_until")})
_RUNNING_ATTEMPT = (*_TRIAL, TRIALS.c.attempt == bindparam("of_attempt"), TRIALS.c.status == "running")
_RENEWED = {"lease_until": bindparam("lease_until"), "doubted_until": null()}


def _control(wanted: ColumnElement[str], spent: ColumnElement[bool]) -> ColumnElement[str]:
    """SQL for what a running trial is to do.

    It is what the sweep's user wants. But instead of running on, a trial yields whose place a more important
    sweep needs, or whose project has no GPU-hours left: it ends when it has saved its epoch, without the
    limit of a grace period.
    """
    return case((and_(wanted == "run", or_(TRIALS.c.asked_back, spent)), "yield"), else_=wanted).label(
        "control"
    )


def _of_its_sweep(column: ColumnElement[Any]) -> Any:
    return select(column).where(_SWEEP).scalar_subquery()


RENEW_LEASE = (
    update(TRIALS)
    .where(*_RUNNING_ATTEMPT)
    .values(_RENEWED)
    .returning(
        _control(_of_its_sweep(SWEEPS.c.control), _of_its_sweep(SWEEPS.c.out_of_gpu_hours.is_not(None))),
        _of_its_sweep(SWEEPS.c.gpu_hours_looked_at).label("looked_at"),
    )
)
# The same on Postgres without waiting for the disk, because a lost heartbeat is followed by the next one. The
# sweep's row is read once, and not for each of its columns; SQLite cannot return another table's columns.
RENEW_LEASE_LIGHTLY = (
    update(TRIALS)
    .where(*_RUNNING_ATTEMPT, SWEEPS.c.id == bindparam("of_sweep"))
    .values(_RENEWED)
    .returning(
        _control(SWEEPS.c.control, SWEEPS.c.out_of_gpu_hours.is_not(None)),
        SWEEPS.c.gpu_hours_looked_at.label("looked_at"),
        func.set_config("synchronous_commit", "off", True),
    )
)
NOTE_WAITING = (
    update(TRIALS)
    .where(*_RUNNING_ATTEMPT, TRIALS.c.waiting.is_distinct_from(bindparam("waiting", type_=Excerpt)))
    .values(waiting=bindparam("waiting"))
)
NOTE_UNCLAIMED_WAITING = NOTE_WAITING.where(TRIALS.c.worker.is_(None))

ADD_RESULT = insert(RESULTS)
ADD_ATTEMPT = insert(ATTEMPTS)
_REPORTED = (
    select(func.coalesce(func.sum(RESULTS.c.seconds), 0.0))
    .where(*_at(RESULTS, "sweep", "trial", "attempt"))
    .scalar_subquery()
)
CLOSE_ATTEMPT = (
    update(ATTEMPTS)
    .where(*_ATTEMPT)
    .values({**_set("ended_at", "outcome", "error"), "seconds": _REPORTED + bindparam("more_seconds")})
)
CLAIM_ATTEMPT = update(ATTEMPTS).where(*_ATTEMPT).values(_set("worker", "held_since"))
BEGIN_HOLDING = (
    update(ATTEMPTS).where(*_ATTEMPT, ATTEMPTS.c.ended_at.is_(None)).values(_set("held_since", "nodes"))
)
HELD_TIME = (
    select(ATTEMPTS.c.held_since, TRIALS.c.lease_until, _REPORTED.label("reported"))
    .join(TRIALS, and_(TRIALS.c.sweep == ATTEMPTS.c.sweep, TRIALS.c.number == ATTEMPTS.c.trial))
    .where(*_ATTEMPT)
)
TURN_TO_LOOK_AT_GPU_HOURS = (
    update(SWEEPS)
    .where(
        _SWEEP,
        or_(
            SWEEPS.c.gpu_hours_looked_at.is_(None),
            SWEEPS.c.gpu_hours_looked_at < bindparam("before"),
            SWEEPS.c.gpu_hours_looked_at > bindparam("latest"),
        ),
    )
    .values(gpu_hours_looked_at=bindparam("now"))
    .returning(SWEEPS.c.id)
)
