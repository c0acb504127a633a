"""Trainables for the tests of the search: what they report says how far they got."""

import fcntl
import os
import signal
import time
from pathlib import Path

from halving import Run


def train_nothing(run: Run) -> None:
    """An epoch costs nothing."""
    for epoch in run.epochs():
        run.report(score=run.params["x"] * epoch)
        run.save(epoch=epoch)


def train_until_stopped(run: Run) -> None:
    """Short epochs, very many of them."""
    state = run.restore(trained=0)
    for epoch in run.epochs():
        time.sleep(0.02)
        run.report(score=float(epoch))
        state["trained"] = epoch
        run.save(**state)


def stream_nan(run: Run) -> None:
    """Its loss is NaN soon, which only the stream shows: it would take for ever to report."""
    for _ in run.epochs():
        run.log({"train/loss": 1.0}, step=1)
        run.log({"train/loss": float("nan")}, step=2)
        time.sleep(600)


def exceed_bounds(run: Run) -> None:
    """Better with every epoch, and slower."""
    for epoch in run.epochs():
        run.report(score=run.params["x"], latency_ms=100.0 * run.params["x"])
        run.save(epoch=epoch)


def train_on_all_ranks(run: Run) -> None:
    """Train a small model on the same global batches in any number of ranks; logs these and their GPUs."""
    import torch

    from tests.sdk.distributed.trainings import Net, batch, loss

    gpus = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    torch.manual_seed(run.seed or 0)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    training = run.distribute(model, optimizer)
    run.restore(model=model, optimizer=optimizer, training=training)
    for epoch in run.epochs():
        losses = [training.step(loss, *batch(3 * epoch + step, run)).item() for step in range(3)]
        run.log({"ranks": run.world_size, "gpus": len(gpus), "loss": losses[-1]}, step=epoch)
        run.report(score=-losses[-1])
        run.save(model=model, optimizer=optimizer, training=training)


def train_until_rank_1_has_nan(run: Run) -> None:
    """From the second epoch on the loss of rank 1 is NaN."""
    import torch

    from tests.sdk.distributed.trainings import Net, batch, loss

    def spoilt(model: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return loss(model, x, y) * float("nan")

    torch.manual_seed(run.seed or 0)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    training = run.distribute(model, optimizer, skips=0)
    run.restore(model=model, optimizer=optimizer, training=training)
    for epoch in run.epochs():
        of_rank = spoilt if epoch > 1 and run.rank == 1 else loss
        training.step(of_rank, *batch(epoch, run))
        run.report(score=float(epoch))
        run.save(model=model, optimizer=optimizer, training=training)


def train_with_memory_for_four_rows(run: Run) -> None:
    _train_with_memory_for(4, run, out_of_memory="halve")


def train_with_memory_for_two_rows(run: Run) -> None:
    _train_with_memory_for(2, run, out_of_memory="halve")


def train_as_it_is_or_not_at_all(run: Run) -> None:
    _train_with_memory_for(4, run, out_of_memory="fail")


def _train_with_memory_for(rows: int, run: Run, **options: str) -> None:
    """Train with a last rank that fits only so many rows from the second epoch on; logs the rows at once."""
    import torch

    from tests.sdk.distributed.trainings import Net, batch, loss

    def limit_memory(model: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        if len(x) > rows and epoch > 1 and run.rank == run.world_size - 1:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return loss(model, x, y)

    torch.manual_seed(run.seed or 0)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    training = run.distribute(model, optimizer, **options)
    run.restore(model=model, optimizer=optimizer, training=training)
    for epoch in run.epochs():
        value = training.step(limit_memory, *batch(epoch, run, rows=8 * run.world_size)).item()
        run.log({"rows": training.micro_batch, "loss": value}, step=epoch)
        run.report(score=-value)
        run.save(model=model, optimizer=optimizer, training=training)


def train_and_end_badly(run: Run) -> None:
    """After its last granted epoch the first attempt is killed, and later ones hang."""
    epochs = list(run.restore(seen=[])["seen"])
    for epoch in run.epochs():
        epochs.append(epoch)
        run.report(score=float(sum(epochs)))
        run.save(seen=epochs)
    if run.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(600)


def train_with_gpus_of_its_own(run: Run) -> None:
    """Fail if another trial trains with one of its GPUs meanwhile; leaves their names in the store."""
    for device in os.environ["CUDA_VISIBLE_DEVICES"].split(","):
        lock = os.open(f"{run.store.root}/gpu-{device}", os.O_CREAT | os.O_WRONLY)  # until this process ends
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with Path(run.store.root, "used").open("a") as file:
            file.write(f"{device}\n")
    for epoch in run.epochs():
        time.sleep(0.2)
        run.report(score=run.params["x"] * epoch)
        run.save(epoch=epoch)
