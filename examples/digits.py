"""Handwritten digits: a small network on scikit-learn's 1,797 images of 8x8 pixels.

The data is the test part of "Optical Recognition of Handwritten Digits" (Alpaydin & Kaynak, UCI, 1998).
"""

import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor, nn
from torch.nn import functional

from halving import Run, TrainedRun


def load() -> pa.Table:
    """All images: ``pixels`` (64 brightnesses from 0 to 16) and ``label`` (the digit)."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    pixels = pa.FixedSizeListArray.from_arrays(pa.array(digits.data.astype("float32").ravel()), 64)
    return pa.table({"pixels": pixels, "label": pa.array(digits.target, pa.int64())})


def train(run: Run) -> None:
    """Train one network; reports ``val_accuracy`` and ``val_loss`` after every epoch."""
    model, optimizer = build(run.params)
    inputs, labels = tensors(run.dataset.read("train"))
    val_inputs, val_labels = tensors(run.dataset.read("validation"))
    run.restore(model=model, optimizer=optimizer)
    for epoch in run.epochs():
        model.train()
        losses = [
            step(model, optimizer, *batch) for batch in batches(inputs, labels, int(run.params["batch_size"]))
        ]
        run.log({"train/loss": float(np.mean(losses))}, step=epoch)
        model.eval()
        with torch.no_grad():
            outputs = model(val_inputs)
        run.report(
            val_accuracy=(outputs.argmax(1) == val_labels).float().mean().item(),
            val_loss=functional.cross_entropy(outputs, val_labels).item(),
        )
        run.save(model=model, optimizer=optimizer)


def predict(run: TrainedRun, table: pa.Table) -> np.ndarray:
    """The digit for every row."""
    model, optimizer = build(run.params)
    run.restore(model=model, optimizer=optimizer)
    model.eval()
    with torch.no_grad():
        return model(pixels_of(table)).argmax(1).numpy()


class Digit(nn.Module):
    """From pixels as they are stored, shape (rows, 64), to digits, shape (rows,)."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, pixels: Tensor) -> Tensor:
        return self.model(pixels / 16.0).argmax(1)


def export(run: TrainedRun) -> bytes:
    """The network as an ONNX graph from a row's pixels to its digit."""
    model, optimizer = build(run.params)
    run.restore(model=model, optimizer=optimizer)
    example = torch.zeros(2, 64)
    names = ["pixels"]
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # Tracing is deprecated in favour of an exporter that needs one more package.
        file = Path(folder, "model.onnx")
        torch.onnx.export(
            Digit(model).eval(),
            (example,),
            file,
            input_names=names,
            dynamic_axes={"pixels": {0: "rows"}},
            dynamo=False,
        )
        return file.read_bytes()


def build(params: dict[str, Any]) -> tuple[nn.Module, torch.optim.Optimizer]:
    """The network and its optimizer for a trial's params."""
    hidden = int(params["hidden"])
    model = nn.Sequential(
        nn.Linear(64, hidden), nn.ReLU(), nn.Dropout(params["dropout"]), nn.Linear(hidden, 10)
    )
    if params["optimizer"] == "adam":
        return model, torch.optim.Adam(model.parameters(), lr=params["lr"])
    return model, torch.optim.SGD(model.parameters(), lr=params["lr"], momentum=0.9, nesterov=True)


def step(model: nn.Module, optimizer: torch.optim.Optimizer, inputs: Tensor, labels: Tensor) -> float:
    """One gradient step; gives the batch's loss."""
    optimizer.zero_grad()
    loss = functional.cross_entropy(model(inputs), labels)
    loss.backward()
    optimizer.step()
    return loss.item()


def batches(inputs: Tensor, labels: Tensor, size: int) -> Iterator[tuple[Tensor, Tensor]]:
    """The rows in a new random order, in batches of ``size``."""
    for rows in torch.randperm(len(inputs)).split(size):
        yield inputs[rows], labels[rows]


def tensors(table: pa.Table) -> tuple[Tensor, Tensor]:
    """Pixels scaled to 0..1, shape (rows, 64), and labels, shape (rows,)."""
    return pixels_of(table), torch.from_numpy(table["label"].to_numpy().copy())


def pixels_of(table: pa.Table) -> Tensor:
    flat = table["pixels"].combine_chunks().flatten().to_numpy()
    return torch.from_numpy(flat.reshape(-1, 64) / 16.0)
