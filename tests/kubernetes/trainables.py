"""Trainables that take their time, so that a test can do something to the cluster meanwhile."""

import time
from collections.abc import Callable

from halving import Run, Store
from tests.trainables import score

HELD_EPOCH = 4
_EPOCH_SECONDS = 1.0


def train(run: Run) -> None:
    """A second an epoch; ``x`` says how good the trial is.

    Each epoch is logged when it begins and when it ends.
    """
    _train(run, lambda epoch: time.sleep(_EPOCH_SECONDS))


def train_held(run: Run) -> None:
    """As :func:`train`, but nobody gets beyond the fourth epoch until the sweep is released, if not told to
    stop.
    """

    store = Store()

    def hold(epoch: int) -> None:
        time.sleep(_EPOCH_SECONDS)
        while (
            epoch == HELD_EPOCH
            and not run.stopping
            and not store.exists(release_file(run.id.partition(".")[0]))
        ):
            time.sleep(0.5)

    _train(run, hold)


def release_file(sweep: str) -> str:
    """The file in the store that releases a sweep's trials."""
    return f"released/{sweep}"


def held(run: str) -> str:
    """The file in the store that says that a trial's first attempt has begun the fourth epoch: its points
    follow.
    """
    return f"held/{run}"


def train_hungry(run: Run) -> None:
    """Takes more memory than its limit in its second epoch, the first time; else as :func:`train`, without
    taking its time.
    """

    def hoard(epoch: int) -> None:
        if epoch == 2 and run.attempt == 1:
            _ = [bytearray(b"x" * (64 << 20)) for _ in range(64)]

    _train(run, hoard)


def _train(run: Run, work: Callable[[int], None]) -> None:
    epochs_seen = list(run.restore(epochs_seen=[])["epochs_seen"])
    for epoch in run.epochs():
        run.log({"begun": epoch}, step=epoch)
        if (epoch, run.attempt) == (HELD_EPOCH, 1):
            Store().create(held(run.id), b"")
        work(epoch)
        epochs_seen.append(epoch)
        run.log({"train/loss": 1 / epoch}, step=epoch)
        run.report(score=score(run.params["x"], epoch))
        run.save(epochs_seen=epochs_seen)
