"""A rank that trains the same steps in several ways, in turn."""

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

import halving
from halving.checkpoints.interval import CheckpointInterval

BATCH = 64  # rows of a rank


def main(folder: str, rounds: int, count: int, width: int) -> None:
    """Print, as rank 0, the seconds of a step by name, one for each round."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    seconds: dict[str, list[float]] = {}
    with halving.init("bench", {}, folder, seed=1, system_metrics=None) as run:
        inputs = torch.randn(BATCH, 64)
        labels = torch.randint(0, 10, (BATCH,))
        model = network(width)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        training = run.distribute(model, optimizer)
        state = {"model": model, "optimizer": optimizer, "training": training}
        for epoch in run.epochs(3):
            if epoch == 2:  # one that is neither the first nor the last, of which nothing need be saved
                CheckpointInterval.due = property(lambda _: False)  # type: ignore[assignment,method-assign]
                ways = _ways(run, state, width, inputs, labels) | _peers(width, inputs, labels)
                for _ in range(rounds):
                    for name, step in ways.items():
                        seconds.setdefault(name, []).append(_seconds(step, count))
            run.save(**state)
    if dist.get_rank() == 0:
        print(json.dumps(seconds), flush=True)
    dist.destroy_process_group()


def network(width: int) -> nn.Module:
    """64 → width → width → 10."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10)
    )


def _ways(
    run: halving.Run, state: dict[str, Any], width: int, inputs: torch.Tensor, labels: torch.Tensor
) -> dict[str, Callable[[], Any]]:
    ddp = DistributedDataParallel(network(width))
    step = _step(ddp, torch.optim.SGD(ddp.parameters(), lr=0.01), torch.Tensor.backward, inputs, labels)

    def loss(model: nn.Module, inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(model(inputs), labels)

    return {
        "DDP": step,
        "DDP, run.stopping": lambda: (step(), run.stopping),
        "DDP, run.save() that is skipped": lambda: (step(), run.save(**state)),
        "run.distribute": lambda: state["training"].step(loss, inputs, labels),
    }


def _peers(width: int, inputs: torch.Tensor, labels: torch.Tensor) -> dict[str, Callable[[], Any]]:
    from accelerate import Accelerator
    from lightning.fabric import Fabric

    fabric = Fabric(accelerator="cpu", devices=dist.get_world_size(), strategy="ddp")
    accelerator = Accelerator(cpu=True)
    fabric.launch()
    ways = {}
    for name, prepare, backward in (
        ("Fabric", fabric.setup, fabric.backward),
        ("Accelerate", accelerator.prepare, accelerator.backward),
    ):
        model = network(width)
        ways[name] = _step(
            *prepare(model, torch.optim.SGD(model.parameters(), lr=0.01)), backward, inputs, labels
        )
    return ways


def _step(
    model: Any, optimizer: Any, backward: Callable[[Any], Any], inputs: torch.Tensor, labels: torch.Tensor
) -> Callable[[], None]:
    def step() -> None:
        optimizer.zero_grad()
        backward(functional.cross_entropy(model(inputs), labels))
        optimizer.step()

    return step


def _seconds(step: Callable[[], Any], count: int) -> float:
    """Seconds of one step, after two that are not counted."""
    for _ in range(2):
        step()
    dist.barrier()
    began = time.perf_counter()
    for _ in range(count):
        step()
    return (time.perf_counter() - began) / count


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
