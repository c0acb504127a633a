"""Which states are large, and are copied and written beside training."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from halving import Store
from halving.checkpoints import large_model
from halving.checkpoints.restoring import saved_state
from halving.checkpoints.sharded.saver import AsyncSaver
from halving.errors import InvalidInput
from tests.checkpoints import Gate
from tests.sdk.checkpoints.large_models import MIN_BYTES, WIDTH, Distributed, saved_values
from tests.sdk.run.runs import start

pytestmark = pytest.mark.usefixtures("every_save", "small_models_are_large")


def sparse(model: nn.Module) -> nn.Module:
    model.register_buffer("mask", torch.ones(4, 4).to_sparse())
    return model


@pytest.mark.parametrize(
    ("model", "is_large"),
    [
        (nn.Linear(16, WIDTH, bias=False), True),
        (nn.Linear(16, WIDTH - 1, bias=False), False),
        (nn.BatchNorm1d(MIN_BYTES // 16), True),  # its buffers count, too
        (sparse(nn.Linear(16, WIDTH)), False),
        (nn.LazyLinear(WIDTH), False),  # nobody knows yet
    ],
)
def test_which_models_are_large(model: nn.Module, is_large: bool) -> None:
    assert large_model.is_large(model) is is_large


@pytest.mark.parametrize(
    ("available", "is_large"), [(6 * MIN_BYTES - 1, False), (6 * MIN_BYTES, True), (None, True)]
)
def test_a_copy_with_adams_states_takes_no_more_than_half_of_the_memory_that_is_left(
    monkeypatch: pytest.MonkeyPatch, available: int | None, is_large: bool
) -> None:
    monkeypatch.setattr(large_model, "available_memory", lambda: available)
    assert large_model.is_large(nn.Linear(16, WIDTH, bias=False)) is is_large


def test_a_small_model_is_saved_before_the_call_returns(store: Store) -> None:
    with start(store) as run:
        small = nn.Linear(2, 2)
        training = run.distribute(small, torch.optim.SGD(small.parameters(), lr=0.1))
        assert run.save(model=small, training=training) is not None
    assert not any(saved.sharded for saved in run.records.checkpoints())


def test_without_run_distribute_what_is_large_is_written_beside_training_too(
    store: Store, gate: Gate
) -> None:
    with start(store, seed=1) as run:
        model = nn.Linear(16, WIDTH, bias=False)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        for epoch in run.epochs(3):
            nn.init.constant_(model.weight, float(epoch))
            digest = run.save(model=model, optimizer=optimizer, epoch=epoch)
            assert (digest is None) == (epoch < 3)
            nn.init.constant_(model.weight, -1.0)  # a part of the next step
            gate.open.set() if epoch == 2 else None
    assert saved_values(store, run) == [(1, 1.0), (3, 3.0)]
    assert run.restore(epoch=None)["epoch"] is None  # this attempt began without a checkpoint
    with start(store, seed=1) as again:
        assert again.restore(model=model, optimizer=optimizer, epoch=None)["epoch"] == 3
    assert all(saved.sharded for saved in run.records.checkpoints())


def test_the_first_save_of_what_was_restored_finds_its_memory_there(store: Store) -> None:
    with start(store) as run:
        model = nn.Linear(16, WIDTH, bias=False)
        optimizer = torch.optim.AdamW(model.parameters())
        run.restore(model=model, optimizer=optimizer)
        model(torch.ones(1, 16)).sum().backward()
        optimizer.step()
        assert isinstance(run._saver, AsyncSaver)
        assert run._saver.prepared_bytes >= 3 * MIN_BYTES
        assert run.save(model=model, optimizer=optimizer) is None
    assert [saved.sharded for saved in run.records.checkpoints()] == [True]


def test_a_large_array_is_written_beside_training_and_counts_as_copied_memory(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    array = np.ones(MIN_BYTES // 8 + 1)
    for room, is_beside in ((2 * array.nbytes - 1, False), (2 * (array.nbytes + 64), True)):
        monkeypatch.setattr(large_model, "available_memory", lambda room=room: room)
        with start(store, run_id=f"room-{room}") as run:
            assert (run.save(replay=[{"seen": array}]) is None) == is_beside
        assert [saved.sharded for saved in run.records.checkpoints()] == [is_beside]
        assert saved_state(store, run.records.checkpoints()[0].digest)["replay"][0]["seen"].sum() == len(
            array
        )


def test_a_state_too_large_to_copy_is_saved_at_once_though_it_is_distributed(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    with start(store) as run:
        distributed = Distributed(run)
        distributed.fill(1.0)
        monkeypatch.setattr(large_model, "available_memory", lambda: 100 * MIN_BYTES)
        assert run.save(**distributed.state, replay=np.ones(100 * MIN_BYTES)) is not None
    assert [saved.sharded for saved in run.records.checkpoints()] == [False]
    assert saved_values(store, run) == [(0, 1.0)]


def odd_values() -> dict[str, Any]:
    class Masked:
        def state_dict(self) -> dict[str, Any]:
            return {"mask": torch.eye(3).to_sparse()}

        def load_state_dict(self, state: Any) -> None: ...

    return {
        "sparse": torch.eye(3).to_sparse(),
        "in an object": Masked(),
        "meta": torch.empty(3, device="meta"),
    }


@pytest.mark.parametrize("kind", ["sparse", "in an object", "meta"])
def test_a_large_model_beside_a_value_that_is_not_dense_is_saved_at_once(store: Store, kind: str) -> None:
    with start(store) as run:
        model = nn.Linear(16, WIDTH, bias=False)
        nn.init.ones_(model.weight)
        assert run.save(model=model, odd=odd_values()[kind]) is not None
    assert [saved.sharded for saved in run.records.checkpoints()] == [False]
    assert saved_values(store, run) == [(0, 1.0)]


def test_a_model_that_was_saved_is_not_distributed(store: Store) -> None:
    model = nn.Linear(16, WIDTH)
    with start(store) as run:
        run.save(model=model)
        with pytest.raises(InvalidInput, match=r"run.distribute\(\) after run.save\(\) is not accepted"):
            run.distribute(model, torch.optim.SGD(model.parameters(), lr=0.1))
