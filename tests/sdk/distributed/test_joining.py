"""The device that each rank of a node computes on."""

import pytest
import torch

from halving.distributed.joining import device_of


@pytest.mark.parametrize(
    ("gpus", "processes", "devices"),
    [
        (0, 2, ["cpu", "cpu"]),
        (1, None, ["cuda:0"]),
        (8, None, ["cuda:0"]),  # one process that sees all
        (4, 4, ["cuda:0", "cuda:1", "cuda:2", "cuda:3"]),
        (8, 2, ["cuda:0", "cuda:4"]),  # four each
        (1, 2, ["cuda:0", "cpu"]),
    ],
)
def test_ranks_of_a_node_share_no_gpu(
    monkeypatch: pytest.MonkeyPatch, gpus: int, processes: int | None, devices: list[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)  # no machine here has one
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    if processes is not None:
        monkeypatch.setenv("LOCAL_WORLD_SIZE", str(processes))
    assert [str(device_of(rank)) for rank in range(processes or 1)] == devices
