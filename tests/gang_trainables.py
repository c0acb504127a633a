"""Trainables for tests of what people see of a training: of gangs of ranks, and of where the time goes."""

import os
import signal
from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor, distributed

from halving import Run
from halving.checkpoints import interval
from halving.errors import OutOfMemory

_SAMPLE_SECONDS = 1.0  # between two samples of where the time goes; trials take one every 30 s
_SAMPLES = 6  # so many are taken before an epoch ends


def end_differently(run: Run) -> None:
    """Stop rank 1 in the first attempt, kill it in the second, and let it run out of memory in the third."""
    for epoch in run.epochs():
        if epoch == 2 and run.rank == 1:
            if run.attempt == 1:
                os.kill(os.getpid(), signal.SIGSTOP)
            elif run.attempt == 2:
                os.kill(os.getpid(), signal.SIGKILL)
            else:
                raise OutOfMemory(
                    "rank 1 ran out of memory in step 2, with 1 micro-batches of 512 rows: give a smaller "
                    "micro_batch"
                )
        distributed.all_reduce(torch.ones(2))
        run.report(score=float(epoch))
        run.save(epochs_seen=[epoch])


def compute_unevenly(run: Run) -> None:
    """Between two collectives the last rank computes eight times as much as the others."""
    amount = 800 if run.rank == run.world_size - 1 else 100
    _train(run, lambda: (_compute(amount), distributed.all_reduce(torch.ones(2))))


def exchange(run: Run) -> None:
    """The ranks do little but send each other numbers."""
    sent = torch.ones(2_000_000)
    _train(run, lambda: distributed.all_reduce(sent))


def wait_for_data(run: Run) -> None:
    """Preparing a batch takes much longer than computing with it."""

    def prepare(rows: dict[str, Tensor]) -> dict[str, Tensor]:
        _compute(80)
        return rows

    def batches() -> Iterator[object]:
        while True:
            yield from run.dataset.loader("train", batch_size=10, transform=prepare)

    batch = batches()
    _train(run, lambda: next(batch))


def save_much(run: Run) -> None:
    """After each little step a large checkpoint is written, whatever it costs."""
    interval.SHARE = float("inf")
    weights = torch.ones(4_000_000)
    _train(run, lambda: (_compute(5), run.save(epochs_seen=[0], weights=weights)))


def compute(run: Run) -> None:
    """Nothing is waited for."""
    _train(run, lambda: _compute(20))


def _train(run: Run, step: Callable[[], object]) -> None:
    """Make steps until each rank has looked often enough where its time goes."""
    samples = _sample_often(run)
    for epoch in run.epochs():
        missing = torch.ones(1)
        while missing.item() > 0:
            step()
            missing.fill_(max(0, _SAMPLES - len(samples)))
            if run.world_size > 1:
                distributed.all_reduce(missing, distributed.ReduceOp.MAX)
        run.report(score=float(epoch))
        run.save(epochs_seen=[epoch])


def _compute(amount: int) -> None:
    matrix = torch.rand(200, 200)
    for _ in range(amount):
        matrix = torch.nn.functional.normalize(matrix @ matrix)


def _sample_often(run: Run) -> list[int]:
    """Sample where the time goes more often than trials do; the list grows by one with each sample."""
    samples: list[int] = []
    record = partial(run.log, all_ranks=run.rank > 0)

    def log(values: dict[str, float], step: int) -> None:
        # of several in a second, the step that they come with, only the last would count
        record(values, step=len(samples))
        samples.append(step)

    assert run._system is not None
    run._system.stop()
    run._system = run._start_system_metrics(
        log, _SAMPLE_SECONDS, (lambda: run._saver.interval.seconds) if run.rank == 0 else None
    )
    return samples
