"""A checkpoint is restored bit by bit on any number of ranks, sharded or not, or in one process."""

from pathlib import Path
from typing import Any

import numpy as np
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
from halving.store.deadline import Deadline
from tests.gangs import run_gang
from tests.sdk.checkpoints.sharded.states import Adapted


def model() -> nn.Module:
    """Of 200 KiB; its first dimensions are not divisible by 3, and its small parts lie together."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(100, 401), nn.BatchNorm1d(401), nn.ReLU(), nn.Linear(401, 7))


def train_net(kind: str, ranks: Ranks, steps: int) -> tuple[nn.Module, torch.optim.Optimizer]:
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
        str(number): {name: whole(value) for name, value in state.items()}
        for number, state in optimizer.state_dict()["state"].items()
    }
    return weights_digest({"weights": weights, "states": states}) or ""


def save_net(ranks: Ranks, root: Path, kind: str) -> tuple[str | None, str]:
    """The digest of the checkpoint that the ranks write, and of the state in it."""
    net, optimizer = train_net(kind, ranks, 3)
    save = Staging(Store(root), ranks).begin({"model": net, "optimizer": optimizer, "epoch": 3}, Deadline())
    before = digest_of_state(net, optimizer)
    trained_on = net(torch.randn(8, 100)).square().mean()
    trained_on.backward()
    optimizer.step()  # what is saved is what was there when the save began
    save.join()
    assert save.error is None
    return save.digest, before


def restore_net(ranks: Ranks, root: Path, digest: str, kind: str) -> tuple[int, str]:
    net, optimizer = train_net(kind, ranks, 0)
    values = restore(Store(root), digest, {"model": net, "optimizer": optimizer, "epoch": None}, ranks=ranks)
    return values["epoch"], digest_of_state(net, optimizer)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("saver", "restorers"),
    [("fsdp", [("fsdp", 1), ("fsdp", 3), ("ddp", 2)]), ("ddp", [("ddp", 1), ("fsdp", 3)])],
)
def test_a_checkpoint_restores_with_equal_bits_on_any_number_of_ranks_sharded_or_not(
    tmp_path: Path, saver: str, restorers: list[tuple[str, int]]
) -> None:
    root = tmp_path / "store"
    (digest, state), *_ = run_gang(2, save_net, root, saver)
    for kind, world_size in restorers:
        assert run_gang(world_size, restore_net, root, digest, kind) == [(3, state)] * world_size, (
            kind,
            world_size,
        )

    net = model()
    optimizer = torch.optim.AdamW(net.parameters())
    restore(Store(root), digest, {"model": net, "optimizer": optimizer}, with_rng=False)
    assert digest_of_state(net, optimizer) == state
    assert list(saved_state(Store(root), digest)) == ["model", "optimizer", "epoch"]
    assert (
        checkpoint_bytes(Store(root), digest) > sum(value.nbytes for value in net.state_dict().values()) * 2
    )


def adapters_saved(ranks: Ranks, root: Path) -> tuple[int, int]:
    """Bytes of the base and of what was trained on it, in four trials of two epochs."""
    train_net = base = 0
    mesh = init_device_mesh("cpu", (ranks.world_size,))
    for trial in range(4):
        net = Adapted(trial + 1)
        base = sum(parameter.nbytes for parameter in net.base.parameters())
        adapters = sum(parameter.nbytes for parameter in net.adapters.parameters())
        fully_shard(net, mesh=mesh)
        optimizer = torch.optim.AdamW(net.adapters.parameters(), lr=0.1)
        staging = Staging(Store(root), ranks)
        for _ in range(2):
            net(torch.randn(2, 512)).backward()
            optimizer.step()
            optimizer.zero_grad()
            save = staging.begin({"model": net, "optimizer": optimizer}, Deadline())
            save.join()
            assert save.error is None
            train_net += 3 * adapters  # AdamW keeps two more
    return base, train_net


@pytest.mark.slow
def test_a_sweep_of_adapters_on_two_fsdp_ranks_stores_its_base_once(tmp_path: Path) -> None:
    root = tmp_path / "store"
    (base, train_net), _ = run_gang(2, adapters_saved, root)
    assert base < sum(size for _, size, _ in Store(root).files("artifacts")) <= 1.05 * (base + train_net)


class Histogram:
    """An object of a user's own, whose state is plain data with arrays in it."""

    def __init__(self, seed: int) -> None:
        self.counts = np.random.default_rng(seed).integers(0, 1000, 50_000)
        self.notes: dict[Any, Any] = {"edges": np.linspace(0, seed, 5), 3: [b"\x00", None, float(seed)]}

    def state_dict(self) -> dict[str, Any]:
        return {"counts": self.counts, "notes": self.notes}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.counts = state["counts"]
        self.notes = state["notes"]


def plain_state(seed: int) -> dict[str, Any]:
    rows = np.random.default_rng(seed).standard_normal((300, 400)).astype(np.float32)
    return {
        "rows": rows,
        "big-endian": rows[:5].astype(">f8"),
        "histogram": Histogram(seed),
        "seen": [seed, {"epoch": seed}],
    }


def plain_saved(ranks: Ranks, root: Path) -> str | None:
    """Each rank has values of its own."""
    save = Staging(Store(root), ranks).begin(plain_state(7 + ranks.rank), Deadline())
    save.join()
    assert save.error is None
    return save.digest


def plain_restored(ranks: Ranks, root: Path, digest: str) -> str:
    histogram = Histogram(0)
    state = restore(
        Store(root), digest, {**dict.fromkeys(plain_state(0)), "histogram": histogram}, ranks=ranks
    )
    return digest_of_plain({**state, "histogram": histogram})


def digest_of_plain(state: dict[str, Any]) -> str:
    """Also of what is no array."""
    tensors = {name: value for name, value in state.items() if name != "histogram"}
    histogram = state["histogram"].state_dict()
    assert all(
        isinstance(array, np.ndarray)
        for array in (tensors["rows"], histogram["counts"], histogram["notes"]["edges"])
    )
    return f"{weights_digest({**tensors, 'histogram': histogram})} {tensors['seen']} {histogram['notes'][3]}"


@pytest.mark.slow
def test_arrays_and_objects_are_those_of_rank_0_on_any_number_of_ranks(tmp_path: Path) -> None:
    root = tmp_path / "store"
    digest, _ = run_gang(2, plain_saved, root)
    expected = digest_of_plain(plain_state(7))
    for world_size in (1, 3):
        assert run_gang(world_size, plain_restored, root, digest) == [expected] * world_size
