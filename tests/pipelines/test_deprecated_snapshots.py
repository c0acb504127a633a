"""A sweep on a deprecated snapshot is refused however it is launched, unless its run has the tag for it."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml
from sqlalchemy import select

from pipelines import schedules
from pipelines.definitions import defs
from pipelines.jobs import ALLOW_DEPRECATED, REFRESH
from pipelines.sensors import launch_requested
from resources.backend import Backend
from resources.catalog import SweepRow
from resources.datasets.snapshot_catalog import Snapshot, deprecate
from resources.datasets.snapshots import take_snapshot
from resources.scheduling import intents
from resources.scheduling.sweeps import open_sweep
from resources.sweep_spec import parse_spec
from tests.commands.shell import Shell

Small = Callable[..., dict[str, Any]]
_REASON = "labels of May are wrong"
_REFUSED = (
    f"is not accepted: it is deprecated: {_REASON}; `halving sweep --allow-deprecated`, or a run with the tag"
)
# the first one trains, which takes processes
_JOBS = [pytest.param("sweep", marks=pytest.mark.slow), "launch_sweep"]


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as ephemeral:
        yield ephemeral


@pytest.fixture
def snapshot(backend: Backend, small: Small, monkeypatch: pytest.MonkeyPatch) -> Snapshot:
    """The deprecated snapshot of the small sweep's dataset."""
    monkeypatch.setenv("HALVING_ROOT", backend.store.root)
    taken = take_snapshot(backend.store, backend.catalog, parse_spec(small()).dataset)
    return deprecate(backend.catalog, taken.digest, _REASON)


def execute(
    instance: dg.DagsterInstance, job: str, spec: dict[str, Any], tags: dict[str, str] | None = None
) -> tuple[bool, str]:
    """Whether a job succeeded, and why its steps failed."""
    done = defs.get_job_def(job).execute_in_process(
        run_config=spec, tags=tags, instance=instance, raise_on_error=False
    )
    failures = [event.step_failure_data for event in done.all_events if event.is_step_failure]
    return done.success, "\n".join(str(failure.user_failure_data) for failure in failures)


def snapshots_of_sweeps(backend: Backend) -> list[str]:
    with backend.catalog.read() as session:
        return list(session.scalars(select(SweepRow.snapshot)))


@pytest.mark.slow
def test_the_command_refuses_a_deprecated_snapshot_and_takes_it_with_an_option(
    tmp_path: Path, small: Small
) -> None:
    shell = Shell(tmp_path)
    spec = shell.spec(small(max_trials=1))
    taken = take_snapshot(shell.backend.store, shell.backend.catalog, parse_spec(small()).dataset)
    assert shell.run("datasets", "deprecate", taken.key, "--reason", _REASON)[0] == 0
    status, out, err = shell.run("sweep", spec)
    assert status == 1
    assert f"dataset = '{taken.key}' {_REFUSED}" in " ".join((out + err).split())
    assert "Traceback" not in out + err
    assert snapshots_of_sweeps(shell.backend) == []
    status, out, err = shell.run("sweep", spec, "--allow-deprecated")
    assert status == 0, out + err
    assert snapshots_of_sweeps(shell.backend) == [taken.digest]


@pytest.mark.parametrize("job", _JOBS)
@pytest.mark.parametrize("is_named", [True, False], ids=["a snapshot", "a source"])
def test_a_job_takes_a_deprecated_snapshot_where_its_runs_tag_says_so(
    backend: Backend, instance: dg.DagsterInstance, snapshot: Snapshot, small: Small, job: str, is_named: bool
) -> None:
    spec = small(max_trials=1, **({"snapshot": snapshot.digest} if is_named else {}))
    for tags in ({}, {ALLOW_DEPRECATED: "false"}):
        success, error = execute(instance, job, spec, tags)
        assert not success
        assert f"{'snapshot' if is_named else 'dataset'} = '{snapshot.key}' {_REFUSED}" in error
    assert snapshots_of_sweeps(backend) == []
    assert execute(instance, job, spec, {ALLOW_DEPRECATED: "true"}) == (True, "")
    assert snapshots_of_sweeps(backend) == [snapshot.digest]


@pytest.mark.parametrize("job", _JOBS)
def test_an_unfinished_sweep_goes_on_though_its_snapshot_was_deprecated_meanwhile(
    backend: Backend, instance: dg.DagsterInstance, snapshot: Snapshot, small: Small, job: str
) -> None:
    spec = parse_spec(small(max_trials=1))
    drivers = {"sweep": "job", "launch_sweep": "sensors"}
    other = next(driver for name, driver in drivers.items() if name != job)
    open_sweep(backend.catalog, spec, snapshot.digest, driver=other, commit=None)
    success, error = execute(instance, job, small(max_trials=1), {})
    assert not success, "a sweep of another driver is another sweep"
    assert f"dataset = '{snapshot.key}' {_REFUSED}" in error
    unfinished = open_sweep(backend.catalog, spec, snapshot.digest, driver=drivers[job], commit=None)
    assert execute(instance, job, small(max_trials=1), {}) == (True, "")
    with backend.catalog.read() as session:
        of_driver = session.scalars(select(SweepRow.id).where(SweepRow.driver == drivers[job])).all()
    assert list(of_driver) == [unfinished.id]


@pytest.mark.parametrize("job", ["sweep", "launch_sweep"])
@pytest.mark.parametrize("tag", [ALLOW_DEPRECATED, REFRESH])
@pytest.mark.parametrize("value", ["True", "yes", ""])
def test_another_value_of_a_tag_is_one_error(
    backend: Backend,
    instance: dg.DagsterInstance,
    small: Small,
    monkeypatch: pytest.MonkeyPatch,
    job: str,
    tag: str,
    value: str,
) -> None:
    monkeypatch.setenv("HALVING_ROOT", backend.store.root)
    success, error = execute(instance, job, small(), {tag: value})
    assert not success
    assert f"the run's tag {tag} = {value!r} is not accepted: give true or false" in error
    assert snapshots_of_sweeps(backend) == []


def test_scheduled_retraining_is_refused_on_a_deprecated_snapshot(
    instance: dg.DagsterInstance,
    snapshot: Snapshot,
    small: Small,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(schedules, "RETRAINED", tmp_path / "retrained.yaml")
    schedules.RETRAINED.write_text(yaml.safe_dump(small()))
    tick = schedules.scheduled_retraining.evaluate_tick(
        dg.build_schedule_context(scheduled_execution_time=datetime(2026, 1, 1, 3, tzinfo=UTC))
    )
    (request,) = tick.run_requests or []
    success, error = execute(instance, "sweep", dict(request.run_config), dict(request.tags))
    assert not success
    assert f"dataset = '{snapshot.key}' {_REFUSED}" in error


def test_a_source_that_the_api_was_asked_to_search_on_is_refused_by_its_run(
    backend: Backend, instance: dg.DagsterInstance, snapshot: Snapshot, small: Small
) -> None:
    with backend.catalog.write() as session:
        intent = intents.add(session, parse_spec(small()), kind="study", driver="sensors", actor="ada")
    (request,) = launch_requested.evaluate_tick(_context(backend, instance)).run_requests or []
    tags = {**request.tags, "dagster/run_key": str(request.run_key)}
    success, error = execute(instance, "launch_sweep", dict(request.run_config), tags)
    assert not success
    assert f"dataset = '{snapshot.key}' {_REFUSED}" in error
    launch_requested.evaluate_tick(_context(backend, instance))
    settled = intents.find(backend.catalog, intent.id)
    assert settled.status == "failed"
    assert f"dataset = '{snapshot.key}' {_REFUSED}" in (settled.error or "")


def _context(backend: Backend, instance: dg.DagsterInstance) -> dg.SensorEvaluationContext:
    return dg.build_sensor_context(instance=instance, resources={"backend": backend}, definitions=defs)
