"""Whole searches without a process or a training: what a trial reports is computed, and everything is
recorded as ever.
"""

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
    most: int | None = None,
) -> str:
    """Search a spec with one worker to its end, or for ``most`` rungs; give the sweep.

    Args:
        seconds: that an epoch takes.
        curves: log what each epoch reports into the store.
    """
    snapshot = take_snapshot(backend.store, backend.catalog, spec.dataset)
    scheduler = Scheduler(
        backend.catalog, open_sweep(backend.catalog, spec, snapshot.digest, driver="job", commit=None).id
    )
    reports: dict[int, int] = {}
    while not isinstance(given := scheduler.next_work("w"), Finish):
        assert isinstance(given, Assignment)
        for epochs in given.ladder[given.rung :]:
            trained = reports.get(given.trial, 0)
            values = train(given.trial, given.params, epochs)
            spent = seconds * (epochs - trained)
            if values is None:
                scheduler.report_failure(
                    given, f"RuntimeError: trial {given.trial} cannot be trained", spent, None
                )
                break
            reports[given.trial] = epochs
            if most is not None and sum(reports.values()) > most:
                return scheduler.id
            report = ReachedRung(epochs, dict(values), f"sha256:{given.trial}-{epochs}")
            if not isinstance(scheduler.report_rung(given, report, spent), Continue):
                break
            if spec.resources.at(epochs) != spec.resources.at(
                next(budget for budget in given.ladder if budget > epochs)
            ):
                scheduler.report_resize(given, 0.0)
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
