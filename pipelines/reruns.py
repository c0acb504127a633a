"""The job ``rerun``, which trains a recorded run again, and observes the verdict on the trial's asset."""

from pathlib import Path

import dagster as dg
from pydantic import Field

from assets.events import expected_failures
from assets.trials import observed_rerun
from halving.query.runs import find_run
from halving.rerun import rerun as rerunning
from halving.rerun.verdict import IDENTICAL
from resources.backend import Backend
from resources.execution.kubernetes.rerun_pod import rerun_pods


class RerunConfig(dg.Config):
    """The run to train again, and how."""

    run: str = Field(description="A trial, for example digits-7f3a.0007, or a run's id or project/run.")
    repository: str = Field(
        default=".",
        description="A folder in the checkout that has the run's commit; a trial of a pod needs none.",
    )
    env: bool = Field(
        default=False, description="Train in a new virtual environment of the recorded packages."
    )
    strict: bool = Field(
        default=False, description="Refuse to train where something differs from the record."
    )
    accepted: list[str] = Field(
        default=[],
        description="Factors that may differ all the same: python, packages, hardware, image, code.",
    )
    ignore: list[str] = Field(default=[], description="Metrics that are not compared, for example time/*.")


@dg.op
def train_again(context: dg.OpExecutionContext, config: RerunConfig, backend: Backend) -> None:
    """Train a run again; the step fails where the result is not identical."""
    with expected_failures():
        options = rerunning.Options(
            repository=Path(config.repository),
            build=config.env,
            strict=config.strict,
            accepted=config.accepted,
            ignore=config.ignore,
        )
        run = find_run(backend.store, config.run)
        pods = rerun_pods(backend.catalog_url)
        verdict = rerunning.rerun(backend.store, *run, options, tell=context.log.info, pods=pods)
    if (observation := observed_rerun(verdict)) is not None:
        context.log_event(observation)
    if verdict.verdict != IDENTICAL:
        first = verdict.first_difference
        where = "in its weights"
        if first:
            where = (
                f"first at step {first.step} of {first.metric} ({first.recorded} was recorded, {first.rerun} "
                "came out)"
            )
        factors = "".join(f"\n- {factor}" for factor in verdict.factors) or " nothing that is recorded"
        raise dg.Failure(
            f"{verdict.rerun_of} differs from its rerun {verdict.run}, {where}; known to differ:{factors}",
            allow_retries=False,
        )
    context.log.info(
        f"{verdict.rerun_of} came out identical as {verdict.run}: {verdict.points} points, weights "
        f"{verdict.weights[1]}"
    )


@dg.job(
    executor_def=dg.in_process_executor,
    description="Train a recorded run or trial again and say whether the same came out.",
)
def rerun() -> None:
    train_again()
