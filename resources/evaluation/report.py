"""The evaluation report of a sweep: the winner on data that it was not trained on, the champion on the same,
and the search.
"""

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
from resources.datasets.known_snapshots import known_snapshot
from resources.evaluation import predictions as stored
from resources.evaluation.diagnostics import baseline, calibration, residuals
from resources.evaluation.final_seeds import FinalSeeds, judge_seeds
from resources.evaluation.held_out import TEST_SPLIT, HeldOut, held_out
from resources.evaluation.judged_code import code_here, keep_code
from resources.evaluation.looks import content_of, count_look
from resources.evaluation.page import Shown, render_page, render_preview
from resources.evaluation.scoring import Judged, Scores, judge_checkpoint, score
from resources.evaluation.slices import groups_of, judge_slices
from resources.evaluation.statistics.clusters import count_of
from resources.search.audit import audit_of
from resources.sweep_spec import SweepSpec, stored_spec

Judge = Callable[[dict[str, Any], dict[str, NDArray[np.int64]]], list[dict[str, Any]]]
"""Verdicts by a report and the positions of the rows of each slice, as plain data."""

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
    """No trial of the sweep has a result, so there is nothing to evaluate."""


def evaluate_sweep(
    store: Store, catalog: Catalog, sweep: str, judge: Judge | None = None
) -> EvaluationReport:
    """Evaluate the winner's best checkpoint on the test split, or that of the median seed of its final
    training, and publish the report.

    Args:
        judge: gives the verdicts of the gates by all else that the report says; without it the report has
            none, and nothing is promoted by it.

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
    snapshot = known_snapshot(catalog, row.snapshot)
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
        "audit": asdict(audit) if audit else None,
        "cost": cost.as_dict(),
    }
    shown = Shown(spec, summary, timeline_of(catalog, sweep), _learned(store, spec, summary))
    if spec.judged_by is None:
        raise InvalidInput(
            f"sweep {sweep} cannot be evaluated: its spec has neither a predictor nor an evaluator"
        )
    if summary.best is None:
        store.replace(report_path(sweep), render_page(data, shown).encode())
        failures = explain_failures(summary.failed)
        raise NoWinner(
            f"sweep {sweep} has no result: {failures}. What happened: {store.address(report_path(sweep))}"
        )
    code = code_here(spec)
    with held_out(Dataset(store, snapshot.name, snapshot.digest), spec) as rows:
        # Before anything is judged: an evaluator may print what it sees, and fail after that.
        of_split = content_of(rows.dataset.manifest, TEST_SPLIT)
        looks = count_look(
            catalog, content=of_split, split=TEST_SPLIT, checkpoint=summary.best.checkpoint, sweep=sweep
        )
        final = _final(spec, summary, rows) if spec.final else None
        winner, on = (
            (final.promotable, spec.train_on(0))
            if final and final.promotable
            else (summary.best, spec.train_on(None))
        )
        judged, about = _judged(store, catalog, spec, rows.trained_on(on), sweep, winner)
        groups = groups_of(spec.slices, rows.slices)
    points = read_system_points(store, spec.project, winner.key, [SAMPLED])
    spent = time_spent(points) if points is not None else None
    about |= {"time_spent": spent.as_dict() if spent else None}
    about |= {
        "looks": looks.as_dict(),
        "final": final.data if final else None,
        "code": keep_code(store, spec, code),
    }
    data = data | about
    shown = replace(shown, given=judged.answered.figures)
    data["gates"] = judge(data, groups) if judge else None
    cpu_seconds = (time.monotonic() - began) * spec.resources.cpus
    data["cost"] = cost.with_evaluation(cpu_seconds).as_dict()
    page = render_page(data, shown).encode()
    content = json.dumps(data, sort_keys=True, indent=1).encode()
    digest = store.put_blob(content)
    html_digest = store.put_blob(page)
    store.replace(report_path(sweep), page)
    _register(catalog, sweep, digest, html_digest, data, cpu_seconds)
    return EvaluationReport(data, digest, html_digest, store.address(report_path(sweep)))


def _final(spec: SweepSpec, summary: SweepSummary, rows: HeldOut) -> FinalSeeds:
    """The final training, every complete seed scored on the rows."""
    params = summary.standings[0].params

    def evaluate(trial: FinalTrial) -> Scores:
        return judge_checkpoint(
            rows.trained_on(spec.train_on(trial.seed)), spec, params=params, checkpoint=trial.checkpoint
        ).scores

    return judge_seeds(summary, list(spec.train_on(0)), evaluate)


def _judged(
    store: Store, catalog: Catalog, spec: SweepSpec, rows: HeldOut, sweep: str, winner: Standing
) -> tuple[Judged, dict[str, Any]]:
    """The winner on the held-out rows, and what the report says of it and of the champion."""
    judged = judge_checkpoint(rows, spec, params=winner.params, checkpoint=winner.checkpoint, serving=True)
    champion = _champion(catalog, spec, sweep, rows)
    without = champion is None and judged.predictions.target is not None
    return judged, {
        "winner": winner.__dict__,
        **asdict(judged.scores),
        "clusters": None
        if rows.clusters is None
        else {"columns": spec.dataset.group, "count": count_of(rows.clusters)},
        "predictions": stored.write(store, judged.predictions),
        "serving": judged.answered.serving,
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
            for figure in judged.answered.figures
        ],
        "baseline": _baseline(rows, judged) if without else None,
        "champion": champion,
        "is_champion": _is_champion(catalog, spec, sweep),
    }


def _baseline(rows: HeldOut, judged: Judged) -> dict[str, Any]:
    """What a model that ignores the features scores on the same rows: for a winner without a champion to be
    compared with.
    """
    name, predictions = baseline(rows.dataset, judged.predictions)
    scores = score(predictions, rows.metrics)
    return {
        "name": name,
        "metrics": scores.metrics,
        "intervals": scores.intervals,
        "without_value": scores.without_value,
    }


def _on_any_rows(scores: Scores) -> dict[str, bool]:
    """The metrics that can be computed of some of the rows, with whether higher is better: all but single
    figures of an evaluator.
    """
    return {metric: scores.higher_is_better[metric] for metric in scores.intervals}


def _learned(store: Store, spec: SweepSpec, summary: SweepSummary) -> list[dict[str, Any]]:
    leaders = [standing.key for standing in summary.standings[:_CURVES]]
    return curves(store, spec.project, leaders, spec.objective.metric).to_pylist() if leaders else []


def load_report(store: Store, catalog: Catalog, sweep: str) -> EvaluationReport:
    """The report that was made of a sweep.

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
    """Which trials failed, with each reason in short; trials with the same reason are listed together."""
    if not failed:
        return "it was stopped before any trial reported"
    reasons: dict[str, list[str]] = {}
    for trial in failed:
        reason = short_reason(trial["error"]) or "no reason was recorded"
        lines_of_code = re.findall(r'File "(?:.*/)?([^"/]+)", line (\d+)', trial["error"])
        if lines_of_code and "Traceback (most recent call last)" in trial["error"]:
            # the stacks of a hang say where ranks waited
            reason += f" ({':'.join(lines_of_code[-1])})"
        reasons.setdefault(reason, []).append(trial["key"])
    shown = [
        f"{', '.join(keys[:3])}{f' and {len(keys) - 3} more' if len(keys) > 3 else ''}: {reason}"
        for reason, keys in reasons.items()
    ]
    return f"{len(failed)} trial{'s' if len(failed) != 1 else ''} failed: " + "; ".join(shown)


def _is_champion(catalog: Catalog, spec: SweepSpec, sweep: str) -> str | None:
    """The champion's version where that is of this sweep, which is judged again then."""
    with catalog.read() as session:
        champion = champion_of(session, spec.name)
        return champion.version if champion is not None and champion.sweep == sweep else None


def _champion(catalog: Catalog, spec: SweepSpec, sweep: str, rows: HeldOut) -> dict[str, Any] | None:
    """The current champion, evaluated on the rows that this sweep's winner was."""
    with catalog.read() as session:
        champion = champion_of(session, spec.name)
        if champion is None or champion.sweep == sweep:
            return None
        known: dict[str, Any] = {
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
            return {**known, "error": "a client registered it, and no sweep's checkpoint is known of it"}
        row = catalog.sweep(session, champion.sweep)
        trial = catalog.trials(session, champion.sweep)[champion.trial]
    theirs = stored_spec(row.spec)
    if theirs.judged_by is None or (theirs.predictor is None) != (spec.predictor is None):
        wanted = "predictor" if spec.predictor else "evaluator"
        return {**known, "error": f"the spec of sweep {champion.sweep} has no {wanted}"}
    try:
        same_rows = rows.trained_on(train_on := theirs.train_on(trial.final))
        if theirs.predictor:  # as in production; an evaluator reads the new split itself
            trained = known_snapshot(catalog, champion.snapshot)
            same_rows = rows.seen_with(Dataset(rows.dataset.store, trained.name, trained.digest, train_on))
        judged = judge_checkpoint(same_rows, theirs, params=trial.params, checkpoint=champion.checkpoint)
    except HalvingError as error:
        return {**known, "error": str(error)}
    digest = stored.write(rows.dataset.store, judged.predictions)
    scores = judged.scores
    found = {"metrics": scores.metrics, "intervals": scores.intervals, "without_value": scores.without_value}
    return {**known, **found, "predictions": digest}


def _register(
    catalog: Catalog, sweep: str, digest: str, html: str, data: dict[str, Any], cpu_seconds: float
) -> None:
    with catalog.write() as session:
        earlier = session.scalar(select(ReportRow.cpu_seconds).where(ReportRow.sweep == sweep)) or 0.0
        # JSON in SQL has no NaN: a metric that is not finite is null there, and as it is in the report's own
        # data.
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
