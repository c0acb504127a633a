"""A training on one rank, without any process group."""

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import halving
from halving.distributed.ranks import ALONE
from halving.distributed.sharded_optimizer import move_state
from halving.distributed.training import distribute
from halving.errors import InvalidInput, OutOfMemory
from tests.sdk.distributed.trainings import CPU, ROWS, Net, batch, loss, prepare_net


def too_large(rows: int) -> Any:
    """A loss for which memory is not enough from so many rows on."""

    def fail_beyond_rows(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        scores = model(x)
        if len(x) >= rows:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return nn.functional.cross_entropy(scores, y)

    return fail_beyond_rows


def test_a_step_that_does_not_fit_is_repeated_with_half_the_micro_batch() -> None:
    _, _, whole = prepare_net(ALONE)
    _, _, halved = prepare_net(ALONE, out_of_memory="halve")
    expected = [whole.step(loss, *batch(step, ALONE)).item() for step in range(3)]
    with pytest.warns(
        UserWarning,
        match=(
            f"rank 0 ran out of memory in step 1, with 1 micro-batches of {ROWS} rows: .* is made again "
            "with half"
        ),
    ):
        losses_ = [halved.step(too_large(ROWS // 2 + 1), *batch(step, ALONE)).item() for step in range(3)]
    assert losses_ == pytest.approx(expected, abs=1e-6)
    assert halved.micro_batch == ROWS // 2
    with pytest.raises(
        OutOfMemory,
        match=(
            r"rank 0 ran out of memory in step 4, with 2 micro-batches of 8 rows: .* It had been halved "
            r"before"
        ),
    ):
        halved.step(too_large(2), *batch(3, ALONE))
    _, _, resumed = prepare_net(ALONE, out_of_memory="halve")
    resumed.load_state_dict(halved.state_dict())
    with pytest.raises(OutOfMemory, match="in step 4, with 2 micro-batches of 8 rows"):
        resumed.step(too_large(2), *batch(3, ALONE))


def test_memory_that_is_not_enough_is_final_where_no_other_try_is_allowed() -> None:
    _, _, training = prepare_net(ALONE)
    with pytest.raises(
        OutOfMemory,
        match=r"rank 0 ran out of memory in step 1.*GiB of this machine's memory.*Give a smaller micro_batch",
    ):
        training.step(too_large(1), *batch(0, ALONE))


def test_a_step_that_lacks_memory_of_the_cpu_is_made_again_too() -> None:
    def hungry(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        if len(x) > ROWS // 2:
            torch.empty(2**58)
        return loss(model, x, y)

    _, _, training = prepare_net(ALONE, out_of_memory="halve")
    with pytest.warns(UserWarning, match="rank 0 ran out of memory in step 1"):
        training.step(hungry, *batch(0, ALONE))
    assert training.micro_batch == ROWS // 2


def test_a_micro_batch_of_one_row_is_not_halved() -> None:
    _, _, training = prepare_net(ALONE, micro_batch=1, out_of_memory="halve")
    with pytest.raises(
        OutOfMemory, match=r"with 16 micro-batches of 1 rows: .* A micro-batch of one row cannot be halved"
    ):
        training.step(too_large(1), *batch(0, ALONE))


def test_checkpointed_blocks_are_computed_again_in_the_backward_pass() -> None:
    model, _, training = prepare_net(ALONE, activation_checkpointing=True)
    computed: list[nn.Module] = []
    norms = [module for module in model.modules() if isinstance(module, nn.LayerNorm)]
    for norm in norms:
        norm.register_forward_hook(lambda module, *_: computed.append(module))
    training.step(loss, *batch(0, ALONE))
    assert computed == [*norms, *reversed(norms)]


def test_random_numbers_of_a_step_depend_on_the_step_alone_and_others_on_none() -> None:
    _, _, training = prepare_net(ALONE, dropout=0.5)
    torch.manual_seed(5)
    first = training.step(loss, *batch(0, ALONE)).item()
    drawn = torch.rand(3)
    torch.manual_seed(5)
    assert torch.equal(drawn, torch.rand(3))
    _, _, again = prepare_net(ALONE, dropout=0.5)
    torch.manual_seed(6)
    assert again.step(loss, *batch(0, ALONE)).item() == first


def test_a_step_that_is_left_out_leaves_the_running_statistics_as_they_were() -> None:
    model = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4))
    training = distribute(ALONE, CPU, model, torch.optim.SGD(model.parameters(), lr=0.1))
    before = [each.clone() for each in model.state_dict().values()]
    with pytest.warns(UserWarning, match="step 1 was left out: the loss of rank 0 was NaN or infinite"):
        training.step(lambda model, x, y: loss(model, x, y) * float("nan"), *batch(0, ALONE))
    assert all(torch.equal(a, b) for a, b in zip(before, model.state_dict().values(), strict=True))


def test_fp16_finds_its_scale_without_being_taken_for_diverged() -> None:
    _, _, training = prepare_net(ALONE, precision="fp16")
    state = training.state_dict()
    state["scaler"]["scale"] = 2.0**40
    training.load_state_dict(state)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for step in range(40):
            training.step(loss, *batch(step, ALONE))
    assert 1 < training.state_dict()["scaler"]["scale"] < 2.0**40


def test_initial_optimizer_state_moves_to_the_devices_of_its_parameters() -> None:
    parameter = nn.Parameter(torch.ones(3, device="meta"))
    optimizer = torch.optim.Adagrad([parameter])
    optimizer.state[parameter]["sum"] = torch.zeros(3)
    move_state(optimizer)
    assert {name: each.device.type for name, each in optimizer.state[parameter].items()} == {
        "sum": "meta",
        "step": "cpu",
    }


def test_a_training_belongs_to_the_checkpoint(tmp_path: Path) -> None:
    with halving.init("p", root=tmp_path, seed=1, system_metrics=None) as run:
        model = Net(dropout=0.2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        training = run.distribute(model, optimizer)
        run.restore(model=model, optimizer=optimizer, training=training)
        training.step(loss, *batch(0, ALONE))
        with pytest.raises(
            InvalidInput,
            match=(
                r"run.save\(model=…\) without what run.distribute\(\) returned is not accepted: add "
                r"training="
            ),
        ):
            run.save(model=model)
        with pytest.raises(InvalidInput, match=r"run.restore\(\) without what run.distribute\(\) returned"):
            run.restore()
        with pytest.raises(InvalidInput, match=r"run.distribute\(\) after run.restore\(\) is not accepted"):
            run.distribute(model, optimizer)
        run.save(model=model, optimizer=optimizer, training=training)
        expected = training.step(loss, *batch(1, ALONE)).item()
        name = run.id
    with halving.init("p", root=tmp_path, id=name, seed=1, system_metrics=None) as run:
        model = Net(dropout=0.2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        training = run.distribute(model, optimizer)
        run.restore(model=model, optimizer=optimizer, training=training)
        assert (training.steps, training.step(loss, *batch(1, ALONE)).item()) == (1, expected)
