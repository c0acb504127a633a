"""Intents that the API adds while Dagster is down: the sensor launches one run for each."""

import re
from argparse import Namespace
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml
from sqlalchemy import select

from commands.launch import run_sweep
from halving.errors import InvalidInput
from pipelines.definitions import defs
from pipelines.jobs import INTENT
from pipelines.sensors import finish_sweeps, launch_requested, start_trials
from resources.backend import Backend
from resources.catalog import Catalog, IntentRow, ProjectRow, SnapshotRow, SweepRow, utcnow
from resources.datasets.snapshots import take_snapshot
from resources.scheduling import intents
from resources.scheduling.loop_scheduler import LoopScheduler
from resources.scheduling.scheduler import Scheduler
from resources.scheduling.sweeps import open_sweep, stop_sweep
from resources.scheduling.training_runs import cancel, first_run
from resources.sweep_spec import SweepSpec, parse_spec
from tests.backends import snapshot_row
from tests.searches import search

Small = Callable[..., dict[str, Any]]


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as ephemeral:
        yield ephemeral


def tick(sensor: dg.SensorDefinition, backend: Backend, instance: dg.DagsterInstance) -> list[dg.RunRequest]:
    context = dg.build_sensor_context(instance=instance, resources={"backend": backend}, definitions=defs)
    with dg.partition_loading_context(dynamic_partitions_store=instance):
        return list(sensor.evaluate_tick(context).run_requests or [])


def add_intent(
    backend: Backend,
    spec: SweepSpec,
    driver: intents.Driver = "sensors",
    projects: Collection[str] | None = None,
) -> IntentRow:
    with backend.catalog.write() as session:
        return intents.add(session, spec, kind="study", driver=driver, actor="ada", projects=projects)


def carry_out(
    backend: Backend, instance: dg.DagsterInstance, request: dg.RunRequest
) -> dg.ExecuteInProcessResult:
    """Execute a request's run, as Dagster's daemon would have it launched."""
    tags = {**request.tags, "dagster/run_key": str(request.run_key)}
    job = defs.get_job_def("launch_sweep")
    resources = {"backend": backend}
    return job.execute_in_process(
        run_config=request.run_config, instance=instance, tags=tags, resources=resources, raise_on_error=False
    )


def status(backend: Backend, intent: IntentRow) -> tuple[str, str | None]:
    now = intents.find(backend.catalog, intent.id)
    return now.status, now.error


def sweeps(backend: Backend) -> list[SweepRow]:
    with backend.catalog.read() as session:
        return list(session.scalars(select(SweepRow)))


def test_an_intent_is_requested_until_it_has_a_run_and_becomes_the_sweep_it_named(
    backend: Backend, instance: dg.DagsterInstance, small: Small
) -> None:
    intent = add_intent(backend, parse_spec(small(max_trials=2)))
    (first,) = tick(launch_requested, backend, instance)
    (again,) = tick(launch_requested, backend, instance)
    assert first.run_key == again.run_key == f"intent/{intent.id}"
    assert carry_out(backend, instance, first).success
    assert [sweep.id for sweep in sweeps(backend)] == [intent.sweep]
    assert status(backend, intent) == ("done", None)
    assert tick(launch_requested, backend, instance) == []
    assert f"{intent.sweep}.0000/r0/a1" in [
        request.run_key for request in tick(start_trials, backend, instance)
    ]


def test_a_sweep_without_gpu_hours_is_refused_by_intent_job_and_command(
    backend: Backend,
    instance: dg.DagsterInstance,
    small: Small,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    fields = small(resources={"gpus": 1}, max_trials=2)
    with backend.catalog.write() as session:
        session.add(
            ProjectRow(
                name="small", owners=[], weight=1.0, gpu_hours=0.0, former_names=[], created_at=utcnow()
            )
        )
    said = (
        "resources.gpus = 1 is not accepted: project small has 0 of its 0 GPU-hours left this month; they "
        "are renewed on "
    )
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(fields))
    with pytest.raises(InvalidInput, match=re.escape(said)):
        run_sweep(
            Namespace(root=backend.store.root, spec=str(tmp_path / "spec.yaml"), json=False, refresh=False)
        )
    snapshot = take_snapshot(backend.store, backend.catalog, parse_spec(fields).dataset)
    # an intent opens its own
    other = open_sweep(backend.catalog, parse_spec(fields), snapshot.digest, driver="sensors", commit=None)
    intent = add_intent(backend, parse_spec(fields))
    (request,) = tick(launch_requested, backend, instance)
    refused = carry_out(backend, instance, request)  # the job that a launchpad launches, too
    (failure,) = (event for event in refused.all_events if event.is_step_failure)
    assert said in str(failure.step_failure_data.user_failure_data)
    assert [sweep.id for sweep in sweeps(backend)] == [other.id]
    assert status(backend, intent)[0] != "done"


def test_without_gpu_hours_a_job_only_resumes_the_sweep_of_its_driver_and_snapshot(
    backend: Backend, instance: dg.DagsterInstance, small: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setenv("HALVING_ROOT", backend.store.root)
    spec = small(resources={"gpus": 1}, max_trials=2)
    with backend.catalog.write() as session:
        session.add(
            ProjectRow(
                name="small", owners=[], weight=1.0, gpu_hours=0.0, former_names=[], created_at=utcnow()
            )
        )
        session.add(snapshot_row("sha256:before"))

    def launch() -> tuple[bool, str]:
        job = defs.get_job_def("launch_sweep")
        run = job.execute_in_process(run_config=spec, instance=instance, raise_on_error=False)
        failures = [event.step_failure_data for event in run.all_events if event.is_step_failure]
        return run.success, "\n".join(str(failure.user_failure_data) for failure in failures)

    def snapshots() -> int:
        with backend.catalog.read() as session:
            return len(session.scalars(select(SnapshotRow)).all())

    refused = "project small has 0 of its 0 GPU-hours left"
    of_command = open_sweep(backend.catalog, parse_spec(spec), "sha256:before", driver="job", commit=None).id
    success, error = launch()
    assert (success, refused in error, snapshots()) == (False, True, 1), "refused before anything is stored"
    on_other = open_sweep(
        backend.catalog, parse_spec(spec), "sha256:before", driver="sensors", commit=None
    ).id
    success, error = launch()
    assert (success, refused in error) == (False, True)
    digest = take_snapshot(backend.store, backend.catalog, parse_spec(spec).dataset).digest
    unfinished = open_sweep(backend.catalog, parse_spec(spec), digest, driver="sensors", commit=None).id
    with backend.catalog.write() as session:
        backend.catalog.sweep(session, unfinished).spec_digest = "sha256:of an earlier version"
    assert launch() == (True, "")
    assert {sweep.id for sweep in sweeps(backend)} == {of_command, on_other, unfinished}


def test_a_run_that_is_carried_out_twice_opens_one_sweep(
    backend: Backend, instance: dg.DagsterInstance, small: Small
) -> None:
    add_intent(backend, parse_spec(small()))
    (request,) = tick(launch_requested, backend, instance)
    assert carry_out(backend, instance, request).success
    assert carry_out(backend, instance, request).success
    assert len(sweeps(backend)) == 1


def test_a_sweep_learns_from_the_projects_that_whoever_asked_for_it_may_see(
    backend: Backend, instance: dg.DagsterInstance, small: Small
) -> None:
    earlier = {}
    for name in ("mine", "other"):
        earlier[name] = search(
            backend,
            parse_spec(small(name=name, max_trials=1)),
            lambda trial, params, epochs: {"score": params["x"]},
        )
        backend.catalog.end_sweep(earlier[name], "finished")
    learns = {"name": "mine", "warm_start": "auto", "strategy": {"tpe": {"budget": 3}}}
    limited = add_intent(backend, parse_spec(small(**learns)), projects=["mine"])
    named = add_intent(
        backend, parse_spec(small(**learns | {"warm_start": [earlier["other"]]})), projects=["mine"]
    )
    for request in tick(launch_requested, backend, instance):
        carry_out(backend, instance, request)
    assert {sweep.id: sweep.warm_start for sweep in sweeps(backend)}[limited.sweep] == [earlier["mine"]]
    tick(launch_requested, backend, instance)
    became, error = status(backend, named)
    assert (became, f"no sweep '{earlier['other']}' in the catalog" in str(error)) == ("failed", True)


def test_two_intents_of_one_spec_become_two_sweeps(
    backend: Backend, instance: dg.DagsterInstance, small: Small
) -> None:
    for _ in range(2):
        add_intent(backend, parse_spec(small()))
    for request in tick(launch_requested, backend, instance):
        assert carry_out(backend, instance, request).success
    assert len(sweeps(backend)) == 2


def test_why_a_run_failed_is_said_of_its_intent(
    backend: Backend, instance: dg.DagsterInstance, small: Small
) -> None:
    dataset = {"name": "points", "source": "tests.trainables:data_raising", "target": "label"}
    intent = add_intent(backend, parse_spec(small(dataset=dataset)))
    (request,) = tick(launch_requested, backend, instance)
    assert not carry_out(backend, instance, request).success
    assert tick(launch_requested, backend, instance) == []
    became, error = status(backend, intent)
    assert became == "failed"
    assert "the file has no such column" in str(error)


def test_a_canceled_run_fails_its_intent_and_one_that_goes_on_is_waited_for(
    backend: Backend, instance: dg.DagsterInstance, small: Small
) -> None:
    canceled = add_intent(backend, parse_spec(small()))
    queued = add_intent(backend, parse_spec(small(seed=1)))
    for intent, now in ((canceled, dg.DagsterRunStatus.CANCELED), (queued, dg.DagsterRunStatus.STARTED)):
        instance.add_run(
            dg.DagsterRun(
                job_name="launch_sweep", tags={"dagster/run_key": f"intent/{intent.id}"}, status=now
            )
        )
    assert tick(launch_requested, backend, instance) == []
    assert (status(backend, canceled)[0], status(backend, queued)) == ("failed", ("launched", None))


def test_a_run_whose_sweep_was_opened_before_it_was_killed_has_done_its_work(
    backend: Backend, instance: dg.DagsterInstance, small: Small
) -> None:
    spec = parse_spec(small())
    intent = add_intent(backend, spec)
    snapshot = take_snapshot(backend.store, backend.catalog, spec.dataset)
    open_sweep(backend.catalog, spec, snapshot.digest, driver="sensors", commit=None, sweep=intent.sweep)
    killed = dg.DagsterRun(
        job_name="launch_sweep",
        tags={"dagster/run_key": f"intent/{intent.id}"},
        status=dg.DagsterRunStatus.FAILURE,
    )
    instance.add_run(killed)
    assert tick(launch_requested, backend, instance) == []
    assert status(backend, intent) == ("done", None)


def test_an_intent_that_dagster_would_not_take_does_not_stop_the_others(
    backend: Backend, instance: dg.DagsterInstance, small: Small
) -> None:
    wrong = add_intent(backend, parse_spec(small()))
    right = add_intent(backend, parse_spec(small(seed=1)))
    with backend.catalog.write() as session:
        row = session.get_one(IntentRow, wrong.id)
        row.payload = {**row.payload, "spec": {**row.payload["spec"], "resources": {"cpus": 4000}}}
    assert [request.tags[INTENT] for request in tick(launch_requested, backend, instance)] == [right.id]
    became, error = status(backend, wrong)
    assert (became, "resources.cpus = 4000" in str(error)) == ("failed", True)


def test_a_canceled_intent_opens_nothing_although_its_run_was_asked_for(
    backend: Backend, instance: dg.DagsterInstance, small: Small
) -> None:
    intent = add_intent(backend, parse_spec(small(max_trials=1)))
    (request,) = tick(launch_requested, backend, instance)
    with backend.catalog.write() as session:
        cancel(backend.catalog, "small", first_run(intent.sweep), "ada", session)
    assert not carry_out(backend, instance, request).success
    assert (sweeps(backend), status(backend, intent)[0]) == ([], "canceled")


def test_a_cancel_while_the_sweep_is_about_to_be_opened_opens_nothing(
    backend: Backend, instance: dg.DagsterInstance, small: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    intent = add_intent(backend, parse_spec(small(max_trials=1)))
    (request,) = tick(launch_requested, backend, instance)

    def canceled_meanwhile(*_: object) -> None:
        """Called after the intent was begun and before its sweep is opened."""
        with backend.catalog.write() as session:
            cancel(backend.catalog, "small", first_run(intent.sweep), "ada", session)

    monkeypatch.setattr("pipelines.jobs.git_state", canceled_meanwhile)
    assert not carry_out(backend, instance, request).success
    assert (sweeps(backend), status(backend, intent)[0]) == ([], "canceled")


def test_a_study_that_external_loops_drive_is_opened_and_then_left_to_them(
    backend: Backend, instance: dg.DagsterInstance, small: Small
) -> None:
    add_intent(backend, parse_spec(small()), driver="api")
    (request,) = tick(launch_requested, backend, instance)
    assert carry_out(backend, instance, request).success
    (sweep,) = sweeps(backend)
    assert (sweep.driver, tick(start_trials, backend, instance)) == ("api", [])
    backend.catalog.end_sweep(sweep.id, "evaluating")
    assert [conclusion.partition_key for conclusion in tick(finish_sweeps, backend, instance)] == [
        sweep.id
    ], "it has a predictor"


def test_a_stopped_study_whose_loops_are_gone_is_ended_by_a_tick(
    backend: Backend, instance: dg.DagsterInstance, small: Small
) -> None:
    spec = parse_spec(small())
    snapshot = take_snapshot(backend.store, backend.catalog, spec.dataset)
    row = open_sweep(backend.catalog, spec, snapshot.digest, driver="api", commit=None)
    assert tick(finish_sweeps, backend, instance) == []
    assert Scheduler(backend.catalog, row.id).state().control == "run"
    stop_sweep(backend.catalog, row.id)
    instance.add_dynamic_partitions("sweeps", [row.id])
    tick(finish_sweeps, backend, instance)
    assert [sweep.status for sweep in sweeps(backend)] == ["failed"]


def test_a_stopped_study_is_left_alone_while_a_loop_holds_one_of_its_trials(
    backend: Backend, instance: dg.DagsterInstance, small: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = parse_spec(small())
    snapshot = take_snapshot(backend.store, backend.catalog, spec.dataset)
    row = open_sweep(backend.catalog, spec, snapshot.digest, driver="api", commit=None)
    loop = LoopScheduler(backend.catalog, row.id)
    assignment = loop.ask("w", 600, again=False)
    stop_sweep(backend.catalog, row.id)
    made: list[str] = []

    def make(catalog: Catalog, sweep: str, **options: Any) -> LoopScheduler:
        made.append(sweep)
        return LoopScheduler(catalog, sweep, **options)

    monkeypatch.setattr("pipelines.sensors.LoopScheduler", make)
    tick(finish_sweeps, backend, instance)
    assert made == []
    loop.release(assignment, 1.0)  # type: ignore[arg-type]
    instance.add_dynamic_partitions("sweeps", [row.id])
    tick(finish_sweeps, backend, instance)
    assert (made, [sweep.status for sweep in sweeps(backend)]) == ([row.id], ["failed"])


def test_a_study_without_a_trainable_is_opened_for_its_loops_and_for_nobody_else(
    backend: Backend, instance: dg.DagsterInstance, small: Small
) -> None:
    fields = small(max_trials=2)
    del fields["trainable"]
    intent = add_intent(backend, parse_spec(fields, trains=False), driver="api")
    (request,) = tick(launch_requested, backend, instance)
    assert carry_out(backend, instance, request).success
    assert status(backend, intent) == ("done", None)
    job = defs.get_job_def("launch_sweep")
    by_hand = job.execute_in_process(
        run_config=fields, instance=instance, resources={"backend": backend}, raise_on_error=False
    )
    (failure,) = (event for event in by_hand.all_events if event.is_step_failure)
    assert "trainable is missing" in str(failure.step_failure_data.user_failure_data)
    assert len(sweeps(backend)) == 1


def test_a_sweep_without_a_predictor_is_not_concluded(
    backend: Backend, instance: dg.DagsterInstance, small: Small
) -> None:
    fields = small(max_trials=1)
    del fields["predictor"]
    spec = parse_spec(fields)
    snapshot = take_snapshot(backend.store, backend.catalog, spec.dataset)
    row = open_sweep(backend.catalog, spec, snapshot.digest, driver="sensors", commit=None)
    stop_sweep(backend.catalog, row.id)
    Scheduler(backend.catalog, row.id).next_work(None)
    assert [sweep.status for sweep in sweeps(backend)] == ["failed"]
    assert tick(finish_sweeps, backend, instance) == []


def test_an_intent_that_got_past_the_server_reads_nothing_that_is_not_listed_here(
    backend: Backend,
    instance: dg.DagsterInstance,
    small: Small,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    secret = tmp_path / "beside" / "secret.csv"
    secret.parent.mkdir()
    secret.write_text("id,label\n" + "".join(f"{number},{number % 3}\n" for number in range(300)))
    (tmp_path / "listed").mkdir()
    (tmp_path / "listed" / "link.csv").symlink_to(secret)
    monkeypatch.setenv("HALVING_SOURCES", str(tmp_path / "listed"))
    for source in (
        {"files": str(secret)},
        {"files": f"{tmp_path}/listed/*.csv"},
        {"sql": f"SELECT *, 1 AS label FROM read_text('{secret}')"},
        {"sql": "SELECT *, 1 AS label FROM read_blob('/pro' || 'c/self/environ')"},
        "os:getcwd",
    ):
        intent = add_intent(
            backend, parse_spec(small(dataset={"name": "small", "source": source, "target": "label"}))
        )
        (request,) = tick(launch_requested, backend, instance)
        assert not carry_out(backend, instance, request).success
        assert tick(launch_requested, backend, instance) == []
        now, error = status(backend, intent)
        assert (now, "is not accepted over HTTP" in str(error)) == ("failed", True), error
    with backend.catalog.read() as session:
        assert list(session.scalars(select(SnapshotRow))) == []
    assert not list(Path(backend.store.root).glob("datasets/*"))
