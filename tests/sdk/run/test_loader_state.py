"""A run's checkpoints keep what its loaders have handed out: however an attempt ends, the next goes on with
the very row.
"""

import dataclasses
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from halving import CheckpointMismatch, Dataset, InvalidInput, Run, Store
from halving.checkpoints.restoring import restore
from halving.data.loader import Loader
from halving.records.run_record import RunRecords
from halving.trial.messages import Granted
from halving.trial_process.main import run_trial
from tests.gangs import SERVER, start
from tests.sdk.conftest import Script
from tests.sdk.data.sharded import arrow_file, counting_tables, flat, numbers, put_shard, snapshot
from tests.sdk.run.runs import Grants, trial
from tests.sdk.trial_process.attempts import context

EPOCHS = 4
ROWS = 100
BATCH = 16


@pytest.fixture
def dataset(store: Store) -> Dataset:
    shards = {
        split: [put_shard(store, arrow_file(table), table.num_rows) for table in counting_tables(*rows)]
        for split, rows in (("train", (61, 5, 34)), ("valid", (20,)))
    }
    return snapshot(store, shards, "d")


def order(dataset: Dataset, epochs: int = EPOCHS, **options: Any) -> list[list[int]]:
    """The rows of each epoch, as a training that nothing interrupts sees them."""
    loader = dataset.loader("train", batch_size=BATCH, **options)
    return [flat(numbers(loader)) for _ in range(epochs)]


class RowLog:
    """What a model was trained on: the rows of each epoch of the run. It stands for the model."""

    def __init__(self) -> None:
        self.rows: list[list[Any]] = []

    def state_dict(self) -> dict[str, Any]:
        return {"rows": self.rows}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.rows = [list(each) for each in state["rows"]]

    def take(self, epoch: int, batch: dict[str, Any]) -> None:
        self.rows.append([epoch, batch["n"].tolist()])


def kill(number: int) -> None:
    os.kill(os.getpid(), number)


def stop_between_batches(run: Run) -> None:
    """SIGTERM in the third batch of epoch 2; saved between batches."""
    rows = RowLog()
    loader = run.dataset.loader("train", batch_size=BATCH)
    run.restore(seen=rows)
    for epoch in run.epochs():
        for number, batch in enumerate(loader):
            rows.take(epoch, batch)
            if (run.attempt, epoch, number) == (1, 2, 2):
                kill(signal.SIGTERM)
            if run.stopping:
                run.save(seen=rows)
        run.report(score=0.5)
        run.save(seen=rows)


def stop_in_the_last_batch(run: Run) -> None:
    rows = RowLog()
    loader = run.dataset.loader("train", batch_size=BATCH)
    run.restore(seen=rows)
    for epoch in run.epochs():
        for number, batch in enumerate(loader):
            rows.take(epoch, batch)
            if (run.attempt, epoch, number) == (1, 2, len(loader) - 1):
                kill(signal.SIGTERM)
            if run.stopping:
                run.save(seen=rows)
        run.report(score=0.5)
        run.save(seen=rows)


def stop_behind_a_loop_that_was_left(run: Run) -> None:
    rows = RowLog()
    loader = run.dataset.loader("train", batch_size=BATCH)
    run.restore(seen=rows)
    for epoch in run.epochs():
        for number, batch in enumerate(loader):
            rows.take(epoch, batch)
            if (run.attempt, epoch, number) == (1, 2, 2):
                kill(signal.SIGTERM)
            if run.stopping:
                break
        if run.stopping:
            run.save(seen=rows)
        run.report(score=0.5)
        run.save(seen=rows)


def stop_and_end_the_epoch(run: Run) -> None:
    """SIGTERM behind a save that was skipped: its epoch is trained to its end and written from what the
    objects hold then.
    """
    rows = RowLog()
    loader = run.dataset.loader("train", batch_size=BATCH)
    run.restore(seen=rows)
    for epoch in run.epochs():
        run.report(score=0.5)
        for number, batch in enumerate(loader):
            rows.take(epoch, batch)
            if number == (2 if epoch < EPOCHS else len(loader) - 1):
                written = run.save(seen=rows)
            if (run.attempt, epoch, number) == (1, 2, 4):
                assert written is None
                kill(signal.SIGTERM)


def be_killed(run: Run) -> None:
    """SIGKILL in the middle of epoch 3: the last checkpoint that counts is that of epoch 2, or of an epoch
    before it.
    """
    rows = RowLog()
    loader = run.dataset.loader("train", batch_size=BATCH)
    run.restore(seen=rows)
    for epoch in run.epochs():
        for number, batch in enumerate(loader):
            rows.take(epoch, batch)
            if (run.attempt, epoch, number) == (1, 3, 2):
                kill(signal.SIGKILL)
        run.report(score=0.5)
        run.save(seen=rows)


def open_loaders_late(run: Run) -> None:
    """The loader is opened behind ``restore``, a new one in each epoch, and another for validation beside
    it.
    """
    rows = RowLog()
    run.restore(seen=rows)
    for epoch in run.epochs():
        loader = run.dataset.loader("train", batch_size=BATCH, epoch=epoch)
        for number, batch in enumerate(loader):
            rows.take(epoch, batch)
            if (run.attempt, epoch, number) == (1, 2, 2):
                kill(signal.SIGTERM)
            if run.stopping:
                run.save(seen=rows)
        assert sorted(flat(numbers(run.dataset.loader("valid", batch_size=8)))) == list(range(20))
        run.report(score=0.5)
        run.save(seen=rows)


def read_by_workers(run: Run) -> None:
    rows = RowLog()
    loader = run.dataset.loader("train", batch_size=BATCH)
    run.restore(seen=rows)
    batches = loader.torch(2, multiprocessing_context="fork")
    for epoch in run.epochs():
        for number, batch in enumerate(batches):
            rows.take(epoch, batch)
            if (run.attempt, epoch, number) == (1, 2, 2):
                kill(signal.SIGTERM)
            if run.stopping:
                run.save(seen=rows)
        run.report(score=0.5)
        run.save(seen=rows)


def attempt(store: Store, dataset: Dataset, trainable: str, number: int) -> int | None:
    """Run an attempt in a process of its own; its exit code."""
    trial = dataclasses.replace(
        context(store, number), dataset_name=dataset.name, dataset_digest=dataset.digest
    )
    platform, theirs = SERVER.Pipe()
    platform.send(Granted(EPOCHS, complete=True))
    process = start(run_trial, trial, f"{__name__}:{trainable}", EPOCHS, theirs, 1)
    theirs.close()
    process.join()
    return process.exitcode


def read_saved(store: Store) -> tuple[int, list[list[Any]]]:
    """Epoch and content of the newest checkpoint."""
    newest = RunRecords(store, "p", "s.0001").latest_checkpoint()
    assert newest is not None
    rows = RowLog()
    restore(store, newest.digest, {"seen": rows}, with_rng=False)
    return newest.epoch, rows.rows


@pytest.mark.slow
@pytest.mark.parametrize(
    ("trainable", "ends", "epoch", "batches"),
    [
        ("stop_between_batches", 143, 1, 7 + 3),
        ("stop_in_the_last_batch", 143, 1, 7 + 7),
        ("stop_behind_a_loop_that_was_left", 143, 1, 7 + 3),
        ("stop_and_end_the_epoch", 143, 2, 7 + 7),
        ("be_killed", -signal.SIGKILL, None, None),
        ("open_loaders_late", 143, 1, 7 + 3),
        ("read_by_workers", 143, 1, 7 + 3),
    ],
)
def test_a_trial_that_ends_anywhere_is_resumed_with_the_very_row(
    store: Store, dataset: Dataset, trainable: str, ends: int, epoch: int | None, batches: int | None
) -> None:
    assert attempt(store, dataset, trainable, 1) == ends
    saved_epoch, rows = read_saved(store)
    if epoch is not None:
        assert (saved_epoch, len(rows)) == (epoch, batches)
    assert attempt(store, dataset, trainable, 2) == 0
    saved_epoch, rows = read_saved(store)
    assert saved_epoch == EPOCHS
    assert [
        flat(batch for number, batch in rows if number == each) for each in range(1, EPOCHS + 1)
    ] == order(dataset)


# In one process


def run_of(store: Store, dataset: Dataset, number: int = 1, **changes: Any) -> Run:
    return trial(
        store, Grants(EPOCHS), number, dataset_name=dataset.name, dataset_digest=dataset.digest, **changes
    )


def train(run: Run, loader: Loader, epochs: int) -> list[list[int]]:
    """The rows of so many epochs."""
    rows = []
    for _, _ in zip(range(epochs), run.epochs(), strict=False):
        rows.append(flat(numbers(loader)))
        run.report(score=0.5)
        run.save()
    return rows


@pytest.mark.usefixtures("every_save")
@pytest.mark.parametrize("opened", ["before restore", "behind restore"])
def test_an_epochs_checkpoint_is_resumed_with_the_next_epoch(
    store: Store, dataset: Dataset, opened: str
) -> None:
    with run_of(store, dataset) as run:
        before = train(run, run.dataset.loader("train", batch_size=BATCH), 2)
    with run_of(store, dataset, 2) as run:
        if opened == "before restore":
            loader = run.dataset.loader("train", batch_size=BATCH)
            run.restore()
        else:
            run.restore()
            loader = run.dataset.loader("train", batch_size=BATCH)
        first = run.epoch
        after = train(run, loader, EPOCHS - first)
    assert before[:first] + after == order(dataset)


@pytest.mark.usefixtures("every_save")
def test_a_save_in_the_last_batch_of_a_complete_epoch_resumes_with_the_next_epoch(
    store: Store, dataset: Dataset
) -> None:
    with run_of(store, dataset) as run:
        loader = run.dataset.loader("train", batch_size=BATCH)
        for epoch in run.epochs():
            for number, _ in enumerate(loader):
                if number == len(loader) - 1:
                    run.report(score=0.5)
                    run.save()
            if epoch == 2:
                break
    with run_of(store, dataset, 2) as run:
        run.restore()
        loader = run.dataset.loader("train", batch_size=BATCH)
        assert (run.epoch, loader.epoch, loader.position) == (2, 3, 0)


@pytest.mark.usefixtures("every_save")
def test_loaders_of_several_splits_and_of_one_split_keep_their_own_places(
    store: Store, dataset: Dataset
) -> None:
    def loaders(run: Run) -> list[Loader]:
        return [
            run.dataset.loader(split, batch_size=8, seed=seed)
            for split, seed in (("train", 0), ("valid", 0), ("train", 1))
        ]

    with run_of(store, dataset) as run:
        opened = loaders(run)
        iterations = [iter(loader) for loader in opened]
        for iteration, count in zip(iterations, (3, 1, 2), strict=True):
            for _ in range(count):
                next(iteration)
        run.save()
    with run_of(store, dataset, 2) as run:
        run.restore()
        assert [loader.position for loader in loaders(run)] == [24, 8, 16]


@pytest.mark.usefixtures("every_save")
@pytest.mark.parametrize("opened", ["before restore", "behind restore"])
def test_a_loader_of_another_order_than_was_saved_in_mid_epoch_is_refused(
    store: Store, dataset: Dataset, opened: str
) -> None:
    with run_of(store, dataset) as run:
        iteration = iter(run.dataset.loader("train", batch_size=BATCH))
        next(iteration)
        # beside one that is iterated it does not count
        loader = run.dataset.loader("train", batch_size=BATCH)
        del loader
        assert iteration
        run.save()
    refused = (
        "the run's checkpoint has a loader in the middle of an epoch: .* seed = 0 is not accepted for "
        "split 'train' .* seed = 5"
    )
    with run_of(store, dataset, 2) as run:
        if opened == "before restore":
            loader = run.dataset.loader("train", batch_size=BATCH, seed=5)
            with pytest.raises(InvalidInput, match=refused):
                run.restore()
            assert loader.epoch == 1
        else:
            run.restore()
            with pytest.raises(InvalidInput, match=refused):
                run.dataset.loader("train", batch_size=BATCH, seed=5)


@pytest.mark.usefixtures("every_save")
def test_each_epoch_may_have_a_loader_and_a_seed_of_its_own(store: Store, dataset: Dataset) -> None:
    for number, epochs in ((1, (1, 2)), (2, (3, 4))):
        with run_of(store, dataset, number) as run:
            run.restore()
            for epoch in run.epochs():
                loader = run.dataset.loader("train", batch_size=BATCH, seed=epoch)
                assert flat(numbers(loader)) == order(dataset, 1, seed=epoch)[0]
                run.report(score=0.5)
                run.save()
                if epoch == epochs[1]:
                    break


@pytest.mark.usefixtures("every_save")
@pytest.mark.parametrize("seed", [0, 5])
def test_from_another_runs_checkpoint_a_loader_of_another_order_begins_its_own(
    store: Store, dataset: Dataset, seed: int
) -> None:
    with run_of(store, dataset) as run:
        train(run, run.dataset.loader("train", batch_size=BATCH), 2)
        assert run.checkpoint is not None
        start_from = run.checkpoint._asdict()
    with run_of(store, dataset, run="s.0002", start_from=start_from) as other:
        other.restore()
        assert other.dataset.loader("train", batch_size=BATCH, seed=seed).epoch == (3 if seed == 0 else 1)


@pytest.mark.usefixtures("every_save")
def test_a_checkpoint_without_loaders_and_a_run_without_a_dataset_are_as_they_were(
    store: Store, dataset: Dataset
) -> None:
    with run_of(store, dataset) as run:
        digest = run.save(a=1)
        loader = run.dataset.loader("train", batch_size=BATCH)
        assert run.save(a=1) != digest
        del loader
        assert run.save(a=1) == digest
    with run_of(store, dataset, 2) as run:
        assert run.restore(a=0) == {"a": 1}
        assert run.dataset.loader("train", batch_size=BATCH).epoch == 1


@pytest.mark.usefixtures("every_save")
def test_the_entry_of_the_loaders_has_a_name_of_its_own(store: Store, dataset: Dataset) -> None:
    with run_of(store, dataset) as run:
        loader = run.dataset.loader("train", batch_size=BATCH)
        with pytest.raises(
            InvalidInput, match="checkpoint entry '__loaders__' is not accepted: the name is taken"
        ):
            run.save(__loaders__=1)
        run.save(a=1)
        assert loader.epoch == 1
    with (
        run_of(store, dataset, 2) as run,
        pytest.raises(CheckpointMismatch, match=r"the checkpoint has no \['b'\]; it holds \['a'\]"),
    ):
        run.restore(b=0)


@pytest.mark.slow
def test_a_script_of_ones_own_gives_its_loader_to_save_and_restore(
    store: Store, dataset: Dataset, script: Script, tmp_path: Path
) -> None:
    source = (
        "import os, signal, sys, halving\n"
        "store = halving.Store()\n"
        "loader = halving.Dataset(store, 'd', sys.argv[1]).loader('train', batch_size=16)\n"
        "with halving.init('p', id='r', system_metrics=None) as run:\n"
        "    seen = run.restore(seen=[], loader=loader)['seen']\n"
        "    while loader.epoch <= 4:\n"
        "        for number, batch in enumerate(loader):\n"
        "            seen += batch['n'].tolist()\n"
        "            if number % 3 == 0: run.save(seen=seen, loader=loader)\n"
        "            if run.attempt == 1 and (loader.epoch, number) == (2, 4): os.kill(os.getpid(), "
        "signal.SIGKILL)\n"
        "        run.save(seen=seen, loader=loader)\n"
    )
    assert script(source, dataset.digest).returncode == -signal.SIGKILL
    done = script(source, dataset.digest)
    assert done.returncode == 0, done.stderr
    newest = RunRecords(store, "p", "r").latest_checkpoint()
    assert newest is not None
    assert restore(store, newest.digest, {"seen": None}, with_rng=False)["seen"] == flat(order(dataset))
