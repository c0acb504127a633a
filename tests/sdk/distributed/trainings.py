"""A small transformer-like model, its data, and trainings of it on any number of ranks."""

import io
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from halving.checkpoints.weights_digest import weights_digest
from halving.distributed.ranks import Ranks
from halving.distributed.training import Training, distribute
from halving.errors import Diverged

CPU = torch.device("cpu")
ROWS = 16


class Block(nn.Module):
    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 3 * width)
        self.down = nn.Linear(3 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.dropout(self.down(functional.gelu(self.up(self.norm(x)))))


class Net(nn.Module):
    def __init__(self, width: int = 8, dropout: float = 0.0) -> None:
        super().__init__()
        self.first = nn.Linear(6, width)
        self.last = nn.Linear(width, 4)
        self.blocks = nn.ModuleList(Block(width, dropout) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return self.last(x)


def loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return functional.cross_entropy(model(x), y)


def batch(step: int, ranks: Ranks, rows: int = ROWS) -> tuple[Tensor, Tensor]:
    """A rank's share of a step's global batch."""
    x = torch.randn(rows, 6, generator=torch.Generator().manual_seed(step))
    share = slice(rows * ranks.rank // ranks.world_size, rows * (ranks.rank + 1) // ranks.world_size)
    return x[share], x[share, :4].argmax(1)


def prepare_net(
    ranks: Ranks, *, dropout: float = 0.0, width: int = 8, fused: bool = False, **options: Any
) -> tuple[nn.Module, Any, Training]:
    """A model that only rank 0 initialises as every world size does, its optimizer and its training."""
    torch.manual_seed(ranks.rank)
    model = Net(width, dropout)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02, fused=fused)
    options = {"clip": 0.5, **options}  # in each step
    return model, optimizer, distribute(ranks, CPU, model, optimizer, seed=3, **options)


def train_net(
    ranks: Ranks, configurations: dict[str, dict[str, Any]], steps: int = 5
) -> dict[str, tuple[list[float], list[str], Any]]:
    """Train each configuration, and return its losses, the names of its state, and its weights' digest.

    Losses alternate with the norms of the gradients. Sharded weights have no digest.
    """
    outcomes = {}
    for name, options in configurations.items():
        model, _, training = prepare_net(ranks, **options)
        rows = [ROWS, ROWS, 11, 11, *[ROWS] * steps]  # as at an epoch's end: no number of ranks divides it
        losses = []
        for step in range(steps):
            losses += [
                training.step(loss, *batch(step, ranks, rows[step])).item(),
                float(training.gradient_norm),
            ]
        state = model.state_dict()
        digest = None if "shard" in options else weights_digest({"model": model})
        outcomes[name] = losses, list(state), digest
    return outcomes


def train_on(
    ranks: Ranks, saved: bytes | None, steps: range, **options: Any
) -> tuple[bytes, list[float], Any]:
    """Resume what another number of ranks has saved; return the new state, the losses and the digest."""
    objects = prepare_net(ranks, **options)
    if saved is not None:
        for each, state in zip(objects, torch.load(io.BytesIO(saved)), strict=True):
            each.load_state_dict(state)
    losses = [objects[2].step(loss, *batch(step, ranks)).item() for step in steps]
    file = io.BytesIO()
    torch.save([each.state_dict() for each in objects], file)
    return file.getvalue(), losses, weights_digest({"model": objects[0]})


def resume_net(
    ranks: Ranks, configurations: dict[str, dict[str, Any]]
) -> dict[str, tuple[list[float], list[float]]]:
    """Losses of an uninterrupted training, and of one resumed from its state after half of the steps."""
    losses = {}
    for name, options in configurations.items():
        model, optimizer, training = prepare_net(ranks, **options)
        whole = [training.step(loss, *batch(step, ranks)).item() for step in range(3)]
        states = [
            {key: copy_of(value) for key, value in each.state_dict().items()}
            for each in (model, optimizer, training)
        ]
        whole += [training.step(loss, *batch(step, ranks)).item() for step in range(3, 8)]
        again = prepare_net(ranks, **options)
        for each, state in zip(again, states, strict=True):
            each.load_state_dict(state)
        torch.rand(7)  # generators are elsewhere than they were
        losses[name] = (
            whole,
            whole[:3] + [again[2].step(loss, *batch(step, ranks)).item() for step in range(3, 8)],
        )
    return losses


def train_poisoned(ranks: Ranks, kind: str, at: tuple[int, ...], **options: Any) -> dict[str, Any]:
    """Train with a NaN on rank 1 at some steps.

    It returns which steps changed anything, the messages about the others, and how the training ended.
    """
    model, optimizer, training = prepare_net(ranks, width=8, **options)
    spoil = {"loss": _nan_loss, "gradients": _nan_gradients}[kind]
    changed = []
    ended = None
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for step in range(10):
            before = [local(each).clone() for each in (*model.parameters(), *_moments(optimizer))]
            bad = step in at and ranks.rank == 1 % ranks.world_size
            try:
                training.step(spoil if bad else loss, *batch(step, ranks))
            except Diverged as error:
                ended = str(error)
            after = [local(each) for each in (*model.parameters(), *_moments(optimizer))]
            if len(before) != len(after) or any(
                not torch.equal(a, b) for a, b in zip(before, after, strict=True)
            ):
                changed.append(step)
            assert all(bool(each.isfinite().all()) for each in after)
            if ended:
                break
    return {
        "changed": changed,
        "warned": [str(each.message) for each in warned if "left out" in str(each.message)],
        "ended": ended,
    }


def every(ranks: Ranks, **bodies: Callable[..., Any]) -> dict[str, Any]:
    """What each of several bodies gives, in one gang."""
    return {name: body(ranks) for name, body in bodies.items()}


def later(body: Callable[..., Any], *arguments: Any, **options: Any) -> Callable[..., Any]:
    """A body that only wants its ranks; it can be sent to them."""
    return partial(_call_body, body, arguments, options)


def _call_body(
    body: Callable[..., Any], arguments: tuple[Any, ...], options: dict[str, Any], ranks: Ranks
) -> Any:
    return body(ranks, *arguments, **options)


def _nan_loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return loss(model, x, y) + float("nan")  # a constant: the gradients alone would be finite


def _nan_gradients(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    scores = model(x)
    # finite, and its derivative at 0 is not
    return functional.cross_entropy(scores, y) + (scores * 0).sum().sqrt()


def _moments(optimizer: Any) -> list[Tensor]:
    return [value for state in optimizer.state.values() for value in state.values()]


def local(tensor: Any) -> Tensor:
    local = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return local.detach()


def copy_of(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, dict):
        return {key: copy_of(item) for key, item in value.items()}
    return [copy_of(item) for item in value] if isinstance(value, list) else value
