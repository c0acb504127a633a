"""State as safetensors and JSON comes back as it was."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from halving import InvalidInput
from halving.models.weights import STATE, WEIGHTS, read_state, same_state, write_state


def same(left: Any, right: Any) -> bool:
    if isinstance(left, torch.Tensor):
        return isinstance(right, torch.Tensor) and left.dtype == right.dtype and torch.equal(left, right)
    if isinstance(left, np.ndarray):
        return isinstance(right, np.ndarray) and left.dtype == right.dtype and np.array_equal(left, right)
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, (list, tuple)):
        return type(left) is type(right) and len(left) == len(right) and all(map(same, left, right))
    return type(left) is type(right) and left == right


def test_tensors_arrays_and_plain_values_come_back(tmp_path: Path) -> None:
    shared = torch.arange(4.0)
    tree = {
        "model": torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2)).state_dict(),
        "tied": {"a": shared, "b": shared[:2], 0: torch.zeros(1), "0": torch.ones(1)},
        "half": torch.ones(3, dtype=torch.bfloat16),
        "array": np.array([[1, 2]], np.int16),
        "plain": [1, 2.5, "x", None, True, b"bytes", (1, [2]), {1: "one"}],
    }
    write_state(tree, tmp_path)
    state = read_state(tmp_path)
    assert list(state) == list(tree)
    assert all(same(dict(tree[name]) if name == "model" else tree[name], state[name]) for name in tree)
    assert state["model"]._metadata == tree["model"]._metadata  # type: ignore[union-attr]
    torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2)).load_state_dict(state["model"])


def test_a_state_without_tensors_has_no_weights(tmp_path: Path) -> None:
    write_state({"seen": [1, 2]}, tmp_path)
    assert not (tmp_path / WEIGHTS).exists()
    assert json.loads((tmp_path / STATE).read_text()) == {"seen": {"__list__": [1, 2]}}
    assert read_state(tmp_path) == {"seen": [1, 2]}


@pytest.mark.parametrize(
    ("tensor", "said"),
    [
        (
            torch.eye(2).to_sparse(),
            "the checkpoint's model.w is torch.sparse_coo, which safetensors does not take: save it dense",
        ),
        (torch.empty(2, device="meta"), "the checkpoint's model.w is on the device meta, without values"),
    ],
    ids=["sparse", "meta"],
)
def test_a_tensor_without_dense_values_is_named(tmp_path: Path, tensor: torch.Tensor, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        write_state({"model": {"w": tensor}}, tmp_path)


def test_states_are_the_same_to_the_last_bit_or_not() -> None:
    nan = float("nan")
    state = {
        "a": torch.tensor([1.0, nan]),
        "b": np.array([nan]),
        "c": [nan, 1, "x", b"y", None],
        "d": torch.tensor(1, dtype=torch.int64),
    }
    again = {
        "a": torch.nn.Parameter(state["a"].clone()),
        "b": state["b"].copy(),
        "c": list(state["c"]),
        "d": state["d"].clone(),
    }
    assert same_state(state, again)
    for change in (
        {"a": torch.tensor([1.0, 2.0])},
        {"b": np.array([nan], np.float32)},
        {"c": [nan, True, "x", b"y", None]},
        {"d": 1},
    ):
        assert not same_state(state, {**again, **change})
