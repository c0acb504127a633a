"""What the steps of a one-job sweep do about faults and needs; the whole job is in test_sweep_job.py."""

from collections.abc import Callable
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from sqlalchemy import select

from assets.datasets import data_checks, dataset_snapshot
from assets.events import expected_failures
from commands import launch
from halving.errors import HalvingError, InvalidInput, StoreError, StoreUnavailable
from pipelines import jobs
from pipelines.definitions import defs
from resources.backend import Backend
from resources.catalog import SweepRow
from resources.datasets.data_checks import CHECKS
from resources.datasets.snapshot_catalog import Snapshot, list_snapshots
from resources.scheduling.sweeps import extend_sweep
from resources.sweep_spec import SweepSpec, parse_spec
from resources.sweep_spec.consistency import contradictions

Small = Callable[..., dict[str, Any]]


@dg.job
def planning() -> None:
    jobs.plan_sweep(jobs.take_snapshot())


def config_of(spec: dict[str, Any]) -> dict[str, Any]:
    return {
        "ops": {
            "take_snapshot": {
                "config": {"spec": parse_spec(spec).model_dump(mode="json", by_alias=True, exclude_none=True)}
            }
        }
    }


def slots(backend: Backend, spec: dict[str, Any]) -> int:
    with dg.DagsterInstance.ephemeral() as instance:
        done = planning.execute_in_process(
            run_config=config_of(spec), resources={"backend": backend}, instance=instance
        )
        return len(done.output_for_node("plan_sweep"))


def test_there_are_no_more_slots_than_trials(
    backend: Backend, small: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("resources.execution.machine.usable_cpus", lambda: 16)
    spec = small(max_trials=4, concurrency=16)
    assert slots(backend, spec) == 4
    with backend.catalog.read() as session:
        (sweep,) = session.scalars(select(SweepRow.id))
    extend_sweep(backend.catalog, sweep, 6)
    assert slots(backend, spec) == 6, "the sweep goes on, with what it was extended by"


def test_a_tag_of_a_run_says_that_its_source_is_read_again(
    backend: Backend, small: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = jobs.find_or_take_snapshot
    options = list[dict[str, bool]]()

    def note_call(*arguments: Any, **more: bool) -> Snapshot:
        options.append(more)
        return taken(*arguments, **more)

    monkeypatch.setattr(jobs, "find_or_take_snapshot", note_call)
    assert (launch._REFRESH, launch._ALLOW_DEPRECATED) == (jobs.REFRESH, jobs.ALLOW_DEPRECATED)
    with dg.DagsterInstance.ephemeral() as instance:
        for tags in ({}, {jobs.REFRESH: "true"}):
            config = config_of(small(max_trials=1))
            assert planning.execute_in_process(
                run_config=config, tags=tags, resources={"backend": backend}, instance=instance
            ).success
    assert [option["refresh"] for option in options] == [False, True]


@pytest.mark.slow
def test_a_specs_fields_are_checked_against_each_other_once_in_a_whole_sweep(
    backend: Backend, small: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked = []

    def count_call(spec: SweepSpec) -> list[str]:
        checked.append(spec)
        return contradictions(spec)

    monkeypatch.setattr("resources.sweep_spec.parsing.contradictions", count_call)
    monkeypatch.setenv("HALVING_ROOT", backend.store.root)
    with dg.DagsterInstance.ephemeral() as instance:
        assert (
            defs.get_job_def("sweep")
            .execute_in_process(run_config=small(max_trials=3), instance=instance)
            .success
        )
    assert len(checked) == 1


@pytest.mark.parametrize(
    "step",
    [jobs.take_snapshot, jobs.plan_sweep, jobs.evaluate_winner, jobs.promote_checkpoint, jobs.count_failures],
)
def test_a_step_that_may_be_retried_waits_some_minutes_for_an_unavailable_service(
    step: dg.OpDefinition,
) -> None:
    assert step.retry_policy
    delays = [
        step.retry_policy.calculate_delay(attempt) for attempt in range(1, step.retry_policy.max_retries + 1)
    ]
    assert 120 < sum(delays) < 600


@pytest.mark.parametrize(
    ("error", "again"),
    [
        (StoreUnavailable("no answer"), True),
        (StoreError("access denied"), False),
        (InvalidInput("it is wrong"), False),
    ],
)
def test_an_expected_failure_is_retried_only_where_the_store_was_unavailable(
    error: HalvingError, again: bool
) -> None:
    with pytest.raises(dg.Failure) as raised, expected_failures():
        raise error
    assert raised.value.allow_retries is again


@pytest.mark.slow
def test_a_sweep_without_a_predictor_ends_with_its_search_and_nothing_is_evaluated(
    backend: Backend, small: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HALVING_ROOT", backend.store.root)
    spec = small(max_trials=2)
    del spec["predictor"]
    with dg.DagsterInstance.ephemeral() as instance:
        assert defs.get_job_def("sweep").execute_in_process(run_config=spec, instance=instance).success
        assert instance.fetch_materializations(dg.AssetKey("evaluation_report"), limit=1).records == []
    with backend.catalog.read() as session:
        (sweep,) = session.scalars(select(SweepRow))
    assert sweep.status == "finished"
    assert sweep.finished_at is not None


def leaking() -> pa.Table:
    """Rows whose split is a column, with one row that is in two of them."""
    parts = ["train"] * 60 + ["validation"] * 20 + ["test"] * 20
    table = pa.table({"x": [row / 100 for row in range(100)], "part": parts, "label": ["low", "high"] * 50})
    return pa.concat_tables([table, table.slice(3, 1).set_column(1, "part", pa.array(["test"]))])


def test_nothing_is_trained_on_a_snapshot_that_leaks_and_the_check_shows_the_rows(
    backend: Backend, small: Small
) -> None:
    dataset = {
        "name": "points",
        "source": "tests.pipelines.test_jobs:leaking",
        "target": "label",
        "split_column": "part",
    }
    with dg.DagsterInstance.ephemeral() as instance:
        config = config_of(small(dataset=dataset))
        done = planning.execute_in_process(
            run_config=config, resources={"backend": backend}, instance=instance, raise_on_error=False
        )
        (failure,) = [event for event in done.all_events if event.event_type_value == "STEP_FAILURE"]
        reason = failure.event_specific_data.error_display_string  # type: ignore[union-attr]
        assert (
            "failed its data checks, so nothing is trained on it:\n  - leaked_rows: 1 rows are in two "
            "splits or more"
        ) in reason
        evaluations = [
            event.asset_check_evaluation_data
            for event in done.all_events
            if event.event_type_value == "ASSET_CHECK_EVALUATION"
        ]
        checks = {evaluation.check_name: evaluation for evaluation in evaluations}
    assert not checks["leaked_rows"].passed
    assert checks["duplicates"].passed
    assert [dict(record.data)["split"] for record in checks["leaked_rows"].metadata["rows"].records] == [
        "test",
        "train",
    ]
    with backend.catalog.read() as session:
        assert list(session.scalars(select(SweepRow.id))) == []
    (taken,) = list_snapshots(backend.catalog)
    named = config_of(small(dataset=dataset, snapshot=taken.digest))
    with dg.DagsterInstance.ephemeral() as instance:
        again = planning.execute_in_process(
            run_config=named, resources={"backend": backend}, instance=instance, raise_on_error=False
        )
    assert not again.success, "also where the snapshot is named, though it is there"
    assert slots(backend, small(dataset={**dataset, "checks": {"leaked_rows": "warn"}})) > 0


def test_a_column_out_of_its_range_ends_the_sweep_before_its_first_trial_or_warns(
    backend: Backend, small: Small
) -> None:
    dataset = {"name": "points", "source": "tests.trainables:data", "target": "label"}
    ranges = {"x": {"max": 0}}
    with pytest.raises(dg.Failure, match=r"ranges: x goes from .* and may from anything to 0"):
        slots(backend, small(dataset={**dataset, "checks": {"ranges": ranges}}))
    assert (
        slots(backend, small(dataset={**dataset, "checks": {"ranges": ranges, "ranges_severity": "warn"}}))
        > 0
    )


def test_the_newest_snapshot_is_checked_again_from_dagsters_page(backend: Backend, small: Small) -> None:
    slots(backend, small())
    with dg.DagsterInstance.ephemeral() as instance:
        job = dg.Definitions(
            assets=[dataset_snapshot],
            asset_checks=[data_checks],
            resources={"backend": backend},
            jobs=[dg.define_asset_job("look", selection=dg.AssetSelection.checks(data_checks))],
        ).resolve_job_def("look")
        evaluations = job.execute_in_process(instance=instance).get_asset_check_evaluations()
    assert {evaluation.check_name for evaluation in evaluations} == set(CHECKS)
    assert all(evaluation.passed for evaluation in evaluations)
