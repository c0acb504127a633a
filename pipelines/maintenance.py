"""Upkeep of the metric store: compaction and retention, as jobs."""

import dagster as dg
from pydantic import Field

from assets.events import expected_failures
from halving import HalvingError
from halving.maintenance.compaction import compact
from halving.metrics.manifest import projects_of, runs_of
from resources.backend import Backend
from resources.registry.retention_protection import retain


class Compaction(dg.Config):
    """Which runs' segments to compact."""

    project: str | None = Field(default=None, description="Only this project (default: all).")


class Retention(dg.Config):
    """How many days to keep each kind of data; without a number it is kept for ever."""

    days: float | None = Field(default=None, description="Days to keep full resolution; rollups stay.")
    system_days: float | None = Field(default=None, description="Days to keep system metrics at full resolution, at most days.")
    rollup_days: float | None = Field(default=None, description="Days to keep rollups, at least days.")
    checkpoint_days: float | None = Field(
        default=None, description="Days to keep superseded checkpoints, 2 at least; the newest of a run and those of versions always stay."
    )
    project: str | None = Field(default=None, description="Only this project (default: all).")
    dry_run: bool = Field(default=True, description="Only report what would be deleted. Set it to false to delete.")


@dg.op
def compact_segments(context: dg.OpExecutionContext, config: Compaction, backend: Backend) -> None:
    """Compact runs. A run that fails does not keep the others from being compacted."""
    failed: dict[str, str] = {}
    points = saved = runs = 0
    for project in [config.project] if config.project else projects_of(backend.store):
        for run in runs_of(backend.store, project):
            try:
                done = compact(backend.store, project, run)
            except HalvingError as error:
                failed[f"{project}/{run}"] = str(error)
                continue
            if done.gaps:
                context.log.warning(f"run {run} of project {project}: a segment before {done.gaps[0]} is missing, so it is not compacted")
            points, saved, runs = points + done.points, saved + done.bytes_before - done.bytes_after, runs + bool(done.points)
    context.log.info(f"{points} points of {runs} runs compacted, {saved} bytes saved")
    if failed:
        raise dg.Failure(f"{len(failed)} runs could not be compacted: {failed}", allow_retries=False)


@dg.op
def drop_expired(context: dg.OpExecutionContext, config: Retention, backend: Backend) -> None:
    """Drop data that is older than the given days, but nothing that a champion, a staging version, a report or an open sweep needs."""
    with expected_failures():
        done, protected = retain(backend.store, backend.catalog, **config.model_dump())
    done_to = "would be deleted" if done.dry_run else "deleted"
    for drop in done.drops:
        context.log.info(
            f"{drop.project}/{drop.run}: {drop.what} {done_to}, {drop.points} points, {drop.bytes} bytes {drop.digest or ''}".rstrip()
        )
    context.log.info(f"{len(done.drops)} items {done_to}, {done.bytes} bytes; {len(protected.runs)} runs are protected")


@dg.job(executor_def=dg.in_process_executor, description="Compact the segments that runs have streamed.")
def compact_metrics() -> None:
    compact_segments()


@dg.job(
    executor_def=dg.in_process_executor,
    description="Drop metrics and checkpoints that are older than the given days; by default it only reports what it would delete.",
)
def apply_retention() -> None:
    drop_expired()
