"""A table of real learning curves: the digits example, trained over a whole discrete space.

It is kept in ``.bench/``.
"""

import json
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks.search_problems import EPOCHS, Digits

_ORDERED = ("lr", "hidden", "dropout")  # axes of the space whose values are given by their places
_VERSION = 1  # raised when the training or the space changes: an older table is made again


def table(home: Path, quick: bool) -> Path:
    """The file with the curves, which are trained now unless it exists; ``quick`` makes up curves."""
    path = home / "digits-curves.json"
    if quick:
        path = home / "digits-made-up.json"
    if path.exists() and json.loads(path.read_text())["version"] == _VERSION:
        return path
    combinations = list(_combinations())
    if quick:
        curves = [_made_up(params) for params in combinations]
    else:
        print(
            f"search: training {len(combinations)} networks for the table of curves",
            file=sys.stderr,
            flush=True,
        )
        with ProcessPoolExecutor(
            max_workers=os.cpu_count(), mp_context=get_context("spawn"), initializer=_prepare
        ) as pool:
            curves = list(pool.map(_train, combinations, range(len(combinations)), chunksize=8))
    losses = {Digits.key(params): curve for params, curve in zip(combinations, curves, strict=True)}
    home.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps({"version": _VERSION, "loss": losses}))
    partial.replace(path)
    return path


def _combinations() -> Iterator[dict[str, Any]]:
    """Every point of the digits' space, ordered parameters as places."""
    places = dict(Digits.axes)
    for name in _ORDERED:
        places[name] = range(len(Digits.axes[name]))
    for point in product(*places.values()):
        yield dict(zip(places, point, strict=True))


def _prepare() -> None:
    import torch

    torch.set_num_threads(1)  # one network a core


def _train(params: dict[str, Any], seed: int) -> list[float]:
    """Validation loss after each epoch; 60 % of the images train and 40 % validate, split alike for all."""
    import torch
    from torch.nn import functional

    from examples.digits import batches, build, load, step, tensors

    inputs, labels = tensors(load())
    order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(0))
    train, validation = order.split([len(order) * 6 // 10, len(order) - len(order) * 6 // 10])
    chosen = {name: params[name] for name in Digits.axes}
    for name in _ORDERED:
        chosen[name] = Digits.axes[name][params[name]]
    torch.manual_seed(seed)
    model, optimizer = build(chosen)
    curve = []
    for _ in range(EPOCHS):
        model.train()
        for batch in batches(inputs[train], labels[train], chosen["batch_size"]):
            step(model, optimizer, *batch)
        model.eval()
        with torch.no_grad():
            curve.append(functional.cross_entropy(model(inputs[validation]), labels[validation]).item())
    return curve


def _made_up(params: dict[str, Any]) -> list[float]:
    """A curve for a smoke run: its end depends on the params, smoothly."""
    best = (
        0.1
        + 0.1 * abs(params["lr"] - 5)
        + 0.1 * abs(params["hidden"] - 2)
        + 0.2 * (params["optimizer"] == "sgd")
    )
    return [best + 2 / epoch - 2 / EPOCHS for epoch in range(1, EPOCHS + 1)]
