"""However large the test split is, judging a checkpoint on it takes bounded memory: of both processes, as
Linux counts it.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from halving import Dataset, TrainedRun
from tests.checkpoints import pack_state

ROWS = 4_000_000
"""Rows of 136 bytes, nearly all of them in the test split: 518 MiB."""
_BATCH = 50_000


def rows() -> Iterator[pa.RecordBatch]:
    """Random numbers; the class is one of five."""
    generator = np.random.default_rng(0)
    for first in range(0, ROWS, _BATCH):
        numbers = {f"x{number}": generator.random(_BATCH) for number in range(15)}
        yield pa.record_batch(
            {"id": np.arange(first, first + _BATCH), **numbers, "label": generator.integers(0, 5, _BATCH)}
        )


def predict(run: TrainedRun, table: pa.Table) -> np.ndarray:
    """The class by the first number, from a copy of all numbers as any model makes one."""
    features = np.column_stack([column.to_numpy() for column in table.columns])
    assert run.restore(epochs_seen=None)["epochs_seen"]
    return (features[:, 1] * 5).astype(np.int64)


def measure(folder: Path) -> None:
    """Take a snapshot, judge a checkpoint on it, and print the highest memory of this process meanwhile, in
    bytes.
    """
    from resources.backend import Backend
    from resources.datasets.snapshots import take_snapshot
    from resources.evaluation.held_out import held_out
    from resources.evaluation.scoring import judge_checkpoint
    from resources.evaluation.slices import judge_slices
    from resources.sweep_spec import parse_spec
    from tests.backends import SMALL
    from tests.resources.datasets.peak_memory import highest_memory

    module = "tests.resources.evaluation.test_memory"
    splits = {"train": 0.01, "validation": 0.01, "test": 0.98}
    changes: dict[str, Any] = {
        "predictor": f"{module}:predict",
        "dataset": {"name": "rows", "source": f"{module}:rows", "target": "label", "splits": splits},
        "evaluation_limits": {"memory": "400Mi"},
        "slices": ["label", "x3 > 0.5"],
    }
    spec = parse_spec({**SMALL, **changes})
    backend = Backend(root=str(folder))
    snapshot = take_snapshot(backend.store, backend.catalog, spec.dataset)
    checkpoint = backend.store.put_blob(pack_state({"epochs_seen": [1]}))
    highest_memory()
    with held_out(Dataset(backend.store, snapshot.name, snapshot.digest), spec) as held:
        judged = judge_checkpoint(held, spec, params={}, checkpoint=checkpoint)
        groups = judge_slices(spec.slices, held.slices, judged.predictions, {"accuracy": True}, "accuracy")
    print(json.dumps([highest_memory(), judged.predictions.rows, [len(group["groups"]) for group in groups]]))


@pytest.mark.slow
def test_a_checkpoint_is_judged_on_half_a_gigabyte_of_rows_in_a_gigabyte(tmp_path: Path) -> None:
    program = "from tests.resources.evaluation.test_memory import *; measure(Path(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], env=dict(os.environ), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    memory, judged, groups = json.loads(done.stdout.splitlines()[-1])
    assert judged > 0.97 * ROWS
    assert groups == [5, 2]
    assert memory <= 2**30
