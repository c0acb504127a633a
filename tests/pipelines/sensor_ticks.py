"""Ticks of sensors, and the partitions and runs that they find in Dagster."""

import dagster as dg

from pipelines.definitions import defs
from resources.backend import Backend
from resources.scheduling.assignment import Assignment
from resources.scheduling.scheduler import Scheduler


def tick(sensor: dg.SensorDefinition, backend: Backend, instance: dg.DagsterInstance) -> list[dg.RunRequest]:
    context = dg.build_sensor_context(instance=instance, resources={"backend": backend}, definitions=defs)
    with dg.partition_loading_context(dynamic_partitions_store=instance):
        return list(sensor.evaluate_tick(context).run_requests or [])


def prepare(instance: dg.DagsterInstance, open_scheduler: Scheduler) -> None:
    instance.add_dynamic_partitions("trials", [f"{open_scheduler.id}.{number:04d}" for number in range(4)])
    instance.add_dynamic_partitions("sweeps", [open_scheduler.id])


def add_run(instance: dg.DagsterInstance, of: Assignment, status: dg.DagsterRunStatus) -> str:
    run = dg.DagsterRun(job_name="run_trial", tags={"dagster/run_key": of.run_key}, status=status)
    instance.add_run(run)
    return run.run_id
