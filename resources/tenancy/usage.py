"""Requests for places: what every sweep holds and asks for, read for :mod:`resources.tenancy.shares`.

That takes two statements, however many sweeps there are. A place is only given, or taken back, under a lock
on the rows of projects: one process at a time decides, so that no two of them give the last place away. A
sweep that is held back again looks without the lock, and neither waits for others nor holds them up.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    Table,
    bindparam,
    case,
    func,
    null,
    select,
    true,
    update,
)

from resources.catalog import AHEAD_SECONDS, ProjectRow, SweepRow, TrialRow
from resources.catalog.pipelined import Statement, together
from resources.tenancy.shares import Fleet, Limits, Project, Sweep, has_turn, preempt, why_not

ALL = "*"
"""Name of the row of all projects together, which says what they share."""

# A sweep that asks for a place asks again long before, unless its worker or its daemon is gone.
_FRESH_SECONDS = 20.0
_FORGOTTEN_SECONDS = 300.0  # A sweep that was silent for so long was gone, and has not waited meanwhile.
_AGAIN_SECONDS = 5.0  # between two notes that a sweep still asks

_PROJECTS: Table = ProjectRow.__table__  # type: ignore[assignment]
_SWEEPS: Table = SweepRow.__table__  # type: ignore[assignment]
_TRIALS: Table = TrialRow.__table__  # type: ignore[assignment]

_ROWS = select(*_PROJECTS.c["name", "weight", "max_trials", "max_gpus", "former_names"]).order_by(
    _PROJECTS.c.name
)
_ROWS_LOCKED = _ROWS.with_for_update()
_ASKS = _SWEEPS.c["id", "project", "priority", "control", "asked_at", "places", "wants_gpus", "waiting_since"]
_OWN = [
    case((_SWEEPS.c.id == bindparam("of_sweep"), _SWEEPS.c[name])).label(name)
    for name in ("asking", "waiting")
]
_HOLDS: list[ColumnElement[Any]] = [
    func.count(_TRIALS.c.number).label("trials"),
    func.coalesce(func.sum(_TRIALS.c.gpus), 0).label("gpus"),
    func.coalesce(func.sum(case((_TRIALS.c.asked_back, 1), else_=0)), 0).label("leaving"),
    func.coalesce(func.sum(case((_TRIALS.c.asked_back, _TRIALS.c.gpus), else_=0)), 0).label("leaving_gpus"),
    func.coalesce(func.min(case((~_TRIALS.c.asked_back, _TRIALS.c.gpus))), 0).label("smallest"),
]
_OF_SWEEP = (_TRIALS.c.sweep == _SWEEPS.c.id) & (_TRIALS.c.status == "running")
# External loops train elsewhere: what they hold is no place of the fleet.
_SEARCHING = (_SWEEPS.c.status == "searching", _SWEEPS.c.driver != "api")


def _held_by_index() -> Select[Any]:
    """The query :data:`_HELD` in a form for which Postgres uses its index of running trials.

    Otherwise it would read all trials that there ever were.
    """
    holds = select(*_HOLDS).where(_OF_SWEEP).lateral("holds")
    return select(*_ASKS, *_OWN, *holds.c).join(holds, true()).where(*_SEARCHING).order_by(_SWEEPS.c.id)


_HELD = (
    select(*_ASKS, *_OWN, *_HOLDS)
    .outerjoin(_TRIALS, _OF_SWEEP)
    .where(*_SEARCHING)
    .group_by(_SWEEPS.c.id)
    .order_by(_SWEEPS.c.id)
)
_HELD_BY_INDEX = _held_by_index()
_NOTED_COLUMNS = ("waiting", "waiting_since", "asked_at", "places", "asking", "wants_gpus")
NOTE_ASKED = (
    update(_SWEEPS)
    .where(_SWEEPS.c.id == bindparam("of_sweep"))
    .values({name: bindparam(name) for name in _NOTED_COLUMNS})
)
_ASKS_NOT = {name: null() for name in ("waiting", "waiting_since", "asked_at", "asking")}
ASKS_NO_MORE = update(_SWEEPS).where(_SWEEPS.c.id == bindparam("of_sweep")).values(_ASKS_NOT)
NOBODY_ASKS = (
    update(_SWEEPS).where(_SWEEPS.c.asked_at.is_not(None) | _SWEEPS.c.waiting.is_not(None)).values(_ASKS_NOT)
)
_NEWEST = (
    select(_TRIALS.c.number)
    .where(_TRIALS.c.sweep == bindparam("of_sweep"), _TRIALS.c.status == "running", ~_TRIALS.c.asked_back)
    .order_by(_TRIALS.c.number.desc())
    .limit(bindparam("how_many"))
)
ASK_BACK = (
    update(_TRIALS)
    .where(_TRIALS.c.sweep == bindparam("of_sweep"), _TRIALS.c.number.in_(_NEWEST))
    .values(asked_back=True)
)
"""Asks the newest running trials of a sweep, which have least to lose, to save and give their places back."""


def ask_for_place(
    connection: Connection,
    sweep: str,
    places: int | None,
    needs: int,
    now: float,
    worker: str | None,
    *,
    waits: bool,
) -> tuple[bool, list[Statement]]:
    """Ask for a place for a trial of a sweep.

    Args:
        connection: of the transaction that writes the statements, in which the sweep's own row is locked.
        sweep: its id.
        places: how many trials it may run at a time; None is any number.
        needs: GPUs of the trial on all nodes together.
        now: seconds since the epoch, by the database's clock.
        worker: the one that asks for a place of its own; None if the caller starts as many trials as there
            are places.
        waits: whether the sweep was held back when it last asked, and so is likely to be again.

    Returns:
        Whether the sweep gets a place now, and the statements to write.
    """
    arguments = (connection, sweep, places, needs, now, worker)
    if waits and connection.dialect.name == "postgresql":
        # On SQLite this transaction is the only one that writes anyway.
        request = _Request(*arguments, lock=False)
        if not (request.has_turn or request.victims):
            return False, request.note_held_back()
    request = _Request(*arguments, lock=True)
    if request.has_turn:
        return True, request.note_granted()
    return False, request.note_held_back()


class _Request:
    """A sweep's request for a place, judged on the present state of the fleet.

    The arguments are those of :func:`ask_for_place`.

    Attributes:
        has_turn: whether the sweep gets a place.
        victims: which sweeps give how many trials back for it, if it gets none.
    """

    def __init__(
        self,
        connection: Connection,
        sweep: str,
        places: int | None,
        needs: int,
        now: float,
        worker: str | None,
        *,
        lock: bool,
    ) -> None:
        projects_query = _ROWS
        if lock:
            projects_query = _ROWS_LOCKED
        held_query = _HELD
        if connection.dialect.name == "postgresql":
            held_query = _HELD_BY_INDEX
        answers = together(connection, [(projects_query, {}), (held_query, {"of_sweep": sweep})])
        rows = list(next(answers))
        held = list(next(answers))
        self._sweep = sweep
        self._needs = needs
        self._now = now
        self._worker = worker
        self._before = next((row for row in held if row.id == sweep), None)
        before: dict[Any, float] = {}
        if self._before is not None:
            before = self._before.asking or {}
        self._others = {
            name: asked_at
            for name, asked_at in before.items()
            if name != worker and _is_since(asked_at, now, _FRESH_SECONDS)
        }
        if worker is not None and self._before is not None:
            # A slot of a job counts as a place only while a worker is in it. Otherwise a worker that crashed,
            # or waits for a node, would keep a place from everybody.
            workers = self._before.trials + len(self._others) + 1
            if places is None or places > workers:
                places = workers
        self._places = places
        self._asked_before = before.get(worker)
        sweeps = []
        for row in held:
            if row.id == sweep:
                sweeps.append(self._as_asked(row))
            else:
                sweeps.append(_as_noted(row, now))
        self._fleet = _fleet(rows, sweeps)
        self.has_turn = has_turn(self._fleet, sweep)
        self.victims: list[tuple[str, int]] = []
        if not self.has_turn:
            self.victims = preempt(self._fleet, sweep)

    def note_granted(self) -> list[Statement]:
        """The statements to write when the sweep gets its place."""
        return self._note(None, None, self._others)

    def note_held_back(self) -> list[Statement]:
        """The statements to write when it gets none: the reason, and which trials are asked back for it."""
        since: float | None = None
        if self._before is not None:
            since = _since(self._before, self._now)
        if since is None:
            since = self._now
        asked_back = [(ASK_BACK, {"of_sweep": sweep, "how_many": count}) for sweep, count in self.victims]
        asking = self._others
        if self._worker is not None:
            asked_at = self._asked_before
            if asked_at is None or not _is_since(asked_at, self._now, _AGAIN_SECONDS):
                asked_at = self._now
            asking = {**asking, self._worker: asked_at}
        return [*self._note(why_not(self._fleet, self._sweep), since, asking), *asked_back]

    def _note(self, waiting: str | None, since: float | None, asking: dict[str, float]) -> list[Statement]:
        before = self._before
        wanted = {
            "waiting": waiting,
            "waiting_since": since,
            "places": self._places,
            "wants_gpus": self._needs,
            "asking": asking or None,
        }
        if before is not None and before.asked_at is not None:
            is_noted = all(getattr(before, name) == value for name, value in wanted.items())
            if is_noted and _is_since(before.asked_at, self._now, _AGAIN_SECONDS):
                return []
        return [(NOTE_ASKED, {"of_sweep": self._sweep, "asked_at": self._now, **wanted})]

    def _as_asked(self, row: Any) -> Sweep:
        wants = 1
        if self._places is not None:
            wants = max(1, self._places - row.trials)
        return _sweep(row, wants, self._needs, self._now)


def _as_noted(row: Any, now: float) -> Sweep:
    """A sweep with the request that it noted when it last asked."""
    asks = row.asked_at is not None and _is_since(row.asked_at, now, _FRESH_SECONDS) and row.control == "run"
    wants = 0
    if asks and row.places is None:
        wants = 1
    elif asks:
        wants = max(0, row.places - row.trials)
    return _sweep(row, wants, row.wants_gpus, now)


def _since(row: Any, now: float) -> float | None:
    """Since when a sweep has been held back; None if it is not, or was silent for too long meanwhile."""
    asks: bool = row.asked_at is not None and row.asked_at > now - _FORGOTTEN_SECONDS
    since: float | None = row.waiting_since
    if since is None or not asks:
        return None
    if since > now + AHEAD_SECONDS:  # The clock was set back meanwhile.
        return now
    return since


def _is_since(time: float, now: float, seconds: float) -> bool:
    """Whether a time is no more than so many seconds ago.

    A time in the future was noted before the clock was set back.
    """
    return now - seconds < time <= now + AHEAD_SECONDS


def _sweep(row: Any, wants: int, needs: int, now: float) -> Sweep:
    since = _since(row, now)
    waited = 0.0
    if since is not None:
        waited = max(0.0, now - since)
    return Sweep(
        id=row.id,
        project=row.project,
        priority=row.priority,
        trials=int(row.trials),
        gpus=int(row.gpus),
        wants=wants,
        needs=needs,
        waited=waited,
        leaving=int(row.leaving),
        leaving_gpus=int(row.leaving_gpus),
        smallest=int(row.smallest),
    )


def _fleet(rows: Sequence[Any], sweeps: Sequence[Sweep]) -> Fleet:
    """The fleet, with each sweep in the project that its project's name means now."""
    projects = {
        row.name: Project(row.name, row.weight, Limits(row.max_trials, row.max_gpus))
        for row in rows
        if row.name != ALL
    }
    shared = next((Limits(row.max_trials, row.max_gpus) for row in rows if row.name == ALL), Limits())
    now_called = {former: row.name for row in rows for former in row.former_names or []}
    return Fleet(
        shared, projects, [_in(sweep, now_called.get(sweep.project, sweep.project)) for sweep in sweeps]
    )


def _in(sweep: Sweep, project: str) -> Sweep:
    if sweep.project == project:
        return sweep
    return replace(sweep, project=project)
