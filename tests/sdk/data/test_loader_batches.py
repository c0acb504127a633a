"""Batches of a loader, the thread that reads them ahead, and faulty shards, which are named."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from halving import Dataset, NotFound, Store, StoreError
from halving.data.loader import Loader
from tests.sdk.conftest import Script
from tests.sdk.data.sharded import (
    arrow_file,
    counting_tables,
    numbers,
    put_shard,
    sharded_dataset,
    snapshot,
)
from tests.waiting import wait_for

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
