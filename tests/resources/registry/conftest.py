"""Sweeps to have winners of, their reports, and manifests of versions."""

import io
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from halving import Dataset
from halving.checkpoints.serialization import pack
from halving.models.manifest import Manifest
from halving.models.source_code import code_of
from resources.backend import Backend
from resources.catalog import ModelVersionRow, SweepRow, utcnow
from resources.catalog.models import champion_of
from resources.datasets.snapshots import take_snapshot
from resources.evaluation.predictions import Predictions
from resources.evaluation.predictions import write as write_predictions
from resources.evaluation.report import EvaluationReport
from resources.execution.worker import TrialRunner, work
from resources.registry.promotion import evaluate
from resources.registry.versions import register
from resources.scheduling.scheduler import Scheduler
from resources.scheduling.sweeps import open_sweep
from resources.sweep_spec import SweepSpec
from resources.sweep_spec.dataset import DatasetSource
from tests.backends import snapshot_row
from tests.resources.registry.manifests import HERE, JUDGED
from tests.resources.registry.winners import PASSED, winner


@pytest.fixture
def sweeps(either_backend: Backend) -> list[str]:
    """Four sweeps to have winners of, on two snapshots."""
    with either_backend.catalog.write() as session:
        for digest in ("sha256:s0", "sha256:s1"):
            session.add(snapshot_row(digest))
        for number in range(4):
            session.add(
                SweepRow(
                    id=f"digits-{number}",
                    name="digits",
                    spec={},
                    spec_digest="d",
                    snapshot="sha256:s0",
                    driver="job",
                    ordinal=number,
                    status="evaluating",
                    created_at=utcnow(),
                )
            )
    return [f"digits-{number}" for number in range(4)]


@pytest.fixture
def registers(either_backend: Backend, sweeps: list[str]) -> Callable[..., ModelVersionRow]:
    """Register the next sweep's winner, judged against the champion of now."""
    left = iter(sweeps)

    def add(
        *gates: dict[str, Any], auto_promote: bool = False, approval: dict[str, Any] | None = None
    ) -> ModelVersionRow:
        sweep = next(left)
        with either_backend.catalog.write() as session:
            session.get_one(SweepRow, sweep).spec = {
                "auto_promote": auto_promote,
                **({"approval": approval} if approval else {}),
            }
            champion = champion_of(session, "digits")
        new = winner(sweep, gates=list(gates or (PASSED,)))
        return register(
            either_backend.catalog,
            new,
            judged_against=champion.version if champion else None,
            auto_promote=auto_promote,
        )

    return add


@pytest.fixture
def evaluate_sweep(
    either_backend: Backend, small_spec: Callable[..., SweepSpec]
) -> Callable[..., EvaluationReport]:
    """A sweep of one trial that was searched and evaluated, and not yet promoted."""

    def run(predictor: str, *, passes: bool = True, **changes: Any) -> EvaluationReport:
        spec = small_spec(
            **{
                "strategy": {"random": {"budget": 1}},
                "max_trials": 1,
                "predictor": predictor,
                "auto_promote": True,
                **changes,
            }
        )
        snapshot = take_snapshot(either_backend.store, either_backend.catalog, spec.dataset)
        scheduler = Scheduler(
            either_backend.catalog,
            open_sweep(either_backend.catalog, spec, snapshot.digest, driver="job", commit=None).id,
        )
        runner = TrialRunner(
            scheduler,
            either_backend.store,
            dataset_name=snapshot.name,
            dataset_digest=snapshot.digest,
            labels={},
        )
        work(scheduler, runner, lambda changed: None)
        report, gates = evaluate(either_backend, scheduler.id)
        assert all(gate.passed for gate in gates) is passes
        return report

    return run


@pytest.fixture
def make_manifest(backend: Backend) -> Callable[..., Manifest]:
    """A manifest whose snapshot, checkpoint and report are in the store."""

    def make(
        predictor: str = "predict", exporter: str | None = None, source: str = "data", **state: Any
    ) -> Manifest:
        target = "label" if source == "data" else "y"
        dataset = DatasetSource.model_validate(
            {"name": "points", "source": f"tests.trainables:{source}", "target": target}
        )
        snapshot = take_snapshot(backend.store, backend.catalog, dataset)
        file = io.BytesIO()
        pack(state or {"threshold": 0.5}, file)
        report = {
            "sweep": "s-1",
            "created": "now",
            "split": "test",
            "snapshot": {"splits": {"test": 18}},
            "metrics": {"accuracy": 1.0},
        }
        if predictor in JUDGED:
            rows = Dataset(backend.store, "points", snapshot.digest).read("test")
            answers = np.array([JUDGED[predictor](x) for x in rows["x"].to_pylist()])
            report["predictions"] = write_predictions(backend.store, Predictions(answers, answers))
        code = code_of(HERE + predictor)
        return Manifest(
            model="points",
            run="s-1.0000",
            checkpoint=backend.store.put_blob(file.getvalue()),
            params={"offset": 1.0},
            predictor=HERE + predictor,
            exporter=exporter and HERE + exporter,
            dataset="points",
            snapshot=snapshot.digest,
            input_schema={"x": "double"},
            complete=["x"],
            output_schema={"type": "string", "classes": ["high", "low"]},
            framework="python",
            python="3.11.7",
            requirements=code.requirements({"pyarrow": "26.0.1"}),
            code=code.files,
            metrics={"accuracy": 1.0},
            report=backend.store.put_blob(json.dumps(report).encode()),
        )

    return make
