"""A checkpoint of some ranks comes back, bit by bit, on any number of them, sharded or not, and in one process without a group."""

from pathlib import Path

import pytest
import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from halving import Store
from halving.checkpoints.restoring import checkpoint_bytes, restore, saved_state
from halving.checkpoints.sharded.save import Staging
from halving.checkpoints.weights_digest import weights_digest
from halving.distributed.ranks import Ranks
from tests.gangs import run_gang

FOREVER = float("inf")


def model() -> nn.Module:
    """Of 200 KiB; its first dimensions are not divisible by 3, and its small parts lie together."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(100, 401), nn.BatchNorm1d(401), nn.ReLU(), nn.Linear(401, 7))


def trained(kind: str, ranks: Ranks, steps: int) -> tuple[nn.Module, torch.optim.Optimizer]:
    net: nn.Module = model()
    if kind == "fsdp":
        net[0] = checkpoint_wrapper(net[0])  # which has other names inside
        mesh = init_device_mesh("cpu", (ranks.world_size,))
        fully_shard(net[0], mesh=mesh)
        fully_shard(net, mesh=mesh)
    elif kind == "ddp":
        net = DistributedDataParallel(net)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    torch.manual_seed(ranks.rank)
    for _ in range(steps):
        net(torch.randn(8, 100)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return net, optimizer


def whole(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def digest_of_state(net: nn.Module, optimizer: torch.optim.Optimizer) -> str:
    """Over whole tensors, so that it does not depend on how they are sharded."""
    weights = {name.removeprefix("module."): whole(value) for name, value in net.state_dict().items()}
    states = {
        str(number): {name: whole(value) for name, value in state.items()} for number, state in optimizer.state_dict()["state"].items()
    }
    return weights_digest({"weights": weights, "states": states}) or ""


def saved(ranks: Ranks, root: Path, kind: str) -> tuple[str | None, str]:
    """The digest of the checkpoint that the ranks write, and of the state in it."""
    net, optimizer = trained(kind, ranks, 3)
    save = Staging(Store(root), ranks).begin({"model": net, "optimizer": optimizer, "epoch": 3}, lambda: FOREVER)
    before = digest_of_state(net, optimizer)
    trained_on = net(torch.randn(8, 100)).square().mean()
    trained_on.backward()
    optimizer.step()  # what is saved is what was there when the save began
    save.join()
    assert save.error is None
    return save.digest, before


def restored(ranks: Ranks, root: Path, digest: str, kind: str) -> tuple[int, str]:
    net, optimizer = trained(kind, ranks, 0)
    found = restore(Store(root), digest, {"model": net, "optimizer": optimizer, "epoch": None}, ranks=ranks)
    return found["epoch"], digest_of_state(net, optimizer)


@pytest.mark.slow
@pytest.mark.parametrize(("saver", "restorers"), [("fsdp", [("fsdp", 1), ("fsdp", 3), ("ddp", 2)]), ("ddp", [("ddp", 1), ("fsdp", 3)])])
def test_a_checkpoint_restores_with_equal_bits_on_any_number_of_ranks_sharded_or_not(
    tmp_path: Path, saver: str, restorers: list[tuple[str, int]]
) -> None:
    root = tmp_path / "store"
    (digest, state), *_ = run_gang(2, saved, root, saver)
    for kind, world_size in restorers:
        assert run_gang(world_size, restored, root, digest, kind) == [(3, state)] * world_size, (kind, world_size)

    net = model()
    optimizer = torch.optim.AdamW(net.parameters())
    restore(Store(root), digest, {"model": net, "optimizer": optimizer}, with_rng=False)
    assert digest_of_state(net, optimizer) == state
    assert list(saved_state(Store(root), digest)) == ["model", "optimizer", "epoch"]
    assert checkpoint_bytes(Store(root), digest) > sum(value.nbytes for value in net.state_dict().values()) * 2
