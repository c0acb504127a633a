"""Whole searches without processes or training: trials' reports are computed, and recorded as usual."""

from collections.abc import Callable, Mapping
from typing import Any

import halving
from halving.trial.messages import ReachedRung
from resources.backend import Backend
from resources.datasets.snapshots import take_snapshot
from resources.scheduling.assignment import Assignment
from resources.scheduling.scheduler import Scheduler
from resources.scheduling.sweeps import open_sweep
from resources.search.decide import Continue, Finish
from resources.sweep_spec import SweepSpec

Metrics = Mapping[str, float]
Train = Callable[[int, dict[str, Any], int], Metrics | None]
"""A trial's number, its params and the epochs that it is trained for, to what it reports; None: it fails
there.
"""


def search(
    backend: Backend,
    spec: SweepSpec,
    train: Train,
    *,
    seconds: float = 1.0,
    curves: bool = False,
    limit: int | None = None,
) -> str:
    """Search a spec with one worker to its end, or for ``limit`` rungs; give the sweep.

    Args:
        seconds: that an epoch takes.
        curves: log what each epoch reports into the store.
    """
    snapshot = take_snapshot(backend.store, backend.catalog, spec.dataset)
    scheduler = Scheduler(
        backend.catalog, open_sweep(backend.catalog, spec, snapshot.digest, driver="job", commit=None).id
    )
    reports: dict[int, int] = {}
    while not isinstance(assignment := scheduler.next_work("w"), Finish):
        assert isinstance(assignment, Assignment)
        for epochs in assignment.ladder[assignment.rung :]:
            trained = reports.get(assignment.trial, 0)
            values = train(assignment.trial, assignment.params, epochs)
            spent = seconds * (epochs - trained)
            if values is None:
                scheduler.report_failure(
                    assignment, f"RuntimeError: trial {assignment.trial} cannot be trained", spent, None
                )
                break
            reports[assignment.trial] = epochs
            if limit is not None and sum(reports.values()) > limit:
                return scheduler.id
            report = ReachedRung(epochs, dict(values), f"sha256:{assignment.trial}-{epochs}")
            if not isinstance(scheduler.report_rung(assignment, report, spent), Continue):
                break
            if spec.resources.at(epochs) != spec.resources.at(
                next(budget for budget in assignment.ladder if budget > epochs)
            ):
                scheduler.report_resize(assignment, 0.0)
                break
    if curves:
        log_curves(backend, spec, scheduler.id, reports, train)
    return scheduler.id


def log_curves(
    backend: Backend, spec: SweepSpec, sweep: str, epochs: Mapping[int, int], train: Train
) -> None:
    """What each trial reported in every epoch up to its last, as its trainable would have logged it."""
    with backend.catalog.read() as session:
        params = {trial.number: trial.params for trial in backend.catalog.trials(session, sweep)}
    for trial, last in epochs.items():
        with halving.init(
            project=spec.name, id=f"{sweep}.{trial:04d}", root=backend.store.root, system_metrics=None
        ) as run:
            for epoch in range(1, last + 1):
                run.log(dict(train(trial, params[trial], epoch) or {}), step=epoch)
