"""The assets that a person materializes from the UI: what they make, and what they refuse."""

from collections.abc import Callable, Iterator
from typing import Any

import dagster as dg
import pytest

from assets.checkpoints import promoted_checkpoint
from assets.datasets import dataset_snapshot, materialized_snapshot
from assets.reports import evaluation_report
from assets.sweeps import materialized_sweep
from assets.sweeps import sweep as sweep_asset
from assets.trials import materialized_rung, trial
from halving import Dataset
from halving.records.run_record import RunRecords
from resources.backend import Backend
from resources.catalog import AttemptRow, ModelVersionRow, RungResultRow, SweepRow, TrialRow
from resources.datasets.snapshots import take_snapshot
from resources.evaluation.report import load_report
from resources.execution.held_gpus import HeldGpus
from resources.execution.machine import visible_gpus
from resources.execution.worker import TrialRunner, work
from resources.scheduling.assignment import Assignment
from resources.scheduling.scheduler import Scheduler
from resources.scheduling.sweeps import open_sweep
from resources.sweep_spec import SweepSpec
from resources.sweep_spec.gates import KINDS

Spec = Callable[..., SweepSpec]
ALL = [dataset_snapshot, sweep_asset, trial, evaluation_report, promoted_checkpoint]


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as ephemeral:
        yield ephemeral


def open_search(
    backend: Backend, spec: SweepSpec, instance: dg.DagsterInstance, *, searched: bool
) -> Scheduler:
    snapshot = take_snapshot(backend.store, backend.catalog, spec.dataset)
    scheduler = Scheduler(
        backend.catalog, open_sweep(backend.catalog, spec, snapshot.digest, driver="sensors", commit=None).id
    )
    instance.add_dynamic_partitions("sweeps", [scheduler.id])
    instance.add_dynamic_partitions(
        "trials", [f"{scheduler.id}.{number:04d}" for number in range(spec.max_trials)]
    )
    if searched:
        runner = TrialRunner(
            scheduler, backend.store, dataset_name=snapshot.name, dataset_digest=snapshot.digest, labels={}
        )
        work(scheduler, runner, lambda changed: None)
    return scheduler


def materialize(
    backend: Backend, instance: dg.DagsterInstance, names: str, partition: str
) -> dg.ExecuteInProcessResult:
    return dg.materialize(
        ALL,
        selection=names.split(),
        partition_key=partition,
        resources={"backend": backend},
        instance=instance,
        raise_on_error=False,
    )


def failures_of(result: dg.ExecuteInProcessResult) -> str:
    return "\n".join(str(event.event_specific_data) for event in result.all_events if event.is_failure)


def status(backend: Backend, sweep: str) -> str:
    with backend.catalog.read() as session:
        return backend.catalog.sweep(session, sweep).status


def versions(backend: Backend) -> list[str]:
    with backend.catalog.read() as session:
        return [
            f"{row.version} {row.stage}"
            for row in session.query(ModelVersionRow).order_by(ModelVersionRow.created_at)
        ]


CONCLUDE = "evaluation_report promoted_checkpoint"


@pytest.mark.slow
@pytest.mark.parametrize("page", [None, "https://halving.example.com/lab/"])
def test_what_is_materialized_links_to_our_page_where_its_address_is_known(
    backend: Backend,
    small_spec: Spec,
    instance: dg.DagsterInstance,
    monkeypatch: pytest.MonkeyPatch,
    page: str | None,
) -> None:
    if page:
        monkeypatch.setenv("HALVING_PAGE_URL", page)
    spec = small_spec(max_trials=3)
    scheduler = open_search(backend, spec, instance, searched=True)
    # The report is preceded by the rungs that were not logged yet.
    result = materialize(backend, instance, CONCLUDE, scheduler.id)
    assert result.success
    with backend.catalog.read() as session:
        row = backend.catalog.sweep(session, scheduler.id)
    snapshot = take_snapshot(backend.store, backend.catalog, spec.dataset)
    made = [event.materialization for event in result.all_events if event.is_step_materialization]
    manifest = Dataset(backend.store, snapshot.name, snapshot.digest).manifest
    made += [
        materialized_snapshot(snapshot, manifest).event(),
        materialized_sweep(row, spec, snapshot).event(),
    ]
    links = {(event.asset_key.to_user_string(), event.metadata.get("halving")) for event in made}
    trials = {event.partition for event in made if event.asset_key.to_user_string() == "trial"}
    paths = {("evaluation_report", f"sweeps/{row.id}"), ("promoted_checkpoint", "models/small")}
    paths |= {("sweep", f"sweeps/{row.id}"), ("dataset_snapshot", f"datasets/{snapshot.name}")}
    paths |= {("trial", f"runs/small/{key}") for key in trials}
    assert trials
    assert links == {
        (asset, dg.MetadataValue.url(f"https://halving.example.com/lab/{path}") if page else None)
        for asset, path in paths
    }


@pytest.mark.slow
def test_concluding_a_sweep_makes_its_report_and_its_checkpoint_once_however_often(
    backend: Backend, small_spec: Spec, instance: dg.DagsterInstance
) -> None:
    scheduler = open_search(backend, small_spec(max_trials=3), instance, searched=True)
    for _ in range(2):
        assert materialize(backend, instance, CONCLUDE, scheduler.id).success
    assert (status(backend, scheduler.id), versions(backend)) == ("finished", ["1.0.0 champion"])


@pytest.mark.slow
def test_a_failed_gate_blocks_the_checkpoint_and_rejects_the_sweep(
    backend: Backend, small_spec: Spec, instance: dg.DagsterInstance
) -> None:
    first = open_search(backend, small_spec(max_trials=3), instance, searched=True)
    concluded = materialize(backend, instance, CONCLUDE, first.id)
    assert concluded.success
    made = [
        concluded.asset_materializations_for_node(name)[-1].metadata["cost"].value
        for name in CONCLUDE.split()
    ]
    (observed,) = instance.fetch_observations(dg.AssetKey("sweep"), limit=1).records
    assert [observed.asset_observation.metadata["cost"].value] * 2 == made
    report = load_report(backend.store, backend.catalog, first.id).data["cost"]
    assert report["cost"] == pytest.approx(
        report["evaluation"] + sum(line["cost"] for line in report["purposes"])
    )
    assert made[0] == report["cost"] > report["evaluation"] > 0
    worse = open_search(
        backend, small_spec(max_trials=3, predictor="tests.trainables:predict_badly"), instance, searched=True
    )
    result = materialize(backend, instance, CONCLUDE, worse.id)
    assert not result.success
    assert [check.check_name for check in result.get_asset_check_evaluations() if not check.passed] == [
        "non_inferior"
    ]
    assert result.asset_materializations_for_node("promoted_checkpoint") == []
    assert (status(backend, worse.id), versions(backend)) == ("rejected", ["1.0.0 champion"])
    again = materialize(backend, instance, "promoted_checkpoint", worse.id)
    assert "was not promoted: non_inferior: accuracy" in failures_of(again)
    assert versions(backend) == ["1.0.0 champion"]


@pytest.mark.slow
def test_a_report_made_again_for_a_new_champion_is_shown_with_the_gate_that_failed(
    backend: Backend, small_spec: Spec, instance: dg.DagsterInstance
) -> None:
    worse = open_search(
        backend, small_spec(max_trials=3, predictor="tests.trainables:predict_badly"), instance, searched=True
    )
    assert materialize(backend, instance, "evaluation_report", worse.id).success
    better = open_search(backend, small_spec(max_trials=3), instance, searched=True)
    assert materialize(backend, instance, CONCLUDE, better.id).success
    result = materialize(backend, instance, "promoted_checkpoint", worse.id)
    assert "was not promoted: non_inferior: accuracy" in failures_of(result)
    logged = instance.get_records_for_run(
        result.run_id, of_type=dg.DagsterEventType.ASSET_CHECK_EVALUATION
    ).records
    checks = [record.event_log_entry.dagster_event.asset_check_evaluation_data for record in logged]
    assert {check.partition for check in checks} == {worse.id}
    assert {check.check_name: check.passed for check in checks} == {
        name: name != "non_inferior" for name in KINDS
    }
    newest = instance.fetch_materializations(dg.AssetKey("evaluation_report"), limit=1).records[0]
    assert newest.partition_key == worse.id
    assert newest.asset_materialization.metadata["champion"].value == "1.0.0"


@pytest.mark.slow
def test_evaluating_a_finished_sweep_again_does_not_reject_it(
    backend: Backend, small_spec: Spec, instance: dg.DagsterInstance, small: Callable[..., Any]
) -> None:
    bad = open_search(
        backend, small_spec(max_trials=3, predictor="tests.trainables:predict_badly"), instance, searched=True
    )
    assert materialize(backend, instance, CONCLUDE, bad.id).success
    good = open_search(backend, small_spec(max_trials=3, auto_promote=True), instance, searched=True)
    assert materialize(backend, instance, CONCLUDE, good.id).success
    assert not materialize(backend, instance, "evaluation_report", bad.id).success
    assert (status(backend, bad.id), versions(backend)) == ("finished", ["1.0.0 archived", "1.0.1 champion"])


@pytest.mark.slow
def test_a_checkpoint_without_a_report_is_refused(
    backend: Backend, small_spec: Spec, instance: dg.DagsterInstance
) -> None:
    scheduler = open_search(backend, small_spec(max_trials=1), instance, searched=True)
    result = materialize(backend, instance, "promoted_checkpoint", scheduler.id)
    assert f"sweep {scheduler.id} has no evaluation report yet" in failures_of(result)


@pytest.mark.slow
def test_a_trial_runs_on_gpus_of_its_own_and_leaves_one_materialization_a_rung(
    backend: Backend, small_spec: Spec, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-8f1c,MIG-77aa")
    scheduler = open_search(
        backend, small_spec(max_trials=2, resources={"gpus": 1}), instance, searched=False
    )
    scheduler.next_work(None)
    another = scheduler.next_work(None)
    assert isinstance(another, Assignment)
    assert HeldGpus(backend.catalog, visible_gpus()).take(another, 1) == ["GPU-8f1c"]
    result = materialize(backend, instance, "trial", f"{scheduler.id}.0000")
    assert result.success
    (made,) = result.asset_materializations_for_node("trial")
    assert (made.partition, made.metadata["rung"].value, made.metadata["decision"].value) == (
        f"{scheduler.id}.0000",
        0,
        "paused",
    )
    assert made.metadata["gpu_seconds"].value > 0
    recorded = RunRecords(backend.store, "small", f"{scheduler.id}.0000").read()["provenance"]["hardware"]
    assert recorded["visible_gpus"]["CUDA_VISIBLE_DEVICES"] == "MIG-77aa"
    assert HeldGpus(backend.catalog, ["GPU-8f1c", "MIG-77aa"]).free() == 1, "it is given back"


def test_gpu_seconds_of_a_rung_are_those_of_the_nodes_and_gpus_that_trained_it(small_spec: Spec) -> None:
    spec = small_spec(resources={"gpus": 4, "nodes": 2}, image="train")
    sweep = SweepRow(id="small-1", spec_digest="d", snapshot="s")
    result = RungResultRow(trial=0, rung=0, epochs=1, value=0.5, seconds=2.5, decision="complete", attempt=1)
    for nodes, expected in ((2, 20.0), (1, 10.0)):  # The second is of a gang that shrank.
        made = materialized_rung(
            sweep, spec, TrialRow(params={}), AttemptRow(nodes=nodes, gpus=4, cpus=1.0), result, "page"
        )
        assert made.event().metadata["gpu_seconds"].value == expected


def test_a_trial_that_nobody_asked_for_is_refused(
    backend: Backend, small_spec: Spec, instance: dg.DagsterInstance
) -> None:
    scheduler = open_search(backend, small_spec(max_trials=1), instance, searched=False)
    result = materialize(backend, instance, "trial", f"{scheduler.id}.0000")
    assert f"trial {scheduler.id}.0000 is not waiting for a worker: there is no such trial" in failures_of(
        result
    )


@pytest.mark.slow
def test_a_trial_that_raises_fails_its_run_with_the_traceback_on_its_partition(
    backend: Backend, small_spec: Spec, instance: dg.DagsterInstance
) -> None:
    spec = small_spec(max_trials=1, max_retries=0, trainable="tests.trainables:train_raising_always")
    scheduler = open_search(backend, spec, instance, searched=False)
    scheduler.next_work(None)
    result = materialize(backend, instance, "trial", f"{scheduler.id}.0000")
    assert "no trial of this sweep can work" in failures_of(result)
    (observed,) = instance.fetch_observations(dg.AssetKey("trial"), limit=10).records
    assert observed.partition_key == f"{scheduler.id}.0000"
    assert observed.asset_observation is not None
    assert "no trial of this sweep can work" in str(observed.asset_observation.metadata["traceback"].value)
