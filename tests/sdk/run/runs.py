"""Runs for tests: one of a script, one of a trial, and the controller that grants its epochs."""

import json
from typing import Any

import pyarrow.parquet as pq

from halving import Run, Store
from halving.distributed.ranks import ALONE, Ranks
from halving.run.init import open_trial
from halving.trial.context import ObjectiveRule, TrialContext


class Grants:
    """A controller that hands out budgets from a list and remembers what it was asked; after the last it
    pauses.
    """

    def __init__(self, *budgets: int) -> None:
        self.granted = budgets[0]
        self._next = list(budgets[1:])
        self.questions: list[tuple[int, dict[str, float]]] = []
        self.digests: list[str] = []
        self.best: list[str | None] = []

    def report_rung(
        self, epoch: int, values: dict[str, float], checkpoint: str, best_checkpoint: str | None
    ) -> int:
        self.questions.append((epoch, values))
        self.digests.append(checkpoint)
        self.best.append(best_checkpoint)
        return self._next.pop(0) if self._next else epoch


def start(store: Store, **changes: Any) -> Run:
    """A run of one's own, without the half second that looking at all installed packages takes."""
    return Run(
        store,
        **{
            "project": "p",
            "run_id": "r",
            "params": {"lr": 0.1},
            "seed": None,
            "captured": {"git": None},
            "system_metrics": None,
            **changes,
        },
    )


def trial(store: Store, controller: Grants, attempt: int = 1, *, ranks: Ranks = ALONE, **changes: Any) -> Run:
    fields: dict[str, Any] = {
        "root": store.root,
        "project": "p",
        "run": "s.0001",
        "attempt": attempt,
        "params": {"lr": 0.1},
        "seed": 7,
        "objectives": (ObjectiveRule("score"),),
        "max_epochs": 9,
        "dataset_name": "d",
        "dataset_digest": "sha256:" + "0" * 64,
        "parent": {"sweep": "s"},
        "provenance": {"git": None},
    }
    return open_trial(TrialContext(**{**fields, **changes}), controller, ranks)


def train_with(run: Run, score: float) -> None:
    """Train to the end, with the same objective in every epoch."""
    with run:
        for epoch in run.epochs():
            run.report(score=score)
            run.save(epoch=epoch)


def end_of(run: Run) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(run.store.read(f"{run.records.folder}/end-{run.attempt:04d}.json"))
    return record


def points(run: Run) -> list[tuple[str, int, float]]:
    folder = f"metrics/project={run.project}/run={run.id}/live"
    tables = [pq.ParquetFile(run.store.path(f"{folder}/{name}")).read() for name in run.store.names(folder)]
    return [(row["key"], row["step"], row["value"]) for table in tables for row in table.to_pylist()]


def saved_epochs(run: Run) -> list[int]:
    return [saved.epoch for saved in run.records.checkpoints()]
