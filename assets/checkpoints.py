"""``promoted_checkpoint``: a winner that passed its gates, as a version in the registry."""

from functools import partial
from typing import Any

import dagster as dg

from assets.events import GROUP, Materialized, asset_link, expected_failures
from assets.reports import cost_metadata, log_report
from assets.sweeps import SWEEPS
from resources.backend import Backend
from resources.catalog import ModelVersionRow
from resources.evaluation.report import EvaluationReport, load_report
from resources.registry.by_hand import Decided
from resources.registry.events import describe_event
from resources.registry.promotion import promote_winner


@dg.asset(
    description="A checkpoint that passed its gates: a version of the model, staging or champion.",
    group_name=GROUP,
    deps=["evaluation_report"],
    partitions_def=SWEEPS,
    kinds={"pytorch"},
)
def promoted_checkpoint(context: dg.AssetExecutionContext, backend: Backend) -> dg.MaterializeResult:
    """Register the winner of a sweep."""
    return register_winner(context, backend, context.partition_key).result()


def register_winner(context: Any, backend: Backend, sweep: str) -> Materialized:
    """Register the winner of a sweep if it passes the gates."""
    with expected_failures():
        stored_report = load_report(backend.store, backend.catalog, sweep)
        row, report = promote_winner(backend, stored_report, partial(log_report, context))
    context.log.info(f"model {row.model} {row.version} is {row.stage}: {row.checkpoint}")
    return _materialization_of(row, report)


def log_decision(context: Any, decided: Decided) -> None:
    """Log a decision about a version, as an observation of its sweep's partition.

    A version that a client registered belongs to no sweep, and the observation has no partition.
    """
    row = decided.row
    event = decided.event
    if event is None:
        context.log.info(f"model {row.model} {row.version} is {row.stage} already: nothing was changed")
        return
    context.log.info(
        f"model {row.model} {row.version} is {row.stage}; {event.actor}: {describe_event(event)}"
    )
    context.log_event(
        dg.AssetObservation(
            "promoted_checkpoint",
            partition=row.sweep,
            description=describe_event(event),
            metadata={
                "model": row.model,
                "version": row.version,
                "stage": row.stage,
                "kind": event.kind,
                "by": event.actor,
                "note": event.note or "",
                "report": event.report or "",
            },
        )
    )


def _materialization_of(row: ModelVersionRow, report: EvaluationReport) -> Materialized:
    sweep = report.data["sweep"]
    winner = report.data["winner"]
    return Materialized(
        "promoted_checkpoint",
        partition=sweep,
        version=winner["checkpoint"],
        inputs={"evaluation_report": str(row.report)},
        metadata={
            "model": row.model,
            "version": row.version,
            "stage": row.stage,
            "checkpoint": winner["checkpoint"],
            **{f"{report.data['split']}/{name}": value for name, value in row.metrics.items()},
            "framework": row.framework,
            "input_schema": dg.MetadataValue.json(row.input_schema),
            "output_schema": dg.MetadataValue.json(row.output_schema),
            **cost_metadata(report.data),
            "trial": asset_link("trial", winner["key"]),
            "report": asset_link("evaluation_report", sweep),
        },
        page=("models", row.model),
    )
