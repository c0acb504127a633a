"""Jobs that pause, resume, stop or extend a running sweep from Dagster's UI, as ``halving`` commands do."""

import dagster as dg
from pydantic import Field

from assets.events import expected_failures
from resources.backend import Backend
from resources.catalog import IntentRow
from resources.scheduling import intents, sweeps


class SearchingSweep(dg.Config):
    """A sweep that is searching."""

    sweep: str = Field(description="The sweep's id, for example digits-7f3a.")


class Extension(SearchingSweep):
    """A sweep, and the number of trials that it may start."""

    max_trials: int = Field(description="How many trials it may start in all; more than now.")


@dg.op
def hand_out_no_more(context: dg.OpExecutionContext, config: SearchingSweep, backend: Backend) -> None:
    """Pause a sweep."""
    with expected_failures():
        sweeps.pause_sweep(backend.catalog, config.sweep, actor=_actor(context))
    context.log.info(
        f"sweep {config.sweep} is paused: running trials save a checkpoint and stop; the job resume_sweep "
        "continues it"
    )


@dg.op
def hand_out_again(context: dg.OpExecutionContext, config: SearchingSweep, backend: Backend) -> None:
    """Resume a paused sweep."""
    with expected_failures():
        sweeps.resume_sweep(backend.catalog, config.sweep, actor=_actor(context))
    context.log.info(f"sweep {config.sweep} goes on")


@dg.op
def end_search(context: dg.OpExecutionContext, config: SearchingSweep, backend: Backend) -> None:
    """Stop a sweep."""
    with expected_failures():
        stopped = intents.stop_sweep(backend.catalog, config.sweep, _actor(context))
    if isinstance(stopped, IntentRow):
        context.log.info(f"sweep {config.sweep} was not open yet: it never will be")
        return
    context.log.info(
        f"sweep {config.sweep} is being stopped: running trials save a checkpoint, then its winner is "
        "evaluated"
    )


@dg.op
def allow_more_trials(context: dg.OpExecutionContext, config: Extension, backend: Backend) -> None:
    """Extend a sweep."""
    with expected_failures():
        sweeps.extend_sweep(backend.catalog, config.sweep, config.max_trials, actor=_actor(context))
    context.log.info(f"sweep {config.sweep} may start {config.max_trials} trials in all")


def _actor(context: dg.OpExecutionContext) -> str:
    return f"Dagster's run {context.run_id}"


@dg.job(
    executor_def=dg.in_process_executor,
    description="Start no more trials of a sweep; running ones save a checkpoint and stop.",
)
def pause_sweep() -> None:
    hand_out_no_more()


@dg.job(executor_def=dg.in_process_executor, description="Continue a paused sweep where it stands.")
def resume_sweep() -> None:
    hand_out_again()


@dg.job(
    executor_def=dg.in_process_executor,
    description="End the search of a sweep now and evaluate what it found; nothing is deleted.",
)
def stop_sweep() -> None:
    end_search()


@dg.job(executor_def=dg.in_process_executor, description="Allow a running sweep to start more trials.")
def extend_sweep() -> None:
    allow_more_trials()
