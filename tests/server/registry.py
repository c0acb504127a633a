"""A sweep with a report and a model, as if it had been evaluated and promoted, without a training."""

import json
from collections.abc import Mapping
from typing import Any

from resources.backend import Backend
from resources.catalog import ModelVersionRow, ReportRow, utcnow
from resources.registry.gates.verdict import Verdict
from resources.registry.versions import register
from resources.sweep_spec import SweepSpec
from tests.searches import search


def score(trial: int, params: Mapping[str, Any], epochs: int) -> dict[str, float]:
    return {"score": params["x"] * epochs}


def promote_winner(
    backend: Backend,
    spec: SweepSpec,
    *,
    checkpoint: bytes = b"weights",
    page: bytes = b"<p>report",
    curves: bool = False,
) -> ModelVersionRow:
    """Search the spec and register a version of its model; the first becomes the champion."""
    sweep = search(backend, spec, score, curves=curves)
    digest = backend.store.put_blob(checkpoint)
    html = backend.store.put_blob(page)
    metrics = {"accuracy": 0.9, "loss": None}
    with backend.catalog.write() as session:
        row = backend.catalog.sweep(session, sweep)
        row.status = "finished"
        row.finished_at = utcnow()
        snapshot = row.snapshot
        data = {
            "sweep": sweep,
            "name": spec.name,
            "spec": row.spec,
            "snapshot": {"digest": snapshot},
            "metrics": metrics,
            "winner": {
                "key": f"{sweep}.0000",
                "params": {},
                "metrics": {},
                "violation": 0.0,
                "checkpoint": digest,
            },
            "champion": None,
            "gates": [
                Verdict("finite_metrics", "fail", "not finite: loss").as_dict(),
                Verdict("lineage", "pass", "all was there").as_dict(),
                Verdict("non_inferior", "pass", "there is no champion yet", "accuracy").as_dict(),
            ],
        }
        report = backend.store.put_blob(json.dumps(data).encode())
        session.add(ReportRow(sweep=sweep, digest=report, html=html, metrics=metrics, created_at=utcnow()))
    version = ModelVersionRow(
        model=spec.name,
        checkpoint=digest,
        sweep=sweep,
        trial=0,
        run=f"{sweep}.0000",
        snapshot=snapshot,
        framework="python",
        input_schema={"x": "double"},
        output_schema={"type": "int64"},
        metrics={"accuracy": 0.9},
        report=report,
    )
    with backend.catalog.read() as session:
        champion = session.query(ModelVersionRow).filter_by(model=spec.name, stage="champion").one_or_none()
    return register(
        backend.catalog, version, judged_against=champion.version if champion else None, auto_promote=False
    )
