"""Jobs that approve, reject, promote or roll back versions from Dagster's UI, as ``halving`` commands do.

Dagster has no login of its own, so each job's config says who decides. The decision is logged on the asset
``promoted_checkpoint``.
"""

import dagster as dg
from pydantic import Field

from assets.checkpoints import log_decision
from assets.events import expected_failures
from resources.backend import Backend
from resources.registry import by_hand


class OfModel(dg.Config):
    """A model, and who decides about it."""

    model: str = Field(description="The model's name, which is the name of its sweep spec.")
    by: str = Field(
        default="dagster",
        description="Who decides: a name that the spec's approval.by knows, if it names some.",
    )
    note: str | None = Field(default=None, description="Why; it is written down.")


class Promotion(OfModel):
    """A version to make champion."""

    version: str = Field(description="For example 1.0.1.")
    force: bool = Field(
        default=False, description="Promote it although its gates or people hold it back; needs a note."
    )


class Decision(OfModel):
    """A version to approve or to reject."""

    version: str = Field(description="For example 1.0.1.")
    note: str = Field(description="Why; it is written down.")


@dg.op
def make_champion(context: dg.OpExecutionContext, config: Promotion, backend: Backend) -> None:
    """Make a version the champion and archive the one before, if its gates and people let it."""
    with expected_failures():
        decided = by_hand.promote(
            backend,
            config.model,
            config.version,
            context.log.warning,
            actor=config.by,
            note=config.note,
            force=config.force,
        )
    log_decision(context, decided)


@dg.op
def go_back(context: dg.OpExecutionContext, config: OfModel, backend: Backend) -> None:
    """Go back to the champion before."""
    with expected_failures():
        decided = by_hand.rollback(
            backend, config.model, context.log.warning, actor=config.by, note=config.note
        )
    log_decision(context, decided)


@dg.op
def give_approval(context: dg.OpExecutionContext, config: Decision, backend: Backend) -> None:
    """Approve a version; with the last approval that it needs it may become the champion."""
    with expected_failures():
        decided = by_hand.approve(
            backend, config.model, config.version, context.log.warning, actor=config.by, note=config.note
        )
    log_decision(context, decided)


@dg.op
def refuse(context: dg.OpExecutionContext, config: Decision, backend: Backend) -> None:
    """Reject a version."""
    with expected_failures():
        decided = by_hand.reject(
            backend, config.model, config.version, context.log.warning, actor=config.by, note=config.note
        )
    log_decision(context, decided)


@dg.job(
    executor_def=dg.in_process_executor,
    description="Make a version the champion, if its gates and people let it.",
)
def promote_version() -> None:
    make_champion()


@dg.job(
    executor_def=dg.in_process_executor,
    description="Go back to the champion before; again, and it goes back one more.",
)
def rollback_model() -> None:
    go_back()


@dg.job(executor_def=dg.in_process_executor, description="Approve a version that waits for it.")
def approve_version() -> None:
    give_approval()


@dg.job(
    executor_def=dg.in_process_executor, description="Reject a version: it is not promoted, unless by force."
)
def reject_version() -> None:
    refuse()
