"""What nobody else ends on a cluster: steps whose run is over, and runs whose pods are lost."""

import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest
from sqlalchemy import update

from pipelines import orphans
from pipelines.orphans import end_abandoned_runs, end_orphaned_steps
from resources.backend import Backend
from resources.catalog import AttemptRow, utcnow
from resources.datasets.snapshots import take_snapshot
from resources.scheduling.scheduler import Scheduler
from resources.scheduling.sweeps import open_sweep
from resources.sweep_spec import parse_spec

Small = Callable[..., dict[str, Any]]


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.instance_for_test(
        overrides={"run_launcher": {"module": "dagster._core.test_utils", "class": "MockedRunLauncher"}}
    ) as instance:
        yield instance


def run(instance: dg.DagsterInstance, status: dg.DagsterRunStatus, **fields: Any) -> str:
    added = dg.DagsterRun(status=dg.DagsterRunStatus.STARTED, **fields)
    instance.add_run(added)
    if status is not dg.DagsterRunStatus.STARTED:
        instance.report_run_canceled(added)
    return added.run_id


def job(name: str, of: str, **status: Any) -> SimpleNamespace:
    stands = SimpleNamespace(**{"failed": None, "completion_time": None, **status})
    return SimpleNamespace(metadata=SimpleNamespace(name=name, labels={"dagster/run-id": of}), status=stands)


def test_the_steps_of_a_canceled_run_are_ended_and_no_others(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    going_on = run(instance, dg.DagsterRunStatus.STARTED, job_name="sweep")
    over = run(instance, dg.DagsterRunStatus.CANCELED, job_name="sweep")
    jobs = [
        job("alive", going_on),
        job("orphan", over),
        job("failed", over, failed=1),
        job("of-another-dagster", "unknown"),
    ]
    deleted: list[str] = []
    monkeypatch.setattr(orphans, "find_jobs", lambda labels: jobs)
    monkeypatch.setattr(orphans, "delete_job", deleted.append)
    end_orphaned_steps.evaluate_tick(dg.build_sensor_context(instance=instance))
    assert deleted == [], "its last step may still have something to write"
    monkeypatch.setattr(orphans, "time", SimpleNamespace(time=lambda: time.time() + 60))
    end_orphaned_steps.evaluate_tick(dg.build_sensor_context(instance=instance))
    assert deleted == ["orphan"]


def test_the_run_of_an_attempt_that_was_given_up_is_canceled_and_frees_its_slot(
    backend: Backend, instance: dg.DagsterInstance, small: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = parse_spec(small(max_trials=4))
    snapshot = take_snapshot(backend.store, backend.catalog, spec.dataset)
    scheduler = Scheduler(
        backend.catalog, open_sweep(backend.catalog, spec, snapshot.digest, driver="sensors", commit=None).id
    )
    runs = {}
    for number in (0, 1):
        assignment = scheduler.next_work(worker=None)
        claimed = scheduler.claim(number, f"pod-{number}:1")
        assert claimed == assignment
        tags = {"halving/trial": claimed.key, "halving/attempt": str(claimed.attempt)}
        runs[number] = run(instance, dg.DagsterRunStatus.STARTED, job_name="run_trial", tags=tags)
    scheduler.report_preemption(claimed, "its node is lost", 1.0)
    canceled: list[str] = []
    monkeypatch.setattr(
        type(instance.run_coordinator), "cancel_run", lambda self, run_id: canceled.append(run_id)
    )
    context = dg.build_sensor_context(instance=instance, resources={"backend": backend})
    end_abandoned_runs.evaluate_tick(context)
    assert canceled == [], "it may just be ending by itself"
    with backend.catalog.write() as session:
        session.execute(
            update(AttemptRow).where(AttemptRow.trial == 1).values(ended_at=utcnow() - timedelta(minutes=2))
        )
    end_abandoned_runs.evaluate_tick(context)
    assert canceled == [runs[1]]
