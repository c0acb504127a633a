"""A loader hands out each row of an epoch once, in an order that any number of processes can resume."""

import gc
import os
import pickle
import threading
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from halving import Dataset, InvalidInput, NotFound, Store, StoreError
from halving.data.loader import Loader
from halving.distributed.ranks import Ranks
from tests.gangs import run_gang
from tests.sdk.conftest import Script
from tests.sdk.data.sharded import (
    arrow_file,
    counting_tables,
    flat,
    numbers,
    put_shard,
    sharded_dataset,
    snapshot,
)
from tests.waiting import wait_for

WORLDS = (1, 2, 3, 4, 6, 8)
ROWS = (61, 5, 100, 34)


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Dataset]:
    store = Store(tmp_path_factory.mktemp("loader") / "store")
    return {
        "four shards": sharded_dataset(store, *counting_tables(*ROWS)),
        "one shard": sharded_dataset(store, *counting_tables(83), name="one"),
    }


@pytest.fixture
def dataset(any_store: Store) -> Dataset:
    return sharded_dataset(any_store, *counting_tables(*ROWS))


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


def test_leaving_a_loop_ends_the_epoch_if_a_batch_was_handed_out(
    datasets: dict[str, Dataset],
) -> None:
    loader = datasets["four shards"].loader("train", batch_size=16)
    for number, _ in enumerate(loader):
        if number == 2:
            break
    assert (loader.epoch, loader.position, loader.broken_off) == (2, 0, (1, 48))
    state = loader.state_dict()
    iter(loader)
    gc.collect()
    assert loader.state_dict() == state
    second = flat(numbers(datasets["four shards"].loader("train", batch_size=16, epoch=2)))
    assert flat(numbers(loader)) == second


ONE_PASS = (
    "this loop over the loader of split 'train' of dataset points cannot go on, .* a loader has one pass "
    "at a time; open another one"
)


def zip_with_itself(loader: Loader) -> None:
    for _ in zip(loader, loader, strict=True):
        pass


def zip_with_tensors(loader: Loader) -> None:
    for _ in zip(loader, loader.torch(), strict=True):
        pass


def zip_tensors(loader: Loader) -> None:
    tensors = loader.torch()
    for _ in zip(tensors, tensors, strict=True):
        pass


def looped_in_a_loop(loader: Loader) -> None:
    for _ in loader:
        for _ in loader:
            pass


def looped_in_the_last_batch(loader: Loader) -> None:
    for number, _ in enumerate(loader):
        if number == len(loader) - 1:
            list(loader)


def looked_at_in_a_loop(loader: Loader) -> None:
    for _ in loader:
        next(iter(loader))


def begun_twice(loader: Loader) -> None:
    first = iter(loader)
    _ = iter(loader)
    next(first)


def begun_again_and_ended(loader: Loader) -> None:
    first = iter(loader)
    next(first)
    list(loader)
    next(first)


def asked_for_again(loader: Loader) -> None:
    first = iter(loader)
    next(first)
    iter(loader)
    with pytest.raises(InvalidInput):
        next(first)
    next(first)


def compared_with_a_shifted_self(loader: Loader) -> None:
    later = iter(loader)
    next(later)
    for _ in zip(loader, later, strict=False):
        pass


def looped_in_another_thread(loader: Loader) -> None:
    first = iter(loader)
    next(first)
    other = threading.Thread(target=list, args=(loader,))
    other.start()
    other.join()
    next(first)


@pytest.mark.parametrize(
    "passes",
    [
        zip_with_itself,
        zip_with_tensors,
        zip_tensors,
        looped_in_a_loop,
        looped_in_the_last_batch,
        looked_at_in_a_loop,
        begun_twice,
        begun_again_and_ended,
        asked_for_again,
        compared_with_a_shifted_self,
        looped_in_another_thread,
    ],
)
def test_a_superseded_pass_is_an_error_and_the_next_loop_is_whole(
    datasets: dict[str, Dataset], passes: Callable[[Loader], None]
) -> None:
    loader = datasets["four shards"].loader("train", batch_size=16)
    with pytest.raises(InvalidInput, match=ONE_PASS):
        passes(loader)
    gc.collect()
    epoch = loader.epoch
    assert sorted(flat(numbers(loader))) == list(range(sum(ROWS)))
    assert loader.epoch == epoch + 1


def looked_at(loader: Loader) -> list[int]:
    next(iter(loader))
    return flat(numbers(loader))


def looked_at_and_kept(loader: Loader) -> list[int]:
    look = iter(loader)
    next(look)
    return flat(numbers(loader))


def begun_and_kept(loader: Loader) -> list[int]:
    _ = iter(loader)
    return flat(numbers(loader))


def read_after_leaving(loader: Loader) -> list[int]:
    for _ in loader:
        break
    return flat(numbers(loader))


def cut_short_twice(loader: Loader) -> list[int]:
    for _ in range(2):
        assert len(list(islice(loader, 2))) == 2
    return flat(numbers(loader))


def ended_and_asked_again(loader: Loader) -> list[int]:
    first = iter(loader)
    list(first)
    rows = flat(numbers(loader))
    assert list(first) == []
    return rows


def beside_another(loader: Loader) -> list[int]:
    other = loader.plan.dataset.loader("train", batch_size=16, seed=5)
    pairs = list(zip(loader, other, strict=True))
    assert sorted(flat(numbers(batch for _, batch in pairs))) == list(range(sum(ROWS)))
    return flat(numbers(batch for batch, _ in pairs))


def given_its_state_in_a_loop(loader: Loader) -> list[int]:
    state = loader.state_dict()
    for _ in loader:
        loader.load_state_dict(state)
    return flat(numbers(loader))


def read_beside_a_copy(loader: Loader) -> list[int]:
    first = iter(loader)
    copy = pickle.loads(pickle.dumps(loader))
    assert sorted(flat(numbers(copy))) == list(range(sum(ROWS)))
    return flat(numbers(first))


def as_tensors_then_arrays(loader: Loader) -> list[int]:
    list(loader.torch())
    return flat(numbers(loader))


@pytest.mark.parametrize(
    "passes",
    [
        looked_at,
        looked_at_and_kept,
        begun_and_kept,
        read_after_leaving,
        cut_short_twice,
        ended_and_asked_again,
        beside_another,
        given_its_state_in_a_loop,
        read_beside_a_copy,
        as_tensors_then_arrays,
    ],
)
def test_a_pass_behind_another_one_has_every_row_once(
    datasets: dict[str, Dataset], passes: Callable[[Loader], list[int]]
) -> None:
    loader = datasets["four shards"].loader("train", batch_size=16)
    assert sorted(passes(loader)) == list(range(sum(ROWS)))


def test_an_iterator_fails_after_another_loop_and_ends_after_load_state_dict(
    datasets: dict[str, Dataset],
) -> None:
    loader = datasets["four shards"].loader("train", batch_size=16)
    first = iter(loader)
    next(first)
    state = loader.state_dict()
    second = iter(loader)
    with pytest.raises(InvalidInput, match="a loader has one pass at a time"):
        next(first)
    next(second)
    assert loader.epoch == 2
    loader.load_state_dict(state)
    assert list(second) == []
    assert (loader.epoch, loader.position) == (1, 16)
    assert len(list(loader)) == 12


def test_a_copy_in_another_process_goes_on_at_the_same_row(datasets: dict[str, Dataset]) -> None:
    loader = datasets["four shards"].loader("train", batch_size=16)
    iteration = iter(loader)
    next(iteration)
    copy = pickle.loads(pickle.dumps(loader))
    assert numbers(copy) == numbers(iteration)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_a_forked_child_goes_on_with_an_iterator_of_its_parent(dataset: Dataset) -> None:
    iteration = iter(dataset.loader("train", batch_size=16))
    next(iteration)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writing, repr(numbers(iteration)).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as file:
        content = file.read()
    os.waitpid(child, 0)
    assert content == repr(numbers(iteration))


# What a batch is


def test_a_batch_has_the_columns_that_were_asked_for_as_arrays(any_store: Store) -> None:
    table = pa.table(
        {
            "n": range(40),
            "s": [str(number) for number in range(40)],
            "v": pa.array([[1.0, 2.0]] * 40, pa.list_(pa.float32(), 2)),
        }
    )
    dataset = sharded_dataset(any_store, table[:15], table[15:])
    (batch,) = dataset.loader("train", batch_size=64, columns=["v", "s"])
    assert list(batch) == ["v", "s"]
    assert batch["v"].shape == (40, 2)
    assert sorted(batch["s"].tolist(), key=int) == table["s"].to_pylist()
    batch["v"][:] = 0  # it is the user's own


def test_a_transform_gets_each_batch_as_arrow_and_returns_anything(
    any_store: Store,
) -> None:
    table = pa.table(
        {"n": range(50), "s": [None if number % 7 == 0 else str(number) for number in range(50)]}
    )
    dataset = sharded_dataset(any_store, table[:20], table[20:])
    expected = numbers(dataset.loader("train", batch_size=16))
    batches = list(dataset.loader("train", batch_size=16, transform=lambda rows: rows))
    assert all(isinstance(rows, pa.RecordBatch) for rows in batches)
    assert [rows["n"].to_pylist() for rows in batches] == expected
    assert pa.Table.from_batches(batches).sort_by("n") == table
    assert list(dataset.loader("train", batch_size=16, transform=lambda rows: rows.num_rows)) == [
        16,
        16,
        9,
        9,
    ]


def test_an_error_in_a_transform_is_raised_behind_the_batches_before_it(datasets: dict[str, Dataset]) -> None:
    transformed: list[int] = []

    def transform(rows: pa.RecordBatch) -> int:
        if len(transformed) == 3:
            raise ZeroDivisionError("in the transform")
        transformed.append(rows.num_rows)
        return rows.num_rows

    loader = datasets["four shards"].loader("train", batch_size=16, transform=transform)
    iteration = iter(loader)
    assert next(iteration) == 16
    with pytest.raises(ZeroDivisionError, match="in the transform"):
        list(iteration)
    assert list(iteration) == []
    assert loader.position <= 48


# The thread


def loader_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name in ("halving-loader", "halving-shards")]


@pytest.mark.parametrize("end", ["exhausted", "left", "dropped with its loader", "error"])
def test_the_thread_ends_with_the_iteration(dataset: Dataset, end: str) -> None:
    def fails(rows: pa.RecordBatch) -> pa.RecordBatch:
        raise ZeroDivisionError

    loader: Loader | None = dataset.loader("train", batch_size=8, transform=fails if end == "error" else None)
    iteration: Iterator[Any] | None = iter(loader)  # type: ignore[arg-type]
    if end == "exhausted":
        list(iteration)  # type: ignore[arg-type]
    elif end == "error":
        with pytest.raises(ZeroDivisionError):
            next(iteration)  # type: ignore[arg-type]
    else:
        next(iteration)  # type: ignore[arg-type]
    if end == "dropped with its loader":
        loader = None
    iteration = None
    wait_for(lambda: not loader_threads(), 60, "the end of the threads")
    assert loader is None or loader.plan


def test_no_more_than_a_few_batches_are_transformed_ahead(datasets: dict[str, Dataset]) -> None:
    made: list[int] = []
    iteration = iter(
        datasets["four shards"].loader(
            "train", batch_size=1, transform=lambda rows: made.append(rows.num_rows)
        )
    )
    for handed_out in range(1, 20):
        next(iteration)
        wait_for(lambda handed_out=handed_out: len(made) >= handed_out + 4, 60, "the batches ahead")
        assert len(made) <= handed_out + 5  # one that has no room yet


@pytest.mark.slow
def test_a_script_may_end_in_the_middle_of_an_epoch(any_store: Store, script: Script) -> None:
    dataset = sharded_dataset(any_store, *counting_tables(*[50] * 20))
    done = script(
        "import sys, halving\n"
        "loader = halving.Dataset(halving.Store(), 'points', sys.argv[1]).loader('train', batch_size=1, "
        "lanes=4)\n"
        "for batch in loader: break\n"
        "iteration = iter(loader)\n"
        "next(iteration)\n"
        "copy = iter(halving.Dataset(halving.Store(), 'points', sys.argv[1]).loader('train', batch_size=1, "
        "lanes=2))\n",
        dataset.digest,
    )
    assert (done.returncode, done.stderr) == (0, "")


# What is refused


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch_size": 0}, "batch_size = 0 is not accepted: give a whole number of at least 1"),
        ({"batch_size": 8.0}, r"batch_size = 8\.0"),
        ({"batch_size": True}, "batch_size = True"),
        ({"batch_size": 8, "lanes": 0}, "lanes = 0"),
        ({"batch_size": 8, "seed": -1}, "seed = -1"),
        ({"batch_size": 8, "epoch": 0}, "epoch = 0"),
        ({"batch_size": 8, "shuffle": False, "lanes": 2}, "lanes = 2 with shuffle=False"),
        ({"batch_size": 8, "columns": "n"}, "columns = 'n' is not accepted: give a list"),
        (
            {"batch_size": 8, "columns": ["m"]},
            "columns = 'm' is not accepted: split 'train' of dataset points has n",
        ),
        ({"batch_size": 8, "rank": 1}, "rank = 1 with world_size = None"),
        ({"batch_size": 8, "rank": 2, "world_size": 2}, "rank = 2 with world_size = 2"),
        (
            {"batch_size": 7, "rank": 0, "world_size": 8},
            "batch_size = 7 .* each of 8 ranks needs a row of it; give at least 8",
        ),
        (
            {"batch_size": 9, "rank": 0, "world_size": 8},
            "leaves 2 for the last one, .* 8 ranks; give drop_last=True, or .* at least 16",
        ),
        ({"batch_size": 201, "drop_last": True}, "has 200 rows: not one batch for 1 ranks"),
    ],
    ids=lambda value: "-".join(map(str, value.values())) if isinstance(value, dict) else "",
)
def test_a_value_that_makes_no_sense_is_named_with_what_does(
    datasets: dict[str, Dataset], arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        datasets["four shards"].loader("train", **arguments)


NO_VALUE = (
    "for which NumPy has no value: fill them in transform=…, which is given Arrow, or in the dataset's "
    "transform, or leave the column out"
)
WITHIN = (
    "within its lists, which a loader does not read: fill them in the dataset's transform, or leave the "
    "column out by columns=[…]"
)


def last_of(values: list[Any], kind: pa.DataType) -> pa.Table:
    """60 rows, of which the last have these values, and the others the first of them."""
    return pa.table({"n": range(60), "x": pa.array([values[0]] * (60 - len(values)) + values, kind)})


@pytest.mark.parametrize(
    ("values", "kind", "what"),
    [
        ([1, None], pa.int64(), "is of type int64 and has 1 null, " + NO_VALUE),
        ([1, None, 2, None], pa.uint8(), "is of type uint8 and has 2 nulls, " + NO_VALUE),
        ([True, None], pa.bool_(), "is of type bool and has 1 null, " + NO_VALUE),
        ([3, None], pa.date32(), "is of type date32[day] and has 1 null, " + NO_VALUE),
        ([3, None], pa.time32("s"), "is of type time32[s] and has 1 null, " + NO_VALUE),
        ([3, None], pa.time64("us"), "is of type time64[us] and has 1 null, " + NO_VALUE),
        ([b"abcd", None], pa.binary(4), "is of type fixed_size_binary[4] and has 1 null, " + NO_VALUE),
        (
            [[1, 2], None],
            pa.list_(pa.int16(), 2),
            "is of type fixed_size_list<item: int16>[2] and has 1 null, " + NO_VALUE,
        ),
        ([[1], [1, None]], pa.list_(pa.int64()), "is of type list<item: int64> and has 1 null " + WITHIN),
        (
            [[1.0], [None, None]],
            pa.large_list(pa.float64()),
            "is of type large_list<item: double> and has 2 nulls " + WITHIN,
        ),
        (
            [[1.0, 2.0], [None, 1.0]],
            pa.list_(pa.float32(), 2),
            "is of type fixed_size_list<item: float>[2] and has 1 null " + WITHIN,
        ),
        ([[[1], [2]], [None, [3]]], pa.list_(pa.list_(pa.int8(), 1), 2), "[2] and has 1 null " + WITHIN),
    ],
)
@pytest.mark.parametrize("with_transform", [False, True])
def test_a_null_that_a_batch_could_not_have_is_refused_when_the_loader_is_opened(
    store: Store, values: list[Any], kind: pa.DataType, what: str, with_transform: bool
) -> None:
    table = last_of(values, kind)
    dataset = sharded_dataset(store, table[:30], table[30:])
    if with_transform and WITHIN not in what:
        rows = list(dataset.loader("train", batch_size=16, transform=lambda rows: rows))
        assert pa.Table.from_batches(rows).sort_by("n") == table
    else:
        with pytest.raises(InvalidInput) as raised:
            dataset.loader("train", batch_size=16, transform=(lambda rows: rows) if with_transform else None)
        assert str(raised.value).startswith("column 'x' of split 'train' of dataset points is of type ")
        assert what in str(raised.value)
    assert sorted(flat(numbers(dataset.loader("train", batch_size=16, columns=["n"])))) == list(range(60))


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([0.5, None, float("nan")], pa.float64()),
        ([0.5, None], pa.float16()),
        ([7, None], pa.timestamp("us", "UTC")),
        ([7, None], pa.duration("s")),
        ([7, None], pa.date64()),
        (["a", None], pa.string()),
        ([b"a", None], pa.large_binary()),
        ([[1], None, []], pa.list_(pa.int64())),
        ([[1.0, 2.0], None], pa.list_(pa.float32(), 2)),
        ([1, 2], pa.int64()),
        ([[1], [float("nan")]], pa.list_(pa.float64())),
    ],
)
def test_a_null_that_has_a_value_in_numpy_is_read(store: Store, values: list[Any], kind: pa.DataType) -> None:
    table = last_of(values, kind)
    dataset = sharded_dataset(store, table[:30], table[30:])
    assert sorted(flat(numbers(dataset.loader("train", batch_size=16)))) == list(range(60))


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([["a"]], pa.list_(pa.string())),
        ([{"a": 1}], pa.struct({"a": pa.int64()})),
        ([[{"a": 1}]], pa.list_(pa.struct({"a": pa.int64()}))),
        ([1], pa.decimal128(5)),
        ([[("k", 1)]], pa.map_(pa.string(), pa.int64())),
        ([[[1]]], pa.list_(pa.list_(pa.int64()))),
    ],
)
def test_a_column_of_a_type_that_is_not_read_is_refused_when_the_loader_is_opened(
    store: Store, values: list[Any], kind: pa.DataType
) -> None:
    dataset = sharded_dataset(store, last_of(values, kind))
    message = (
        "column 'x' of split 'train' of dataset points is of type .*, or give it another form in the "
        "dataset's transform"
    )
    with pytest.raises(InvalidInput, match=message):
        dataset.loader("train", batch_size=16)
    assert sorted(flat(numbers(dataset.loader("train", batch_size=16, columns=["n"])))) == list(range(60))


def test_only_nulls_of_the_splits_that_are_read_refuse_a_loader(store: Store) -> None:
    whole, holed = (
        put_shard(store, arrow_file(last_of(values, pa.int64())), 60) for values in ([1, 2], [1, None])
    )
    dataset = snapshot(store, {"train": [whole], "validation": [holed], "test": [whole]})
    assert len(list(dataset.loader("train", batch_size=16))) == 4
    with pytest.raises(
        InvalidInput,
        match="column 'x' of split 'validation' of dataset points is of type int64 and has 1 null, ",
    ):
        dataset.loader("validation", batch_size=16)
    both = Dataset(store, dataset.name, dataset.digest, train_on=("train", "validation"))
    with pytest.raises(
        InvalidInput,
        match=r"column 'x' of split 'train\+validation' of dataset points is of type int64 and has 1 null, ",
    ):
        both.loader("train", batch_size=16)
    folded = snapshot(store, {"fold-0": [whole], "fold-1": [holed], "test": [holed]}, "folded")
    assert len(list(folded.loader("validation", batch_size=16, fold=0))) == 4
    assert len(list(folded.loader("train", batch_size=16, fold=1))) == 4
    for split, fold in (("train", 0), ("validation", 1), ("test", None)):
        with pytest.raises(
            InvalidInput,
            match=f"column 'x' of split '{split}.* of dataset folded is of type int64 and has 1 null, ",
        ):
            folded.loader(split, batch_size=16, fold=fold)


def test_a_text_that_is_not_utf_8_is_named_by_its_column(store: Store) -> None:
    table = pa.table({"n": range(2), "x": pa.array([b"a", b"caf\xe9"]).view(pa.string())})
    loader = sharded_dataset(store, table).loader("train", batch_size=2)
    with pytest.raises(
        InvalidInput,
        match=r"column 'x' of type string has b'caf\\xe9', which is not UTF-8: make it text or binary in",
    ):
        list(loader)
    (rows,) = sharded_dataset(store, table).loader("train", batch_size=2, transform=lambda rows: rows)
    assert rows["x"].view(pa.binary()).to_pylist() == [b"a", b"caf\xe9"]


def test_an_empty_split_and_one_that_is_not_there_are_refused(dataset: Dataset) -> None:
    with pytest.raises(InvalidInput, match="split 'none' of dataset points is empty"):
        dataset.loader("none", batch_size=8)
    with pytest.raises(NotFound, match=r"dataset points has no split 'valid'; it has \['none', 'train'\]"):
        dataset.loader("valid", batch_size=8)


@pytest.mark.parametrize("changed", ["digest", "split", "seed", "shuffle", "lanes"])
def test_a_state_of_another_order_is_refused_and_changes_nothing(store: Store, changed: str) -> None:
    shards = [put_shard(store, arrow_file(table), table.num_rows) for table in counting_tables(50, 50)]
    dataset = snapshot(store, {"train": shards, "test": shards[:1]})
    loader = dataset.loader("train", batch_size=16)
    other = {
        "digest": lambda: snapshot(store, {"train": shards[:1]}, "points").loader("train", batch_size=16),
        "split": lambda: dataset.loader("test", batch_size=16),
        "seed": lambda: dataset.loader("train", batch_size=16, seed=1),
        "shuffle": lambda: dataset.loader("train", batch_size=16, shuffle=False),
        "lanes": lambda: dataset.loader("train", batch_size=16, lanes=2),
    }[changed]()
    before = loader.state_dict()
    with pytest.raises(
        InvalidInput, match=f"the state of a loader with {changed} = .* is not accepted for split 'train'"
    ):
        loader.load_state_dict({**other.state_dict(), "position": 7})
    assert loader.state_dict() == before
    with pytest.raises(InvalidInput, match="the state of a loader without 'epoch'"):
        loader.load_state_dict({})
    with pytest.raises(
        InvalidInput, match="position = 101 is not accepted: split 'train' of dataset points has 100 rows"
    ):
        loader.load_state_dict({**before, "position": 101})
    assert loader.state_dict() == before


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


# Faults of the shards


def test_a_shard_that_is_missing_or_has_another_size_is_named(store: Store) -> None:
    dataset = sharded_dataset(store, *counting_tables(50, 50, 50))
    missing, short = (
        store.path(shard.name) for shard in dataset.loader("train", batch_size=8).plan.shards[1:]
    )
    os.truncate(short, 100)
    with pytest.raises(
        StoreError,
        match=(
            f"the shard {Path(short).relative_to(store.root)} of the store .* is damaged .*: it has 100 bytes"
        ),
    ):
        list(dataset.loader("train", batch_size=8, lanes=3))
    Path(short).unlink()
    Path(missing).unlink()
    with pytest.raises(NotFound, match=r"the shard shards/sha256/.* is missing from the store"):
        list(dataset.loader("train", batch_size=8, lanes=3))


def test_a_shard_whose_bytes_are_no_arrow_file_any_more_is_named(any_store: Store) -> None:
    tables = counting_tables(50, 50)
    good = put_shard(any_store, arrow_file(tables[0]), 50)
    bad = put_shard(any_store, b"x" * 1000, 50)
    dataset = snapshot(any_store, {"train": [good, bad]})
    with pytest.raises(StoreError, match=f"the shard {bad.name} of the store .* is damaged"):
        list(dataset.loader("train", batch_size=8))
    other = put_shard(any_store, arrow_file(tables[1]), 49)
    with pytest.raises(StoreError, match=r"is damaged .*: it has 50 rows, not 49"):
        list(snapshot(any_store, {"train": [good, other]}).loader("train", batch_size=8))


def test_memory_does_not_grow_with_the_number_of_rows() -> None:
    """The order of 10 TB in 80,000 shards of a million rows is a few numbers for each shard."""
    from halving.data.order import Order

    order = Order([1_000_000] * 80_000, seed=0, epoch=1, lanes=16)
    held = sum(value.nbytes for value in vars(order).values() if isinstance(value, np.ndarray))
    assert held < 80_000 * 50
