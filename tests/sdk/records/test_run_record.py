"""A run's record: complete from the start, and never changed."""

import math
import multiprocessing
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from halving import AlreadyExists, InvalidInput, NotFound, Store
from halving.records.run_record import RunRecords, SavedCheckpoint
from halving.store.json_files import to_json

BEGAN: dict[str, Any] = {"started": "2026-01-01T00:00:00.000+00:00", "seed": 1}
PROCESSES = 4


@pytest.fixture
def store(any_store: Store) -> Store:
    """Everything here holds for every kind of store."""
    return any_store


@pytest.fixture
def records(store: Store) -> RunRecords:
    return RunRecords(store, "p", "r")


def test_the_record_is_complete_when_start_returns(records: RunRecords) -> None:
    assert records.start({"lr": 0.1}, {"sweep": "s"}, None, BEGAN) == 1
    record = records.read()
    assert {
        **BEGAN,
        "project": "p",
        "run": "r",
        "params": {"lr": 0.1},
        "parent": {"sweep": "s"},
        "attempt": 1,
    }.items() <= record.items()


def test_a_resume_is_the_next_attempt_and_leaves_the_record_as_it_was(records: RunRecords) -> None:
    records.start({"lr": 0.1}, {}, None, BEGAN)
    before = records.store.read("runs/project=p/r/record.json")
    assert [records.start({"lr": 0.1}, {}, None, {"started": "later"}) for _ in range(3)] == [2, 3, 4]
    assert records.store.read("runs/project=p/r/record.json") == before
    assert records.store.names("runs/project=p/r") == [
        "record.json",
        "start-0002.json",
        "start-0003.json",
        "start-0004.json",
    ]


def test_params_never_change(records: RunRecords) -> None:
    records.start({"lr": 0.1, "layers": [1, 2]}, {}, None, BEGAN)
    for changed in ({"lr": 0.2, "layers": [1, 2]}, {"lr": 0.1}, {"lr": 0.1, "layers": [2, 1]}, {}):
        with pytest.raises(AlreadyExists, match=r"'r' already has the params .*'lr': 0\.1"):
            records.start(changed, {}, None, BEGAN)
    assert records.read()["params"] == {"lr": 0.1, "layers": [1, 2]}


@pytest.mark.parametrize(
    ("params", "again"),
    [
        ({"a": math.nan, "b": math.inf}, {"a": math.nan, "b": math.inf}),
        ({"a": 1}, {"a": 1.0}),
        ({"a": (1, 2)}, {"a": [1, 2]}),
        ({"a": np.float64(0.5), "b": np.int64(3), "c": np.float32(0.25)}, {"a": 0.5, "b": 3, "c": 0.25}),
        ({"a": Path("/data")}, {"a": "/data"}),
        ({"a": {1: "one"}}, {"a": {1: "one"}}),
        ({"b": 1, "a": 2}, {"a": 2, "b": 1}),
    ],
)
def test_equal_params_are_a_resume(
    records: RunRecords, params: dict[str, Any], again: dict[str, Any]
) -> None:
    assert records.start(params, {}, None, BEGAN) == 1
    assert records.start(again, {}, None, BEGAN) == 2


def test_a_tensor_of_no_dimensions_is_the_number_it_holds(records: RunRecords) -> None:
    import torch  # here, because the processes below import this module

    records.start({"a": torch.tensor(0.5)}, {}, None, BEGAN)
    assert records.read()["params"] == {"a": 0.5}


def test_params_that_are_not_json_are_refused_and_nothing_is_written(records: RunRecords) -> None:
    circle: list[Any] = []
    circle.append(circle)
    for value, named in (
        (object(), "object"),
        ({1, 2}, "set"),
        (b"x", "bytes"),
        (np.ones(3), "ndarray"),
        (1j, "complex"),
        (circle, "Circular"),
    ):
        with pytest.raises(InvalidInput, match=rf"{named}.*accepted are numbers, strings, lists and dicts"):
            records.start({"lr": value}, {}, None, BEGAN)
    assert records.store.names("runs/project=p/r") == []


def test_two_that_start_in_the_same_millisecond_get_different_attempts(store: Store) -> None:
    attempts = [RunRecords(store, "p", "r").start({"lr": 0.1}, {}, None, dict(BEGAN)) for _ in range(3)]
    assert attempts == [1, 2, 3]


def test_an_attempt_is_taken_once(records: RunRecords) -> None:
    for attempt in (2, 3):  # attempt 1 died before it wrote anything
        assert records.start({}, {}, attempt, BEGAN) == attempt
        with pytest.raises(AlreadyExists):
            records.start({}, {}, attempt, BEGAN)
    assert records.start({}, {}, None, BEGAN) == 4


def _open(root: str, barrier: Barrier, answer: Connection) -> None:
    barrier.wait(30)
    answer.send(RunRecords(Store(root), "p", "r").start({"lr": 0.1}, {}, None, BEGAN))


@pytest.mark.slow
def test_processes_that_open_the_same_run_get_different_attempts(store: Store) -> None:
    spawn = multiprocessing.get_context("spawn")
    barrier = spawn.Barrier(PROCESSES)
    pipes = [spawn.Pipe(duplex=False) for _ in range(PROCESSES)]
    processes = [spawn.Process(target=_open, args=(store.root, barrier, writing)) for _, writing in pipes]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0] * PROCESSES
    assert sorted(reading.recv() for reading, _ in pipes) == list(range(1, PROCESSES + 1))


def test_an_unknown_run_is_not_found_by_name(records: RunRecords) -> None:
    with pytest.raises(NotFound, match="no run 'r' in project 'p'"):
        records.read()


def test_checkpoints_are_ordered_by_epoch_then_attempt_then_save(records: RunRecords) -> None:
    assert records.latest_checkpoint() is None
    saved = [
        SavedCheckpoint(2, 1, "sha256:b", {"loss": 0.5}),
        SavedCheckpoint(10, 1, "sha256:e", {"loss": 0.1}),
        SavedCheckpoint(1, 1, "sha256:a", {}),
        SavedCheckpoint(2, 2, "sha256:c", {"loss": 0.4}),
        SavedCheckpoint(2, 2, "sha256:d", {"loss": 0.3}),
    ]
    for checkpoint in saved:
        records.add_checkpoint(checkpoint)
    assert [checkpoint.digest for checkpoint in records.checkpoints()] == [
        f"sha256:{letter}" for letter in "abcde"
    ]
    assert records.checkpoints()[1] == saved[0]
    assert records.latest_checkpoint() == saved[1]


def test_an_attempt_ends_once(records: RunRecords) -> None:
    records.end(1, {"status": "finished", "moment": 1})
    with pytest.raises(AlreadyExists):
        records.end(1, {"status": "failed", "moment": 2})
    records.end(2, {"status": "failed"})
    assert records.store.names("runs/project=p/r") == ["end-0001.json", "end-0002.json"]


def test_equal_values_have_equal_json() -> None:
    assert to_json({"b": 1, "a": {"d": 2, "c": 3}}) == to_json({"a": {"c": 3, "d": 2}, "b": 1})
