"""What tests do with a saver beside training: save epochs, and wait for what becomes of them."""

from typing import Any

import torch

from halving.checkpoints.restoring import saved_state
from halving.checkpoints.sharded.saver import AsyncSaver
from tests.waiting import wait_for


def state(value: float) -> dict[str, Any]:
    return {"w": torch.full((3,), value)}


def saved_values(saver: AsyncSaver) -> list[tuple[int, float]]:
    """The epochs and the weights of the checkpoints that count."""
    store = saver._store
    return [
        (each.epoch, saved_state(store, each.digest)["w"][0].item()) for each in saver._records.checkpoints()
    ]


def blobs(saver: AsyncSaver) -> int:
    return sum(1 for _ in saver._store.files("artifacts"))


def wait_until_it_waits(saver: AsyncSaver) -> None:
    """Until the save in flight has found the store unavailable."""
    wait_for(
        lambda: saver._flight is not None and saver._flight.waits,
        60,
        "the save waits for the store",
        every=0.01,
    )


def wait_until_recalled(saver: AsyncSaver) -> None:
    wait_for(
        lambda: saver._flight is not None and saver._flight.is_recalled,
        60,
        "the save in flight is recalled",
        every=0.01,
    )


def epoch(saver: AsyncSaver, number: int, *, best: bool = False, needed: bool = False) -> str | None:
    """An epoch's save and end, as the loop over epochs calls them; the name of its checkpoint."""
    saver.forget()
    saver.write_if_available({"w": torch.full((3,), float(number))}, best=best)
    name = saver.settle(needed=needed, best=best)
    saver.count(
        number, 1, {"score": 0.5}, {"metrics": {}, "best_checkpoint": name if best else None}, needed=needed
    )
    return name
