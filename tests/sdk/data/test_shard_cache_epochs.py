"""Epochs are read through the cache in the same order, also while the store is away or the cache is small."""

import os
import re
import threading
from pathlib import Path

import pytest

from halving import Dataset, Store
from halving.data.order import Order
from halving.errors import StoreUnavailable
from halving.store.deadline import Deadline
from tests.s3 import S3, Gate
from tests.sdk.data.cached import names
from tests.sdk.data.sharded import (
    counting_tables,
    flat,
    numbers,
    sharded_dataset,
)
from tests.waiting import wait_for


def test_the_second_epoch_is_read_from_this_machine(remote: Store, s3_gate: Gate, folder: Path) -> None:
    dataset = sharded_dataset(remote, *counting_tables(61, 5, 100))
    loader = dataset.loader("train", batch_size=16)
    first = flat(numbers(loader))
    assert len(names(folder)) == 3
    dataset.deadline = Deadline.after(0)
    s3_gate.shut()
    second = flat(numbers(loader))
    assert sorted(first) == sorted(second) == list(range(166))
    again = dataset.loader("train", batch_size=16)
    assert flat(numbers(again)) == first


def test_the_next_epoch_begins_without_the_store_though_the_cache_is_too_small(
    remote: Store, s3_gate: Gate, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = sharded_dataset(remote, *counting_tables(*[50] * 12))
    shards = dataset.shards("train")
    monkeypatch.setenv("HALVING_CACHE_BYTES", str(8 * max(shard.bytes for shard in shards)))
    # Shards have many times more rows than are read at once.
    monkeypatch.setattr("halving.data.loader_plan._BLOCK_ROWS", 10)

    def needs(seed: int, epoch: int) -> list[int]:
        return Order([50] * 12, seed=seed, epoch=epoch, lanes=2).needs()[1].tolist()

    # Those that the second epoch begins with are what the first has used longest ago.
    seed = next(seed for seed in range(10_000) if set(needs(seed, 2)[:2]) == set(needs(seed, 1)[:2]))
    loader = dataset.loader("train", batch_size=2, lanes=2, seed=seed)
    numbers(loader)
    first = {shards[number].sha256 for number in needs(seed, 2)[:2]}
    wait_for(lambda: first <= set(names(folder)), 60, "the shards with which the next epoch begins")
    s3_gate.shut()
    dataset.deadline = Deadline.after(0)
    assert loader.epoch == 2
    assert len(next(iter(loader))["n"]) == 2


@pytest.mark.usefixtures("soon")
def test_an_outage_and_its_end_are_each_said_once_whatever_threads_meet_it(
    remote: Store, s3_gate: Gate
) -> None:
    dataset = sharded_dataset(remote, *counting_tables(*[40] * 12))
    loader = dataset.loader("train", batch_size=8, lanes=4)
    s3_gate.shut()
    with pytest.warns(UserWarning, match="halving: dataset points ") as warned:
        iteration = iter(loader)
        wait_for(lambda: dataset.outage._waiting > 2, 60, "several threads that wait")
        s3_gate.open()
        assert len(flat(numbers(iteration))) == 480
        wait_for(lambda: len(warned.list) > 1, 60, "the word that it is over")
    messages = [str(warning.message) for warning in warned]
    assert len(messages) == 2, messages
    assert re.match(
        rf"halving: dataset points waits for the store {re.escape(remote.root)}, up to \d+ s: ", messages[0]
    )
    assert re.fullmatch(
        rf"halving: dataset points goes on: the store {re.escape(remote.root)} answers again after \d+ s",
        messages[1],
    )


@pytest.mark.usefixtures("soon")
def test_a_store_that_is_away_in_mid_epoch_is_waited_for_and_the_order_is_the_same(
    s3: S3, remote: Store, s3_gate: Gate
) -> None:
    dataset = sharded_dataset(remote, *counting_tables(*[40] * 12))
    through = Store(remote.root.replace(s3_gate.endpoint, s3.endpoint))
    expected = flat(
        numbers(Dataset(through, "points", dataset.digest).loader("train", batch_size=8, lanes=1))
    )
    for path in Path(os.environ["HALVING_CACHE"]).rglob("*"):
        if path.is_file():
            path.unlink()
    iteration = iter(dataset.loader("train", batch_size=8, lanes=1))
    batches = [next(iteration)["n"].tolist()]
    with pytest.warns(UserWarning, match="dataset points (waits for|goes on: the store)"):
        s3_gate.shut()
        threading.Timer(3, s3_gate.open).start()
        batches += numbers(iteration)
    assert flat(batches) == expected


def test_a_loop_that_is_left_while_the_store_is_away_ends_its_threads(remote: Store, s3_gate: Gate) -> None:
    dataset = sharded_dataset(remote, *counting_tables(*[40] * 30))
    loader = dataset.loader("train", batch_size=8, lanes=1)
    with pytest.warns(UserWarning, match="dataset points waits for the store") as warned:
        for _ in loader:
            s3_gate.shut()
            wait_for(lambda: warned.list, 60, "the thread that meets the outage")
            break
        wait_for(
            lambda: not [thread for thread in threading.enumerate() if thread.name == "halving-loader"],
            60,
            "the end of the thread",
        )
    dataset.deadline = Deadline.after(0)
    with pytest.raises(StoreUnavailable):
        list(loader)


def test_a_cache_that_is_too_small_for_the_lanes_changes_nothing_in_the_order(
    remote: Store, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = sharded_dataset(remote, *counting_tables(*[50] * 8))
    expected = numbers(dataset.loader("train", batch_size=16))
    for path in folder.iterdir():
        path.unlink()
    monkeypatch.setenv(
        "HALVING_CACHE_BYTES",
        str(3 * max(shard.bytes for shard in dataset.loader("train", batch_size=1).plan.shards)),
    )
    with pytest.warns(UserWarning, match="so they are held in memory"):
        assert numbers(dataset.loader("train", batch_size=16)) == expected
    assert len(names(folder)) <= 3
