"""A loader hands out each row of an epoch once, in an order that any number of processes can resume."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from halving import Dataset, InvalidInput
from halving.data.order import Order
from halving.distributed.ranks import Ranks
from tests.gangs import run_gang
from tests.sdk.data.sharded import (
    ROWS,
    flat,
    numbers,
)

WORLDS = (1, 2, 3, 4, 6, 8)


def together(
    dataset: Dataset,
    world_size: int,
    state: dict[str, Any] | None = None,
    limit: int | None = None,
    **arguments: Any,
) -> Any:
    """The global batches that all ranks have of an epoch, and the state they end with: the same for all."""
    loaders = [
        dataset.loader("train", rank=rank, world_size=world_size, **arguments) for rank in range(world_size)
    ]
    for loader in loaders:
        if state is not None:
            loader.load_state_dict(state)
    shares: list[list[list[int]]] = []
    states = []
    for loader in loaders:
        iteration = iter(loader)
        taken = []
        while limit is None or len(taken) < limit:
            try:
                taken.append(next(iteration)["n"].tolist())
            except StopIteration:
                break
        shares.append(taken)
        states.append(loader.state_dict())
    assert all(state == states[0] for state in states)
    assert all(len(taken) == len(shares[0]) for taken in shares)
    assert all(share for taken in shares for share in taken)
    return [flat(parts) for parts in zip(*shares, strict=True)], states[0]


@given(
    name=st.sampled_from(["four shards", "one shard"]),
    worlds=st.tuples(st.sampled_from(WORLDS), st.sampled_from(WORLDS)),
    batch_size=st.integers(16, 60),
    lanes=st.integers(1, 20),
    seed=st.integers(0, 5),
    epoch=st.integers(1, 3),
    shuffle=st.booleans(),
    data=st.data(),
)
def test_the_global_batches_are_the_same_for_any_number_of_ranks_from_any_point(
    datasets: dict[str, Dataset],
    name: str,
    worlds: tuple[int, int],
    batch_size: int,
    lanes: int,
    seed: int,
    epoch: int,
    shuffle: bool,
    data: st.DataObject,
) -> None:
    dataset = datasets[name]
    arguments: dict[str, Any] = {"batch_size": batch_size, "seed": seed, "epoch": epoch, "shuffle": shuffle}
    arguments |= {"lanes": lanes} if shuffle else {}
    whole, _ = together(dataset, 1, **arguments)
    assert sorted(flat(whole)) == list(range(dataset.splits["train"]))
    assert shuffle or flat(whole) == list(range(dataset.splits["train"]))
    taken = data.draw(st.integers(0, len(whole)))
    before, state = together(dataset, worlds[0], limit=taken, **arguments)
    after, _ = together(dataset, worlds[1], state, **arguments)
    assert before + after == whole


@pytest.mark.parametrize("first", WORLDS)
def test_an_epoch_resumed_with_another_number_of_ranks_has_each_row_once(
    datasets: dict[str, Dataset], first: int
) -> None:
    dataset = datasets["four shards"]
    whole, _ = together(dataset, 1, batch_size=24)
    before, state = together(dataset, first, limit=4, batch_size=24)
    assert (state["epoch"], state["position"]) == (1, 96)
    assert before == whole[:4]
    for then in WORLDS:
        after, _ = together(dataset, then, state, batch_size=24)
        assert after == whole[4:], then
        assert sorted(flat(before + after)) == list(range(sum(ROWS))), then


@pytest.mark.parametrize("world_size", WORLDS)
def test_the_global_batches_of_several_epochs_are_the_same_for_each_number_of_ranks(
    datasets: dict[str, Dataset], world_size: int
) -> None:
    dataset = datasets["four shards"]
    for epoch in (1, 2):
        whole, _ = together(dataset, 1, batch_size=24, epoch=epoch)
        batches, _ = together(dataset, world_size, batch_size=24, epoch=epoch)
        assert batches == whole
        assert sorted(flat(batches)) == list(range(sum(ROWS)))


@given(
    sizes=st.tuples(st.integers(16, 60), st.integers(16, 60)),
    taken=st.integers(0, 4),
    worlds=st.sampled_from([(1, 8), (8, 3), (2, 2)]),
)
def test_with_another_batch_size_it_goes_on_with_the_next_row(
    datasets: dict[str, Dataset], sizes: tuple[int, int], taken: int, worlds: tuple[int, int]
) -> None:
    dataset = datasets["four shards"]
    whole = flat(together(dataset, 1, batch_size=sizes[0])[0])
    before, state = together(dataset, worlds[0], limit=taken, batch_size=sizes[0])
    after, _ = together(dataset, worlds[1], state, batch_size=sizes[1])
    rows = flat(before + after)
    assert rows == whole[: len(rows)]
    assert len(whole) - len(rows) < worlds[1]  # only where they are too few for a row of each rank


def test_each_iteration_is_the_next_epoch_with_all_rows_in_another_order(dataset: Dataset) -> None:
    loader = dataset.loader("train", batch_size=32)
    epochs = [flat(numbers(loader)) for _ in range(3)]
    assert loader.epoch == 4
    assert all(sorted(epoch) == list(range(sum(ROWS))) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3
    assert flat(numbers(dataset.loader("train", batch_size=50, epoch=2))) == epochs[1]


def test_the_length_is_that_of_a_whole_epoch_and_what_is_left_is_counted_beside_it(
    datasets: dict[str, Dataset],
) -> None:
    loader = datasets["four shards"].loader("train", batch_size=32)
    assert (len(loader), loader.left) == (7, 7)
    iteration = iter(loader)
    next(iteration)
    assert (len(loader), loader.left) == (7, 6)
    assert len(list(iteration)) == 6
    assert (len(loader), loader.left) == (7, 7)
    assert len(datasets["four shards"].loader("train", batch_size=32, drop_last=True)) == 6


def test_the_state_counts_what_was_handed_out_and_not_what_was_read_ahead(
    datasets: dict[str, Dataset],
) -> None:
    loader = datasets["four shards"].loader("train", batch_size=16)
    iteration = iter(loader)
    for handed_out in range(1, 6):
        next(iteration)
        assert (loader.epoch, loader.position) == (1, 16 * handed_out)
    assert loader.state_dict() == {
        "epoch": 1,
        "position": 80,
        "digest": datasets["four shards"].digest,
        "split": "train",
        "seed": 0,
        "shuffle": True,
        "lanes": 16,
    }


# Ranks


def test_ranks_are_those_of_torchruns_environment(
    datasets: dict[str, Dataset], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    second = numbers(datasets["one shard"].loader("train", batch_size=16))
    whole = numbers(datasets["one shard"].loader("train", batch_size=16, rank=0, world_size=1))
    assert second == [batch[len(batch) // 2 :] for batch in whole]
    monkeypatch.setenv("WORLD_SIZE", "many")
    with pytest.raises(InvalidInput, match="RANK or WORLD_SIZE"):
        datasets["one shard"].loader("train", batch_size=16)


def share_of(_: Ranks, dataset: Dataset) -> list[list[int]]:
    return numbers(dataset.loader("train", batch_size=16))


@pytest.mark.slow
def test_ranks_are_those_of_torch_distributed(datasets: dict[str, Dataset]) -> None:
    shares = run_gang(2, share_of, datasets["one shard"])
    assert [flat(parts) for parts in zip(*shares, strict=True)] == numbers(
        datasets["one shard"].loader("train", batch_size=16)
    )


def test_memory_does_not_grow_with_the_number_of_rows() -> None:
    """The order of 10 TB in 80,000 shards of a million rows is a few numbers for each shard."""
    order = Order([1_000_000] * 80_000, seed=0, epoch=1, lanes=16)
    size = sum(value.nbytes for value in vars(order).values() if isinstance(value, np.ndarray))
    assert size < 80_000 * 50
