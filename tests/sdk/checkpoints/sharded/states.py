"""States for tests of sharded checkpoints, and what is stored of them."""

from typing import Any

import numpy as np
import torch
from torch import nn

from halving import Store
from halving.checkpoints.sharded.save import Staging
from halving.distributed.ranks import ALONE
from halving.store.deadline import Deadline


def save_state(store: Store, **state: Any) -> str:
    save = Staging(store, ALONE).begin(state, Deadline())
    save.join()
    if save.error is not None:
        raise save.error
    assert save.digest is not None
    return save.digest


def stored_bytes(store: Store) -> int:
    return sum(size for _, size, _ in store.files("artifacts"))


class Adapted(nn.Module):
    """A frozen base, of large tensors and of small ones, with an adapter in each layer."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.base = nn.ModuleList(nn.Linear(512, 512).requires_grad_(False) for _ in range(24))
        torch.manual_seed(seed)
        self.adapters = nn.ModuleList(nn.Linear(512, 4) for _ in range(24))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return (
            torch.stack([adapter(base(rows)) for base, adapter in zip(self.base, self.adapters, strict=True)])
            .square()
            .mean()
        )


def packed_column() -> "np.ndarray[Any, Any]":
    """An array whose elements lie five bytes apart."""
    rows = np.zeros(4, dtype=[("flag", "u1"), ("value", "<f4")])
    rows["value"] = [0.0, 1.0, 2.0, 3.0]
    return rows["value"]


def every_kind() -> dict[str, Any]:
    tied = torch.randn(3, 200)
    floats = {
        str(kind): torch.randn(5).to(kind)
        for kind in (torch.float64, torch.bfloat16, torch.float16, torch.float8_e4m3fn)
    }
    return {
        "floats": floats,
        "others": [
            torch.tensor([True, False]),
            torch.tensor(7, dtype=torch.uint8),
            torch.randn(2, dtype=torch.complex64),
        ],
        "empty": (torch.empty(0, 3), torch.tensor(1.5)),
        "views": torch.arange(200_000).reshape(400, 500).t(),
        "tied": {"one": tied, "other": tied},
        "array": np.arange(6, dtype=">f4").reshape(2, 3),
        "arrays": [np.arange(6)[::-1], np.broadcast_to(np.arange(3.0), (2, 3)), np.zeros(0), packed_column()],
        "plain": {
            1: [None, float("nan"), b"\x00\xff", (True, "ä")],
            "a.b": torch.ones(2),
            "a": {"b": torch.zeros(2)},
        },
    }


def assert_same(restored: dict[str, Any], state: dict[str, Any]) -> None:
    """Of :func:`every_kind`, to the last bit."""
    tied = state["tied"]["one"]
    assert repr(restored["plain"][1]) == repr(state["plain"][1])
    assert np.array_equal(restored["array"], state["array"])
    for array, expected in zip(restored["arrays"], state["arrays"], strict=True):
        assert array.dtype == expected.dtype
        assert np.array_equal(array, expected)
    for left, other in (
        *zip(restored["floats"].values(), state["floats"].values(), strict=True),
        *zip(restored["others"], state["others"], strict=True),
        *zip(restored["empty"], state["empty"], strict=True),
        (restored["views"], state["views"]),
        (restored["tied"]["other"], tied),
        (restored["plain"]["a.b"], torch.ones(2)),
        (restored["plain"]["a"]["b"], torch.zeros(2)),
    ):
        assert (left.dtype, left.shape) == (other.dtype, other.shape)
        assert torch.equal(
            *(each.contiguous().view(torch.uint8) if each.ndim else each for each in (left, other))
        )
