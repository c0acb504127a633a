"""Which GPUs a recorded process could see: what CUDA makes of ``CUDA_VISIBLE_DEVICES``."""

import pytest

from halving.records.gpus import seen_gpus, visible_gpus

GPUS = [f"NVIDIA H100 80GB HBM3, GPU-{place}a7f, 550.54.15" for place in range(3)] + [
    "NVIDIA A100-SXM4-40GB, GPU-3a7f, 550.54.15"
]


@pytest.mark.parametrize(
    ("named", "visible"),
    [
        (None, [0, 1, 2, 3]),
        ("", []),
        ("-1", []),
        ("2", [2]),
        ("3, 0", [3, 0]),
        ("GPU-1", [1]),
        ("1,9,2", [1]),  # CUDA stops at the first name of none
        ("5", []),  # which begins the driver's version
    ],
)
def test_cuda_visible_devices_says_which_of_the_machines_gpus_are_seen(
    named: str | None, visible: list[int]
) -> None:
    assert visible_gpus(GPUS, named) == [GPUS[place] for place in visible]
    hardware = {"gpus": GPUS, "visible_gpus": {} if named is None else {"CUDA_VISIBLE_DEVICES": named}}
    assert seen_gpus(hardware).number == len(visible)


def test_ranks_of_a_machine_that_see_different_gpus_have_them_all_together() -> None:
    hardware = {"gpus": GPUS, "visible_gpus": {"CUDA_VISIBLE_DEVICES": "1"}}
    assert seen_gpus(hardware) == (1, "NVIDIA H100 80GB HBM3")
    assert seen_gpus(hardware, ["1", "3", "1"]).number == 2
    assert seen_gpus(hardware, [None, "1"]).number == 4


def test_a_slice_counts_as_a_gpu_and_a_machine_without_any_has_none() -> None:
    assert seen_gpus({"gpus": GPUS, "visible_gpus": {"CUDA_VISIBLE_DEVICES": "MIG-1f,MIG-2f"}}) == (
        2,
        "NVIDIA H100 80GB HBM3 MIG",
    )
    assert seen_gpus({"gpus": [], "visible_gpus": {"CUDA_VISIBLE_DEVICES": "0,1"}}) == (0, None)
    assert seen_gpus({}) == (0, None)
