"""Models for tests of saves beside training: small ones that count as large."""

from typing import Any

import torch
from torch import nn

from halving import Store
from halving.checkpoints.restoring import restore
from halving.run.run import Run

WIDTH = 64  # of a model of 4 KiB
MIN_BYTES = 4096
"""The fixture ``small_models_are_large`` makes this the limit of a large state."""


class Distributed:
    """A model whose weights are all equal, and what ``run.distribute`` gave for it."""

    def __init__(self, run: Run) -> None:
        self.model = nn.Linear(16, WIDTH, bias=False)
        self.fill(0.0)
        self.training = run.distribute(self.model, torch.optim.SGD(self.model.parameters(), lr=0.1))

    def fill(self, value: float) -> None:
        with torch.no_grad():
            self.model.weight.fill_(value)

    @property
    def state(self) -> dict[str, Any]:
        return {"model": self.model, "training": self.training}


def value_in(store: Store, digest: str) -> float:
    """What a checkpoint's weights were filled with."""
    model = nn.Linear(16, WIDTH, bias=False)
    restore(store, digest, {"model": model}, with_rng=False)
    value = model.weight.detach()[0, 0].item()
    assert torch.equal(model.weight, torch.full((WIDTH, 16), value))
    return value


def saved_values(store: Store, run: Run) -> list[tuple[int, float]]:
    """The epochs and the weights of a run's checkpoints."""
    return [(saved.epoch, value_in(store, saved.digest)) for saved in run.records.checkpoints()]


MIN_BYTES = 4096
