"""Keeping the index of runs up to date: reading new and changed runs, and deleting vanished ones.

New runs are noticed by the names of their folders. A run that ended is looked at again when a tenth of the
time since then has passed, so the number of looks grows with the logarithm of its age. Any number of
processes may refresh at the same time, and each may be killed at any time: the next one does the rest.

If very many runs are to be read, other processes can read them (:mod:`resources.analysis.run_index.readers`)
while this one writes.
"""

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.exc import DataError, IntegrityError
from sqlalchemy.orm import Session

from halving.errors import InvalidInput, NotFound
from halving.identifiers import check_name
from halving.query.runs import list_names
from halving.store.store import Store
from resources.analysis.run_index.entry import Entry, next_look
from resources.analysis.run_index.outcomes import stop_ended, with_outcomes
from resources.analysis.run_index.readers import Look, Readers
from resources.analysis.run_index.write import bring_forward, confirm, delete_runs, postpone, write_entries
from resources.catalog import Catalog, RunIndexRow, RunRow, SweepRow, TrialRow
from resources.sweep_spec import stored_spec

_AT_ONCE = 64  # runs that are read before the clock is checked and their entries are written
_AT_ONCE_IN_PROCESSES = 4_096
_MAX_VALUES = 20_000  # in one transaction, so that it does not occupy SQLite's one writer for long
# Seconds until a run that could not be read is tried again.
_FIRST_RETRY = 5.0
_LAST_RETRY = 3_600.0
_MAX_DIRECTIONS = 1_000  # sweeps
_NOTE_SECONDS = 10.0  # Refreshes that change nothing are noted this seldom, as each write waits for the disk.
_REFUSALS = (DataError, IntegrityError, OverflowError, UnicodeError)  # errors that another try will not mend

_log = logging.getLogger(__name__)


@dataclass
class Refreshed:
    """What a refresh has done.

    Attributes:
        runs: the number of runs in the store.
        added, changed, deleted: the numbers of runs that were added to the index, changed in it, deleted.
        looked: the number of runs that were looked at.
        problems: the reason for each run that could not be read.
        left: the number of new runs that were not read before its time was over.
        complete: whether nothing was left to do then.
        seconds: how long the refresh took.
    """

    runs: int = 0
    added: int = 0
    changed: int = 0
    deleted: int = 0
    looked: int = 0
    problems: dict[str, str] = field(default_factory=dict)
    left: int = 0
    complete: bool = False
    seconds: float = 0.0


class Refresher:
    """Refreshes a catalog's index from a store; only one thread may use it at a time.

    Args:
        clock: a function that returns seconds since the epoch; by default the database's clock.
        processes: the number of processes that read runs if there are very many; with 1 this one reads.
    """

    def __init__(
        self, store: Store, catalog: Catalog, clock: Callable[[], float] | None = None, *, processes: int = 1
    ) -> None:
        self._store = store
        self._catalog = catalog
        self._clock = clock or catalog.now
        self._readers = Readers(store, processes)
        self._at_once = _AT_ONCE
        if processes > 1:
            self._at_once = _AT_ONCE_IN_PROCESSES
        self._noted = 0.0
        self._directions: dict[str, dict[str, str]] = {}
        # Runs that cannot be read and so are not in the index: when to try again, and after which pause.
        self._later: dict[tuple[str, str], tuple[float, float]] = {}

    def refresh(
        self, seconds: float = float("inf"), progress: Callable[[Refreshed], None] | None = None
    ) -> Refreshed:
        """Look at new runs, and at those that are due; return what was done.

        Args:
            seconds: the time after which no more runs are looked at.
            progress: called after each part of the runs, with what was done so far.

        Raises:
            StoreError: the store cannot be listed, or does not answer any more.
        """
        with closing(self._readers):
            return self._refresh(seconds, progress)

    def _refresh(self, seconds: float, progress: Callable[[Refreshed], None] | None) -> Refreshed:
        began = time.monotonic()
        done = Refreshed()
        was_set_back = bring_forward(self._catalog, self._clock)
        now = self._clock()
        if was_set_back:
            self._later = {}
            self._noted = now
        done.changed += stop_ended(self._catalog)
        new = self._list(done)
        # However long the listing took, something is looked at. Each round takes runs that are due and new
        # ones, so that neither keep the other waiting.
        listed = time.monotonic()
        due = self._find_resumed() or self._find_due(now)
        while (due or new) and not (done.looked and time.monotonic() - listed >= seconds):
            new, newest = new[: -self._at_once], new[-self._at_once :]
            self._visit([*due, *newest], done)
            due = self._find_due(now)
            done.seconds = time.monotonic() - began
            if progress:
                progress(done)
        done.left = len(new)
        done.complete = not due and not new
        has_changed = done.added or done.changed or done.deleted
        if done.complete and (has_changed or now >= self._noted + _NOTE_SECONDS):
            with self._catalog.write() as session:
                session.execute(update(RunIndexRow).values(refreshed_at=now))
            self._noted = now
        done.seconds = time.monotonic() - began
        return done

    def _list(self, done: Refreshed) -> list[Look]:
        """Delete vanished runs from the index; return the new ones, the newest last."""
        with self._catalog.read() as session:
            # Before the store is listed, so that a run of the index that is not in the list has vanished.
            indexed = {(project, run) for project, run in session.execute(select(RunRow.project, RunRow.run))}
        listed = {pair for pair in list_names(self._store) if _is_name(*pair)}
        done.runs = len(listed)
        if indexed and not listed:
            _log.warning(
                "the store %s lists no runs at all: the index keeps its %d runs",
                self._store.root,
                len(indexed),
            )
        elif vanished := indexed - listed:
            done.deleted = delete_runs(self._catalog, sorted(vanished))
        self._later = {pair: later for pair, later in self._later.items() if pair in listed}
        now = self._clock()
        new = [pair for pair in listed - indexed if self._later.get(pair, (0.0, 0.0))[0] <= now]
        # An id that nobody chose begins with the time.
        return [Look(*pair) for pair in sorted(new, key=lambda pair: pair[::-1])]

    def _find_resumed(self) -> list[Look]:
        """Find the runs of trials that have begun another attempt according to the catalog.

        A trial may be promoted long after it paused, when its run is rarely looked at.
        """
        with self._catalog.read() as session:
            return _looks(
                session,
                _AT_ONCE,
                RunRow.id.in_(
                    select(RunRow.id)
                    .join(TrialRow, (TrialRow.sweep == RunRow.sweep) & (TrialRow.number == RunRow.trial))
                    .join(SweepRow, SweepRow.id == TrialRow.sweep)
                    .where(
                        SweepRow.status == "searching",
                        TrialRow.status == "running",
                        TrialRow.attempt > RunRow.attempt,
                    )
                ),
            )

    def _find_due(self, now: float) -> list[Look]:
        """Find some of the runs that are to be looked at again; a visit makes them due later."""
        with self._catalog.read() as session:
            stale_below = session.scalar(select(RunIndexRow.stale_below)) or 0
            due = RunRow.look_again <= now
            stale = RunRow.revision < stale_below
            return _looks(session, self._at_once, due, stale_below) or _looks(
                session, self._at_once, stale, stale_below
            )

    def _visit(self, looks: Sequence[Look], done: Refreshed) -> None:
        """Read runs and write those that are new or have changed."""
        began = self._clock()
        unchanged: dict[int, float] = {}
        later: dict[int, float] = {}
        confirmed: dict[int, float] = {}
        entries: list[Entry] = []
        for part, readings in self._readers.read(looks):
            for look, reading in zip(part, readings, strict=True):
                done.looked += 1
                if isinstance(reading, Entry):
                    entries.append(reading)
                    done.added += look.row is None
                    done.changed += look.row is not None
                    self._later.pop((look.project, look.run), None)
                elif look.row is None:
                    self._note_problem(look, reading, done)
                elif reading is None:
                    unchanged[look.row["id"]] = next_look(look.row, self._clock())
                elif isinstance(reading, NotFound):  # its record was deleted, and its folder will be
                    done.deleted += delete_runs(self._catalog, [(look.project, look.run)])
                else:
                    again = self._note_problem(look, reading, done)
                    if look.stale:
                        confirmed[look.row["id"]] = again
                    else:
                        later[look.row["id"]] = again
            if sum(len(entry.values) for entry in entries) >= _MAX_VALUES:  # bounds memory
                self._write(entries, done)
                entries = []
        self._write(entries, done)
        postpone(self._catalog, unchanged, began)
        postpone(self._catalog, later)
        confirm(self._catalog, confirmed)

    def _note_problem(self, look: Look, error: Exception | None, done: Refreshed) -> float:
        """Note a run that cannot be read; return when to try again, after pauses that double."""
        key = (look.project, look.run)
        pause = min(2 * self._later.get(key, (0.0, _FIRST_RETRY / 2))[1], _LAST_RETRY)
        again = self._clock() + pause
        self._later[key] = (again, pause)
        if not isinstance(error, NotFound):  # that is a run that is starting, or was killed while it did
            done.problems[f"{look.project}/{look.run}"] = str(error)
            _log.warning(
                "run %s/%s is not in the index as it is: %s: %s",
                look.project,
                look.run,
                type(error).__name__,
                error,
            )
        return again

    def _write(self, entries: list[Entry], done: Refreshed) -> None:
        """Write entries in transactions of at most :data:`_MAX_VALUES` values, or of one run."""
        part: list[Entry] = []
        size = 0
        for entry in entries:
            if part and size + len(entry.values) > _MAX_VALUES:
                self._write_part(part, done)
                part = []
                size = 0
            part.append(entry)
            size += len(entry.values)
        self._write_part(part, done)

    def _write_part(self, entries: list[Entry], done: Refreshed) -> None:
        now = self._clock()
        try:
            decided = with_outcomes(self._catalog, [self._with_best(entry) for entry in entries])
            write_entries(self._catalog, decided, [next_look(entry.row, now) for entry in entries], now)
        except _REFUSALS as error:
            if len(entries) > 1:  # a run that the database refuses must not keep the others out
                for entry in entries:
                    self._write_part([entry], done)
            else:
                self._note_refusal(entries[0], error, done)

    def _note_refusal(self, entry: Entry, error: Exception, done: Refreshed) -> None:
        """Note a run that the database refuses; its old row stays, and the run is looked at again later."""
        project = entry.row["project"]
        run = entry.row["run"]
        again = self._note_problem(
            Look(project, run),
            InvalidInput(f"the catalog does not accept it: {getattr(error, 'orig', error)}"),
            done,
        )
        with self._catalog.read() as session:
            run_id = session.scalar(select(RunRow.id).where(RunRow.project == project, RunRow.run == run))
        if run_id is not None:
            postpone(self._catalog, {run_id: again})

    def _with_best(self, entry: Entry) -> Entry:
        """The entry with the best of those metrics that its sweep's objectives name."""
        if not entry.row["sweep"]:
            return entry
        values = dict(entry.values)
        for metric, direction in self._directions_of(entry.row["sweep"]).items():
            if value := values.get(("metrics", metric)):
                best = value.min if direction == "minimize" else value.max
                values["metrics", metric] = value._replace(best=best)
        return replace(entry, values=values)

    def _directions_of(self, sweep: str) -> dict[str, str]:
        if sweep not in self._directions:
            if len(self._directions) >= _MAX_DIRECTIONS:
                self._directions.clear()
            with self._catalog.read() as session:
                row = session.get(SweepRow, sweep)
            if row is None:
                return {}
            try:
                spec = stored_spec(row.spec)
            except InvalidInput as error:  # another version wrote it; its runs have no best value
                _log.warning("the spec of sweep %s cannot be read: %s", sweep, error)
                self._directions[sweep] = {}
            else:
                self._directions[sweep] = {
                    objective.metric: objective.direction for objective in spec.objectives
                }
        return self._directions[sweep]


def _looks(session: Session, limit: int, condition: Any, stale_below: int = 0) -> list[Look]:
    columns = [
        RunRow.__table__.c[name]
        for name in (
            "id",
            "project",
            "run",
            "status",
            "started",
            "ended",
            "seconds",
            "signature",
            "revision",
            "alerts",
        )
    ]
    rows = session.execute(select(*columns).where(condition).order_by(RunRow.look_again).limit(limit))
    return [Look(row.project, row.run, dict(row._mapping), row.revision < stale_below) for row in rows]


def _is_name(project: str, run: str) -> bool:
    """Whether a folder's name is that of a run; the store may have other folders."""
    try:
        check_name("project", project)
        check_name("run id", run)
    except InvalidInput:
        return False
    return True
