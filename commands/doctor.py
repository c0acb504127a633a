"""All checks of ``halving doctor`` in the application, and the check of Dagster's daemon."""

import argparse
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import func, select

from commands.shared import dagster_home
from halving import Store
from halving.cli.doctor import run_doctor as run_with
from halving.doctor.checks import ERROR, OK, SKIPPED, WARNING, Check, Finding
from halving.text import duration
from resources.catalog import Catalog, SweepRow
from resources.catalog.opening import open_catalog
from resources.doctor.catalog_checks import check_clock, check_schema, check_soundness, is_current
from resources.doctor.cluster_checks import check_cluster
from resources.doctor.consistency_checks import check_files, check_index, check_published, check_snapshots

_LATE_SECONDS = 120.0
_DRIVERS = ("sensors", "api")  # Sweeps of these drivers need Dagster's daemon, those of one job do not.
_NEEDED = ("SENSOR", "QUEUED_RUN_COORDINATOR")
SENSORS = (
    "start_trials",
    "retry_crashed_trials",
    "watch_starting_pods",
    "stop_diverged_trials",
    "finish_sweeps",
    "launch_requested",
)
"""Sensors that open sweeps need to go on or to end."""


def run_doctor(arguments: argparse.Namespace) -> int:
    """Run the SDK's checks, and those of the catalog, Dagster and the cluster."""
    return run_with(arguments, partial(application_checks, whole=arguments.all))


def application_checks(store: Store, *, whole: bool = False) -> list[Check]:
    """The checks that need more than the store.

    The catalog is opened when the first check needs it, and only if it has this version's schema.
    """

    def with_catalog(
        check: Callable[..., Iterator[Finding]], *arguments: Any, **options: Any
    ) -> Callable[[], Iterator[Finding]]:
        def run_check() -> Iterator[Finding]:
            if is_current(store):
                yield from check(*arguments, open_catalog(store), **options)
            else:
                yield Finding(SKIPPED, "not looked at before there is a catalog of this version")

        return run_check

    return [
        Check("catalog", partial(check_schema, store)),
        Check("database", with_catalog(check_soundness), needs="catalog"),
        Check("db-clock", with_catalog(check_clock), needs="catalog"),
        Check("files", with_catalog(check_files, store, whole=whole), needs="database"),
        Check("snapshots", with_catalog(check_snapshots, store), needs="database"),
        Check("published", with_catalog(check_published, store), needs="database"),
        Check("index", with_catalog(check_index, store), needs="database"),
        Check("dagster", with_catalog(partial(check_daemon, dagster_home(store))), needs="database"),
        Check("cluster", check_cluster),
    ]


def check_daemon(home: Path, catalog: Catalog, now: Callable[[], float] = time.time) -> Iterator[Finding]:
    """Check that Dagster's files can be opened, its daemon lives, and the sensors of sweeps are on.

    A fault is an error where open sweeps wait for the daemon; sweeps of one job do not need it.

    Args:
        home: the folder of Dagster's instance.
        now: this machine's clock, in seconds since 1970.
    """
    from pipelines.dagster_storage import check_storage, open_instance

    if broken := list(check_storage(home)):
        yield from broken
        return
    with catalog.read() as session:
        is_driven = SweepRow.status.in_(("searching", "evaluating")) & SweepRow.driver.in_(_DRIVERS)
        waiting = session.scalar(select(func.count()).select_from(SweepRow).where(is_driven)) or 0
    level = WARNING
    means = "a sweep that is launched would stand still"
    if waiting:
        level = ERROR
        means = f"{waiting} open sweeps stand still"
    beats: dict[str, float] = {}
    stopped: list[str] = []
    if home.exists():
        with open_instance(home) as instance:
            beats = {name: beat.timestamp for name, beat in instance.get_daemon_heartbeats().items()}
            states = instance.all_instigator_state()
            stopped = sorted(
                state.name for state in states if state.name in SENSORS and state.status.value == "STOPPED"
            )
    late = [name for name in _NEEDED if beats.get(name, 0.0) < now() - _LATE_SECONDS]
    if not beats and not waiting:
        yield Finding(OK, f"Dagster's daemon has never run with {home}, and no sweep waits for it")
    elif late:
        heard = max((beats[name] for name in late if name in beats), default=None)
        ago = "never heard of"
        if heard is not None:
            ago = f"last heard of {duration(now() - heard)} ago"
        yield Finding(
            level,
            f"Dagster's daemon ({', '.join(late)}) was {ago}",
            means,
            f"DAGSTER_HOME={home} dagster-daemon run",
        )
    else:
        yield Finding(OK, "Dagster's daemon lives")
    if stopped:
        mend = "; ".join(f"dagster sensor start {name} -m pipelines.definitions" for name in stopped)
        yield Finding(level, f"sensors are switched off that sweeps need: {', '.join(stopped)}", means, mend)
