"""The jobs of upkeep, in process, on a store with a finished sweep."""

from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg
import pytest

from halving.maintenance import retention
from halving.metrics.manifest import read_manifest
from pipelines.definitions import defs
from pipelines.schedules import hourly_compaction
from resources.backend import Backend
from resources.catalog import SweepRow, TrialRow, utcnow
from tests.backends import snapshot_row
from tests.sdk.metric_files import read_points, write_segment

RUNS = ["small-1.0000", "small-1.0001"]


@pytest.fixture
def swept(backend: Backend) -> Backend:
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
        session.add_all([TrialRow(sweep="small-1", number=number, params={}, status="completed") for number in range(2)])
    for run, project in [*((run, "small") for run in RUNS), ("by-hand", "other")]:
        write_segment(backend.store, run, 1, 0, [("loss", step, step, 0.5) for step in range(10)], project)
    return backend


def execute(job: str, backend: Backend, op: str, **config: Any) -> dg.ExecuteInProcessResult:
    return defs.resolve_job_def(job).execute_in_process(
        run_config={"ops": {op: {"config": config}}}, resources={"backend": backend}, raise_on_error=False
    )


def full_files(backend: Backend) -> list[str | None]:
    places = [*(("small", run) for run in RUNS), ("other", "by-hand")]
    return [read_manifest(backend.store, *place).full for place in places]


def test_compaction_and_retention_by_their_jobs(swept: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    assert execute("compact_metrics", swept, "compact_segments").success
    compacted = full_files(swept)
    assert all(compacted)

    class Later(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return datetime.now(tz) + timedelta(days=40)

    monkeypatch.setattr(retention, "datetime", Later)
    assert execute("apply_retention", swept, "drop_expired", days=30).success  # a dry run, as it is by default
    assert full_files(swept) == compacted
    with swept.catalog.write() as session:
        swept.catalog.sweep(session, "small-1").status = "evaluating"
    assert execute("apply_retention", swept, "drop_expired", days=30, dry_run=False).success
    assert full_files(swept) == [*compacted[:2], None]
    assert len(read_points(swept.store, RUNS[0], "small")) == 10
    wrong = execute("apply_retention", swept, "drop_expired", days=3, system_days=4)
    assert "system_days = 4.0 is not accepted" in str(wrong.get_step_failure_events()[0].event_specific_data)


def test_the_schedule_is_off_and_asks_for_the_compaction_of_everything() -> None:
    assert hourly_compaction.default_status is dg.DefaultScheduleStatus.STOPPED
    tick = hourly_compaction.evaluate_tick(dg.build_schedule_context(scheduled_execution_time=datetime(2026, 1, 1, tzinfo=UTC)))
    (request,) = tick.run_requests or []
    dg.validate_run_config(defs.resolve_job_def("compact_metrics"), request.run_config)
