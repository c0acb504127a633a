"""Pictures from shards: a folder of image files becomes a snapshot, and a loader hands them out decoded.

The pictures are scikit-learn's handwritten digits, written as PGM files of 8x8 pixels; a folder or an address
of your own takes their place in the spec: ``source: {folder: "s3://bucket/pictures"}``.
"""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from halving import Run, TrainedRun

_HEADER = b"P5 8 8 16\n"


def folder() -> str:
    """Write the pictures, if they are not there yet, and return their folder.

    Each lies below a folder that is named by its digit.
    """
    from sklearn.datasets import load_digits

    place = Path(tempfile.gettempdir()) / "halving-pictures"
    digits = load_digits()
    for number, (pixels, label) in enumerate(zip(digits.images, digits.target, strict=True)):
        file = place / str(label) / f"{number:04}.pgm"
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(_HEADER + pixels.astype(np.uint8).tobytes())
    return str(place)


def train(run: Run) -> None:
    """Train a small convolutional network batch by batch; reports ``val_accuracy`` after every epoch."""
    model = network(int(run.params["channels"]))
    optimizer = torch.optim.Adam(model.parameters(), lr=run.params["lr"])
    batches = run.dataset.loader(
        "train", batch_size=64, columns=["content", "label"], transform=decode, seed=run.seed or 0
    )
    validation = decode(run.dataset.read("validation", columns=["content", "label"]))
    run.restore(model=model, optimizer=optimizer)
    for epoch in run.epochs():
        model.train()
        for pixels, labels in batches:
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(torch.from_numpy(pixels)), torch.from_numpy(labels))
            loss.backward()
            optimizer.step()
        run.log({"train/loss": loss.item()}, step=epoch)
        run.report(val_accuracy=accuracy(model, *validation))
        run.save(model=model, optimizer=optimizer)


def predict(run: TrainedRun, table: pa.Table) -> list[str]:
    """The digit on each picture, as its folder is named."""
    model = network(int(run.params["channels"]))
    run.restore(model=model)
    model.eval()
    with torch.no_grad():
        return [str(digit) for digit in model(torch.from_numpy(pixels_of(table))).argmax(1).tolist()]


def network(channels: int) -> nn.Module:
    """From pictures, shape (n, 1, 8, 8), to the scores of ten digits."""
    layers: list[nn.Module] = [nn.Conv2d(1, channels, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(channels * 16, 10))


def decode(rows: Any) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Pictures and digits of some rows, for the network; it runs in the loader's thread."""
    return pixels_of(rows), np.array([int(label) for label in rows["label"].to_pylist()])


def pixels_of(rows: Any) -> NDArray[np.float32]:
    """Brightnesses from 0 to 1, shape (n, 1, 8, 8)."""
    files = [np.frombuffer(content, np.uint8, offset=len(_HEADER)) for content in rows["content"].to_pylist()]
    return np.stack(files).reshape(-1, 1, 8, 8).astype(np.float32) / np.float32(16)


def accuracy(model: nn.Module, pixels: NDArray[np.float32], labels: NDArray[np.int64]) -> float:
    """The share of the pictures that it gets right."""
    model.eval()
    with torch.no_grad():
        return float((model(torch.from_numpy(pixels)).argmax(1).numpy() == labels).mean())
