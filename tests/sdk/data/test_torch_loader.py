"""PyTorch's workers prepare a loader's batches without changing them or what counts as handed out."""

import multiprocessing
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from halving import Dataset, InvalidInput, Store
from halving.data.loader import Loader
from tests.sdk.data.sharded import counting_tables, flat, numbers, sharded_dataset

pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create.*:UserWarning"),  # more workers than cores
    pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning"),
]
SLOW = pytest.mark.slow  # each worker is a process
STARTED = [(1, "fork"), (2, "fork"), (3, "fork"), (2, "forkserver"), (2, "spawn")]
WORKERS = [(0, None), *(pytest.param(workers, start, marks=SLOW) for workers, start in STARTED)]


def of_torch(loader: Loader, workers: int, start: str | None, **options: Any) -> Any:
    return loader.torch(workers, multiprocessing_context=start, **options)


@pytest.fixture
def dataset(any_store: Store) -> Dataset:
    return sharded_dataset(any_store, *counting_tables(61, 5, 100))


@pytest.mark.parametrize(("workers", "start"), WORKERS)
def test_the_number_of_workers_changes_neither_the_batches_nor_their_order(
    dataset: Dataset, workers: int, start: str | None
) -> None:
    expected = dataset.loader("train", batch_size=16)
    loader = dataset.loader("train", batch_size=16)
    batches = of_torch(loader, workers, start)
    assert len(batches) == len(loader) == 11
    for epoch in (1, 2):
        assert loader.epoch == epoch
        assert numbers(batches) == numbers(expected)
    assert loader.state_dict() == expected.state_dict()


@pytest.mark.parametrize(
    ("workers", "start"),
    [(0, None), pytest.param(2, "fork", marks=SLOW), pytest.param(3, "forkserver", marks=SLOW)],
)
def test_batches_prepared_ahead_by_workers_do_not_count_for_a_resume(
    store: Store, workers: int, start: str | None
) -> None:
    dataset = sharded_dataset(store, *counting_tables(61, 5, 100))
    expected = numbers(dataset.loader("train", batch_size=16))
    loader = dataset.loader("train", batch_size=16)
    batches = of_torch(loader, workers, start)
    iteration = iter(batches)
    batches_before = [next(iteration)["n"].tolist() for _ in range(4)]
    assert batches.state_dict() == loader.state_dict()
    assert (loader.epoch, loader.position) == (1, 64)
    again = of_torch(dataset.loader("train", batch_size=16), workers, start)
    again.load_state_dict(loader.state_dict())
    assert batches_before + numbers(again) == expected


@pytest.mark.slow
def test_workers_that_stay_get_the_epoch_and_the_position_of_each_iteration(store: Store) -> None:
    dataset = sharded_dataset(store, *counting_tables(61, 5, 100))
    loader = dataset.loader("train", batch_size=16)
    batches = of_torch(loader, 2, "fork", persistent_workers=True)
    for number, _ in enumerate(batches):
        if number == 3:
            break
    before = {child.pid for child in multiprocessing.active_children()}
    expected = dataset.loader("train", batch_size=16, epoch=2)
    assert numbers(batches) == numbers(expected)
    loader.load_state_dict({**loader.state_dict(), "epoch": 7, "position": 32})
    expected.load_state_dict({**loader.state_dict(), "epoch": 7, "position": 32})
    assert numbers(batches) == numbers(expected)
    assert {child.pid for child in multiprocessing.active_children()} == before != set()


@pytest.mark.parametrize(("workers", "start"), [(0, None), pytest.param(2, "fork", marks=SLOW)])
def test_ranks_share_each_global_batch(store: Store, workers: int, start: str | None) -> None:
    dataset = sharded_dataset(store, *counting_tables(61, 5, 100))
    shares = [
        numbers(of_torch(dataset.loader("train", batch_size=16, rank=rank, world_size=3), workers, start))
        for rank in range(3)
    ]
    assert [flat(parts) for parts in zip(*shares, strict=True)] == numbers(
        dataset.loader("train", batch_size=16)
    )


@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=SLOW)])
def test_numbers_are_tensors_and_text_is_lists(store: Store, workers: int) -> None:
    table = pa.table(
        {
            "x": pa.array([[1.0, 2.0]] * 3, pa.list_(pa.float32(), 2)),
            "y": pa.array([1, 2, 3], pa.uint16()),
            "b": [True, False, True],
            "t": pa.array([1, 2, 3], pa.timestamp("s")),
            "s": ["a", None, "b"],
            "l": [[1], [], None],
            "moments": pa.array([[1, 2], [], None], pa.list_(pa.timestamp("s"))),
            "spans": pa.array([[1], None, [2]], pa.large_list(pa.duration("us"))),
        }
    )
    (batch,) = sharded_dataset(store, table).loader("train", batch_size=8, shuffle=False).torch(workers)
    assert torch.equal(batch["x"], torch.tensor([[1.0, 2.0]] * 3))
    assert (batch["y"].dtype, batch["y"].tolist()) == (torch.uint16, [1, 2, 3])
    assert torch.equal(batch["b"], torch.tensor([True, False, True]))
    assert torch.equal(batch["t"], torch.tensor([1, 2, 3]))
    assert batch["s"] == ["a", None, "b"]
    lists = {
        name: [items if items is None else items.tolist() for items in batch[name]]
        for name in ("l", "moments", "spans")
    }
    assert lists == {"l": [[1], [], None], "moments": [[1, 2], [], None], "spans": [[1], None, [2]]}


def pairs(rows: pa.RecordBatch) -> tuple[np.ndarray[Any, Any], list[str]]:
    return rows["n"].to_numpy() * 2, [str(value) for value in rows["n"].to_pylist()]


@pytest.mark.parametrize(
    ("workers", "start"),
    [(0, None), pytest.param(2, "fork", marks=SLOW), pytest.param(2, "forkserver", marks=SLOW)],
)
def test_what_a_transform_returns_has_tensors_for_its_arrays(
    store: Store, workers: int, start: str | None
) -> None:
    dataset = sharded_dataset(store, *counting_tables(20, 20))
    loader = dataset.loader("train", batch_size=16, transform=pairs)
    for doubled, texts in of_torch(loader, workers, start):
        assert isinstance(doubled, torch.Tensor)
        assert [str(value) for value in (doubled // 2).tolist()] == list(texts)


def texts_and_times(rows: pa.RecordBatch) -> dict[str, Any]:
    numbers = rows["n"].to_pylist()
    times = np.array(numbers, "datetime64[s]")
    lists = np.empty(len(numbers), object)
    lists[:] = [times[:place] for place in range(len(numbers))]
    return {
        "texts": np.array([f"row {number}" for number in numbers]),
        "bytes": np.array([b"a"] * len(numbers)),
        "times": lists,
    }


def test_texts_and_lists_of_times_that_a_transform_returns_are_lists(store: Store) -> None:
    dataset = sharded_dataset(store, *counting_tables(3))
    (batch,) = dataset.loader("train", batch_size=3, shuffle=False, transform=texts_and_times).torch()
    assert (batch["texts"], batch["bytes"]) == (["row 0", "row 1", "row 2"], [b"a"] * 3)
    assert [times.tolist() for times in batch["times"]] == [[], [0], [0, 1]]


@pytest.mark.parametrize(
    ("option", "remedy"),
    [
        ({"num_workers": 4}, r"num_workers = 4 is not accepted by loader.torch: give workers="),
        ({"batch_size": 8}, r"batch_size = 8 is not accepted by loader.torch: give it to dataset.loader"),
        ({"shuffle": True}, r"shuffle = True is not accepted by loader.torch: give it to dataset.loader"),
        ({"sampler": [0]}, r"sampler = \[0\] is not accepted by loader.torch: each rank has its share"),
    ],
)
def test_an_option_of_dataloader_that_the_loader_has_itself_is_refused_with_the_way(
    store: Store, option: dict[str, Any], remedy: str
) -> None:
    with pytest.raises(InvalidInput, match=remedy):
        sharded_dataset(store, *counting_tables(3)).loader("train", batch_size=3).torch(**option)


def fails(rows: pa.RecordBatch) -> None:
    raise InvalidInput("in the transform")


@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=SLOW)])
def test_an_error_in_a_worker_is_raised_as_it_is(store: Store, workers: int) -> None:
    loader = sharded_dataset(store, *counting_tables(20)).loader("train", batch_size=16, transform=fails)
    with pytest.raises(InvalidInput, match="in the transform"):
        list(loader.torch(workers))
    assert loader.position == 0
