"""Equal weights have equal digests, whatever else differs; any change of them changes the digest."""

import random
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import halving
from halving import Store
from halving.checkpoints.weights_digest import DigestInBackground, weights_digest
from halving.records.run_record import RunRecords


def sparse(indices: list[int], values: list[float], length: int) -> torch.Tensor:
    return torch.sparse_coo_tensor([indices], values, (length,), check_invariants=True)


class Held:
    """An object with state."""

    def __init__(self, state: Any) -> None:
        self.state = state
        self.calls = 0

    def state_dict(self) -> Any:
        self.calls += 1
        return self.state

    def load_state_dict(self, state: Any, /) -> None:
        self.state = state


def train_model(seed: int = 0) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(seed)
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    return model, optimizer


def test_the_order_of_names_random_generators_and_loaders_do_not_count() -> None:
    first = dict(zip(("model", "optimizer"), train_model(), strict=True))
    other = dict(reversed(dict(zip(("model", "optimizer"), train_model(), strict=True)).items()))
    random.random()
    assert weights_digest(first) == weights_digest({**other, "__loaders__": {"train": 3}})
    assert weights_digest(first) != weights_digest(
        dict(zip(("model", "optimizer"), train_model(1), strict=True))
    )


@pytest.mark.parametrize(
    "other",
    [
        {"w": torch.zeros(2, 3)},
        {"w": torch.zeros(6)},
        {"w": torch.zeros(3, 2, dtype=torch.float64)},
        {"w": torch.tensor([[0.0, 0.0], [0.0, -0.0], [0.0, 0.0]])},
        {"v": torch.zeros(3, 2)},
        {"w": torch.zeros(3, 2), "more": [torch.zeros(1)]},
    ],
)
def test_names_shapes_dtypes_and_bytes_count(other: dict[str, Any]) -> None:
    assert weights_digest({"w": torch.zeros(3, 2)}) != weights_digest(other)


@pytest.mark.parametrize(
    ("first", "other"),
    [
        (torch.arange(6.0).reshape(2, 3).T.contiguous(), torch.arange(6.0).reshape(2, 3).T),
        (torch.ones(2, dtype=torch.bfloat16), torch.ones(2, dtype=torch.bfloat16)),
        (torch.arange(4.0).to_sparse(), sparse([3, 1, 2, 1], [3.0, 0.5, 2.0, 0.5], 4)),
        (np.arange(4, dtype=">f4"), np.arange(4, dtype="<f4")),
        (np.arange(4, dtype="f4"), torch.arange(4, dtype=torch.float32)),
        (torch.empty(0, 3), np.empty((0, 3), "f4")),
    ],
)
def test_how_equal_values_lie_in_memory_does_not_count(first: Any, other: Any) -> None:
    assert weights_digest({"w": first}) == weights_digest({"w": other})


def test_a_list_is_not_its_items_run_together() -> None:
    assert weights_digest({"a": Held(["ab", "c"])}) != weights_digest({"a": Held(["a", "bc"])})
    assert weights_digest({"a": Held([[], [1]])}) != weights_digest({"a": Held([[1], []])})
    assert weights_digest({"a": Held({1: b"x", "1": None})}) == weights_digest(
        {"a": Held({"1": None, 1: b"x"})}
    )


def test_of_plain_data_beside_the_weights_tensors_and_arrays_alone_count() -> None:
    weights: dict[str, Any] = {"w": torch.ones(2), "opt": Held({"lr": 0.1})}
    beside = {
        "started": time.time(),
        "path": "/tmp/x",
        "epoch": 3,
        "meta": {"at": [1.5, "x"]},
        "losses": [0.1] * 9,
        "raw": b"x",
    }
    assert weights_digest(weights) == weights_digest({**weights, **beside})
    assert weights_digest(weights) != weights_digest({**weights, "meta": {"mean": np.ones(2)}})
    assert weights_digest(weights) != weights_digest({**weights, "opt": Held({"lr": 0.2})})
    assert weights_digest(beside) is None


def test_checkpoints_and_the_end_of_a_run_have_the_digest_of_what_was_saved(
    store: Store, tmp_path: Path
) -> None:
    for name in ("one", "other"):
        with halving.init("p", id=name, root=store.root, system_metrics=None) as run:
            model, optimizer = train_model()
            run.save(model=model, optimizer=optimizer)
    saved = [RunRecords(store, "p", name).latest_checkpoint() for name in ("one", "other")]
    assert saved[0] is not None
    assert saved[1] is not None
    assert saved[0].weights == saved[1].weights == weights_digest({"model": model, "optimizer": optimizer})
    assert saved[0].weights in store.read("runs/project=p/one/end-0001.json").decode()


def jagged_tensor() -> torch.Tensor:
    return torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)


@pytest.mark.filterwarnings("ignore::UserWarning")  # torch's, of layouts that may change
@pytest.mark.parametrize(
    ("make", "has_digest"),
    [
        (lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), True),
        (lambda: torch.ones(3, 2).to_sparse_csr(), True),
        (lambda: torch.ones(3, 2).to_sparse_csc(), True),
        (lambda: sparse([2**40], [1.0], 2**41), True),  # 8 TiB if it were made dense
        (lambda: torch.ones(3, device="meta"), False),
        (lambda: torch.zeros(1).expand(2**33), False),
        (lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8), False),
        (jagged_tensor, None),
    ],
)
def test_a_state_whose_bytes_cannot_be_told_is_saved_all_the_same(
    store: Store, make: Any, has_digest: bool | None
) -> None:
    with (
        warnings.catch_warnings(record=True) as warned,
        halving.init("p", id="odd", root=store.root, system_metrics=None) as run,
    ):
        warnings.simplefilter("always")
        for _ in range(2):
            run.save(w=make(), model=torch.nn.Linear(1, 1))
    saved = RunRecords(store, "p", "odd").latest_checkpoint()
    assert saved is not None
    assert store.has_blob(saved.digest)
    if has_digest is not None:
        assert (saved.weights is not None) == has_digest
    assert sum("the weights of odd have no digest" in str(warning.message) for warning in warned) == (
        saved.weights is None
    )


def test_an_object_is_asked_for_its_state_once_for_a_checkpoint_and_its_digest(store: Store) -> None:
    held = Held({"w": torch.ones(2)})
    with halving.init("p", id="one", root=store.root, system_metrics=None) as run:
        run.save(held=held)
    assert held.calls == 1


def test_a_tensor_that_does_not_lie_in_order_is_digested_in_slices() -> None:
    wide = torch.arange(3e7).reshape(3, -1).T
    assert weights_digest({"w": wide}) == weights_digest({"w": wide.contiguous()})


def test_a_checkpoint_whose_digest_gets_no_thread_has_it_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    state = {"w": torch.ones(2)}

    def refuse(_: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("halving.checkpoints.weights_digest.Thread.start", refuse)
    digest = DigestInBackground(state, state)
    assert (digest.result(), digest.error) == (weights_digest(state), None)
