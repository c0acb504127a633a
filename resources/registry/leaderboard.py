"""A sweep with its outcome: standings, scores on held-out data, and the version that its winner became."""

import json
from typing import Any

from sqlalchemy import select

from halving import Store
from resources.analysis.summary import summarize
from resources.catalog import Catalog, ModelVersionRow, ReportRow
from resources.evaluation.report import report_path


def leaderboard_of(store: Store, catalog: Catalog, sweep: str) -> dict[str, Any]:
    """The leaderboard of a sweep as JSON, with all that ``halving leaderboard`` shows.

    Raises:
        NotFound: no such sweep.
    """
    summary = summarize(catalog, sweep)
    report, version = outcome_of(catalog, sweep)
    contents = report_data(store, report)
    test_metrics = None
    if report is not None:
        test_metrics = report.metrics
    final_scores = None
    if summary.final_seeds:
        final_scores = contents.get("final")
    promoted = None
    if version is not None:
        promoted = {"model": version.model, "version": version.version, "stage": version.stage}
    page = None
    if store.exists(report_path(sweep)):
        page = store.address(report_path(sweep))
    return {
        **summary.as_dict(),
        "saved": summary.saved,
        "final_scores": final_scores,
        "test_metrics": test_metrics,
        "gates": contents.get("gates"),
        "promoted": promoted,
        "report": page,
    }


def outcome_of(catalog: Catalog, sweep: str) -> tuple[ReportRow | None, ModelVersionRow | None]:
    """The sweep's report, and the version of its winner; each is None if there is none yet."""
    with catalog.read() as session:
        return session.get(ReportRow, sweep), session.scalar(
            select(ModelVersionRow).where(ModelVersionRow.sweep == sweep)
        )


def report_data(store: Store, report: ReportRow | None) -> dict[str, Any]:
    """The contents of a report; empty without a report.

    ``final`` describes the final training (:func:`resources.evaluation.final_seeds.judge_seeds`), ``gates``
    are the gates' verdicts (:meth:`resources.registry.gates.verdict.Verdict.as_dict`).
    """
    if report is None:
        return {}
    data: dict[str, Any] = json.loads(store.get_blob(report.digest))
    return data
