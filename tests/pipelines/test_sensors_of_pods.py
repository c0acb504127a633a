"""Sensors on a cluster: pods get what their trial needs, and late ones are given up."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from halving.trial.messages import ReachedRung
from pipelines.definitions import defs
from pipelines.sensors import start_trials, watch_starting_pods
from resources.backend import Backend
from resources.datasets.snapshots import take_snapshot
from resources.execution.kubernetes.pending_pods import Starting
from resources.scheduling.assignment import Assignment
from resources.scheduling.scheduler import Scheduler
from resources.scheduling.sweeps import open_sweep
from resources.sweep_spec import parse_spec
from tests.pipelines.sensor_ticks import add_run, prepare, tick

Small = Callable[..., dict[str, Any]]


def test_a_trial_that_goes_on_with_other_resources_gets_a_run_whose_pod_has_those(
    backend: Backend,
    instance: dg.DagsterInstance,
    small: Small,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "cluster.yaml").write_text("concurrency: 1\n")
    monkeypatch.setenv("HALVING_CLUSTER", str(tmp_path / "cluster.yaml"))
    spec = parse_spec(
        small(
            strategy={"median": {"max_budget": 2}},
            resources={"gpus": {1: 1, 2: 8}, "processes": 1},
            concurrency=1,
        )
    )
    snapshot = take_snapshot(backend.store, backend.catalog, spec.dataset)
    scheduler = Scheduler(
        backend.catalog, open_sweep(backend.catalog, spec, snapshot.digest, driver="sensors", commit=None).id
    )
    prepare(instance, scheduler)
    (first,) = tick(start_trials, backend, instance)
    assignment = scheduler.claim(0, "worker")
    scheduler.report_rung(assignment, ReachedRung(1, {"score": 0.5}, "sha256:c"), 1.0)
    scheduler.report_resize(assignment, 1.0)
    (second,) = tick(start_trials, backend, instance)
    assert [request.run_key for request in (first, second)] == [
        f"{scheduler.id}.0000/r0/a1",
        f"{scheduler.id}.0000/r1/a2",
    ]
    pods = [
        json.loads(request.tags["dagster-k8s/config"])["container_config"]["resources"]
        for request in (first, second)
    ]
    assert [pod["limits"]["nvidia.com/gpu"] for pod in pods] == ["1", "8"]


def test_a_sweep_that_the_cluster_does_not_take_any_more_does_not_stop_the_others(
    backend: Backend,
    instance: dg.DagsterInstance,
    small: Small,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "cluster.yaml").write_text("concurrency: 2\n")  # the kind a100 has been taken out of it
    monkeypatch.setenv("HALVING_CLUSTER", str(tmp_path / "cluster.yaml"))
    snapshot = None
    opened = []
    for wanted in ({"resources": {"gpus": 1, "gpu_type": "a100"}}, {}):
        spec = parse_spec(small(**wanted))
        snapshot = snapshot or take_snapshot(backend.store, backend.catalog, spec.dataset)
        opened.append(open_sweep(backend.catalog, spec, snapshot.digest, driver="sensors", commit=None).id)
    instance.add_dynamic_partitions(
        "trials", [f"{sweep}.{number:04d}" for sweep in opened for number in range(4)]
    )
    assert {request.tags["halving/sweep"] for request in tick(start_trials, backend, instance)} == {opened[1]}


def test_why_a_pod_waits_is_noted_each_time_and_observed_once(
    backend: Backend, open_scheduler: Scheduler, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(instance, open_scheduler)
    tick(start_trials, backend, instance)
    said: list[str] = []
    assignment = open_scheduler.unclaimed_attempts()[0]
    monkeypatch.setattr(
        "pipelines.sensors.starting", lambda sweep, handed_out: [Starting(assignment, said[-1], 1.0)]
    )
    observed = []
    for reason in ("Unschedulable: 0/1 nodes", "Unschedulable: 0/2 nodes", "FailedMount: no secret"):
        said.append(reason)
        context = dg.build_sensor_context(instance=instance, resources={"backend": backend}, definitions=defs)
        observed.append(len(watch_starting_pods.evaluate_tick(context).asset_events))
        with backend.catalog.read() as session:
            assert backend.catalog.trials(session, open_scheduler.id)[0].waiting == reason
    assert observed == [1, 0, 1]


def test_a_late_pod_is_given_up_with_its_last_reason_unless_its_run_has_begun(
    backend: Backend, open_scheduler: Scheduler, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(instance, open_scheduler)
    tick(start_trials, backend, instance)
    late, begun = open_scheduler.unclaimed_attempts()
    open_scheduler.note_waiting(late, "Unschedulable: 0/1 nodes", unclaimed=True)

    def both(sweep: str, handed_out: list[Assignment]) -> list[Starting]:
        open_scheduler.claim(begun.trial, "its run")  # just now
        return [Starting(late, None, 1e9), Starting(begun, None, 1e9)]

    monkeypatch.setattr("pipelines.sensors.starting", both)
    context = dg.build_sensor_context(instance=instance, resources={"backend": backend}, definitions=defs)
    assert [event.partition for event in watch_starting_pods.evaluate_tick(context).asset_events] == [
        late.key
    ]
    with backend.catalog.read() as session:
        rows = backend.catalog.trials(session, open_scheduler.id)
    assert (rows[late.trial].failures, rows[begun.trial].failures) == (1, 0)
    assert "did not start within start_timeout_seconds = 1800: Unschedulable: 0/1 nodes" in str(
        rows[late.trial].error
    )


def test_a_run_that_cannot_be_canceled_does_not_stop_the_tick(
    backend: Backend, open_scheduler: Scheduler, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(instance, open_scheduler)
    tick(start_trials, backend, instance)
    assignment = open_scheduler.unclaimed_attempts()[0]
    monkeypatch.setattr(
        "pipelines.sensors.starting",
        lambda sweep, handed_out: [Starting(assignment, "Unschedulable: no", 1e9)],
    )

    def unavailable(*_: object) -> None:
        calls.append(1)
        raise ConnectionError("the cluster's API is unavailable")

    calls: list[int] = []
    add_run(instance, assignment, dg.DagsterRunStatus.STARTED)
    monkeypatch.setattr(type(instance.run_coordinator), "cancel_run", unavailable)
    assert tick(watch_starting_pods, backend, instance) == []
    assert calls
    assert assignment in open_scheduler.unclaimed_attempts(), "first the run, then the trial"
