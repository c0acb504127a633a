"""A gang's ranks read what one process reads, each row once, however often it is stopped."""

import dataclasses
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from halving import Dataset, Run, Store
from halving.trial.messages import Granted
from tests.gangs import run_in_gang
from tests.sdk.data.sharded import arrow_file, counting_tables, numbers, put_shard, snapshot
from tests.sdk.trial_process.attempts import context

EPOCHS = 4
BATCH = 16

pytestmark = pytest.mark.slow


@pytest.fixture
def dataset(store: Store) -> Dataset:
    return snapshot(
        store,
        {
            "train": [
                put_shard(store, arrow_file(table), table.num_rows) for table in counting_tables(61, 5, 35)
            ]
        },
        "d",
    )


def train(run: Run) -> None:
    """Write down the rows of each step; one rank gets a SIGTERM in the middle of an epoch."""
    folder = Path(run.params["folder"])
    stop, workers = json.loads((folder / "attempt.json").read_text())
    loader: Any = run.dataset.loader("train", batch_size=BATCH, seed=3)
    batches = loader.torch(workers, multiprocessing_context="fork") if workers else loader
    run.restore()
    with (folder / f"{run.attempt}-{run.rank}.jsonl").open("w") as rows_file:
        for epoch in run.epochs():
            for batch in batches:
                rows_file.write(json.dumps([epoch, batch["n"].tolist()]) + "\n")
                rows_file.flush()
                if [run.rank, epoch, loader.position] == stop:
                    os.kill(os.getpid(), signal.SIGTERM)
                if run.stopping:
                    run.save(epoch=epoch)
            run.report(score=0.5)
            run.save(epoch=epoch)


def test_stopped_gangs_of_any_size_train_each_row_once_in_the_order_of_one_rank(
    store: Store, dataset: Dataset, tmp_path: Path
) -> None:
    """Each stop reaches one rank alone, at three places.

    They are the middle of an epoch, its last step but one (all agree on it in the last), and its last step
    (all hear of it at the end of the epoch).
    """
    stops = [(2, [1, 1, 48], 0), (3, [0, 2, 91], 2), (3, [2, 3, 101], 0), (2, None, 2)]
    trained: list[Any] = []
    statuses = []
    for attempt, (processes, stop, workers) in enumerate(stops, start=1):
        (tmp_path / "attempt.json").write_text(json.dumps([stop, workers]))
        trial = dataclasses.replace(
            context(store, attempt, folder=str(tmp_path)), dataset_digest=dataset.digest
        )
        _, status = run_in_gang(trial, f"{__name__}:train", processes, EPOCHS, Granted(EPOCHS, True))
        statuses.append(status)
        ranks = [
            [json.loads(line) for line in (tmp_path / f"{attempt}-{rank}.jsonl").read_text().splitlines()]
            for rank in range(processes)
        ]
        steps = list(zip(*ranks, strict=True))  # all ranks end at the same step
        trained += [[step[0][0], [row for _, rows in step for row in rows]] for step in steps]
    alone = dataset.loader("train", batch_size=BATCH, seed=3)
    assert trained == [[epoch, rows] for epoch in range(1, EPOCHS + 1) for rows in numbers(alone)]
    assert statuses == [143, 143, 143, 0]
