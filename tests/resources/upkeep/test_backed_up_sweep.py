"""A sweep that is backed up half way, restored elsewhere, and goes on until its winner is champion."""

import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from halving import Store
from halving.query import api as query
from resources.backend import Backend
from resources.datasets.snapshots import take_snapshot
from resources.execution.wiring import make_runner
from resources.execution.worker import work
from resources.registry.promotion import evaluate, promote_winner
from resources.scheduling.assignment import Assignment
from resources.scheduling.scheduler import Scheduler
from resources.scheduling.sweeps import open_sweep
from resources.search.decide import Finish
from resources.search.state import Status
from resources.sweep_spec import SweepSpec
from resources.upkeep.backup import back_up
from resources.upkeep.restore import restore
from tests.clock import Clock
from tests.lent_databases import LentDatabases


@pytest.fixture(params=["sqlite", "postgres"])
def elsewhere(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    """Where it is restored: once into each database, whichever it was in."""
    root = str(tmp_path / "elsewhere")
    url = f"sqlite:///{tmp_path}/{secrets.token_hex(3)}/catalog.db"
    if request.param == "sqlite":
        yield Backend(root=root, catalog_url=url)
        return
    lent: LentDatabases = request.getfixturevalue("lent_catalogs")
    name = lent.take()
    backend = Backend(root=root, catalog_url=request.getfixturevalue("postgres").url(name))
    yield backend
    backend.catalog.close()
    lent.give_back(name)


@pytest.mark.slow
def test_a_restored_sweep_goes_on_where_the_backup_was_made(
    either_backend: Backend,
    elsewhere: Backend,
    small_spec: Callable[..., SweepSpec],
    clock: Clock,
    tmp_path: Path,
) -> None:
    """One trial has paused, another one runs while the copy is made."""
    spec = small_spec(
        max_trials=3,
        strategy={"asha": {"sampler": "random", "min_budget": 1, "max_budget": 3, "reduction_factor": 3}},
    )
    snapshot = take_snapshot(either_backend.store, either_backend.catalog, spec.dataset)
    sweep = open_sweep(either_backend.catalog, spec, snapshot.digest, driver="job", commit=None).id
    scheduler = Scheduler(either_backend.catalog, sweep, clock)
    runner = make_runner(either_backend, scheduler, dagster_run="before")
    first = scheduler.next_work("w")
    assert isinstance(first, Assignment)
    runner.run(first, lambda _: None)
    second = scheduler.next_work("w")
    assert isinstance(second, Assignment)
    place = Store(tmp_path / "backups")
    back_up(either_backend.store, either_backend.catalog, place)

    restore(place, elsewhere.store, lambda: elsewhere.catalog)
    again = Scheduler(elsewhere.catalog, sweep, clock)
    clock.lose_all(again)
    again.requeue_lost()
    work(again, make_runner(elsewhere, again, dagster_run="after"), lambda _: None)
    assert isinstance(again.next_work("w"), Finish)
    states = again.state().trials
    assert [trial.status for trial in states].count(Status.COMPLETED) >= 1
    assert len(states) == 3
    for number in range(3):
        run = f"{sweep}.{number:04d}"
        steps = query.curves([run], "score", project="small", root=elsewhere.store, max_points=None)[
            "step"
        ].to_pylist()
        assert steps == list(range(1, len(steps) + 1)), "no epoch is missing"
    report, verdicts = evaluate(elsewhere, sweep)
    assert [verdict for verdict in verdicts if not verdict.passed] == []
    version, _ = promote_winner(elsewhere, report)
    assert (version.version, version.stage, version.trial) == (
        "1.0.0",
        "champion",
        report.data["winner"]["trial"],
    )
    with elsewhere.catalog.read() as session:
        assert elsewhere.catalog.sweep(session, sweep).status == "finished"
    with either_backend.catalog.read() as session:
        assert either_backend.catalog.sweep(session, sweep).status == "searching", (
            "the first one stands as it did"
        )
