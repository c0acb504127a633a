"""Deletion of Dagster's records of old sweeps and upkeep: runs with their events and logs, and partitions.

These records grow with each sweep, and what matters later is elsewhere: the catalog has the sweep, its
trials, reports and versions, and the report has the lineage. So when a sweep ended longer ago than the
policy's days, its runs and partitions are deleted through Dagster's instance, but never those of a sweep
whose winner is champion or staging, because people look there first. A sweep's partition goes last: while it
is there, there is more to delete.

Runs of upkeep and of decisions, and launches that opened no sweep, are deleted after the same time. Nothing
in them says to which store they belong, so they are deleted only where the instance belongs to one store.
Runs of other jobs stay, because they materialize assets.
"""

import itertools
import re
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import dagster as dg
from sqlalchemy import select

from assets.sweeps import SWEEPS
from assets.trials import TRIALS
from halving import Store
from pipelines.dagster_storage import open_instance
from resources.catalog import Catalog, ModelVersionRow, SweepRow
from resources.execution.kubernetes.pod_manifests import SWEEP_LABEL
from resources.retention.gone import Gone
from resources.retention.policy import Policy
from resources.retention.protection import project_of
from resources.scheduling.sweeps import OPEN
from resources.tenancy.projects import renamed_projects

MAX_RECORDS = 20_000
"""Runs and partitions that one call deletes at most: each takes a few transactions of Dagster's, some 10 ms.

The next call goes on.
"""

_RUNS_AT_ONCE = 500  # in memory

_MIN_AGE = timedelta(days=1)  # The sensors read sweeps that ended within the last hour.
_ENDED = (dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED)
# `halving sweep` gives such names to the files of a job that it starts.
_LOG = re.compile(r".+-\d{8}-\d{6}-\d+\.(log|yaml)", re.DOTALL)
_GOING_ON = [status for status in dg.DagsterRunStatus if status not in _ENDED]


class _Sweep(NamedTuple):
    id: str
    project: str


UPKEEP = (
    "compact_metrics",
    "apply_retention",
    "backup",
    "set_project",
    "pause_sweep",
    "resume_sweep",
    "stop_sweep",
    "extend_sweep",
    "promote_version",
    "rollback_model",
    "approve_version",
    "reject_version",
    "rerun",
)
"""Jobs whose runs record nothing that is not in the catalog or in the store."""

_LAUNCHES = ("sweep", "launch_sweep")  # Their runs that opened a sweep are deleted with the sweep's.


def is_home_of(store: Store, home: Path) -> bool:
    """Whether a folder (``DAGSTER_HOME``) is the one in the store, and so belongs to no other store."""
    return home.resolve() == Path(f"{store.root}/dagster").resolve()


def forget_sweeps_of_home(
    home: Path,
    store: Store,
    catalog: Catalog,
    policy: Policy,
    *,
    project: str | None = None,
    dry_run: bool = False,
) -> list[Gone]:
    """Delete old records by :func:`forget_sweeps` from the instance in a folder (``DAGSTER_HOME``), if any.

    Other stores may share a folder outside the store, so only records of sweeps of this catalog are deleted
    there.

    Raises:
        DagsterError: the folder's ``dagster.yaml`` is not accepted.
    """
    if not home.is_dir():
        return []
    with open_instance(home) as instance:
        is_own = is_home_of(store, home)
        gone = forget_sweeps(instance, catalog, policy, is_own=is_own, project=project, dry_run=dry_run)
    days = policy.dagster.days
    if days is None or project or not is_own:
        return gone
    return [*gone, *_forget_logs(home / "logs", time.time() - 86_400 * max(1.0, days), dry_run)]


def forget_sweeps(
    instance: dg.DagsterInstance,
    catalog: Catalog,
    policy: Policy,
    *,
    is_own: bool,
    project: str | None = None,
    dry_run: bool = False,
    now: datetime | None = None,
    limit: int = MAX_RECORDS,
) -> list[Gone]:
    """Delete Dagster's records of sweeps and upkeep that ended longer ago than the policy says.

    They ended at least a day ago. It may be killed anywhere and repeated. A sweep of which a run of Dagster's
    still goes on is left alone.

    Args:
        is_own: whether no other store has runs in the instance; only then runs of upkeep are deleted, which
            do not say to which store they belong.
        project: only its sweeps, by any name that it has or had (default: all, and upkeep).
        dry_run: only count what would go, without a limit.
        now: the time to count from (default: the earlier time of the clocks of this machine and the
            catalog).
        limit: the largest number of runs and partitions to delete.

    Returns:
        The numbers of ``Dagster runs`` and ``Dagster partitions`` of each project, and of runs of none;
        bytes are not known.
    """
    renamed = renamed_projects(catalog)
    policy = policy.with_names(renamed)
    wanted = None
    if project:
        wanted = next((names for names in renamed if project in names), [project])
    counts: dict[tuple[str, str], int] = defaultdict(int)
    left = limit
    partitions = _Partitions(instance)
    now = now or datetime.fromtimestamp(min(time.time(), catalog.now()), UTC)
    for sweep in _expired_sweeps(catalog, policy, wanted, now):
        if sweep.id not in partitions.sweeps or _goes_on(instance, sweep.id):
            continue
        tagged = dg.RunsFilter(tags={SWEEP_LABEL: sweep.id})
        keys = [(str(TRIALS.name), key) for key in partitions.trials_of(sweep.id)]
        # The sweep's own partition is the last one, and goes when nothing else of it is left.
        keys.append((str(SWEEPS.name), sweep.id))
        if dry_run:
            runs = instance.get_runs_count(tagged)
            going = keys
        else:
            runs = 0
            while runs < left:
                part = instance.get_runs(tagged, limit=min(_RUNS_AT_ONCE, left - runs))
                if not part:
                    break
                for run in part:
                    _delete_run(instance, run.run_id)
                runs += len(part)
            going = keys[: left - runs]
            for definition, key in going:
                instance.delete_dynamic_partition(definition, key)
            left -= runs + len(going)
        counts[sweep.project, "Dagster runs"] += runs
        counts[sweep.project, "Dagster partitions"] += len(going)
        if left <= 0:
            break
    if is_own and project is None and policy.dagster.days is not None:
        before = now - max(_MIN_AGE, timedelta(days=policy.dagster.days))
        # All are listed before any is deleted, because a listing goes on behind a run that must still exist.
        stop: int | None = None
        if not dry_run:
            stop = max(0, left)
        run_ids = list(itertools.islice(_runs_without_sweep(instance, before), stop))
        if not dry_run:
            for run_id in run_ids:
                _delete_run(instance, run_id)
        counts["", "Dagster runs"] += len(run_ids)
    return [Gone(name, kind, count, 0) for (name, kind), count in sorted(counts.items()) if count]


def _runs_without_sweep(instance: dg.DagsterInstance, before: datetime) -> Iterator[str]:
    """The ids of runs of upkeep, and of launches that opened no sweep, that ended before a time."""
    for job in (*UPKEEP, *_LAUNCHES):
        filters = dg.RunsFilter(job_name=job, statuses=[*_ENDED], updated_before=before)
        cursor = None
        while runs := instance.get_runs(filters, cursor=cursor, limit=_RUNS_AT_ONCE):
            cursor = runs[-1].run_id
            yield from (run.run_id for run in runs if job in UPKEEP or SWEEP_LABEL not in run.tags)


def _forget_logs(folder: Path, before: float, dry_run: bool) -> list[Gone]:
    """Delete the old specs and logs that ``halving sweep`` has written for the jobs that it started."""
    old = {
        path: path.stat()
        for path in folder.glob("*")
        if _LOG.fullmatch(path.name) and path.is_file() and path.stat().st_mtime < before
    }
    if not old:
        return []
    if not dry_run:
        for path in old:
            path.unlink(missing_ok=True)
    return [Gone("", "Dagster logs", len(old), sum(stat.st_size for stat in old.values()))]


def _goes_on(instance: dg.DagsterInstance, sweep: str) -> bool:
    return bool(instance.get_run_ids(dg.RunsFilter(tags={SWEEP_LABEL: sweep}, statuses=_GOING_ON), limit=1))


class _Partitions:
    """All partitions of sweeps and trials, listed once."""

    def __init__(self, instance: dg.DagsterInstance) -> None:
        self.sweeps = set(instance.get_dynamic_partitions(str(SWEEPS.name)))
        self._trials: dict[str, list[str]] = defaultdict(list)
        for key in instance.get_dynamic_partitions(str(TRIALS.name)):
            self._trials[key.rpartition(".")[0]].append(key)

    def trials_of(self, sweep: str) -> list[str]:
        return self._trials.get(sweep, [])


def _expired_sweeps(
    catalog: Catalog, policy: Policy, wanted: Sequence[str] | None, now: datetime
) -> Iterator[_Sweep]:
    """The sweeps whose days are over, in the order in which they ended."""
    with catalog.read() as session:
        in_use = set(
            session.scalars(select(ModelVersionRow.sweep).where(ModelVersionRow.stage != "archived"))
        )
        ended = select(SweepRow).where(SweepRow.status.not_in(OPEN), SweepRow.finished_at.is_not(None))
        rows = [
            (row.id, project_of(row), row.finished_at)
            for row in session.scalars(ended.order_by(SweepRow.finished_at))
        ]
    for sweep, name, finished in rows:
        if sweep in in_use or not finished or (wanted is not None and name not in wanted):
            continue
        days = policy.of(name).dagster.days
        if days is not None and now - finished > max(_MIN_AGE, timedelta(days=days)):
            yield _Sweep(sweep, name)


def _delete_run(instance: dg.DagsterInstance, run: str) -> None:
    """Delete a run with its events and logs.

    ``instance.delete_run`` would delete the run itself first, and a process that is killed in between could
    not find the rest again.
    """
    instance.compute_log_manager.delete_logs(prefix=[run])
    instance.event_log_storage.delete_events(run)
    instance.run_storage.delete_run(run)
    shard = getattr(instance.event_log_storage, "path_for_shard", None)
    if shard is not None:
        # SQLite has a file for each run, which is empty now. If the process is killed just before this, the
        # empty file stays.
        path = Path(shard(run))
        for file in (path, path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")):
            file.unlink(missing_ok=True)
