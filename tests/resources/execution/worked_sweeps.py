"""Sweeps that one worker in this process works off, and what their trials have left."""

import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from sqlalchemy import select

from halving.checkpoints.restoring import saved_state
from halving.query import api as query
from halving.records.run_record import RunRecords
from resources.backend import Backend
from resources.catalog import RungResultRow, TrialRow
from resources.datasets.snapshots import take_snapshot
from resources.execution.worker import TrialRunner, work
from resources.scheduling.assignment import Assignment
from resources.scheduling.scheduler import Scheduler
from resources.scheduling.sweeps import open_sweep, pause_sweep
from resources.sweep_spec import SweepSpec
from resources.tenancy.projects import set_project
from tests.waiting import wait_for

Spec = Callable[..., SweepSpec]


class WorkedSweep:
    """A sweep that was worked off by one worker in this process."""

    def __init__(self, backend: Backend, spec: SweepSpec) -> None:
        self.snapshot = snapshot = take_snapshot(backend.store, backend.catalog, spec.dataset)
        self.backend = backend
        self.sweep = open_sweep(backend.catalog, spec, snapshot.digest, driver="job", commit=None).id
        self.scheduler = Scheduler(backend.catalog, self.sweep)
        self.runner = TrialRunner(
            self.scheduler,
            backend.store,
            dataset_name=snapshot.name,
            dataset_digest=snapshot.digest,
            labels={},
        )
        self.changes: list[Assignment] = []

    def work(self) -> Self:
        work(self.scheduler, self.runner, self.changes.append)
        return self

    def rows(self) -> list[TrialRow]:
        with self.backend.catalog.read() as session:
            return self.backend.catalog.trials(session, self.sweep)

    def results(self) -> list[RungResultRow]:
        with self.backend.catalog.read() as session:
            return list(session.scalars(select(RungResultRow)))

    def records(self, number: int) -> RunRecords:
        return RunRecords(self.backend.store, "small", f"{self.sweep}.{number:04d}")


def state_of(ran: WorkedSweep) -> dict[str, Any]:
    """What the last checkpoint of the first trial has."""
    return saved_state(ran.backend.store, ran.records(0).checkpoints()[-1].digest)


def taking_its_place(ran: WorkedSweep, small_spec: Spec) -> Callable[[], None]:
    """What takes the only place from a sweep, for a more important one that then wants it no more."""
    catalog = ran.backend.catalog
    set_project(catalog, "*", max_trials=1)
    spec = small_spec(name="urgent", project="small", priority=1, max_trials=1)
    urgent = open_sweep(catalog, spec, ran.snapshot.digest, driver="job", commit=None).id

    def take_it() -> None:
        for late in (0, 31):  # a moment, and so long that it takes places
            Scheduler(catalog, urgent, lambda late=late: catalog.now() + late).next_work("u")
        pause_sweep(catalog, urgent)

    return take_it


def count_epochs(ran: WorkedSweep, number: int) -> list[tuple[int, int]]:
    """Each epoch that was reported of a trial, and how often, over all of its attempts."""
    points = query.curves(
        [f"{ran.sweep}.{number:04d}"],
        "score",
        project="small",
        root=ran.backend.store,
        max_points=None,
        attempts="raw",
    )
    return sorted(Counter(points["step"].to_pylist()).items())


def act_after_epochs(path: Path, epochs: int, act: Callable[[], None]) -> None:
    """Act on another thread as soon as so many epochs have begun."""

    def watch() -> None:
        wait_for(
            lambda: path.exists() and len(path.read_text().splitlines()) >= epochs,
            60,
            f"{epochs} epochs",
            every=0.02,
        )
        act()

    threading.Thread(target=watch, daemon=True).start()
