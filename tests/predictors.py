"""Predictors and evaluators for tests: each behaves in one way that a real one might.

The data is that of tests.trainables.
"""

import math
import os
import pickle
import signal
import stat
import subprocess
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import halving
from halving import TrainedRun
from tests.trainables import predict, predict_numbers

__all__ = ["predict", "predict_numbers"]


def _is_low(table: pa.Table) -> np.ndarray:
    return np.array([x <= 0.5 for x in table["x"].to_pylist()])


def probabilities(run: TrainedRun, table: pa.Table) -> np.ndarray:
    """Of the classes high and low, in this order."""
    low = np.where(_is_low(table), 0.8, 0.2)
    return np.column_stack([1 - low, low])


def named_probabilities(run: TrainedRun, table: pa.Table) -> dict[str, np.ndarray]:
    high, low = probabilities(run, table).T
    return {"low": low, "high": high}


def knowing_its_own_dataset(run: TrainedRun, table: pa.Table) -> np.ndarray:
    """Predict the train split of the dataset points, which it was trained on, and nothing else."""
    return probabilities(run, table) if run.dataset.name == "points" else np.full((table.num_rows, 2), 0.5)


def tensor_like_probabilities(run: TrainedRun, table: pa.Table) -> list[list[float]]:
    return [list(row) for row in probabilities(run, table).tolist()]


def too_few(run: TrainedRun, table: pa.Table) -> list[str]:
    return ["low"]


def too_few_probabilities(run: TrainedRun, table: pa.Table) -> np.ndarray:
    return np.array([[0.5, 0.5], [0.1, 0.9]])


def raising(run: TrainedRun, table: pa.Table) -> list[str]:
    raise KeyError("no such pixel")


def three_classes(run: TrainedRun, table: pa.Table) -> np.ndarray:
    return np.full((table.num_rows, 3), 1 / 3)


def logits(run: TrainedRun, table: pa.Table) -> np.ndarray:
    return np.tile([4.0, -1.0], (table.num_rows, 1))


def exiting(run: TrainedRun, table: pa.Table) -> list[str]:
    os._exit(3)


def killed(run: TrainedRun, table: pa.Table) -> list[str]:
    os.kill(os.getpid(), signal.SIGKILL)
    return []


def nothing(run: TrainedRun, table: pa.Table) -> None:
    return None


def waiting(run: TrainedRun, table: pa.Table) -> list[str]:
    threading.Event().wait()
    return []


class _Reduced(str):
    """A text to look at; to unpickle it would call a function."""

    def __reduce__(self) -> Any:
        return Path.touch, (Path(self),)


def reducing(run: TrainedRun, table: pa.Table) -> list[str]:
    return [_Reduced(Path(run.store.root, "unpickled"))] * table.num_rows


def speaking_for_itself(run: TrainedRun, table: pa.Table) -> list[str]:
    """Writes to whatever is open what would call a function where it is unpickled."""
    content = pickle.dumps(_Reduced(Path(run.store.root, "unpickled")))
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                os.write(int(name), len(content).to_bytes(8, "big") + content)
    return waiting(run, table)


def exiting_beside_a_child(run: TrainedRun, table: pa.Table) -> list[str]:
    _mark(run)
    os._exit(3)


def _mark(run: TrainedRun) -> None:
    """Start a process in its own session, and write both processes' ids into the store's folder."""
    child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    file = Path(run.store.root, "pids")
    file.with_suffix(".new").write_text(f"{os.getpid()} {child.pid}")
    file.with_suffix(".new").rename(file)


def waiting_and_marked(run: TrainedRun, table: pa.Table) -> list[str]:
    _mark(run)
    return waiting(run, table)


def filling_beside_a_child(run: TrainedRun, table: pa.Table) -> list[str]:
    _mark(run)
    return filling(run, table)


def filling(run: TrainedRun, table: pa.Table) -> list[str]:
    held: list[Any] = []
    while True:
        held.append(np.ones(1 << 20))  # 8 MiB
        if len(held) == 150:  # more than the limit by far: now wait to be ended
            threading.Event().wait()


def nan(run: TrainedRun, table: pa.Table) -> list[float]:
    return [math.nan] * table.num_rows


def nan_probabilities(run: TrainedRun, table: pa.Table) -> np.ndarray:
    return np.full((table.num_rows, 2), math.nan)


def evaluate(run: TrainedRun, split: str) -> halving.Evaluation:
    """The threshold's distance to each row as a loss, and how many rows there are."""
    xs = np.array(run.dataset.read(split)["x"].to_pylist())
    picture = halving.Image(np.zeros((4, 4), np.uint8))
    return halving.Evaluation(
        metrics={"rows_seen": len(xs)},
        scores={"margin": abs(xs - 0.5), "loss": 1 - abs(xs - 0.5)},
        lower_is_better=["loss"],
        figures={"Dark": picture},
    )


def evaluate_too_few(run: TrainedRun, split: str) -> halving.Evaluation:
    return halving.Evaluation(scores={"loss": [1.0]})


def evaluate_as_a_dict(run: TrainedRun, split: str) -> dict[str, float]:
    return {"loss": 1.0}
