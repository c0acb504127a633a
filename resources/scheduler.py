"""The brain at work on the catalog: every call is one short transaction: lock the sweep, rebuild, decide, write.

Workers hold a lease on the trial they run and renew it by heartbeat. An attempt whose lease ran out is given to
another worker under the next attempt number, and whatever the old one still says is refused.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from halving.errors import HalvingError
from resources.catalog import Catalog, RungResultRow, SweepRow, TrialRow, utcnow
from resources.search import brain
from resources.search.brain import SearchState, Status, TrialState
from resources.search.suggest import Params, Tried, load_optuna, max_trials, suggest
from resources.spec import Asha, SweepSpec, parse_spec

LEASE_SECONDS = 15.0
HEARTBEAT_SECONDS = 3.0


class Superseded(HalvingError, RuntimeError):
    """This attempt at the trial has lost its lease, and another attempt has the trial now."""


@dataclass(frozen=True)
class Assignment:
    """A trial given to a worker: everything needed to run it up to its next rung."""

    sweep: str
    trial: int
    attempt: int
    params: Params
    seed: int
    rung: int
    granted: int

    @property
    def key(self) -> str:
        """The trial's name everywhere: its run id and its partition, ``digits-7f3a.0007``."""
        return trial_key(self.sweep, self.trial)

    @property
    def run_key(self) -> str:
        """What makes Dagster launch this attempt once: ``sweep.trial/rRUNG/aATTEMPT``."""
        return f"{self.key}/r{self.rung}/a{self.attempt}"


def trial_key(sweep: str, trial: int) -> str:
    return f"{sweep}.{trial:04d}"


def parse_trial_key(key: str) -> tuple[str, int]:
    """The sweep and the number in a trial's name."""
    sweep, _, number = key.rpartition(".")
    return sweep, int(number)


def open_sweep(catalog: Catalog, spec: SweepSpec, snapshot: str, *, driver: str, commit: str | None) -> SweepRow:
    """Register a launch of ``spec``, or give the unfinished sweep of the same spec, snapshot and driver to resume.

    Executing the same spec again after a crash therefore resumes it, and after its end starts another sweep.
    """
    with catalog.write(exclusive=True) as session:
        same = (SweepRow.spec_digest == spec.digest, SweepRow.snapshot == snapshot, SweepRow.driver == driver)
        earlier = list(session.scalars(select(SweepRow).where(*same).order_by(SweepRow.ordinal.desc())))
        if earlier and earlier[0].status in ("searching", "evaluating"):
            return earlier[0]
        row = SweepRow(
            id=_free_id(session, spec, f"{spec.digest} {snapshot} {driver} {len(earlier)}"),
            name=spec.name,
            spec=spec.model_dump(mode="json", by_alias=True, exclude_none=True),
            spec_digest=spec.digest,
            snapshot=snapshot,
            driver=driver,
            ordinal=len(earlier),
            commit=commit,
            status="searching",
            created_at=utcnow(),
        )
        session.add(row)
        return row


class Scheduler:
    """All decisions about one sweep.

    Args:
        catalog: where its state lives; nothing is kept between calls.
        sweep: its id.
        clock: seconds since the epoch, for leases.
    """

    def __init__(self, catalog: Catalog, sweep: str, clock: Callable[[], float] = time.time) -> None:
        self.catalog, self.id, self._clock = catalog, sweep, clock
        with catalog.read() as session:
            self.spec = parse_spec(catalog.sweep(session, sweep).spec)
        strategy = self.spec.strategy.chosen
        self.rules = brain.Rules(
            budgets=self.spec.budgets,
            reduction_factor=strategy.reduction_factor if isinstance(strategy, Asha) else 2,
            maximize=self.spec.maximize,
            max_trials=max_trials(self.spec),
            max_retries=self.spec.max_retries,
        )

    def next_work(self, worker: str | None) -> Assignment | brain.Wait | brain.Finish:
        """Hand out the next trial. With ``worker`` it is claimed at once; None leaves it to a run to :meth:`claim` it."""
        load_optuna()  # before the transaction, because the import takes long
        with self._deciding() as (session, rows):
            self._requeue_lost(session, rows)
            state, decision = brain.decide(self._state(session, rows), brain.Idle())
            if isinstance(decision, brain.Finish):
                self._end_search(session, state)
                return decision
            if isinstance(decision, brain.Wait):
                return decision
            if not isinstance(decision, brain.Start | brain.Resume):
                raise TypeError(f"an idle worker cannot be told to {decision}")
            if decision.trial == len(rows):
                history = [Tried(row.params, trial) for row, trial in zip(rows, state.trials, strict=False)]
                row = TrialRow(sweep=self.id, number=decision.trial, params=suggest(self.spec, history), failures=0, attempt=0, seconds=0.0)
                session.add(row)
            else:
                row = rows[decision.trial]
            row.status = Status.RUNNING
            row.attempt += 1
            row.worker = worker
            # Without a worker there is no lease: a run may wait in Dagster's queue for as long as it has to.
            row.lease_until = self._clock() + LEASE_SECONDS if worker else None
            return self._assignment(row, state.trials[row.number])

    def claim(self, trial: int, worker: str) -> Assignment:
        """Take a trial that was handed out without a worker.

        Raises:
            Superseded: it is not waiting for one (another run has it, or it was given up).
        """
        with self._deciding() as (session, rows):
            row = rows[trial] if trial < len(rows) else None
            if row is None or row.status != Status.RUNNING or row.worker is not None:
                stands = f"it is {row.status}, worker {row.worker}" if row else "there is no such trial"
                raise Superseded(f"trial {trial_key(self.id, trial)} is not waiting for a worker: {stands}")
            row.worker, row.lease_until = worker, self._clock() + LEASE_SECONDS
            return self._assignment(row, self._state(session, rows).trials[trial])

    def handed_out(self) -> list[Assignment]:
        """Trials that wait for a run to claim them."""
        with self.catalog.read() as session:
            rows = self.catalog.trials(session, self.id)
            state = self._state(session, rows)
            return [self._assignment(row, state.trials[row.number]) for row in rows if row.status == Status.RUNNING and not row.worker]

    def heartbeat(self, assignment: Assignment) -> None:
        """Renew the lease.

        Raises:
            Superseded: the lease was lost.
        """
        with self.catalog.write() as session:
            row = session.get(TrialRow, (self.id, assignment.trial))
            self._check_current(assignment, row).lease_until = self._clock() + LEASE_SECONDS

    def reached(self, assignment: Assignment, value: float, checkpoint: str, seconds: float, epochs: int) -> brain.Decision:
        """A trial reports its objective at its rung and learns whether to go on, pause or end."""
        return self._report(assignment, brain.Reached(assignment.trial, value), seconds, checkpoint=checkpoint, epochs=epochs)

    def returned(self, assignment: Assignment, value: float, checkpoint: str, seconds: float, epochs: int) -> brain.Decision:
        """A trainable returned before its rung, with its last objective."""
        return self._report(assignment, brain.Returned(assignment.trial, value), seconds, checkpoint=checkpoint, epochs=epochs)

    def crashed(self, assignment: Assignment, error: str, seconds: float) -> brain.Decision:
        """A trial's process died or its trainable raised: queued again, or given up after ``max_retries``."""
        return self._report(assignment, brain.Crashed(assignment.trial), seconds, error=error)

    def failed(self, assignment: Assignment, error: str, seconds: float, checkpoint: str | None) -> brain.Decision:
        """A trial failed in a way that would repeat itself; ``checkpoint`` is its last good one."""
        return self._report(assignment, brain.Failed(assignment.trial), seconds, error=error, checkpoint=checkpoint)

    def released(self, assignment: Assignment, seconds: float) -> brain.Decision:
        """A worker that is being shut down gives its trial back; it goes on from its checkpoint elsewhere."""
        return self._report(assignment, brain.Released(assignment.trial), seconds, error="released: its worker was shut down")

    def launch_failed(self, assignment: Assignment, error: str) -> bool:
        """Queue again, or give up, a trial whose run ended before it claimed it; False when that is not how it stands."""
        with self._deciding() as (session, rows):
            row = rows[assignment.trial]
            if row.attempt != assignment.attempt or row.status != Status.RUNNING or row.worker is not None:
                return False
            row.error = error
            self._apply(session, rows, brain.Crashed(row.number), seconds=0.0, checkpoint=None, epochs=None)
            return True

    def requeue_lost(self) -> list[Assignment]:
        """Queue again, or give up, trials whose lease ran out."""
        with self._deciding() as (session, rows):
            return self._requeue_lost(session, rows)

    def state(self) -> SearchState:
        """The sweep as the brain sees it now."""
        with self.catalog.read() as session:
            return self._state(session, self.catalog.trials(session, self.id))

    def running(self) -> int:
        """Trials that are handed out or running."""
        return sum(trial.status is Status.RUNNING for trial in self.state().trials)

    @contextmanager
    def _deciding(self) -> Iterator[tuple[Session, list[TrialRow]]]:
        with self.catalog.write() as session:
            self.catalog.sweep(session, self.id, lock=True)
            yield session, self.catalog.trials(session, self.id)

    def _report(
        self,
        assignment: Assignment,
        event: brain.Event,
        seconds: float,
        *,
        checkpoint: str | None = None,
        epochs: int | None = None,
        error: str | None = None,
    ) -> brain.Decision:
        with self._deciding() as (session, rows):
            row = self._check_current(assignment, rows[assignment.trial])
            row.seconds += seconds
            row.error = error
            row.checkpoint = checkpoint or row.checkpoint
            return self._apply(session, rows, event, seconds=seconds, checkpoint=checkpoint, epochs=epochs)

    def _apply(
        self, session: Session, rows: list[TrialRow], event: Any, *, seconds: float, checkpoint: str | None, epochs: int | None
    ) -> brain.Decision:
        before = self._state(session, rows)
        after, decision = brain.decide(before, event)
        row, trial = rows[event.trial], after.trials[event.trial]
        rung = len(before.trials[event.trial].results)
        if len(trial.results) > rung:
            value = trial.results[rung]
            result = RungResultRow(
                sweep=self.id,
                trial=row.number,
                rung=rung,
                epochs=epochs if epochs is not None else 0,
                value=value,
                checkpoint=checkpoint if value is not None else None,
                decision=type(decision).__name__.lower(),
                attempt=row.attempt,
                seconds=seconds,
                reached_at=utcnow(),
                materialized=False,
            )
            session.add(result)
        row.status, row.failures = trial.status, trial.failures
        if trial.status is not Status.RUNNING:
            row.worker = row.lease_until = None
        return decision

    def _requeue_lost(self, session: Session, rows: list[TrialRow]) -> list[Assignment]:
        now = self._clock()
        lost = [row for row in rows if row.status == Status.RUNNING and row.lease_until is not None and row.lease_until < now]
        assignments = []
        for row in lost:
            assignments.append(self._assignment(row, self._state(session, rows).trials[row.number]))
            row.error = f"attempt {row.attempt} was lost: worker {row.worker} stopped sending heartbeats"
            self._apply(session, rows, brain.Crashed(row.number), seconds=0.0, checkpoint=None, epochs=None)
        return assignments

    def _state(self, session: Session, rows: list[TrialRow]) -> SearchState:
        session.flush()
        values: dict[int, dict[int, float | None]] = {row.number: {} for row in rows}
        for result in session.scalars(select(RungResultRow).where(RungResultRow.sweep == self.id)):
            values[result.trial][result.rung] = result.value
        trials = tuple(
            TrialState(row.number, Status(row.status), tuple(value for _, value in sorted(values[row.number].items())), row.failures)
            for row in rows
        )
        return SearchState(self.rules, trials)

    def _end_search(self, session: Session, state: SearchState) -> None:
        row = self.catalog.sweep(session, self.id)
        if row.status == "searching":
            found = bool(brain.ranking(state))
            row.status = "evaluating" if found else "failed"
            row.finished_at = None if found else utcnow()

    def _assignment(self, row: TrialRow, trial: TrialState) -> Assignment:
        rung = len(trial.results)
        return Assignment(
            sweep=self.id,
            trial=row.number,
            attempt=row.attempt,
            params=row.params,
            seed=int.from_bytes(sha256(f"{self.spec.seed} {row.number}".encode()).digest()[:4]),
            rung=rung,
            granted=self.rules.budgets[min(rung, len(self.rules.budgets) - 1)],
        )

    def _check_current(self, assignment: Assignment, row: TrialRow | None) -> TrialRow:
        if row is None or row.attempt != assignment.attempt or row.status != Status.RUNNING:
            stands = f"attempt {row.attempt} is {row.status}" if row else "the trial is gone"
            raise Superseded(f"attempt {assignment.attempt} at trial {assignment.key} lost its lease: {stands}")
        return row


def _free_id(session: Session, spec: SweepSpec, identity: str) -> str:
    """The sweep's name and as many hex digits of its identity, from 4, as no other sweep has."""
    digits = sha256(identity.encode()).hexdigest()
    for length in range(4, 64):
        candidate = f"{spec.name}-{digits[:length]}"
        if session.get(SweepRow, candidate) is None:
            return candidate
    raise RuntimeError(f"no free id for the sweep {spec.name}")
