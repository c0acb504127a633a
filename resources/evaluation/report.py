"""The evaluation report of a sweep: the winner and the champion on held-out data, and the search."""

import json
import math
import re
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import select

from halving import Dataset, HalvingError, Store
from halving.errors import InvalidInput
from halving.store.json_files import now
from halving.text import count_of
from resources.analysis.costs.prices import load_prices
from resources.analysis.costs.questions import sweep_cost
from resources.analysis.final_trials import FinalTrial
from resources.analysis.reasons import short_reason
from resources.analysis.summary import Standing, SweepSummary, state_of, summarize
from resources.analysis.system_points import read_system_points
from resources.analysis.time_spent import SAMPLED, time_spent
from resources.analysis.timeline import timeline_of
from resources.analysis.trial_curves import curves
from resources.catalog import Catalog, ReportRow, utcnow
from resources.catalog.models import champion_of
from resources.datasets.snapshot_catalog import read_snapshot
from resources.evaluation import predictions as stored
from resources.evaluation.diagnostics import baseline, calibration, residuals
from resources.evaluation.final_seeds import FinalSeeds, judge_seeds
from resources.evaluation.held_out import TEST_SPLIT, HeldOut, held_out
from resources.evaluation.judged_code import code_here, keep_code
from resources.evaluation.page import PageContent, render_page, render_preview
from resources.evaluation.scoring import Judged, Scores, judge_checkpoint, score
from resources.evaluation.slices import groups_of, judge_slices
from resources.evaluation.split_wear import record_judgement, split_digest
from resources.evaluation.statistics.clusters import count_clusters
from resources.search.audit import audit_of
from resources.sweep_spec import SweepSpec, stored_spec

Judge = Callable[[dict[str, Any], dict[str, NDArray[np.int64]]], list[dict[str, Any]]]
"""Gives verdicts as plain data, from a report and the positions of the rows of each slice."""

_CURVES = 10  # trials whose learning curves the page shows


@dataclass(frozen=True)
class EvaluationReport:
    """A finished report: its data, the digests of the data and of the page, and where the page is."""

    data: dict[str, Any]
    digest: str
    html_digest: str
    path: str

    @property
    def preview(self) -> str:
        """Short Markdown for Dagster's UI."""
        return render_preview(self.data, self.path)


class NoWinner(HalvingError, RuntimeError):
    """Raised when no trial of the sweep has a result, so that there is nothing to evaluate."""


def evaluate_sweep(
    store: Store, catalog: Catalog, sweep: str, judge: Judge | None = None
) -> EvaluationReport:
    """Evaluate the winner's best checkpoint on the test split, and publish the report.

    After a final training it is the checkpoint of the median seed.

    Args:
        judge: gives the verdicts of the gates by the rest of the report. Without it the report has no
            verdicts, and nothing is promoted by it.

    Raises:
        NoWinner: no trial has a result; the message has the trials' errors, and the page shows what happened.
        PredictionFailed: the predictor failed on the winner.
    """
    began = time.monotonic()
    cost = sweep_cost(catalog, sweep, load_prices())
    summary = summarize(catalog, sweep)
    with catalog.read() as session:
        row = catalog.sweep(session, sweep)
        audit = audit_of(state_of(session, row))
    spec = stored_spec(row.spec)
    snapshot = read_snapshot(catalog, row.snapshot)
    data: dict[str, Any] = {
        "sweep": sweep,
        "name": spec.name,
        "project": spec.project,
        "created": now(),
        "spec": row.spec,
        "spec_digest": spec.digest,
        "snapshot": {
            "key": snapshot.key,
            "digest": snapshot.digest,
            "rows": snapshot.rows,
            "splits": snapshot.splits,
        },
        "split": TEST_SPLIT,
        "winner": None,
        "final": None,
        "summary": summary.as_dict(),
        "saved": summary.saved,
        "audit": None,
        "cost": cost.as_dict(),
    }
    if audit:
        data["audit"] = asdict(audit)
    curves_of_leaders = _learning_curves(store, spec, summary)
    content = PageContent(spec, summary, timeline_of(catalog, sweep), curves_of_leaders)
    if spec.judged_by is None:
        raise InvalidInput(
            f"sweep {sweep} cannot be evaluated: its spec has neither a predictor nor an evaluator"
        )
    if summary.best is None:
        store.replace(report_path(sweep), render_page(data, content).encode())
        failures = explain_failures(summary.failed)
        raise NoWinner(
            f"sweep {sweep} has no result: {failures}. What happened: {store.address(report_path(sweep))}"
        )
    code = code_here(spec)
    with held_out(Dataset(store, snapshot.name, snapshot.digest), spec) as rows:
        # Recorded before anything is judged, because an evaluator may print what it sees and then fail.
        wear = record_judgement(
            catalog,
            digest=split_digest(rows.dataset.manifest, TEST_SPLIT),
            split=TEST_SPLIT,
            checkpoint=summary.best.checkpoint,
            sweep=sweep,
        )
        winner = summary.best
        trained_on = spec.train_on(None)
        if spec.final:
            final = _final(spec, summary, rows)
            data["final"] = final.data
            if final.promotable:
                winner = final.promotable
                trained_on = spec.train_on(0)
        judged, about = _judge_winner(store, catalog, spec, rows.trained_on(trained_on), sweep, winner)
        groups = groups_of(spec.slices, rows.slices)
    points = read_system_points(store, spec.project, winner.key, [SAMPLED])
    time_data = None
    if points is not None and (spent := time_spent(points)):
        time_data = spent.as_dict()
    about |= {
        "time_spent": time_data,
        "looks": wear.as_dict(),
        "code": keep_code(store, spec, code),
    }
    data = data | about
    content = replace(content, evaluator_figures=judged.result.figures)
    verdicts = None
    if judge:
        verdicts = judge(data, groups)
    data["gates"] = verdicts
    cpu_seconds = (time.monotonic() - began) * spec.resources.cpus
    data["cost"] = cost.with_evaluation(cpu_seconds).as_dict()
    page = render_page(data, content).encode()
    digest = store.put_blob(json.dumps(data, sort_keys=True, indent=1).encode())
    html_digest = store.put_blob(page)
    store.replace(report_path(sweep), page)
    _register(catalog, sweep, digest, html_digest, data, cpu_seconds)
    return EvaluationReport(data, digest, html_digest, store.address(report_path(sweep)))


def _final(spec: SweepSpec, summary: SweepSummary, rows: HeldOut) -> FinalSeeds:
    """Judge the final training: score every complete seed on the rows."""
    params = summary.standings[0].params

    def evaluate(trial: FinalTrial) -> Scores:
        return judge_checkpoint(
            rows.trained_on(spec.train_on(trial.seed)), spec, params=params, checkpoint=trial.checkpoint
        ).scores

    return judge_seeds(summary, list(spec.train_on(0)), evaluate)


def _judge_winner(
    store: Store, catalog: Catalog, spec: SweepSpec, rows: HeldOut, sweep: str, winner: Standing
) -> tuple[Judged, dict[str, Any]]:
    """Judge the winner on the held-out rows; return also the report's data on it and on the champion."""
    judged = judge_checkpoint(rows, spec, params=winner.params, checkpoint=winner.checkpoint, serving=True)
    champion = _judge_champion(catalog, spec, sweep, rows)
    baseline_scores = None
    if champion is None and judged.predictions.target is not None:
        baseline_scores = _baseline(rows, judged)
    clusters = None
    if rows.clusters is not None:
        clusters = {"columns": spec.dataset.group, "count": count_clusters(rows.clusters)}
    return judged, {
        "winner": winner.__dict__,
        **asdict(judged.scores),
        "clusters": clusters,
        "predictions": stored.write(store, judged.predictions),
        "serving": judged.result.serving,
        "slices": judge_slices(
            spec.slices,
            rows.slices,
            judged.predictions,
            _on_any_rows(judged.scores),
            judged.scores.main_metric,
        ),
        "calibration": calibration(judged.predictions),
        "residuals": residuals(judged.predictions),
        "figures": [
            {"title": figure.title, "media_type": figure.media_type, "digest": store.put_blob(figure.content)}
            for figure in judged.result.figures
        ],
        "baseline": baseline_scores,
        "champion": champion,
        "is_champion": _is_champion(catalog, spec, sweep),
    }


def _baseline(rows: HeldOut, judged: Judged) -> dict[str, Any]:
    """Score a model that ignores the features on the same rows, for a winner without a champion."""
    name, predictions = baseline(rows.dataset, judged.predictions)
    scores = score(predictions, rows.metrics)
    return {
        "name": name,
        "metrics": scores.metrics,
        "intervals": scores.intervals,
        "without_value": scores.without_value,
    }


def _on_any_rows(scores: Scores) -> dict[str, bool]:
    """The metrics that can be computed on some of the rows, with whether higher is better.

    These are all but an evaluator's metrics that it does not give row by row.
    """
    return {metric: scores.higher_is_better[metric] for metric in scores.intervals}


def _learning_curves(store: Store, spec: SweepSpec, summary: SweepSummary) -> list[dict[str, Any]]:
    leaders = [standing.key for standing in summary.standings[:_CURVES]]
    if not leaders:
        return []
    return curves(store, spec.project, leaders, spec.objective.metric).to_pylist()


def load_report(store: Store, catalog: Catalog, sweep: str) -> EvaluationReport:
    """Load the report of a sweep.

    Raises:
        NoWinner: no report was made of it.
    """
    with catalog.read() as session:
        row = session.get(ReportRow, sweep)
    if row is None:
        raise NoWinner(f"sweep {sweep} has no evaluation report yet")
    return EvaluationReport(
        json.loads(store.get_blob(row.digest)), row.digest, row.html, store.address(report_path(sweep))
    )


def report_path(sweep: str) -> str:
    """The name of a sweep's page in the store.

    A later report replaces it; the page of an earlier one is the blob of its digest.
    """
    return f"reports/{sweep}.html"


def explain_failures(failed: list[dict[str, Any]]) -> str:
    """A text with each reason of a failure in short, and the trials that failed for it."""
    if not failed:
        return "it was stopped before any trial reported"
    reasons: dict[str, list[str]] = {}
    for trial in failed:
        reason = short_reason(trial["error"]) or "no reason was recorded"
        lines_of_code = re.findall(r'File "(?:.*/)?([^"/]+)", line (\d+)', trial["error"])
        if lines_of_code and "Traceback (most recent call last)" in trial["error"]:
            # Only for tracebacks: the stacks of a hang say where ranks waited.
            reason += f" ({':'.join(lines_of_code[-1])})"
        reasons.setdefault(reason, []).append(trial["key"])
    parts = []
    for reason, keys in reasons.items():
        trials = ", ".join(keys[:3])
        if len(keys) > 3:
            trials += f" and {len(keys) - 3} more"
        parts.append(f"{trials}: {reason}")
    return f"{count_of(len(failed), 'trial')} failed: {'; '.join(parts)}"


def _is_champion(catalog: Catalog, spec: SweepSpec, sweep: str) -> str | None:
    """The champion's version if it is of this sweep, which is then judged again."""
    with catalog.read() as session:
        champion = champion_of(session, spec.name)
    if champion is not None and champion.sweep == sweep:
        return champion.version
    return None


def _judge_champion(catalog: Catalog, spec: SweepSpec, sweep: str, rows: HeldOut) -> dict[str, Any] | None:
    """Judge the current champion on the same rows as this sweep's winner; None without another champion."""
    with catalog.read() as session:
        champion = champion_of(session, spec.name)
        if champion is None or champion.sweep == sweep:
            return None
        data: dict[str, Any] = {
            "model": champion.model,
            "version": champion.version,
            "checkpoint": champion.checkpoint,
            "same_snapshot": champion.snapshot == rows.dataset.digest,
            "metrics": {},
            "intervals": {},
            "without_value": {},
            "predictions": None,
            "error": None,
        }
        if (
            champion.sweep is None
            or champion.trial is None
            or champion.checkpoint is None
            or champion.snapshot is None
        ):
            return {**data, "error": "a client registered it, and no sweep's checkpoint is known of it"}
        row = catalog.sweep(session, champion.sweep)
        trial = catalog.trials(session, champion.sweep)[champion.trial]
    theirs = stored_spec(row.spec)
    if theirs.judged_by is None or (theirs.predictor is None) != (spec.predictor is None):
        field = "predictor" if spec.predictor else "evaluator"
        return {**data, "error": f"the spec of sweep {champion.sweep} has no {field}"}
    try:
        train_on = theirs.train_on(trial.final)
        same_rows = rows.trained_on(train_on)
        if theirs.predictor:
            # It gets its own snapshot, as in production. An evaluator reads the new split itself.
            trained = read_snapshot(catalog, champion.snapshot)
            same_rows = rows.seen_with(Dataset(rows.dataset.store, trained.name, trained.digest, train_on))
        judged = judge_checkpoint(same_rows, theirs, params=trial.params, checkpoint=champion.checkpoint)
    except HalvingError as error:
        return {**data, "error": str(error)}
    digest = stored.write(rows.dataset.store, judged.predictions)
    scores = judged.scores
    return {
        **data,
        "metrics": scores.metrics,
        "intervals": scores.intervals,
        "without_value": scores.without_value,
        "predictions": digest,
    }


def _register(
    catalog: Catalog, sweep: str, digest: str, html: str, data: dict[str, Any], cpu_seconds: float
) -> None:
    with catalog.write() as session:
        earlier = session.scalar(select(ReportRow.cpu_seconds).where(ReportRow.sweep == sweep)) or 0.0
        # JSON in SQL has no NaN, so a metric that is not finite is null there. The report itself has it.
        metrics = {name: value if math.isfinite(value) else None for name, value in data["metrics"].items()}
        session.merge(
            ReportRow(
                sweep=sweep,
                digest=digest,
                html=html,
                metrics=metrics,
                created_at=utcnow(),
                cpu_seconds=earlier + cpu_seconds,
            )
        )
