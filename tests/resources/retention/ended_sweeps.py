"""Sweeps that have ended, and what a retention some days later leaves of their checkpoints."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy.orm import Session

from halving import Store
from halving.records.run_record import RunRecords, SavedCheckpoint
from halving.store.store import digest_of
from resources.backend import Backend
from resources.catalog import ReportRow, RungResultRow, TrialRow, utcnow
from resources.catalog.trial_key import trial_key
from resources.retention.carry_out import Outcome, carry_out
from resources.retention.policy import parse_policy
from resources.retention.policy_file import PolicyFile
from resources.scheduling.sweeps import open_sweep
from resources.sweep_spec import SweepSpec
from tests.backends import snapshot_row

VALUES = (0.5, 0.9, 0.7, 0.8, 0.6)  # of trials 0 to 4: the best are 1, 3, 2
POLICY = {"checkpoints": {"top_k": 1, "days": 14}}
Spec = Callable[..., SweepSpec]


def content(run: str, epoch: int) -> bytes:
    return f"{run} after {epoch}".encode()


def checkpoints_left(store: Store, sweep: str, numbers: range = range(5)) -> dict[int, list[int]]:
    """Which of the checkpoints of epochs 1 to 3 are there, by trial."""
    runs = {number: trial_key(sweep, number) for number in numbers}
    return {
        number: [epoch for epoch in (1, 2, 3) if store.has_blob(digest_of(content(run, epoch)))]
        for number, run in runs.items()
    }


def add_trial(session: Session, sweep: str, number: int, value: float, checkpoint: str) -> None:
    """Add a trial that has completed its only rung with a checkpoint."""
    session.add(
        TrialRow(
            sweep=sweep,
            number=number,
            params={"x": value},
            status="completed",
            attempt=1,
            checkpoint=checkpoint,
        )
    )
    session.flush()
    session.add(
        RungResultRow(
            sweep=sweep,
            trial=number,
            rung=0,
            epochs=9,
            value=value,
            decision="finish",
            attempt=1,
            seconds=1.0,
            checkpoint=checkpoint,
            reached_at=utcnow(),
        )
    )


def add_report(backend: Backend, sweep: str, winner: int, epoch: int) -> str:
    """Add the report of a sweep whose winner is a trial's checkpoint of an epoch, and return its digest."""
    run = trial_key(sweep, winner)
    named = {"key": run, "checkpoint": digest_of(content(run, epoch))}
    report = backend.store.put_blob(json.dumps({"name": "small", "winner": named}).encode())
    page = backend.store.put_blob(b"page")
    row = ReportRow(sweep=sweep, digest=report, html=page, metrics={}, created_at=utcnow())
    with backend.catalog.write() as session:
        session.add(row)
    return report


def add_sweep(backend: Backend, spec: SweepSpec, *, ended: bool = True) -> str:
    """A sweep of five trials with three checkpoints each."""
    with backend.catalog.write() as session:
        if not session.get(type(snapshot_row("sha256:s")), "sha256:s"):
            session.add(snapshot_row("sha256:s"))
    sweep = open_sweep(backend.catalog, spec, "sha256:s", driver="job", commit=None).id
    with backend.catalog.write() as session:
        for number, value in enumerate(VALUES):
            run = trial_key(sweep, number)
            records = RunRecords(backend.store, spec.name, run)
            records.start({}, {}, 1, {})
            for epoch in (1, 2, 3):
                records.add_checkpoint(
                    SavedCheckpoint(epoch, 1, backend.store.put_blob(content(run, epoch)), {})
                )
            digest = digest_of(content(run, 3))
            add_trial(session, sweep, number, value, digest)
    if ended:
        backend.catalog.end_sweep(sweep, "finished")
    return sweep


def carried_out(
    backend: Backend, days: float, policy: dict[str, Any] | None = None, **options: Any
) -> Outcome:
    """So many days from now."""
    file = PolicyFile(parse_policy(POLICY if policy is None else policy, "retention.yaml"), "retention.yaml")
    return carry_out(
        backend.store, backend.catalog, file, now=datetime.now(UTC) + timedelta(days=days), **options
    )
