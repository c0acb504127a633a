"""The evaluation report of a sweep: the winner on data that it was not trained on, the champion on the same, and the search."""

import json
import math
import re
from dataclasses import asdict, dataclass
from typing import Any

from halving import Dataset, HalvingError, Store
from halving.errors import InvalidInput
from halving.store.json_files import now
from resources.analysis.summary import SweepSummary, state_of, summarize
from resources.analysis.timeline import timeline_of
from resources.analysis.trial_curves import curves
from resources.catalog import Catalog, ReportRow, utcnow
from resources.catalog.models import champion_of
from resources.datasets.known_snapshots import known_snapshot
from resources.evaluation.page import Shown, render_page, render_preview
from resources.evaluation.scoring import TEST_SPLIT, HeldOut, evaluate_checkpoint, held_out
from resources.search.audit import audit_of
from resources.sweep_spec import SweepSpec, stored_spec

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


def evaluate_sweep(store: Store, catalog: Catalog, sweep: str) -> EvaluationReport:
    """Evaluate the winner's best checkpoint on the test split, and publish the report.

    Raises:
        NoWinner: no trial has a result; the message has the trials' errors, and the page shows what happened.
        PredictionFailed: the predictor failed on the winner.
    """
    summary = summarize(catalog, sweep)
    with catalog.read() as session:
        row = catalog.sweep(session, sweep)
        audit = audit_of(state_of(session, row))
    spec, snapshot = stored_spec(row.spec), known_snapshot(catalog, row.snapshot)
    data: dict[str, Any] = {
        "sweep": sweep,
        "name": spec.name,
        "created": now(),
        "spec": row.spec,
        "spec_digest": spec.digest,
        "snapshot": {"key": snapshot.key, "digest": snapshot.digest, "rows": snapshot.rows, "splits": snapshot.splits},
        "split": TEST_SPLIT,
        "winner": None,
        "summary": summary.as_dict(),
        "saved": summary.saved,
        "audit": asdict(audit) if audit else None,
    }
    shown = Shown(spec, summary, timeline_of(catalog, sweep), _learned(store, spec, summary))
    if spec.predictor is None:
        raise InvalidInput(f"sweep {sweep} cannot be evaluated: its spec has no predictor")
    if summary.best is None:
        store.replace(report_path(sweep), render_page(data, shown).encode())
        failures = explain_failures(summary.failed)
        raise NoWinner(f"sweep {sweep} has no result: {failures}. What happened: {store.address(report_path(sweep))}")
    winner, rows = summary.best, held_out(Dataset(store, snapshot.name, snapshot.digest), spec.gates.metric)
    scores = evaluate_checkpoint(rows, predictor=spec.predictor, params=winner.params, checkpoint=winner.checkpoint)
    data |= {"winner": winner.__dict__, **asdict(scores), "champion": _champion(catalog, spec.name, sweep, rows)}
    page = render_page(data, shown).encode()
    content = json.dumps(data, sort_keys=True, indent=1).encode()
    digest, html_digest = store.put_blob(content), store.put_blob(page)
    store.replace(report_path(sweep), page)
    _register(catalog, sweep, digest, html_digest, data)
    return EvaluationReport(data, digest, html_digest, store.address(report_path(sweep)))


def _learned(store: Store, spec: SweepSpec, summary: SweepSummary) -> list[dict[str, Any]]:
    leaders = [standing.key for standing in summary.standings[:_CURVES]]
    return curves(store, spec.name, leaders, spec.objective.metric).to_pylist() if leaders else []


def load_report(store: Store, catalog: Catalog, sweep: str) -> EvaluationReport:
    """The report that was made of a sweep.

    Raises:
        NoWinner: no report was made of it.
    """
    with catalog.read() as session:
        row = session.get(ReportRow, sweep)
    if row is None:
        raise NoWinner(f"sweep {sweep} has no evaluation report yet")
    return EvaluationReport(json.loads(store.get_blob(row.digest)), row.digest, row.html, store.address(report_path(sweep)))


def report_path(sweep: str) -> str:
    """The name of a sweep's page in the store. A later report replaces it; the page of an earlier one is the blob of its digest."""
    return f"reports/{sweep}.html"


def explain_failures(failed: list[dict[str, Any]]) -> str:
    """Which trials failed, with the last line of each reason; trials with the same reason are listed together."""
    if not failed:
        return "it was stopped before any trial reported"
    reasons: dict[str, list[str]] = {}
    for trial in failed:
        lines = trial["error"].strip().splitlines() or ["no reason was recorded"]
        lines_of_code = re.findall(r'File "(?:.*/)?([^"/]+)", line (\d+)', trial["error"])
        last = f"{lines[-1]} ({':'.join(lines_of_code[-1])})" if lines_of_code else lines[-1]
        reasons.setdefault(last, []).append(trial["key"])
    shown = [f"{', '.join(keys[:3])}{f' and {len(keys) - 3} more' if len(keys) > 3 else ''}: {reason}" for reason, keys in reasons.items()]
    return f"{len(failed)} trial{'s' if len(failed) != 1 else ''} failed: " + "; ".join(shown)


def _champion(catalog: Catalog, model: str, sweep: str, rows: HeldOut) -> dict[str, Any] | None:
    """The current champion, evaluated on the rows that this sweep's winner was."""
    with catalog.read() as session:
        champion = champion_of(session, model)
        if champion is None or champion.sweep == sweep:
            return None
        known: dict[str, Any] = {
            "model": champion.model,
            "version": champion.version,
            "checkpoint": champion.checkpoint,
            "same_snapshot": champion.snapshot == rows.dataset.digest,
            "metrics": {},
            "error": None,
        }
        if champion.sweep is None or champion.trial is None or champion.checkpoint is None:
            return {**known, "error": "a client registered it, and no sweep's checkpoint is known of it"}
        row = catalog.sweep(session, champion.sweep)
        params = catalog.trials(session, champion.sweep)[champion.trial].params
    predictor = stored_spec(row.spec).predictor
    if predictor is None:
        return {**known, "error": f"the spec of sweep {champion.sweep} has no predictor"}
    try:
        scores = evaluate_checkpoint(rows, predictor=predictor, params=params, checkpoint=champion.checkpoint)
    except HalvingError as error:
        return {**known, "error": str(error)}
    return {**known, "metrics": scores.metrics}


def _register(catalog: Catalog, sweep: str, digest: str, html: str, data: dict[str, Any]) -> None:
    with catalog.write() as session:
        # JSON in SQL has no NaN: a metric that is not finite is null there, and as it is in the report's own data.
        metrics = {name: value if math.isfinite(value) else None for name, value in data["metrics"].items()}
        session.merge(ReportRow(sweep=sweep, digest=digest, html=html, metrics=metrics, created_at=utcnow()))
