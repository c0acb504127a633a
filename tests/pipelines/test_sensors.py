"""The sensors' driver: ticks that may be repeated. Whole sweeps through real runs are in ``test_daemon``."""

from collections.abc import Callable
from typing import Any

import dagster as dg
import pytest

from halving import init
from halving.trial.messages import ReachedRung
from pipelines.definitions import defs
from pipelines.sensors import (
    finish_sweeps,
    hand_out,
    retry_crashed_trials,
    start_trials,
    stop_diverged_trials,
    watch_starting_pods,
)
from resources.backend import Backend
from resources.catalog import SweepRow
from resources.datasets.snapshots import take_snapshot
from resources.execution.kubernetes.pending_pods import Starting
from resources.scheduling.assignment import Superseded
from resources.scheduling.scheduler import Scheduler
from resources.scheduling.sweeps import extend_sweep, open_sweep
from resources.search.state import Status
from resources.sweep_spec import parse_spec
from tests.pipelines.sensor_ticks import add_run, prepare, tick

Small = Callable[..., dict[str, Any]]


def test_a_tick_begins_the_days_retention(
    backend: Backend, open_scheduler: Scheduler, instance: dg.DagsterInstance
) -> None:
    prepare(instance, open_scheduler)
    tick(finish_sweeps, backend, instance)
    assert len(backend.store.names("retention/begun")) == 1


def test_a_tick_requests_runs_up_to_the_concurrency_and_the_same_ones_again(
    backend: Backend, open_scheduler: Scheduler, instance: dg.DagsterInstance
) -> None:
    prepare(instance, open_scheduler)
    first = tick(start_trials, backend, instance)
    again = tick(start_trials, backend, instance)
    assert [request.run_key for request in first] == [
        f"{open_scheduler.id}.0000/r0/a1",
        f"{open_scheduler.id}.0001/r0/a1",
    ]
    assert [request.run_key for request in again] == [request.run_key for request in first]
    assert [request.partition_key for request in first] == [
        f"{open_scheduler.id}.0000",
        f"{open_scheduler.id}.0001",
    ]


def test_a_running_trial_is_not_asked_for_and_counts_in_the_concurrency(
    backend: Backend, open_scheduler: Scheduler, instance: dg.DagsterInstance
) -> None:
    prepare(instance, open_scheduler)
    tick(start_trials, backend, instance)
    open_scheduler.claim(0, "worker")
    assert [request.run_key for request in tick(start_trials, backend, instance)] == [
        f"{open_scheduler.id}.0001/r0/a1"
    ]


def test_a_paused_trial_in_the_top_share_is_resumed_under_its_next_rung_and_attempt(
    backend: Backend, open_scheduler: Scheduler, instance: dg.DagsterInstance
) -> None:
    prepare(instance, open_scheduler)
    for value in (0.9, 0.1, 0.2):
        waiting = tick(start_trials, backend, instance)[0]
        number = int(str(waiting.partition_key)[-4:])
        assignment = open_scheduler.claim(number, "worker")
        open_scheduler.report_rung(assignment, ReachedRung(1, {"score": value}, "sha256:c"), 1.0)
    assert f"{open_scheduler.id}.0000/r1/a2" in [
        request.run_key for request in tick(start_trials, backend, instance)
    ]


def test_a_trial_whose_run_was_canceled_is_queued_again_with_its_next_attempt(
    backend: Backend, open_scheduler: Scheduler, instance: dg.DagsterInstance
) -> None:
    prepare(instance, open_scheduler)
    key = str(tick(start_trials, backend, instance)[0].run_key)
    run = dg.DagsterRun(
        job_name="run_trial", tags={"dagster/run_key": key}, status=dg.DagsterRunStatus.CANCELED
    )
    instance.add_run(run)
    assert tick(retry_crashed_trials, backend, instance) == []
    with backend.catalog.read() as session:
        error = str(backend.catalog.trials(session, open_scheduler.id)[0].error)
    assert error == f"run {run.run_id} of attempt 1 ended as CANCELED before it began to train"
    assert f"{open_scheduler.id}.0000/r0/a2" in [
        request.run_key for request in tick(start_trials, backend, instance)
    ]


@pytest.mark.parametrize("waiting", [1, 50])
def test_a_tick_asks_for_runs_once_however_many_attempts_wait(
    backend: Backend,
    instance: dg.DagsterInstance,
    small: Small,
    monkeypatch: pytest.MonkeyPatch,
    waiting: int,
) -> None:
    spec = parse_spec(small(max_trials=60, concurrency=50, strategy={"random": {"budget": 1}}))
    snapshot = take_snapshot(backend.store, backend.catalog, spec.dataset)
    scheduler = Scheduler(
        backend.catalog, open_sweep(backend.catalog, spec, snapshot.digest, driver="sensors", commit=None).id
    )
    assignments = [scheduler.next_work(None) for _ in range(waiting)]
    assert scheduler.unclaimed_attempts() == assignments
    storage = instance.run_storage
    queries = []
    canceled = []
    ask = storage.get_runs
    monkeypatch.setattr(
        storage, "get_runs", lambda *arguments, **named: queries.append(arguments) or ask(*arguments, **named)
    )
    monkeypatch.setattr(
        "pipelines.sensors.starting",
        lambda sweep, handed_out: [Starting(assignment, None, 1e9) for assignment in handed_out],
    )
    monkeypatch.setattr(
        type(instance.run_coordinator), "cancel_run", lambda self, run_id: canceled.append(run_id)
    )
    lost = [
        add_run(instance, assignment, dg.DagsterRunStatus.FAILURE)
        for assignment in scheduler.unclaimed_attempts()[1::2]
    ]
    late = [
        add_run(instance, assignment, dg.DagsterRunStatus.STARTED)
        for assignment in scheduler.unclaimed_attempts()[::2]
    ]

    tick(retry_crashed_trials, backend, instance)
    assert len(queries) == 1
    assert len(scheduler.unclaimed_attempts()) == waiting - len(lost)
    queries.clear()
    tick(watch_starting_pods, backend, instance)
    assert len(queries) == 1
    assert set(canceled) == set(late)
    assert scheduler.unclaimed_attempts() == []


@pytest.mark.parametrize("sweeps", [1, 5])
def test_a_tick_asks_once_how_often_the_conclusions_of_all_sweeps_have_failed(
    backend: Backend, instance: dg.DagsterInstance, small: Small, monkeypatch: pytest.MonkeyPatch, sweeps: int
) -> None:
    opened = []
    for seed in range(sweeps):
        spec = parse_spec(small(seed=seed))
        snapshot = take_snapshot(backend.store, backend.catalog, spec.dataset)
        opened.append(open_sweep(backend.catalog, spec, snapshot.digest, driver="sensors", commit=None).id)
        backend.catalog.end_sweep(opened[-1], "evaluating")
        instance.add_dynamic_partitions("sweeps", [opened[-1]])
    failed = {"halving/concludes": opened[0]}
    instance.add_run(
        dg.DagsterRun(job_name="conclude_sweep", tags=failed, status=dg.DagsterRunStatus.FAILURE)
    )
    storage = instance.run_storage
    queries = []
    ask = storage.get_runs
    monkeypatch.setattr(
        storage, "get_runs", lambda *arguments, **named: queries.append(arguments) or ask(*arguments, **named)
    )
    requests = tick(finish_sweeps, backend, instance)
    assert [request.run_key for request in requests] == [
        f"{sweep}/conclude/a{1 + (sweep == opened[0])}" for sweep in opened
    ]
    assert len(queries) == 1


def test_a_trial_whose_streamed_metrics_diverged_is_ended_and_another_can_start(
    backend: Backend, instance: dg.DagsterInstance, small: Small
) -> None:
    spec = parse_spec(small(max_trials=4, divergence={"loss": {"max": 10.0}}))
    snapshot = take_snapshot(backend.store, backend.catalog, spec.dataset)
    row = open_sweep(backend.catalog, spec, snapshot.digest, driver="sensors", commit=None)
    scheduler = Scheduler(backend.catalog, row.id)
    prepare(instance, scheduler)
    tick(start_trials, backend, instance)
    assignment = scheduler.claim(0, "worker")
    with init(project="small", id=assignment.key, root=backend.store.root) as run:
        run.log({"loss": 2.0}, step=1)
        run.flush()
        tick(stop_diverged_trials, backend, instance)
        assert scheduler.state().trials[0].status is Status.RUNNING
        run.log({"loss": 11.0}, step=2)
        run.flush()
        context = dg.build_sensor_context(instance=instance, resources={"backend": backend}, definitions=defs)
        (observation,) = stop_diverged_trials.evaluate_tick(context).asset_events
    assert (observation.partition, observation.metadata["status"].value) == (assignment.key, "failed")
    assert "'loss' became 11.0 at step 2" in observation.metadata["traceback"].value
    assert scheduler.state().trials[0].status is Status.FAILED
    with pytest.raises(Superseded):
        scheduler.heartbeat(assignment)
    assert f"{row.id}.0002/r0/a1" in [request.run_key for request in tick(start_trials, backend, instance)]


def test_trials_that_a_sweep_was_extended_by_get_their_partition_with_their_run(
    backend: Backend, open_scheduler: Scheduler, instance: dg.DagsterInstance
) -> None:
    prepare(instance, open_scheduler)
    extend_sweep(backend.catalog, open_scheduler.id, 6)
    context = dg.build_sensor_context(instance=instance, resources={"backend": backend}, definitions=defs)
    with dg.partition_loading_context(dynamic_partitions_store=instance):
        data = start_trials.evaluate_tick(context)
    keys = [key for request in data.dynamic_partitions_requests or [] for key in request.partition_keys]
    assert keys == [request.partition_key for request in data.run_requests or []] != []


def test_the_final_training_gets_its_own_runs_and_partitions_after_the_search(
    backend: Backend, instance: dg.DagsterInstance, small: Small
) -> None:
    spec = parse_spec(
        small(
            max_trials=1, concurrency=2, strategy={"random": {"budget": 2}}, final={"seeds": 3, "epochs": 5}
        )
    )
    snapshot = take_snapshot(backend.store, backend.catalog, spec.dataset)
    scheduler = Scheduler(
        backend.catalog, open_sweep(backend.catalog, spec, snapshot.digest, driver="sensors", commit=None).id
    )
    prepare(instance, scheduler)
    assert [request.run_key for request in tick(start_trials, backend, instance)] == [
        f"{scheduler.id}.0000/r0/a1"
    ]
    scheduler.report_rung(scheduler.claim(0, "worker"), ReachedRung(2, {"score": 0.5}, "sha256:c"), 1.0)
    requests = tick(start_trials, backend, instance)
    assert [request.run_key for request in requests] == [
        f"{scheduler.id}.0001/r0/a1",
        f"{scheduler.id}.0002/r0/a1",
    ]
    assert tick(finish_sweeps, backend, instance) == []
    for number in (1, 2):
        scheduler.report_rung(
            scheduler.claim(number, "worker"), ReachedRung(5, {"score": 0.9}, "sha256:c"), 1.0
        )
    assert [request.run_key for request in tick(start_trials, backend, instance)] == [
        f"{scheduler.id}.0003/r0/a1"
    ]
    scheduler.report_rung(scheduler.claim(3, "worker"), ReachedRung(5, {"score": 0.9}, "sha256:c"), 1.0)
    assert tick(start_trials, backend, instance) == []
    assert [request.partition_key for request in tick(finish_sweeps, backend, instance)] == [scheduler.id]


def test_a_sweep_that_one_job_drives_is_left_to_it(
    backend: Backend, small: Small, instance: dg.DagsterInstance
) -> None:
    spec = parse_spec(small())
    snapshot = take_snapshot(backend.store, backend.catalog, spec.dataset)
    open_sweep(backend.catalog, spec, snapshot.digest, driver="job", commit=None)
    assert tick(start_trials, backend, instance) == []


def test_a_sweep_is_concluded_when_its_search_is_over_and_not_before(
    backend: Backend, open_scheduler: Scheduler, instance: dg.DagsterInstance
) -> None:
    prepare(instance, open_scheduler)
    assert tick(finish_sweeps, backend, instance) == []
    with backend.catalog.write() as session:
        backend.catalog.sweep(session, open_scheduler.id).status = "evaluating"
    (request,) = tick(finish_sweeps, backend, instance)
    assert (request.run_key, request.partition_key) == (f"{open_scheduler.id}/conclude/a1", open_scheduler.id)


def test_a_conclusion_that_failed_is_tried_again_and_then_the_sweep_is_over(
    backend: Backend, open_scheduler: Scheduler, instance: dg.DagsterInstance
) -> None:
    prepare(instance, open_scheduler)
    with backend.catalog.write() as session:
        backend.catalog.sweep(session, open_scheduler.id).status = "evaluating"
    for attempt in (1, 2):
        (request,) = tick(finish_sweeps, backend, instance)
        assert request.run_key == f"{open_scheduler.id}/conclude/a{attempt}"
        instance.add_run(
            dg.DagsterRun(
                job_name="conclude_sweep", tags=dict(request.tags), status=dg.DagsterRunStatus.FAILURE
            )
        )
    assert tick(finish_sweeps, backend, instance) == []
    with backend.catalog.read() as session:
        assert backend.catalog.sweep(session, open_scheduler.id).status == "failed"


def test_a_sweep_that_cannot_be_read_does_not_stop_the_others(
    backend: Backend, open_scheduler: Scheduler, instance: dg.DagsterInstance
) -> None:
    prepare(instance, open_scheduler)
    with backend.catalog.write() as session:
        good = backend.catalog.sweep(session, open_scheduler.id)
        fields = {
            name: getattr(good, name) for name in ("name", "spec_digest", "snapshot", "driver", "created_at")
        }
        session.add(
            SweepRow(
                id="broken-0000", spec={"from": "another version"}, ordinal=9, status="searching", **fields
            )
        )
    assert len(tick(start_trials, backend, instance)) == 2
    assert tick(retry_crashed_trials, backend, instance) == []


def test_sensors_start_no_more_trials_than_the_machine_has_room_for(
    backend: Backend, small: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("resources.execution.machine.usable_cpus", lambda: 3)
    spec = parse_spec(small(concurrency=64))
    snapshot = take_snapshot(backend.store, backend.catalog, spec.dataset)
    sweep = open_sweep(backend.catalog, spec, snapshot.digest, driver="sensors", commit=None)
    assert len(hand_out(Scheduler(backend.catalog, sweep.id))) == 3
