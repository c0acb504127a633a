"""``trial``: one set of hyperparameters; its partition is materialized at every rung.

A partition is, for example, ``digits-7f3a.0007``.
"""

from collections.abc import Iterator
from typing import Any

import dagster as dg
from sqlalchemy import select

from assets.events import GROUP, Materialized, add_partitions, asset_link, expected_failures, page_link
from halving.rerun.verdict import Verdict
from resources.analysis.costs.prices import load_prices
from resources.backend import Backend
from resources.catalog import AttemptRow, Catalog, RungResultRow, SweepRow, TrialRow
from resources.catalog.retry import WORKER_SECONDS, retry_transient
from resources.catalog.trial_key import parse_trial_key, trial_key
from resources.evaluation.report import report_path
from resources.execution.kubernetes.pod_manifests import ATTEMPT_LABEL
from resources.execution.wiring import make_runner, make_scheduler
from resources.execution.worker import worker_name
from resources.scheduling.assignment import Assignment
from resources.search.decide import Fail, Retry
from resources.sweep_spec import SweepSpec, stored_spec

TRIALS = dg.DynamicPartitionsDefinition(name="trials")


@dg.asset(
    description=(
        "A trial's checkpoints and results, rung by rung. The sensors launch its attempts: to start, "
        "promote, resume and retry it."
    ),
    group_name=GROUP,
    deps=["sweep"],
    partitions_def=TRIALS,
    output_required=False,
    pool="trials",
    kinds={"python"},
)
def trial(context: dg.AssetExecutionContext, backend: Backend) -> Iterator[dg.MaterializeResult[Any]]:
    """Run the attempt that a sensor launched, until the trial pauses, ends or fails."""
    sweep_id, number = parse_trial_key(context.partition_key)
    scheduler = make_scheduler(backend, sweep_id)
    attempt = int(context.run.tags.get(ATTEMPT_LABEL, 0)) or None
    runner = make_runner(backend, scheduler, dagster_run=context.run.run_id)
    with expected_failures():
        assignment = scheduler.claim(number, worker_name(), attempt=attempt)
    decision = runner.run(assignment, lambda changed: log_trial(context, backend, changed))
    if isinstance(decision, Retry | Fail):
        error_text = trial_row(backend, sweep_id, number).error or "no reason was recorded"
        raise dg.Failure(
            f"attempt {assignment.attempt} at trial {assignment.key} failed:\n{error_text}",
            allow_retries=False,
        )
    # Every rung was logged when it was reached, so a result of this step would be one event too many.
    yield from ()


def log_trial(context: Any, backend: Backend, changed: Assignment) -> None:
    """Report a trial's news to Dagster: each new rung as a materialization, a failure as an observation."""
    log_new_rungs(context, backend, changed.sweep, changed.trial)
    row = trial_row(backend, changed.sweep, changed.trial)
    if row.error and row.attempt == changed.attempt:
        context.log.error(
            f"{changed.key}: attempt {row.attempt} failed or was preempted; the trial is {row.status} "
            f"now:\n{row.error}"
        )
        context.log_event(observed_trial(changed.key, row))


def observed_trial(key: str, row: TrialRow) -> dg.AssetObservation:
    """Why an attempt failed, or why its pod has not started, as an observation of the trial's partition."""
    metadata: dict[str, Any] = {
        "status": row.status,
        "attempt": row.attempt,
        "failures": row.failures,
        "preemptions": row.preemptions,
    }
    if row.waiting:
        metadata["waiting"] = row.waiting
    if row.error:
        metadata["traceback"] = dg.MetadataValue.md(f"```\n{row.error}\n```")
    return dg.AssetObservation("trial", partition=key, metadata=metadata)


def observed_rerun(verdict: Verdict) -> dg.AssetObservation | None:
    """The verdict on a rerun as an observation of the trial's partition; None if the run is no trial."""
    if not verdict.trial:
        return None
    project, _, key = verdict.rerun_of.partition("/")
    first = verdict.first_difference
    weights_equal: bool | str = "not compared"
    if verdict.weights_equal is not None:
        weights_equal = verdict.weights_equal
    metadata: dict[str, Any] = {
        "rerun": verdict.verdict,
        "run": verdict.run,
        "points": verdict.points,
        "weights_equal": weights_equal,
        "weights": verdict.weights[1] or "(none saved)",
        "differing_factors": [str(factor) for factor in verdict.factors],
        "not_compared": verdict.not_compared,
        **page_link("runs", project, verdict.run),
    }
    if first is not None:
        metadata |= {"first_difference": first.as_dict()}
    return dg.AssetObservation(
        "trial", partition=key, metadata=metadata, description=f"A rerun came out {verdict.verdict}."
    )


def log_new_rungs(context: Any, backend: Backend, sweep_id: str, number: int | None = None) -> None:
    """Materialize the rung results of a trial, or of a whole sweep, that were not logged yet.

    A result is marked only after it was logged: a process that is killed in between leads to a second event,
    never to none.
    """
    with backend.catalog.read() as session:
        row = backend.catalog.sweep(session, sweep_id)
        query = select(RungResultRow).where(
            RungResultRow.sweep == sweep_id, RungResultRow.materialized.is_(False)
        )
        if number is not None:
            query = query.where(RungResultRow.trial == number)
        results = list(session.scalars(query.order_by(RungResultRow.reached_at)))
        trials = {result.trial: session.get_one(TrialRow, (sweep_id, result.trial)) for result in results}
        tried = {(result.trial, result.attempt) for result in results}
        attempts = {key: session.get_one(AttemptRow, (sweep_id, *key)) for key in tried}
    spec = stored_spec(row.spec)
    # Opening the sweep added the partitions of the spec's trials; trials by which it was extended are added
    # here.
    if extended := {
        trial_key(sweep_id, result.trial) for result in results if result.trial >= spec.max_trials
    }:
        add_partitions(context, TRIALS, sorted(extended))
    for result in results:
        if result.value is not None:
            attempt = attempts[result.trial, result.attempt]
            page = backend.store.address(report_path(sweep_id))
            rung = materialized_rung(row, spec, trials[result.trial], attempt, result, page)
            context.log_event(rung.event())
            context.log.info(
                f"{rung.partition}: {spec.objective.metric} {result.value:.4f} after {result.epochs} epochs "
                f"(rung {result.rung}): {_DECISIONS[result.decision]}"
            )
        _mark_materialized(backend.catalog, result)


_DECISIONS = {
    "continue": "promoted in place",
    "pause": "paused",
    "stop": "stopped",
    "requeue": "promoted, waits until its sweep is resumed",
    "complete": "complete",
    "fail": "failed",
}


def materialized_rung(
    row: SweepRow,
    spec: SweepSpec,
    trial_row: TrialRow,
    attempt: AttemptRow,
    result: RungResultRow,
    report: str,
) -> Materialized:
    """A rung's result as a materialization of the trial's partition.

    ``attempt`` is the one that reached it.
    """
    final = {}
    if spec.final and trial_row.final is not None:
        final = {"final_seed": trial_row.final, "trained_on": ", ".join(spec.final.on)}
    return Materialized(
        "trial",
        partition=trial_key(row.id, result.trial),
        version=result.checkpoint or "",
        inputs={"sweep": row.spec_digest, "dataset_snapshot": row.snapshot},
        metadata={
            "objective": result.value,
            "metric": spec.objective.metric,
            **{
                f"metric/{name}": value
                for name, value in (result.metrics or {}).items()
                if name != spec.objective.metric
            },
            "rung": result.rung,
            "epochs": result.epochs,
            "decision": _DECISIONS[result.decision],
            **{f"param/{name}": value for name, value in trial_row.params.items()},
            "attempt": result.attempt,
            **final,
            "seconds": round(result.seconds, 3),
            "cost": round(_cost(attempt, result.seconds), 6),
            "gpu_seconds": round(result.seconds * attempt.nodes * attempt.gpus, 3),
            "checkpoint": result.checkpoint,
            "snapshot": row.snapshot,
            "commit": row.commit or "(no git)",
            "sweep": asset_link("sweep", row.id),
            "report": asset_link("evaluation_report", row.id),
            "report_page": dg.MetadataValue.path(report),
        },
        page=("runs", row.project, trial_key(row.id, result.trial)),
    )


def _cost(attempt: AttemptRow, seconds: float) -> float:
    """The cost of this many seconds of an attempt, by the prices in force."""
    rate = load_prices().node_hour(
        gpus=attempt.gpus, cpus=attempt.cpus, gpu_type=attempt.gpu_type, spot=bool(attempt.spot)
    )
    return seconds / 3600 * attempt.nodes * rate


def trial_row(backend: Backend, sweep: str, number: int) -> TrialRow:
    """A trial's row in the catalog."""
    with backend.catalog.read() as session:
        return session.get_one(TrialRow, (sweep, number))


def _mark_materialized(catalog: Catalog, result: RungResultRow) -> None:
    def mark() -> None:
        with catalog.write() as session:
            session.get_one(RungResultRow, (result.sweep, result.trial, result.rung)).materialized = True

    retry_transient(mark, WORKER_SECONDS)
