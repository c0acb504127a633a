"""Reports of sweeps whose winner was promoted."""

from resources.backend import Backend
from resources.evaluation.report import (
    EvaluationReport,
    evaluate_sweep,
)
from resources.registry.promotion import promote_winner


def promote_winner_of(backend: Backend, sweep: str) -> EvaluationReport:
    report = evaluate_sweep(backend.store, backend.catalog, sweep)
    return promote_winner(backend, report)[1]
