"""How long one tick of each sensor takes, with ten thousand trials running."""

import os
import time
from typing import Any

from benchmarks.machine import CHECKOUT, Setting, in_child
from benchmarks.results import Table, number

IN_PROGRESS = 10_000  # runs, and running trials of all sweeps
STARTED = 1_000
RUNNING = 100
HANDED_OUT = 83
# Sensors hand out as many trials as the machine has cores for, unless they run on a cluster.
ON_A_CLUSTER = {"HALVING_CLUSTER": str(CHECKOUT / "deploy" / "kubernetes" / "base" / "cluster.yaml")}
_SENSORS = ("start_trials", "retry_crashed_trials", "stop_diverged_trials", "finish_sweeps")


def ticks(backend: Any, setting: Setting, note: str) -> Table:
    """Seconds of a process's first tick and of its next one, of each sensor at two sizes."""
    table = Table(
        [
            "sensor",
            "sweeps",
            "known trials",
            "running trials",
            "first tick, s",
            "next tick, s",
            "runs requested",
        ],
        [],
        "Ticks",
        note,
    )
    trials = setting.choose(20, STARTED)
    running = setting.choose(3, RUNNING)
    opened = 0
    for sweeps in setting.choose(1, 10), setting.choose(2, IN_PROGRESS // RUNNING):
        backend.end_sweeps()
        sizes = {
            "sweeps": sweeps,
            "started": trials,
            "running": running,
            "more": 20,
            "concurrency": running + 1,
            "first": 2 + opened,
        }
        ids = in_child("benchmarks.catalog_fill:fill", url=backend.catalog, driver="sensors", **sizes)
        opened += sweeps
        figures = in_child("benchmarks.dagster_ticks:two_ticks", sweeps=ids, variables=backend.variables)
        for sensor, (seconds, requested) in figures.items():
            table.rows.append(
                [
                    f"`{sensor}`",
                    str(sweeps),
                    f"{sweeps * trials:,}",
                    f"{sweeps * running:,}",
                    *map(number, seconds),
                    requested,
                ]
            )
    return table


def two_ticks(sweeps: list[str], variables: dict[str, str]) -> dict[str, tuple[list[float], str]]:
    """Run two ticks of each sensor, and what happens in between, in a process of their own.

    It returns the seconds of the ticks and the runs that they requested.
    """
    os.environ.update(variables | ON_A_CLUSTER)
    import dagster as dg

    from pipelines import sensors
    from resources.backend import Backend

    backend = Backend()
    figures = {}
    backend.catalog, backend.store  # noqa: B018  # opened, as a code location has them
    with dg.DagsterInstance.get() as instance:
        for sensor in _SENSORS:
            seconds = []
            requested = []
            for turn in range(2):
                if turn:
                    _go_on(backend.catalog, sweeps)
                began = time.perf_counter()
                result = getattr(sensors, sensor)(
                    dg.build_sensor_context(instance=instance, resources={"backend": backend})
                )
                seconds.append(time.perf_counter() - began)
                requested.append(len(result.run_requests or ()) if isinstance(result, dg.SensorResult) else 0)
            figures[sensor] = (seconds, f"{requested[0]}, {requested[1]}")
    return figures


def _go_on(catalog: Any, sweeps: list[str]) -> None:
    """Claim what was handed out, then end the rung of as many trials as end it between two ticks."""
    from halving.trial.messages import ReachedRung
    from resources.scheduling.scheduler import Scheduler

    for sweep in sweeps[:HANDED_OUT]:
        scheduler = Scheduler(catalog, sweep)
        for waiting in scheduler.unclaimed_attempts():
            scheduler.claim(waiting.trial, "bench")
        ending = scheduler.claimed_attempts()[0]
        # so bad that its trial is paused
        report = ReachedRung(ending.granted, {"score": 1e6}, "sha256:bench")
        scheduler.report_rung(ending, report, 60.0)
