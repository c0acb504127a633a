"""Upkeep of the store: compaction, retention and backups, as jobs."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
from pydantic import Field

from assets.events import expected_failures
from halving import InvalidInput, Store
from pipelines.dagster_records import forget_sweeps, is_home_of
from resources.analysis.run_index import Refresher
from resources.backend import Backend
from resources.execution.kubernetes.cluster_config import load_cluster
from resources.retention.automatic import write_last
from resources.retention.carry_out import carry_out
from resources.retention.policy_file import load_policy
from resources.upkeep.backup import back_up
from resources.upkeep.claims import count_waiting
from resources.upkeep.compaction import compact_waiting
from resources.upkeep.old_backups import prune_after

_RUNS_PER_WORKER = 25  # A worker is a process, which takes seconds to start.
BACKUP_PLACE = "HALVING_BACKUP"
_REFRESH_SECONDS = 900.0  # The index may take this long; runs that it has not read wait for the next job.


class Compaction(dg.Config):
    """The runs to compact, and the number of workers."""

    project: str | None = Field(default=None, description="Only this project (default: all).")
    workers: int = Field(
        default=4,
        ge=1,
        le=64,
        description="Processes at once, each with several runs in hand on an object store.",
    )


class Retention(dg.Config):
    """The project on which the policy ``retention.yaml`` is carried out, and whether anything is deleted."""

    project: str | None = Field(default=None, description="Only what is of this project (default: all).")
    dry_run: bool = Field(default=False, description="Only report what would go.")


class BackupConfig(dg.Config):
    """Where to make a backup, and how many to keep there."""

    place: str | None = Field(
        default=None,
        description=(
            f"Where backups are: a folder or s3://bucket/prefix (default: the environment's {BACKUP_PLACE})."
        ),
    )
    keep: int | None = Field(
        default=None,
        ge=1,
        description=(
            "When it is made, delete all of this store's backups there but the newest so many (default: "
            "none)."
        ),
    )


@dg.op(out=dg.DynamicOut(dict))
def find_waiting_runs(
    context: dg.OpExecutionContext, config: Compaction, backend: Backend
) -> Iterator[dg.DynamicOutput[dict[str, Any]]]:
    """Update the index of runs, count the runs that wait for compaction, and make a slot for each worker."""
    refreshed = Refresher(backend.store, backend.catalog).refresh(seconds=_REFRESH_SECONDS)
    waiting = count_waiting(backend.catalog, config.project)
    context.log.info(f"{refreshed.runs} runs, {waiting} of them wait for compaction")
    for slot in range(min(config.workers, max(1, -(-waiting // _RUNS_PER_WORKER)))):
        yield dg.DynamicOutput({"project": config.project}, mapping_key=str(slot))


@dg.op
def compact_segments(context: dg.OpExecutionContext, backend: Backend, slot: dict[str, Any]) -> None:
    """Work as one of the workers: compact runs until none waits.

    A run that fails does not keep the others from being compacted.
    """
    done = compact_waiting(backend.store, backend.catalog, project=slot["project"])
    for run, segment in done.gaps.items():
        context.log.warning(f"run {run}: a segment before {segment} is missing, so it is not compacted")
    context.log.info(
        f"{done.points} points of {done.runs} runs compacted, {done.saved} bytes saved; {done.cleaned} "
        "runs cleaned"
    )
    if done.failed:
        raise dg.Failure(
            f"{len(done.failed)} runs could not be compacted: {done.failed}", allow_retries=False
        )


@dg.op
def drop_expired(context: dg.OpExecutionContext, config: Retention, backend: Backend) -> None:
    """Carry out the retention policy, on the store and on Dagster's own records."""
    scope: Any = config.model_dump()
    with expected_failures():
        done = carry_out(backend.store, backend.catalog, load_policy(backend.store), **scope)
    # A cluster's instance belongs to one deployment. On a machine, several stores may share DAGSTER_HOME.
    is_own = load_cluster() is not None or is_home_of(backend.store, Path(context.instance.root_directory))
    forgotten = forget_sweeps(context.instance, backend.catalog, done.policy.policy, is_own=is_own, **scope)
    done = replace(done, gone=[*done.gone, *forgotten])
    went = "went"
    deleted = "deleted"
    moved = "moved"
    if done.dry_run:
        went = deleted = "would go"
        moved = "would move"
    for line in done.notes():
        context.log.warning(line)
    for row in done.gone:
        context.log.info(
            f"what {went} of {row.project or 'no project'}: {row.count} {row.kind}, {row.bytes} bytes"
        )
    for reason, runs in done.protected_by_reason().most_common():
        context.log.info(f"{runs} runs are protected: {reason}")
    context.log.info(
        f"{done.bytes} bytes {deleted}, {done.moved_bytes} {moved} to the cold tier, by {done.policy.source}"
    )
    sizes = {"bytes": done.bytes, "moved_bytes": done.moved_bytes}
    context.add_output_metadata({**sizes, "policy": done.policy.source, "dry_run": done.dry_run})
    if not done.dry_run and config.project is None:
        write_last(backend.store, done)


@dg.op
def make_backup(context: dg.OpExecutionContext, config: BackupConfig, backend: Backend) -> None:
    """Make a backup of the store and the catalog, and then delete old ones.

    It fails where the backup lacks contents that the catalog names.
    """
    with expected_failures():
        if not (where := config.place or os.environ.get(BACKUP_PLACE)):
            raise InvalidInput(
                "place = null is not accepted: give a folder or s3://bucket/prefix, here or by "
                f"{BACKUP_PLACE}"
            )
        place = Store(where)
        made = back_up(backend.store, backend.catalog, place)
        manifest = made.manifest
        context.log.info(
            f"backup {manifest.id} in {place.root}: {manifest.count} files, {manifest.bytes} bytes; "
            f"{made.copied} files were new"
        )
        metadata: dict[str, Any] = {
            "backup": manifest.id,
            "place": place.root,
            "files": manifest.count,
            "bytes": manifest.bytes,
            "copied": made.copied,
            "copied_bytes": made.copied_bytes,
            "missing": len(made.missing),
        }
        pruned = None
        if config.keep is not None:
            pruned = prune_after(place, backend.store.root, config.keep, made)
        if pruned:
            context.log.info(
                f"older backups that went: {pruned.backups}; {pruned.contents} contents, {pruned.bytes} bytes"
            )
            metadata |= {"deleted_backups": len(pruned.backups), "deleted_bytes": pruned.bytes}
    if made.problem:
        raise dg.Failure(made.problem, metadata=metadata, allow_retries=False)
    context.add_output_metadata(metadata)


@dg.job(
    executor_def=dg.multiprocess_executor.configured(
        {"start_method": {"forkserver": {"preload_modules": ["pipelines.definitions"]}}}
    ),
    description=(
        "Compact the segments that runs have streamed, with several workers. Several runs of this job "
        "share the work."
    ),
)
def compact_metrics() -> None:
    find_waiting_runs().map(compact_segments)


@dg.job(
    executor_def=dg.in_process_executor,
    description=(
        "Delete what the policy retention.yaml does not keep; with dry_run it only reports what would go."
    ),
)
def apply_retention() -> None:
    drop_expired()


@dg.job(
    executor_def=dg.in_process_executor,
    description=(
        "Make a backup of the store and the catalog at another place, and delete old ones there. Sweeps "
        "may run."
    ),
)
def backup() -> None:
    make_backup()
