"""``evaluation_report``: a sweep's winner on the test split, with the gates before promotion as blocking checks."""

from collections.abc import Sequence
from typing import Any

import dagster as dg

from assets.events import GROUP, Materialized, asset_link, expected_failures
from assets.sweeps import SWEEPS
from assets.trials import log_new_rungs
from resources.backend import Backend
from resources.evaluation.report import EvaluationReport
from resources.registry.gates import Gate
from resources.registry.promotion import evaluate

GATES = {
    "finite_metrics": "Every test metric is a finite number.",
    "lineage_complete": "The winner's run record, code, checkpoint and snapshot are all there.",
    "within_bounds": "The winner's metrics are within the spec's bounds.",
    "not_worse_than_champion": "The gate metric is not worse than the champion's, on the same rows, by more than the margin.",
}


@dg.asset(
    description="The winner on data that it was not trained on, compared with the current champion.",
    group_name=GROUP,
    deps=["trial"],
    partitions_def=SWEEPS,
    check_specs=[
        dg.AssetCheckSpec(name, asset="evaluation_report", description=description, blocking=True) for name, description in GATES.items()
    ],
    kinds={"plotly"},
)
def evaluation_report(context: dg.AssetExecutionContext, backend: Backend) -> dg.MaterializeResult:
    """Evaluate the sweep's winner and check the gates."""
    log_new_rungs(context, backend, context.partition_key)
    with expected_failures():
        report, gates = evaluate(backend, context.partition_key)
    checks = [dg.AssetCheckResult(passed=gate.passed, check_name=gate.name, metadata={"reason": gate.reason}) for gate in gates]
    return materialized_report(report).result(checks)


def log_report(context: Any, report: EvaluationReport, gates: Sequence[Gate]) -> None:
    """Materialize a report with its gates as its checks, from a step of a job or of another asset."""
    context.log_event(materialized_report(report).event())
    for gate in gates:
        context.log_event(
            dg.AssetCheckEvaluation(
                check_name=gate.name,
                asset_key=dg.AssetKey("evaluation_report"),
                passed=gate.passed,
                metadata={"reason": dg.MetadataValue.text(gate.reason)},
                blocking=True,
                partition=report.data["sweep"],
            )
        )


def materialized_report(report: EvaluationReport) -> Materialized:
    data, summary = report.data, report.data["summary"]
    return Materialized(
        "evaluation_report",
        partition=data["sweep"],
        version=report.digest,
        inputs={"trial": data["winner"]["checkpoint"], "dataset_snapshot": data["snapshot"]["digest"]},
        metadata={
            "preview": dg.MetadataValue.md(report.preview),
            "page": dg.MetadataValue.path(report.path),
            **{f"{data['split']}/{name}": value for name, value in data["metrics"].items()},
            "objective": data["winner"]["objective"],
            "winner": asset_link("trial", data["winner"]["key"]),
            "champion": data["champion"]["version"] if data["champion"] else "(none yet)",
            "epochs_trained": summary["epochs_trained"],
            "epochs_saved": summary["epochs_full"] - summary["epochs_trained"],
            "gpu_seconds": summary["gpu_seconds"],
            "gpu_seconds_saved": summary["gpu_seconds_saved"],
            "snapshot": asset_link("dataset_snapshot", data["snapshot"]["key"]),
            "html": report.html_digest,
        },
        page=("sweeps", data["sweep"]),
    )
