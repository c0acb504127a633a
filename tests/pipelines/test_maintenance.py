"""The jobs of upkeep, in process, on a store with a finished sweep."""

from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg
import pytest

from halving import Store
from halving.metrics.manifest import read_manifest
from halving.records.run_record import RunRecords
from halving.store.json_files import now
from pipelines.definitions import defs
from pipelines.schedules import hourly_compaction, nightly_backup, nightly_retention
from resources.backend import Backend
from resources.catalog import SweepRow, TrialRow, utcnow
from resources.retention import carry_out
from resources.upkeep.backup_files import backups_of
from tests.backends import add_version, snapshot_row
from tests.sdk.metric_files import read_points, write_segment

RUNS = ["small-1.0000", "small-1.0001"]


@pytest.fixture
def swept_backend(backend: Backend) -> Backend:
    """A finished sweep of two trials, and a run of a script."""
    with backend.catalog.write() as session:
        session.add(snapshot_row("sha256:s"))
        session.flush()
        session.add(
            SweepRow(
                id="small-1",
                name="small",
                spec={},
                spec_digest="d",
                snapshot="sha256:s",
                driver="job",
                ordinal=0,
                status="finished",
                created_at=utcnow(),
            )
        )
        session.flush()
        session.add_all(
            [TrialRow(sweep="small-1", number=number, params={}, status="completed") for number in range(2)]
        )
    for run, project in [*((run, "small") for run in RUNS), ("by-hand", "other")]:
        records = RunRecords(backend.store, project, run)
        records.start({}, {}, None, {"started": now(), "provenance": {}})
        records.end(1, {"status": "finished", "summary": {}})
        write_segment(backend.store, run, 1, 0, [("loss", step, step, 0.5) for step in range(10)], project)
    return backend


def execute(job: str, backend: Backend, op: str, **config: Any) -> dg.ExecuteInProcessResult:
    return defs.resolve_job_def(job).execute_in_process(
        run_config={"ops": {op: {"config": config}}}, resources={"backend": backend}, raise_on_error=False
    )


def full_files(backend: Backend) -> list[str | None]:
    places = [*(("small", run) for run in RUNS), ("other", "by-hand")]
    return [read_manifest(backend.store, *place).full for place in places]


def test_compaction_and_retention_by_their_jobs(
    swept_backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert execute("compact_metrics", swept_backend, "find_waiting_runs", workers=2).success
    compacted = full_files(swept_backend)
    assert all(compacted)

    swept_backend.store.create("retention.yaml", b"points: {full: {days: 30}}")
    monkeypatch.setattr(carry_out, "_earliest_time", lambda *_, **__: datetime.now(UTC) + timedelta(days=40))
    assert execute("apply_retention", swept_backend, "drop_expired", dry_run=True).success
    assert full_files(swept_backend) == compacted
    with swept_backend.catalog.write() as session:
        swept_backend.catalog.sweep(session, "small-1").status = "evaluating"
    assert execute("apply_retention", swept_backend, "drop_expired").success
    assert full_files(swept_backend) == [*compacted[:2], None]
    assert len(read_points(swept_backend.store, RUNS[0], "small")) == 10
    swept_backend.store.replace("retention.yaml", b"points: {fulll: {days: 3}}")
    wrong = execute("apply_retention", swept_backend, "drop_expired")
    said = str(wrong.get_step_failure_events()[0].event_specific_data)
    assert "points.fulll = {'days': 3} is not accepted: there is no such field, did you mean 'full'?" in said


def test_a_backup_by_its_job_says_what_was_copied_and_what_went(
    swept_backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = str(
        execute("backup", swept_backend, "make_backup").get_step_failure_events()[0].event_specific_data
    )
    assert (
        "place = null is not accepted: give a folder or s3://bucket/prefix, here or by HALVING_BACKUP"
        in refused
    )
    place = Store(f"{swept_backend.store.root}-backups")
    monkeypatch.setenv("HALVING_BACKUP", place.root)
    assert execute("backup", swept_backend, "make_backup").success
    done = execute("backup", swept_backend, "make_backup", keep=1)
    (backup,) = backups_of(place)
    (event,) = [event for event in done.all_node_events if event.is_successful_output]
    metadata = {name: value.value for name, value in event.step_output_data.metadata.items()}
    assert (metadata["backup"], metadata["place"], metadata["copied"], metadata["deleted_backups"]) == (
        backup,
        place.root,
        0,
        1,
    )


def test_a_backup_by_its_job_that_lacks_what_the_catalog_names_fails_and_says_so(
    swept_backend: Backend,
) -> None:
    place = Store(f"{swept_backend.store.root}-backups")
    assert execute("backup", swept_backend, "make_backup", place=place.root, keep=1).success
    with swept_backend.catalog.write() as session:
        add_version(
            session,
            model="small",
            version="1.0.0",
            stage="champion",
            updated=0,
            number=1,
            checkpoint=f"sha256:{'0' * 64}",
        )
    done = execute("backup", swept_backend, "make_backup", place=place.root, keep=1)
    said = str(done.get_step_failure_events()[0].event_specific_data)
    assert "lacks 1 contents that the catalog names" in said
    assert "the checkpoint of small@1.0.0" in said
    assert len(backups_of(place)) == 2


@pytest.mark.parametrize("schedule", [hourly_compaction, nightly_retention, nightly_backup])
def test_the_schedules_are_off_and_ask_for_everything(schedule: dg.ScheduleDefinition) -> None:
    assert schedule.default_status is dg.DefaultScheduleStatus.STOPPED
    tick = schedule.evaluate_tick(
        dg.build_schedule_context(scheduled_execution_time=datetime(2026, 1, 1, tzinfo=UTC))
    )
    (request,) = tick.run_requests or []
    dg.validate_run_config(defs.resolve_job_def(schedule.job_name), request.run_config)
