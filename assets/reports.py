"""``evaluation_report``: a sweep's winner on the test split, with the promotion gates as its checks."""

from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg

from assets.events import GROUP, Materialized, asset_link, expected_failures
from assets.sweeps import SWEEPS
from assets.trials import log_new_rungs
from resources.backend import Backend
from resources.evaluation.report import EvaluationReport
from resources.registry.gates.verdict import PASS, Verdict, overall
from resources.registry.promotion import evaluate
from resources.sweep_spec.gates import KINDS


@dg.asset(
    description="The winner on data that it was not trained on, compared with the current champion.",
    group_name=GROUP,
    deps=["trial"],
    partitions_def=SWEEPS,
    check_specs=[
        dg.AssetCheckSpec(name, asset="evaluation_report", description=description, blocking=True)
        for name, description in KINDS.items()
    ],
    kinds={"plotly"},
)
def evaluation_report(context: dg.AssetExecutionContext, backend: Backend) -> dg.MaterializeResult:
    """Evaluate the sweep's winner and check the gates."""
    log_new_rungs(context, backend, context.partition_key)
    with expected_failures():
        report, verdicts = evaluate(backend, context.partition_key)
    checks = [
        dg.AssetCheckResult(passed=passed, check_name=name, metadata=metadata)
        for name, passed, metadata in (_check(name, verdicts) for name in KINDS)
    ]
    context.log_event(observed_cost(report))
    return materialized_report(report).result(checks)


def log_report(context: Any, report: EvaluationReport, verdicts: Sequence[Verdict]) -> None:
    """Materialize a report with its gates as checks, from a step of a job or of another asset."""
    context.log_event(materialized_report(report).event())
    context.log_event(observed_cost(report))
    for name, passed, metadata in (_check(name, verdicts) for name in KINDS):
        context.log_event(
            dg.AssetCheckEvaluation(
                check_name=name,
                asset_key=dg.AssetKey("evaluation_report"),
                passed=passed,
                metadata=metadata,
                blocking=True,
                partition=report.data["sweep"],
            )
        )


def _check(name: str, verdicts: Sequence[Verdict]) -> tuple[str, bool, dict[str, dg.MetadataValue]]:
    """One check for all gates of a kind, because Dagster must know all checks beforehand.

    Of several gates the worst gives the outcome.
    """
    own = [verdict for verdict in verdicts if verdict.name == name]
    if not own:
        reason = "the spec has no gate of this kind"
        return name, True, {"outcome": dg.MetadataValue.text(PASS), "reason": dg.MetadataValue.text(reason)}
    outcome = overall(own)
    leading = next(verdict for verdict in own if verdict.outcome == outcome)
    metadata: dict[str, dg.MetadataValue] = {
        "outcome": dg.MetadataValue.text(outcome),
        "reason": dg.MetadataValue.text(
            "; ".join(verdict.reason for verdict in own if verdict.outcome == outcome)
        ),
    }
    metadata |= {
        field: dg.MetadataValue.float(value)
        for field in ("figure", "threshold", "low", "high")
        if (value := getattr(leading, field)) is not None
    }
    if leading.needed is not None:
        metadata["rows_that_would_settle_it"] = dg.MetadataValue.int(leading.needed)
    if leading.needed_seeds is not None:
        metadata["seeds_that_would_settle_it"] = dg.MetadataValue.int(leading.needed_seeds)
    if len(own) > 1:
        metadata["gates"] = dg.MetadataValue.json([verdict.as_dict() for verdict in own])
    return name, outcome == PASS, metadata


def observed_cost(report: EvaluationReport) -> dg.AssetObservation:
    """What a sweep cost, as an observation of its partition.

    The partition was materialized before the sweep had cost anything.
    """
    return dg.AssetObservation("sweep", partition=report.data["sweep"], metadata=cost_metadata(report.data))


def cost_metadata(report: Mapping[str, Any]) -> dict[str, Any]:
    """The cost of a sweep, by its report; empty if the report is older than this field."""
    cost = report.get("cost")
    if cost is None:
        return {}
    figures = {name: cost[name] for name in ("gpu_hours", "saved", "lost", "evaluation")}
    return {
        "cost": cost["cost"],
        "cost_in_words": cost["text"],
        **{f"cost/{name}": value for name, value in figures.items()},
    }


def materialized_report(report: EvaluationReport) -> Materialized:
    data = report.data
    summary = report.data["summary"]
    champion = "(none yet)"
    if data["champion"]:
        champion = data["champion"]["version"]
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
            "champion": champion,
            "epochs_trained": summary["epochs_trained"],
            "epochs_saved": summary["epochs_full"] - summary["epochs_trained"],
            **cost_metadata(data),
            "gpu_seconds": summary["gpu_seconds"],
            "gpu_seconds_saved": summary["gpu_seconds_saved"],
            "snapshot": asset_link("dataset_snapshot", data["snapshot"]["key"]),
            "html": report.html_digest,
        },
        page=("sweeps", data["sweep"]),
    )
