"""Dagster's own record of sweeps: its runs with their events and logs, and the sweeps' and trials' partitions. It grows with every attempt.

What matters later is elsewhere: the catalog has the sweep, its trials, reports and versions, the report tells the lineage. So when a sweep
has ended for the policy's days, its runs and partitions are removed through Dagster's instance, but never those of a sweep whose winner is
champion or staging: people look there first. A sweep's partition goes last: while it is there, there is more to do.
"""

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
from resources.catalog import Catalog, ModelVersionRow, SweepRow
from resources.execution.kubernetes.pod_manifests import SWEEP_LABEL
from resources.retention.gone import Gone
from resources.retention.policy import Policy
from resources.retention.protection import project_of
from resources.scheduling.sweeps import OPEN
from resources.tenancy.projects import renamed_projects

MOST = 20_000
"""Runs and partitions that one call removes: each is a few transactions of Dagster's, some 10 ms. The next call goes on."""

_AT_ONCE = 500  # runs that are in memory

_SHORTEST = timedelta(days=1)  # the sensors look at what has ended within the last hour
_ENDED = (dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED)
_GOING_ON = [status for status in dg.DagsterRunStatus if status not in _ENDED]


class _Sweep(NamedTuple):
    id: str
    project: str


def forget_sweeps_of_home(home: Path, catalog: Catalog, policy: Policy, *, project: str | None = None, dry_run: bool = False) -> list[Gone]:
    """The same of the instance in a folder (``DAGSTER_HOME``); nothing where there is none.

    Raises:
        DagsterError: the folder's ``dagster.yaml`` is not accepted.
    """
    if not home.is_dir():
        return []
    with dg.DagsterInstance.from_config(str(home)) as instance:
        return forget_sweeps(instance, catalog, policy, project=project, dry_run=dry_run)


def forget_sweeps(
    instance: dg.DagsterInstance,
    catalog: Catalog,
    policy: Policy,
    *,
    project: str | None = None,
    dry_run: bool = False,
    now: datetime | None = None,
    most: int = MOST,
) -> list[Gone]:
    """Remove Dagster's record of sweeps that ended longer ago than their project's policy says; a day ago at least.

    It may be killed anywhere and repeated. A sweep of which a run of Dagster's still goes on is left alone.

    Args:
        project: only its sweeps, by any name that it has or had (default: all).
        dry_run: only count what would go, without a bound.
        now: the moment to count from (default: the earlier one that the clocks of this machine and of the catalog say).
        most: how many runs and partitions go at most.

    Returns:
        Of each project how many ``Dagster runs`` and ``Dagster partitions`` went; bytes are not known.
    """
    renamed = renamed_projects(catalog)
    policy = policy.with_names(renamed)
    wanted = next((names for names in renamed if project in names), [project]) if project else None
    counts: dict[tuple[str, str], int] = defaultdict(int)
    left, partitions = most, _Partitions(instance)
    for sweep in _expired(catalog, policy, wanted, now or datetime.fromtimestamp(min(time.time(), catalog.now()), UTC)):
        if sweep.id not in partitions.sweeps or _goes_on(instance, sweep.id):
            continue
        tagged = dg.RunsFilter(tags={SWEEP_LABEL: sweep.id})
        # The sweep's own partition is the last one, and goes when nothing else of it is left.
        keys = [(str(TRIALS.name), key) for key in partitions.trials_of(sweep.id)] + [(str(SWEEPS.name), sweep.id)]
        if dry_run:
            runs, going = instance.get_runs_count(tagged), keys
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
    return [Gone(name, kind, count, 0) for (name, kind), count in sorted(counts.items()) if count]


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


def _expired(catalog: Catalog, policy: Policy, wanted: Sequence[str] | None, now: datetime) -> Iterator[_Sweep]:
    """The sweeps whose days are over, those that ended first before the others."""
    with catalog.read() as session:
        in_use = set(session.scalars(select(ModelVersionRow.sweep).where(ModelVersionRow.stage != "archived")))
        ended = select(SweepRow).where(SweepRow.status.not_in(OPEN), SweepRow.finished_at.is_not(None))
        rows = [(row.id, project_of(row), row.finished_at) for row in session.scalars(ended.order_by(SweepRow.finished_at))]
    for sweep, name, finished in rows:
        days = policy.of(name).dagster.days if wanted is None or name in wanted else None
        if days is not None and sweep not in in_use and finished and now - finished > max(_SHORTEST, timedelta(days=days)):
            yield _Sweep(sweep, name)


def _delete_run(instance: dg.DagsterInstance, run: str) -> None:
    """What ``instance.delete_run`` does, and its logs, but the run itself last: who is killed in between finds it again."""
    instance.compute_log_manager.delete_logs(prefix=[run])
    instance.event_log_storage.delete_events(run)
    instance.run_storage.delete_run(run)
    shard = getattr(instance.event_log_storage, "path_for_shard", None)
    if shard is not None:  # SQLite has a file for each run, in which nothing is left; behind a kill just before this it stays, empty
        path = Path(shard(run))
        for one in (path, path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")):
            one.unlink(missing_ok=True)
