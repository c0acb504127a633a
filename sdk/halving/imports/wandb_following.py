"""Following W&B's offline runs: what they write is copied while they write it.

A look asks the disk for the sizes of the logs that may grow, and reads what they have more. Nothing is
remembered that the store does not say: a copy's position is in its segments. So a follower may be killed at
any time, and two of them do each other no harm.

Runs that are written at this moment are copied by the look itself. What takes longer (runs that were there
before, files at a run's end, compaction) is done by threads beside it.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from halving.errors import HalvingError, InvalidInput
from halving.imports.copying import CopiedMeanwhile
from halving.imports.followed_run import SETTLE_SECONDS, Copied, FollowedRun, new_row, summed
from halving.imports.foreign_run import Skipped
from halving.imports.wandb_folder import ACCEPTED, NAMELESS, not_wandbs, run_of
from halving.imports.wandb_messages import record_class
from halving.imports.wandb_places import LogPlaces
from halving.imports.wandb_run import identify
from halving.maintenance.compaction import compact
from halving.query.liveness import RECENT_SECONDS
from halving.store.store import Store

LOOK_SECONDS = 0.1
# Seconds from one segment of a run to the next.
_PACE = 0.5
_PAID_PACE = 5.0
_MAX_PAID_PACE = 60.0
_AGE_SHARE = 0.05
_COMPACT_SEGMENTS = 64  # of a run, until they are joined
_COMPACT_SHARE = 20  # a compaction takes at most one part in so many of the time
# A log that is larger, or older, than this is copied beside the looks.
_LARGE = 4 * 2**20
_OLD_SECONDS = 30.0
_QUIET_SECONDS = 1.0  # between two looks at a log that was not written for :data:`RECENT_SECONDS`
_FIRST_PAUSE = 0.5
_MAX_PAUSE = 30.0


@dataclass
class _Tail:
    """A log that may grow.

    Attributes:
        size: in bytes, when it was looked at last.
        run: whose it is; None until it says so.
        next_look: by the monotonic clock.
    """

    path: Path
    size: int = -1
    run: FollowedRun | None = None
    next_look: float = 0.0


class WandbFollower:
    """Copies the runs of a folder into a store, look by look; for one thread.

    Args:
        source: a folder with runs in it or below it, a run's folder, or its log.
        project: where the runs go (default: their project in W&B).
        say: gets a line for each run that begins or ends, and each problem.

    Attributes:
        rows: what was copied of each run, as ``halving import --json`` has it.
        skipped, taken: the counts of all looks.
        unreached: runs that were there before and were not copied when it was stopped.
        wake: set where a look has something to do before its time.

    Raises:
        InvalidInput: there is no such folder or file.
        ExtraMissing: Protocol Buffers is not installed.
    """

    def __init__(self, store: Store, source: str, project: str | None, say: Callable[[str], None]) -> None:
        record_class()
        self._source = source
        top = Path(source).expanduser()
        if not top.exists():
            raise InvalidInput(
                f"source {source!r} is not accepted: it is not there, and a folder that is not there cannot "
                f"be followed; {ACCEPTED}, or create it before the training begins"
            )
        self._store = store
        self._project = project
        self._say = say
        self._places = LogPlaces(top)
        self._is_file = top.is_file()
        self._tails: dict[Path, _Tail] = {}
        self._runs: dict[tuple[str, str, str], FollowedRun] = {}
        self._unread: dict[str, dict[str, Any]] = {}  # by W&B's name of the run
        self.skipped = Skipped()
        self.taken: Counter[str] = Counter()
        self._results: list[tuple[FollowedRun, Counter[str], Future[Any]]] = []
        self.unreached = 0
        self.wake = threading.Event()
        self._backlog = ThreadPoolExecutor(1, "halving-import")
        self._ends = ThreadPoolExecutor(1, "halving-import-ends")
        self._stopping = False

    @property
    def rows(self) -> list[dict[str, Any]]:
        """What was copied of each run so far, and what failed at last."""
        rows = [run.row for run in self._runs.values() if run.row["outcome"] or run.row["error"]]
        rows += self._unread.values()
        return [{**row, "outcome": "failed"} if row["error"] else row for row in rows]

    @property
    def is_done(self) -> bool:
        """Whether the source is one run, and all of it is copied with its end."""
        runs = self._runs.values()
        return self._places.single and bool(runs) and all(run.ended and not run.busy for run in runs)

    @property
    def is_busy(self) -> bool:
        """Whether a run is being copied beside the looks."""
        return bool(self._results)

    def look(self) -> None:
        """Copy what is new.

        Raises:
            InvalidInput: the source is a file that is not W&B's.
        """
        self._collect()
        now = time.monotonic()
        try:
            for path in self._places.find_new():
                self._tails[path] = _Tail(path)
            self._unread.pop(self._source, None)
        except OSError as error:
            # A disk of the network may be back at the next look.
            row = self._unread.setdefault(self._source, new_row(self._source))
            self._fail(row, f"{self._source} cannot be read: {error.strerror or error}")
        for folder, refusal in self._places.refused.items():
            self._fail_unread(folder, refusal)
        for tail in list(self._tails.values()):
            if tail.next_look <= now:
                self._check(tail, now)
        due = [run for run in self._runs.values() if self._is_due(run, now)]
        for run in sorted(due, key=lambda run: -run.written):
            self._start(run, now)

    def stop(self) -> None:
        """Copy what was written until now, and wait for what is being copied."""
        self._stopping = True
        self._backlog.shutdown(cancel_futures=True)
        self._ends.shutdown()
        self._collect()
        for tail in list(self._tails.values()):
            self._check(tail, time.monotonic())
        for run in self._runs.values():
            if run.fresh and not run.busy:
                self._copy(run, settled=False)
            self.skipped.reasons.update(run.uncounted.reasons)
        nameless = sum(tail.run is None for tail in self._tails.values())
        if nameless:
            self.skipped.add(NAMELESS, nameless)

    def _check(self, tail: _Tail, now: float) -> None:
        """Look whether a log has grown."""
        try:
            status = tail.path.stat()
            if status.st_size > tail.size:
                if tail.run is None:
                    self._identify(tail)
                tail.size = status.st_size
                if tail.run is not None:
                    tail.run.fresh = True
                    tail.run.ended = False
                    tail.run.touched = now
                    tail.run.written = max(tail.run.written, status.st_mtime)
        except FileNotFoundError:
            # W&B's own clean-up, or the user's: what was copied stays as it is.
            self._tails.pop(tail.path, None)
            if tail.run is not None:
                tail.run.ended = True
                self._fail(tail.run.row, f"{tail.path} is gone, and its log did not say that it had ended")
        except InvalidInput as error:
            if self._is_file:
                raise InvalidInput(f"source {self._source!r} is not accepted: {error}; {ACCEPTED}") from None
            self.skipped.add(not_wandbs(tail.path, error))
            self._tails.pop(tail.path, None)
        except (OSError, ValueError) as error:
            tail.next_look = now + _QUIET_SECONDS
            self._fail_unread(tail.path, error)
        else:
            if time.time() - status.st_mtime >= RECENT_SECONDS:
                tail.next_look = now + _QUIET_SECONDS
                if tail.run is not None and not tail.run.ended:
                    tail.run.ending = True  # It has crashed, which the copy finds out.

    def _identify(self, tail: _Tail) -> None:
        log = identify(tail.path)
        if log is None:
            return
        self._unread.pop(run_of(tail.path), None)
        run = self._runs.setdefault(log.whose, FollowedRun(new_row(log.run)))
        tail.run = run
        run.arrived.append(log)
        run.ending = False

    def _is_due(self, run: FollowedRun, now: float) -> bool:
        if run.busy or run.ended or now < run.next_copy:
            return False
        return run.fresh or (run.ending and now - run.touched >= SETTLE_SECONDS)

    def _start(self, run: FollowedRun, now: float) -> None:
        """Copy a run here, or have it copied by another thread if that may take long."""
        settled = run.ending and now - run.touched >= SETTLE_SECONDS
        old = time.time() - run.written > _OLD_SECONDS
        size = sum(tail.size for tail in self._tails.values() if tail.run is run) if run.arrived else 0
        if settled:
            self._submit(self._ends, run, settled=True)
        elif old or size > _LARGE:
            self._submit(self._backlog, run, settled=old)
        else:
            self._copy(run, settled=False)

    def _submit(self, pool: ThreadPoolExecutor, run: FollowedRun, *, settled: bool) -> None:
        run.busy = True
        run.fresh = False
        taken: Counter[str] = Counter()
        future = pool.submit(run.copy, self._store, self._project, taken, settled=settled)
        self._results.append((run, taken, future))
        if pool is self._ends:  # a look for each of thousands of others would take longer than they do
            future.add_done_callback(lambda _: self.wake.set())

    def _copy(self, run: FollowedRun, *, settled: bool) -> None:
        run.fresh = False
        taken: Counter[str] = Counter()
        self._note(run, taken, partial(run.copy, self._store, self._project, taken, settled=settled))

    def _collect(self) -> None:
        """Note what the other threads have done."""
        waiting = []
        for run, taken, future in self._results:
            if not future.done():
                waiting.append((run, taken, future))
                continue
            run.busy = False
            if future.cancelled():
                self.unreached += 1
            else:
                self._note(run, taken, future.result)
        self._results = waiting

    def _note(self, run: FollowedRun, taken: Counter[str], result: Callable[[], Copied]) -> None:
        now = time.monotonic()
        run.next_copy = now + self._pace(now - run.began)
        try:
            copied = result()
        except CopiedMeanwhile:
            run.fresh = True
        except (HalvingError, OSError, ValueError) as error:
            run.fresh = True
            run.failures += 1
            run.next_copy = now + min(_FIRST_PAUSE * 2**run.failures, _MAX_PAUSE)
            self._fail(run.row, str(error))
        else:
            run.failures = 0
            run.ending = copied.ending
            self.skipped.reasons.update(copied.skipped.reasons)
            self._note_copied(run, copied)
        self.taken.update(taken)

    def _note_copied(self, run: FollowedRun, copied: Copied) -> None:
        is_first = run.row["outcome"] is None
        run.row = summed(run.row, copied)
        place = f"{copied.project}/{copied.run}"
        if copied.status is not None:
            run.ended = True
            run.segments = 0
            self._tails = {
                path: tail
                for path, tail in self._tails.items()
                if tail.run is not run or copied.status == "crashed"  # such a run may go on
            }
            if run.row["outcome"] != "unchanged":
                self._say(f"{place}: {copied.status}, {run.row['points']:,} points")
        elif is_first:
            self._say(f"{place}: followed")
        if copied.status is None and copied.outcome.points:
            run.segments += 1
            self._compact(run, copied)

    def _compact(self, run: FollowedRun, copied: Copied) -> None:
        """Join the segments of a run that has many, beside the looks.

        A run that is written for hours would have thousands of them before the hourly compaction.
        """
        if self._stopping or run.segments < _COMPACT_SEGMENTS or time.monotonic() < run.next_compaction:
            return
        if self._store.is_paid_by_request:
            return  # Segments are few there, and what they are joined into would be written again and again.
        run.segments = 0

        def join() -> None:
            began = time.monotonic()
            with suppress(HalvingError, OSError):  # the hourly compaction, or the next one here, does it
                compact(self._store, copied.project, copied.run)
            ended = time.monotonic()
            run.next_compaction = ended + _COMPACT_SHARE * (ended - began)

        self._ends.submit(join)

    def _pace(self, age: float) -> float:
        if self._store.is_paid_by_request:
            return max(_PAID_PACE, min(_AGE_SHARE * age, _MAX_PAID_PACE))
        return _PACE

    def _fail(self, row: dict[str, Any], error: str) -> None:
        if row["error"] != error:
            row["error"] = error
            self._say(f"{row['name']}: {error}")

    def _fail_unread(self, path: Path, error: OSError | ValueError) -> None:
        name = run_of(path)
        reason = getattr(error, "strerror", None) or error
        self._fail(self._unread.setdefault(name, new_row(name)), f"{path} cannot be read: {reason}")
