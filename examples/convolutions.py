"""A convolutional network on the pictures of :mod:`examples.pictures`, trained by one process or many.

From :func:`train` to :func:`train_distributed` three things change: the model and its optimizer are
distributed, the step, and what is saved.
"""

from typing import Any

import pyarrow as pa
import torch
from torch import Tensor, nn
from torch.nn import functional

from examples.pictures import decode, pixels_of
from halving import Run, TrainedRun

_BATCH = 64  # rows for all ranks together


def train(run: Run) -> None:
    """Train in one process; reports ``val_accuracy`` after every epoch."""
    model, optimizer = build(run.params)
    batches = run.dataset.loader(
        "train", batch_size=_BATCH, columns=["content", "label"], transform=decode, seed=run.seed or 0
    )
    validation = decode(run.dataset.read("validation", columns=["content", "label"]))
    run.restore(model=model, optimizer=optimizer)
    for epoch in run.epochs():
        for batch in batches:
            optimizer.zero_grad()
            loss = loss_of(model, *map(torch.from_numpy, batch))
            loss.backward()
            optimizer.step()
        run.log({"train/loss": loss.detach()}, step=epoch)
        run.report(val_accuracy=accuracy(model, *map(torch.from_numpy, validation)))
        run.save(model=model, optimizer=optimizer)


def train_distributed(run: Run) -> None:
    """The same on any number of ranks: each has the whole model (``shard: ddp``) or a part (``fsdp``)."""
    model, optimizer = build(run.params)
    training = run.distribute(model, optimizer, shard=run.params["shard"], clip=None)
    batches = run.dataset.loader(
        "train", batch_size=_BATCH, columns=["content", "label"], transform=decode, seed=run.seed or 0
    )
    validation = decode(run.dataset.read("validation", columns=["content", "label"]))
    run.restore(model=model, optimizer=optimizer, training=training)
    for epoch in run.epochs():
        for batch in batches:
            loss = training.step(loss_of, *batch)
        run.log({"train/loss": loss}, step=epoch)
        run.report(val_accuracy=accuracy(model, *map(torch.from_numpy, validation)))
        run.save(model=model, optimizer=optimizer, training=training)


def predict(run: TrainedRun, table: pa.Table) -> list[str]:
    """The digit on each picture, as its folder is named; one process, however many had trained."""
    model, _ = build(run.params)
    run.restore(model=model)
    with torch.no_grad():
        return [str(digit) for digit in model(torch.from_numpy(pixels_of(table))).argmax(1).tolist()]


def build(params: dict[str, Any]) -> tuple[nn.Module, torch.optim.Optimizer]:
    """From pictures, shape (n, 1, 8, 8), to the scores of ten digits; and an optimizer."""
    channels = int(params["channels"])
    model = nn.Sequential(
        nn.Conv2d(1, channels, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(channels, 2 * channels, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(2 * channels * 16, 10),
    )
    return model, torch.optim.Adam(model.parameters(), lr=params["lr"])


def loss_of(model: nn.Module, pixels: Tensor, labels: Tensor) -> Tensor:
    """The mean loss of some pictures."""
    return functional.cross_entropy(model(pixels), labels)


def accuracy(model: nn.Module, pixels: Tensor, labels: Tensor) -> float:
    """The share of the pictures that it gets right, the same on all ranks."""
    device = next(model.parameters()).device
    with torch.no_grad():
        return (model(pixels.to(device)).argmax(1).cpu() == labels).float().mean().item()
