"""The jobs: a whole sweep in one job, and a sweep whose trials the sensors launch."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
from sqlalchemy.orm import Session

from assets.checkpoints import register_winner
from assets.datasets import DATASETS, check_events, materialized_snapshot
from assets.events import add_partitions, expected_failures
from assets.reports import log_report
from assets.sweeps import SWEEPS, materialized_sweep
from assets.trials import TRIALS, log_new_rungs, log_trial
from halving import Dataset
from halving.errors import InvalidInput
from halving.maintenance.daily import begin_daily, begun_line
from halving.records.provenance import git_state
from pipelines.config import launch_config, sweep_config
from resources.analysis.costs.prices import load_prices
from resources.analysis.summary import summarize
from resources.backend import Backend
from resources.catalog import IntentRow, SweepRow
from resources.catalog.trial_key import trial_key
from resources.datasets.data_checks import check_data
from resources.datasets.manifest import manifest_before
from resources.datasets.over_http import check_imported, check_over_http
from resources.datasets.snapshot_catalog import read_snapshot, refuse_deprecated
from resources.datasets.snapshots import find_or_take_snapshot
from resources.evaluation.report import explain_failures
from resources.evaluation.spec_checks import check_evaluation
from resources.execution.concurrency import concurrency_of
from resources.execution.kubernetes.cluster_config import load_cluster
from resources.execution.kubernetes.pod_manifests import SWEEP_LABEL
from resources.execution.wiring import make_runner, make_scheduler
from resources.execution.worker import work
from resources.features.wanted import views_of
from resources.registry.promotion import evaluate
from resources.scheduling import intents
from resources.scheduling.gpu_hours import check_gpu_hours
from resources.scheduling.sweeps import has_unfinished, open_sweep
from resources.scheduling.warm_start import warm_start_sources
from resources.search.rules import max_trials, seeds_of
from resources.search.state import Control
from resources.source_files.places import listed_places
from resources.sweep_spec import SweepSpec, check_functions, stored_spec
from resources.sweep_spec.dataset import DatasetSource
from resources.sweep_spec.lint import lint

INTENT = "halving/intent"
"""The tag of a run that carries out an intent, with the intent's id."""

ALLOW_DEPRECATED = "halving/allow_deprecated"
"""The tag of a run that may launch a sweep on a deprecated snapshot, with the value ``true``."""

REFRESH = "halving/refresh"
"""The tag of a run that reads all of its dataset's source again, with the value ``true``."""

COMMAND = "halving/command"
"""The tag of a run that ``halving sweep`` has started, with a value that no other run has."""

_MAX_RECLAIMED = 10_000
# When the store or the database is unavailable for some minutes, or a pod is lost, a step is retried and the
# sweep keeps its result.
_RETRIES = dg.RetryPolicy(max_retries=5, delay=10, backoff=dg.Backoff.EXPONENTIAL)
# A worker that is killed is started again; its trial goes on from its checkpoint once the lease has expired.
# Dagster has one count for all retries of a step, so on a cluster, where pods are reclaimed, the executor
# counts the crashes.
_MAX_WORKER_RETRIES = 10 if load_cluster() is None else _MAX_RECLAIMED
_WORKER_RETRIES = dg.RetryPolicy(max_retries=_MAX_WORKER_RETRIES, delay=1.0)
_SPEC = {"spec": dg.Field(dg.Permissive(), description="The checked sweep spec.")}


@dg.op(config_schema=_SPEC, out=dg.Out(dict), tags={"kind": "data"}, retry_policy=_RETRIES)
def take_snapshot(context: dg.OpExecutionContext, backend: Backend) -> Iterator[Any]:
    """Check that what the spec names exists, take a snapshot of its data, and check the snapshot.

    Gives the spec and the snapshot's digest.
    """
    spec = stored_spec(context.op_config["spec"])  # The job's config has checked it.
    with expected_failures():
        allow_deprecated = _is_chosen(context, ALLOW_DEPRECATED)
        refresh = _is_chosen(context, REFRESH)
        trains = _trains(context, backend)
        # The spec of an intent came over HTTP, so it may only name places that are listed.
        places = None
        if INTENT in context.run.tags:
            places = listed_places()
        if places is not None:
            check_over_http(spec, places, trains=trains)
        check_functions(spec, trains=trains)
        if places is not None:
            check_imported(spec, trains=trains)
        if spec.snapshot is None:
            views_of(spec.dataset)  # It raises when there is no such view.
        # It raises when one of them does not fit.
        warm_start_sources(backend.catalog, spec, _visible_projects(context, backend))
        # It raises when the list of prices is not accepted, by which each rung logs its cost.
        load_prices()
        # GPU-hours are checked before anything is stored.
        check_gpu_hours(backend.catalog, spec, goes_on=_goes_on(context, backend, spec))
        made_by = {"dagster_run": context.run.run_id, "job": context.job_name}
        snapshot = find_or_take_snapshot(
            backend.store,
            backend.catalog,
            spec,
            made_by,
            allow_deprecated=True,
            refresh=refresh,
            places=places,
        )
        goes_on = _goes_on(context, backend, spec, snapshot.digest)
        # GPU-hours are checked again, because the unfinished sweep may be on another snapshot.
        forecast = check_gpu_hours(backend.catalog, spec, goes_on=goes_on)
        if not allow_deprecated and not goes_on:
            refuse_deprecated(snapshot, "snapshot" if spec.snapshot else "dataset")
        dataset = Dataset(backend.store, snapshot.name, snapshot.digest)
        manifest = dataset.manifest
        check_evaluation(spec, manifest)
        if spec.final:
            spec.final.check_splits(manifest["splits"])
    if spec.resources.largest.gpus:
        context.log.info(str(forecast))
    add_partitions(context, DATASETS, [snapshot.key])
    before = manifest_before(backend.store, manifest)
    yield materialized_snapshot(snapshot, manifest, before).event()
    if snapshot.deprecated is not None:
        context.log.warning(
            f"snapshot {snapshot.key} is deprecated ({snapshot.deprecated}), and the sweep is launched on "
            "it all the same"
        )
    state = "unchanged"
    if snapshot.new:
        state = "new"
    context.log.info(f"snapshot {snapshot.key}: {snapshot.rows} rows, {state}")
    taken_by = DatasetSource.model_validate(
        {**snapshot.recipe, "checks": spec.dataset.checks.model_dump(mode="json")}
    )
    with expected_failures():
        checks = check_data(dataset, taken_by, before)
    yield from check_events(context, snapshot.key, checks)
    yield dg.Output({"spec": context.op_config["spec"], "snapshot": snapshot.digest})


@dg.op(out=dg.DynamicOut(dict), retry_policy=_RETRIES)
def plan_sweep(
    context: dg.OpExecutionContext, backend: Backend, planned: dict[str, Any]
) -> Iterator[dg.DynamicOutput[dict[str, Any]]]:
    """Open the sweep, or resume the unfinished one of the same spec and snapshot; make a slot a worker."""
    spec = stored_spec(planned["spec"])
    with expected_failures():
        sweep = _open_sweep(context, backend, spec, planned["snapshot"], "job")
        room = concurrency_of(spec)
    # A worker without a trial would only hold its GPUs.
    for slot in range(min(room, max(make_scheduler(backend, sweep).state().max_trials, seeds_of(spec)))):
        yield dg.DynamicOutput({"sweep": sweep, "slot": slot}, mapping_key=str(slot))


@dg.op(retry_policy=_WORKER_RETRIES, pool="trials")
def work_on_trials(context: dg.OpExecutionContext, backend: Backend, slot: dict[str, Any]) -> str:
    """Work as one of the workers: take trials and run them until the search is over. Gives the sweep."""
    scheduler = make_scheduler(backend, slot["sweep"])
    runner = make_runner(backend, scheduler, dagster_run=context.run.run_id)
    try:
        attempts = work(scheduler, runner, lambda changed: log_trial(context, backend, changed))
    except (KeyboardInterrupt, dg.DagsterExecutionInterruptedError):
        if load_cluster() is None:
            raise
        # Its pod was reclaimed, which is no failure however often it happens. When the job is being canceled,
        # Dagster does not retry.
        raise dg.RetryRequested(max_retries=_MAX_RECLAIMED) from None
    context.log.info(f"worker {slot['slot']}: the search is over; {attempts} attempts ran here")
    return scheduler.id


@dg.op(retry_policy=_RETRIES)
def evaluate_winner(context: dg.OpExecutionContext, backend: Backend, done: list[str]) -> str:
    """Evaluate the winner on the test split and check the gates, if the spec has a predictor.

    Gives the sweep.
    """
    sweep = done[0]
    # Nothing trains any more, so automatic retention may start. `halving sweep` starts it for its own job.
    if COMMAND not in context.run.tags and begin_daily(backend.store) is not None:
        context.log.info(begun_line(backend.store))
    log_new_rungs(context, backend, sweep)
    if not _has_predictor(backend, sweep):
        context.log.info(f"the spec of sweep {sweep} has no predictor: nothing is evaluated or promoted")
        return sweep
    with expected_failures():
        report, verdicts = evaluate(backend, sweep)
    log_report(context, report, verdicts)
    return sweep


@dg.op(retry_policy=_RETRIES)
def promote_checkpoint(context: dg.OpExecutionContext, backend: Backend, sweep: str) -> str:
    """Register the winner if it passes the gates. Gives the sweep."""
    if not _has_predictor(backend, sweep):
        return sweep
    context.log_event(register_winner(context, backend, sweep).event())
    return sweep


@dg.op(retry_policy=_RETRIES)
def count_failures(context: dg.OpExecutionContext, backend: Backend, sweep: str) -> None:
    """Fail the job when more trials failed than the spec accepts; the winner stays promoted."""
    summary = summarize(backend.catalog, sweep)
    with backend.catalog.read() as session:
        accepted = stored_spec(backend.catalog.sweep(session, sweep).spec).max_failed_trials
    if summary.best is None:  # With a predictor, the evaluation has failed before.
        raise dg.Failure(
            f"sweep {sweep} has no result: {explain_failures(summary.failed)}", allow_retries=False
        )
    if len(summary.failed) > accepted:
        raise dg.Failure(
            (
                f"{explain_failures(summary.failed)}. The sweep's result stands; the job fails because "
                f"max_failed_trials is {accepted}"
            ),
            allow_retries=False,
        )
    context.log.info(
        f"sweep {sweep} is done: {len(summary.standings)} trials, {summary.saved:.0%} of the epochs saved"
    )


def _sweep_executor() -> dg.ExecutorDefinition:
    if load_cluster() is None:
        # Steps are forked from a process that has imported the definitions; importing them takes two seconds.
        preloaded = {"forkserver": {"preload_modules": ["pipelines.definitions"]}}
        return dg.multiprocess_executor.configured({"start_method": preloaded})
    from pipelines.worker_pods import worker_pods

    return worker_pods


@dg.job(
    config=sweep_config,
    executor_def=_sweep_executor(),
    description=(
        "A whole sweep in one job: snapshot, trials on all cores or in GPU pods, evaluation on the test "
        "split, promotion."
    ),
)
def sweep() -> None:
    slots = plan_sweep(take_snapshot())
    count_failures(promote_checkpoint(evaluate_winner(slots.map(work_on_trials).collect())))


@dg.op(retry_policy=_RETRIES)
def hand_to_sensors(context: dg.OpExecutionContext, backend: Backend, planned: dict[str, Any]) -> None:
    """Open the sweep for the sensors, which launch a run for each attempt, or for the driver of an intent."""
    spec = stored_spec(planned["spec"])
    driver = "sensors"
    intent = None
    with expected_failures():
        if intent_id := context.run.tags.get(INTENT):
            intent = intents.begin(backend.catalog, intent_id, context.run_id)
            driver = intent.payload["driver"]
        sweep = _open_sweep(context, backend, spec, planned["snapshot"], driver, intent)
    next_step = "external loops ask the API for its trials"
    if driver == "sensors":
        next_step = "the sensor start_trials launches its trials"
    context.log.info(f"sweep {sweep} is open: {next_step}")


@dg.job(
    config=launch_config,
    executor_def=dg.in_process_executor,
    description="Open a sweep whose trials are launched by the sensors, each as a run of its own.",
)
def launch_sweep() -> None:
    hand_to_sensors(take_snapshot())


run_trial = dg.define_asset_job(
    "run_trial",
    selection="trial",
    executor_def=dg.in_process_executor,
    description="One attempt at a trial, launched by the sensors.",
)
conclude_sweep = dg.define_asset_job(
    "conclude_sweep",
    selection=["evaluation_report", "promoted_checkpoint"],
    executor_def=dg.in_process_executor,  # The user's code runs in processes of its own already.
    description="Evaluate the winner of a sweep whose search is over, and promote it if it passes the gates.",
)


def _is_chosen(context: dg.OpExecutionContext, tag: str) -> bool:
    value = context.run.tags.get(tag, "false")
    if value not in ("true", "false"):
        raise InvalidInput(f"the run's tag {tag} = {value!r} is not accepted: give true or false")
    return value == "true"


def _trains(context: dg.OpExecutionContext, backend: Backend) -> bool:
    """Whether the platform will train the sweep's trials; an intent may say that external loops do."""
    intent = context.run.tags.get(INTENT)
    return intent is None or intents.find(backend.catalog, intent).payload["driver"] != "api"


def _goes_on(
    context: dg.OpExecutionContext, backend: Backend, spec: SweepSpec, snapshot: str | None = None
) -> bool:
    """Whether the run goes on with a sweep that was opened before.

    An intent has a sweep of its own, whatever other sweeps of the same spec are unfinished.

    Args:
        snapshot: the sweep's snapshot; None is any.
    """
    intent = context.run.tags.get(INTENT)
    if intent is None:
        driver = "job"
        if context.job_name == launch_sweep.name:
            driver = "sensors"
        return has_unfinished(backend.catalog, spec, driver, snapshot)
    with backend.catalog.read() as session:
        return session.get(SweepRow, intents.find(backend.catalog, intent).sweep) is not None


def _visible_projects(context: dg.OpExecutionContext, backend: Backend) -> list[str] | None:
    """The projects that the person who launched the sweep may see; None is all."""
    intent = context.run.tags.get(INTENT)
    if not intent:
        return None
    return intents.find(backend.catalog, intent).payload.get("projects")


def _has_predictor(backend: Backend, sweep: str) -> bool:
    with backend.catalog.read() as session:
        return stored_spec(backend.catalog.sweep(session, sweep).spec).judged_by is not None


def _open_sweep(
    context: dg.OpExecutionContext,
    backend: Backend,
    spec: SweepSpec,
    snapshot: str,
    driver: str,
    intent: IntentRow | None = None,
) -> str:
    git = git_state(backend.store, Path.cwd()) or {}
    wanted = None
    if intent:
        wanted = intent.sweep
    sources = warm_start_sources(backend.catalog, spec, _visible_projects(context, backend))

    def open_row(within: Session | None = None) -> SweepRow:
        return open_sweep(
            backend.catalog,
            spec,
            snapshot,
            driver=driver,
            commit=git.get("commit"),
            sweep=wanted,
            sources=sources,
            within=within,
        )

    row = intents.carry_out(backend.catalog, intent.id, context.run_id, open_row) if intent else open_row()
    if row.commit != git.get("commit"):
        context.log.warning(
            f"sweep {row.id} was started with commit {row.commit} and goes on with {git.get('commit')}"
        )
    for warning in lint(spec):
        context.log.warning(warning)
    if row.control == Control.PAUSE:
        context.log.warning(
            f"sweep {row.id} is paused: no trial starts until halving resume {row.id}, or the job "
            "resume_sweep"
        )
    if row.control == Control.STOP:
        context.log.warning(
            f"sweep {row.id} is being stopped: its search ends here, and what it found is evaluated"
        )
    trials = [trial_key(row.id, number) for number in range(max_trials(spec) + seeds_of(spec))]
    context.instance.add_run_tags(context.run_id, {SWEEP_LABEL: row.id})
    add_partitions(context, SWEEPS, [row.id])
    add_partitions(context, TRIALS, trials)
    context.log_event(materialized_sweep(row, spec, read_snapshot(backend.catalog, row.snapshot)).event())
    plan = f"up to {max_trials(spec)} trials, {spec.rungs}"
    if spec.final:
        plan += f", then {seeds_of(spec)} trainings of the winner for {spec.final_epochs} epochs each"
    context.log.info(f"sweep {row.id}: {plan}")
    return row.id
