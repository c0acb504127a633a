"""``promoted_checkpoint``: a winner that passed the gates, as a version in the registry."""

import dagster as dg

from assets.events import GROUP, Materialized, asset_link, failure
from assets.reports import judge
from assets.sweeps import SWEEPS
from halving import HalvingError
from resources.backend import Lab
from resources.catalog import ModelVersionRow
from resources.evaluation.report import Report, load_report
from resources.registry.gates import GateFailed
from resources.registry.promotion import new_version
from resources.registry.versions import register
from resources.sweep_spec import parse_spec


@dg.asset(
    description="A checkpoint that passed its gates: a version of the model, staging or champion.",
    group_name=GROUP,
    deps=["evaluation_report"],
    partitions_def=SWEEPS,
    kinds={"pytorch"},
)
def promoted_checkpoint(context: dg.AssetExecutionContext, lab: Lab) -> dg.MaterializeResult:
    """Register the winner of a sweep."""
    try:
        report = load_report(lab.store, lab.catalog, context.partition_key)
        return materialized_checkpoint(promote_winner(lab, report), report).result()
    except HalvingError as error:
        raise failure(error) from None


def promote_winner(lab: Lab, report: Report) -> ModelVersionRow:
    """Register a report's winner if every gate lets it pass, and end its sweep.

    Raises:
        GateFailed: saying which gate and why.
    """
    sweep = report.data["sweep"]
    if failed := [gate for gate in judge(lab, report) if not gate.passed]:
        reasons = "; ".join(f"{gate.name}: {gate.reason}" for gate in failed)
        raise GateFailed(f"sweep {sweep} was not promoted: {reasons}. The report says more: {report.path}")
    row = register(lab.catalog, new_version(lab.store, report), auto_promote=parse_spec(report.data["spec"]).auto_promote)
    lab.catalog.end_sweep(sweep, "finished")
    return row


def materialized_checkpoint(row: ModelVersionRow, report: Report) -> Materialized:
    return Materialized(
        "promoted_checkpoint",
        partition=row.sweep,
        version=row.checkpoint,
        inputs={"evaluation_report": row.report},
        metadata={
            "model": row.model,
            "version": row.version,
            "stage": row.stage,
            "checkpoint": row.checkpoint,
            **{f"{report.data['split']}/{name}": value for name, value in row.metrics.items()},
            "framework": row.framework,
            "input_schema": dg.MetadataValue.json(row.input_schema),
            "output_schema": dg.MetadataValue.json(row.output_schema),
            "trial": asset_link("trial", row.run),
            "report": asset_link("evaluation_report", row.sweep),
        },
    )
