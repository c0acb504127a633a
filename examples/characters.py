"""A small transformer that continues text, character by character, trained by one process or many.

The text is docstrings of Python's standard library, in blocks of 32 characters. Guessing by the frequency of
characters costs 3.2 nats for each; by the character before, 2.5. From :func:`train` to
:func:`train_distributed` three lines change.
"""

import re
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor, nn
from torch.nn import functional

from examples import docstrings
from halving import Evaluation, Run, TrainedRun

LENGTH = 32
_ROWS = 3_000
_BATCH = 32  # rows for all ranks together
# Printable ASCII; the last one stands for all other characters.
_FIRST = ord(" ")
_CHARACTERS = 96


def load() -> pa.Table:
    """Load blocks of text: ``tokens`` and ``module``.

    ``tokens`` are 33 characters as numbers, each of which is followed by the next.
    """
    module_of_block: dict[bytes, str] = {}  # A repeated block could be in two splits.
    for text, module in zip(*docstrings.load().select(["text", "module"]).to_pydict().values(), strict=True):
        numbers = numbers_of(re.sub(r"\s+", " ", text))
        for block in numbers[: len(numbers) // (LENGTH + 1) * (LENGTH + 1)].reshape(-1, LENGTH + 1):
            module_of_block.setdefault(block.tobytes(), module)
    blocks = list(module_of_block)
    modules = list(module_of_block.values())
    places = np.linspace(0, len(blocks) - 1, min(_ROWS, len(blocks))).astype(int)
    flat = pa.array(np.frombuffer(b"".join(blocks[number] for number in places), np.uint8))
    return pa.table(
        {
            "tokens": pa.FixedSizeListArray.from_arrays(flat, LENGTH + 1),
            "module": [modules[number] for number in places],
        }
    )


def train(run: Run) -> None:
    """Train in one process; reports ``val_loss``, nats for each character, after every epoch."""
    model, optimizer = build(run.params)
    batches = run.dataset.loader("train", batch_size=_BATCH, columns=["tokens"], seed=run.seed or 0).torch()
    run.restore(model=model, optimizer=optimizer)
    for epoch in run.epochs():
        for batch in batches:
            optimizer.zero_grad()
            loss = loss_of(model, batch["tokens"])
            loss.backward()
            optimizer.step()
        run.log({"train/loss": loss.detach()}, step=epoch)
        run.report(val_loss=losses(model, run.dataset.read("validation")).mean().item())
        run.save(model=model, optimizer=optimizer)


def train_distributed(run: Run) -> None:
    """The same on any number of ranks.

    Each has the whole model (``shard: ddp``) or a part of each layer (``fsdp``).
    """
    model, optimizer = build(run.params)
    training = run.distribute(model, optimizer, shard=run.params["shard"], clip=None)
    batches = run.dataset.loader("train", batch_size=_BATCH, columns=["tokens"], seed=run.seed or 0).torch()
    run.restore(model=model, optimizer=optimizer, training=training)
    for epoch in run.epochs():
        for batch in batches:
            loss = training.step(loss_of, batch["tokens"])
        run.log({"train/loss": loss}, step=epoch)
        run.report(val_loss=losses(model, run.dataset.read("validation")).mean().item())
        run.save(model=model, optimizer=optimizer, training=training)


def evaluate(run: TrainedRun, split: str) -> Evaluation:
    """The loss of each block; in one process, however many had trained."""
    model, _ = build(run.params)
    run.restore(model=model)
    return Evaluation(
        scores={"loss": losses(model, run.dataset.read(split)).numpy()}, lower_is_better=["loss"]
    )


class Block(nn.Module):
    """A transformer layer (Vaswani et al., 2017), with norms before its parts (Xiong et al., 2020)."""

    def __init__(self, width: int, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.attention = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.wide = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)

    def forward(self, hidden: Tensor) -> Tensor:
        rows, length, width = hidden.shape
        parts = (
            self.attention(self.norms[0](hidden))
            .view(rows, length, 3, self.heads, width // self.heads)
            .transpose(1, 3)
        )
        query, key, value = parts.unbind(2)
        attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        hidden = hidden + self.out(attended.transpose(1, 2).reshape(rows, length, width))
        return hidden + self.narrow(functional.gelu(self.wide(self.norms[1](hidden))))


class Transformer(nn.Module):
    """From characters to the scores of each next one.

    Shape (rows, length) to (rows * length, characters).
    """

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.characters = nn.Embedding(_CHARACTERS, width)
        self.places = nn.Embedding(LENGTH, width)
        self.blocks = nn.ModuleList([Block(width) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        self.scores = nn.Linear(width, _CHARACTERS)
        for embedding in (self.characters, self.places):
            # GPT-2's value; with torch's own, 1, it learns slowly.
            nn.init.normal_(embedding.weight, std=0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.characters(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            hidden = block(hidden)
        scores: Tensor = self.scores(self.norm(hidden).flatten(0, 1))
        return scores


def build(params: dict[str, Any]) -> tuple[nn.Module, torch.optim.Optimizer]:
    """The network and its optimizer for a trial's params."""
    model = Transformer(int(params["width"]), int(params["layers"]))
    return model, torch.optim.AdamW(model.parameters(), lr=params["lr"])


def loss_of(model: nn.Module, tokens: Tensor) -> Tensor:
    """The mean over some blocks and their characters, in nats."""
    tokens = tokens.long()
    return functional.cross_entropy(model(tokens[:, :-1]), tokens[:, 1:].flatten())


def losses(model: nn.Module, table: pa.Table) -> Tensor:
    """The mean loss of each block's characters in nats, shape (rows,), on the CPU; the same on all ranks."""
    device = next(model.parameters()).device
    tokens = torch.from_numpy(
        table["tokens"].combine_chunks().flatten().to_numpy().reshape(-1, LENGTH + 1).astype(np.int64)
    ).to(device)
    with torch.no_grad():
        losses_of_parts = [
            functional.cross_entropy(model(part[:, :-1]), part[:, 1:].flatten(), reduction="none")
            .view(-1, LENGTH)
            .mean(1)
            for part in tokens.split(256)
        ]
    return torch.cat(losses_of_parts).cpu()


def numbers_of(text: str) -> "np.ndarray[Any, np.dtype[np.uint8]]":
    """Each character as a number."""
    codes = np.frombuffer(text.encode("utf-32-le"), np.uint32)
    return np.clip(codes.astype(np.int64) - _FIRST, 0, _CHARACTERS - 1).astype(np.uint8)
