"""Dagster's own record of sweeps and upkeep: its runs with their events and logs, and sweeps' and trials'
partitions.

It grows with each.

What matters later is elsewhere: the catalog has the sweep, its trials, reports and versions, the report tells
the lineage. So when a sweep has ended for the policy's days, its runs and partitions are removed through
Dagster's instance, but never those of a sweep whose winner is champion or staging: people look there first. A
sweep's partition goes last: while it is there, there is more to do.

Runs of upkeep and of decisions, and launches that came to no sweep, go when they ended so long ago. Nothing
in them says of which store they are, so they go only where the instance is known to be of one store. Those of
other jobs stay: they materialize assets.
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

MOST = 20_000
"""Runs and partitions that one call removes: each is a few transactions of Dagster's, some 10 ms.

The next call goes on.
"""

_AT_ONCE = 500  # runs that are in memory

_SHORTEST = timedelta(days=1)  # the sensors look at what has ended within the last hour
_ENDED = (dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED)
# as `halving sweep` names the files of a job that it starts
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
"""Jobs whose runs tell of nothing that is not in the catalog or in the store."""

_LAUNCHES = ("sweep", "launch_sweep")  # of a run that has come to a sweep the record goes with the sweep's


def is_home_of(store: Store, home: Path) -> bool:
    """Whether a folder (``DAGSTER_HOME``) is the one in the store, and so no other store's."""
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
    """The same of the instance in a folder (``DAGSTER_HOME``); nothing where there is none.

    Of a folder outside the store, which others may share, only what is tagged with a sweep of this catalog
    goes.

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
    most: int = MOST,
) -> list[Gone]:
    """Remove Dagster's record of sweeps and upkeep that ended longer ago than the policy says; a day ago at
    least.

    It may be killed anywhere and repeated. A sweep of which a run of Dagster's still goes on is left alone.

    Args:
        is_own: whether no other store has runs in the instance: runs of upkeep, which do not say whose they
            are, go only then.
        project: only its sweeps, by any name that it has or had (default: all, and upkeep).
        dry_run: only count what would go, without a bound.
        now: the moment to count from (default: the earlier one that the clocks of this machine and of the
            catalog say).
        most: how many runs and partitions go at most.

    Returns:
        Of each project how many ``Dagster runs`` and ``Dagster partitions`` went, and of none how many runs;
        bytes are not known.
    """
    renamed = renamed_projects(catalog)
    policy = policy.with_names(renamed)
    wanted = next((names for names in renamed if project in names), [project]) if project else None
    counts: dict[tuple[str, str], int] = defaultdict(int)
    left = most
    partitions = _Partitions(instance)
    moment = now or datetime.fromtimestamp(min(time.time(), catalog.now()), UTC)
    for sweep in _expired(catalog, policy, wanted, moment):
        if sweep.id not in partitions.sweeps or _goes_on(instance, sweep.id):
            continue
        tagged = dg.RunsFilter(tags={SWEEP_LABEL: sweep.id})
        # The sweep's own partition is the last one, and goes when nothing else of it is left.
        keys = [(str(TRIALS.name), key) for key in partitions.trials_of(sweep.id)] + [
            (str(SWEEPS.name), sweep.id)
        ]
        if dry_run:
            runs = instance.get_runs_count(tagged)
            going = keys
        else:
            runs = 0
            while runs < left and (found := instance.get_runs(tagged, limit=min(_AT_ONCE, left - runs))):
                for run in found:
                    _delete_run(instance, run.run_id)
                runs += len(found)
            going = keys[: left - runs]
            for definition, key in going:
                instance.delete_dynamic_partition(definition, key)
            left -= runs + len(going)
        counts[sweep.project, "Dagster runs"] += runs
        counts[sweep.project, "Dagster partitions"] += len(going)
        if left <= 0:
            break
    if is_own and project is None and policy.dagster.days is not None:
        before = moment - max(_SHORTEST, timedelta(days=policy.dagster.days))
        # All are listed first: a listing goes on behind a run that must be there.
        going_runs = [*itertools.islice(_without_sweep(instance, before), None if dry_run else max(0, left))]
        for run_id in [] if dry_run else going_runs:
            _delete_run(instance, run_id)
        counts["", "Dagster runs"] += len(going_runs)
    return [Gone(name, kind, count, 0) for (name, kind), count in sorted(counts.items()) if count]


def _without_sweep(instance: dg.DagsterInstance, before: datetime) -> Iterator[str]:
    """The runs of upkeep, and of launches that came to no sweep, that ended before a moment."""
    for job in (*UPKEEP, *_LAUNCHES):
        filters = dg.RunsFilter(job_name=job, statuses=[*_ENDED], updated_before=before)
        cursor = None
        while runs := instance.get_runs(filters, cursor=cursor, limit=_AT_ONCE):
            cursor = runs[-1].run_id
            yield from (run.run_id for run in runs if job in UPKEEP or SWEEP_LABEL not in run.tags)


def _forget_logs(folder: Path, before: float, dry_run: bool) -> list[Gone]:
    """The specs and logs that `halving sweep` has written for the jobs that it started."""
    old = {
        path: path.stat()
        for path in folder.glob("*")
        if _LOG.fullmatch(path.name) and path.is_file() and path.stat().st_mtime < before
    }
    for path in [] if dry_run else old:
        path.unlink(missing_ok=True)
    return [Gone("", "Dagster logs", len(old), sum(stat.st_size for stat in old.values()))] if old else []


def _goes_on(instance: dg.DagsterInstance, sweep: str) -> bool:
    return bool(instance.get_run_ids(dg.RunsFilter(tags={SWEEP_LABEL: sweep}, statuses=_GOING_ON), limit=1))


class _Partitions:
    """The partitions that there are, listed once."""

    def __init__(self, instance: dg.DagsterInstance) -> None:
        self.sweeps = set(instance.get_dynamic_partitions(str(SWEEPS.name)))
        self._trials: dict[str, list[str]] = defaultdict(list)
        for key in instance.get_dynamic_partitions(str(TRIALS.name)):
            self._trials[key.rpartition(".")[0]].append(key)

    def trials_of(self, sweep: str) -> list[str]:
        return self._trials.get(sweep, [])


def _expired(
    catalog: Catalog, policy: Policy, wanted: Sequence[str] | None, now: datetime
) -> Iterator[_Sweep]:
    """The sweeps whose days are over, those that ended first before the others."""
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
        days = policy.of(name).dagster.days if wanted is None or name in wanted else None
        if (
            days is not None
            and sweep not in in_use
            and finished
            and now - finished > max(_SHORTEST, timedelta(days=days))
        ):
            yield _Sweep(sweep, name)


def _delete_run(instance: dg.DagsterInstance, run: str) -> None:
    """What ``instance.delete_run`` does, and its logs, but the run itself last: who is killed in between
    finds it again.
    """
    instance.compute_log_manager.delete_logs(prefix=[run])
    instance.event_log_storage.delete_events(run)
    instance.run_storage.delete_run(run)
    shard = getattr(instance.event_log_storage, "path_for_shard", None)
    if shard is not None:
        # SQLite has a file for each run, in which nothing is left; behind a kill just before this it stays,
        # empty
        path = Path(shard(run))
        for one in (path, path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")):
            one.unlink(missing_ok=True)
