"""Distributed examples learn at a small size, and two ranks learn what one process does.

They do so in a sweep, too.
"""

import dataclasses
import multiprocessing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml

from examples import characters, pictures
from halving import Store
from halving.query.runs import read_run
from halving.trial.context import ObjectiveRule, TrialContext
from halving.trial.messages import Granted, ReachedRung
from halving.trial_process.main import run_trial
from resources.backend import Backend
from resources.sweep_spec import parse_spec
from tests.backends import CHECKOUT
from tests.gangs import run_in_gang
from tests.resources.execution.worked_sweeps import WorkedSweep
from tests.sdk.data.sharded import arrow_file, put_shard, snapshot
from tests.sdk.trial_process.attempts import context

pytestmark = pytest.mark.slow


def drawn() -> pa.Table:
    files = sorted(Path(pictures.folder()).glob("*/*.pgm"), key=lambda path: path.stem)
    return pa.table(
        {"content": [file.read_bytes() for file in files], "label": [file.parent.name for file in files]}
    )


TABLES = {"convolutions": drawn, "characters": characters.load}
PARAMS: dict[str, dict[str, Any]] = {
    "convolutions": {"lr": 0.01, "channels": 8},
    "characters": {"lr": 0.01, "width": 32, "layers": 1},
}


def trial(store: Store, example: str, metric: str, epochs: int, **params: Any) -> TrialContext:
    table = TABLES[example]()
    part = table.num_rows * 4 // 5
    shards = {
        name: [put_shard(store, arrow_file(rows), rows.num_rows)]
        for name, rows in (("train", table.slice(0, part)), ("validation", table.slice(part)))
    }
    trial_context = context(store, **PARAMS[example], **params)
    digest = snapshot(store, shards, "d").digest
    return dataclasses.replace(
        trial_context, dataset_digest=digest, objectives=(ObjectiveRule(metric),), max_epochs=epochs
    )


@pytest.mark.parametrize(
    ("example", "metric", "epochs", "low", "high"),
    # Guessing gets a tenth of the digits right; guessing characters by their frequency costs 3.2.
    [("convolutions", "val_accuracy", 2, 0.85, 1.0), ("characters", "val_loss", 2, 0.0, 2.8)],
)
def test_an_example_learns_and_two_ranks_learn_what_one_process_does(
    tmp_path: Path, example: str, metric: str, epochs: int, low: float, high: float
) -> None:
    values = {}
    for shard in ("plain", "ddp", "fsdp"):
        store = Store(tmp_path / shard)
        if shard == "plain":
            platform, own = multiprocessing.Pipe()
            platform.send(Granted(epochs, True))
            run_trial(
                trial(store, example, metric, epochs), f"examples.{example}:train", epochs, own, threads=1
            )
            reached = platform.recv()
        else:
            trial_context = trial(store, example, metric, epochs, shard=shard)
            (reached, *_), status = run_in_gang(
                trial_context, f"examples.{example}:train_distributed", 2, epochs, Granted(epochs, True)
            )
            assert status == 0, reached
        assert isinstance(reached, ReachedRung), reached.error
        values[shard] = reached.values[metric]
    assert low < values["plain"] < high
    assert values == pytest.approx(dict.fromkeys(values, values["plain"]), rel=0.02)


@pytest.mark.parametrize(("example", "low", "high"), [("convolutions", 0.3, 1.0), ("characters", 0.0, 3.1)])
def test_a_sweep_of_an_example_trains_by_ddp_and_by_fsdp2_in_two_ranks(
    tmp_path: Path, example: str, low: float, high: float
) -> None:
    fields: dict[str, Any] = yaml.safe_load((CHECKOUT / "sweeps" / f"{example}-distributed.yaml").read_text())
    fields |= {
        "start_from": [{**PARAMS[example], "shard": shard} for shard in ("ddp", "fsdp")],
        "max_trials": 2,
    }
    backend = Backend(root=str(tmp_path))
    ran = WorkedSweep(backend, parse_spec(fields | {"strategy": {"random": {"budget": 1}}})).work()
    assert [(row.status, row.attempt) for row in ran.rows()] == [("completed", 1), ("completed", 1)], [
        row.error for row in ran.rows()
    ]
    for row, result in zip(ran.rows(), ran.results(), strict=True):
        assert low < float(result.value or 0.0) < high
        assert (
            read_run(backend.store, fields["name"], f"{ran.sweep}.{row.number:04d}").record["trial"][
                "resources"
            ]["processes"]
            == 2
        )
