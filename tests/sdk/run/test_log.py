"""What ``run.log`` accepts and refuses, and what of it is in the store."""

import contextlib
import json
import math
import threading
import time
from typing import Any

import numpy as np
import pytest
import torch

import halving
from halving import InvalidInput, Store
from tests.sdk.run.runs import end_of, points, start
from tests.waiting import wait_for

WRONG = [
    "high",
    None,
    [1.0],
    np.ones(2),
    np.ones(1),
    torch.ones(2),
    1j,
    np.array("0.5"),
    np.array(1j),
    torch.tensor(1j),
    object,
    10**400,
]


@pytest.mark.parametrize("value", WRONG)
def test_a_strict_run_refuses_a_wrong_value_by_name_and_logs_nothing_of_the_call(
    store: Store, value: Any
) -> None:
    with start(store, strict=True) as run:
        with pytest.raises(InvalidInput, match=r"metric 'train/loss' = .* is not accepted: give"):
            run.log({"fine": 1.0, "train": {"loss": value}}, step=1)
        with pytest.raises(InvalidInput, match="metric 'loss'"):
            run.report(loss=value)
    assert points(run) == []


@pytest.mark.parametrize("value", WRONG)
def test_a_wrong_value_is_left_out_counted_and_warned_of_once_by_default(store: Store, value: Any) -> None:
    run = start(store)
    run.log({"fine": 1.0, "bad": 0.0}, step=0)  # the same names were fine before
    with pytest.warns(UserWarning, match=r"metric 'bad' = .* is not accepted: give") as warned:
        for step in (1, 2, 3):
            run.log({"fine": 1.0, "bad": value}, step=step)
    assert len(warned) == 1
    assert warned[0].filename == __file__
    with pytest.raises(InvalidInput, match="metric 'loss'"):  # what decisions are made of is always checked
        run.report(loss=value)
    with pytest.warns(UserWarning, match="3 values of r were not accepted"):
        run.finish()
    assert sorted(points(run)) == [("bad", 0, 0.0), *(("fine", step, 1.0) for step in range(4))]
    assert end_of(run)["rejected_values"] == 3


def test_dicts_in_dicts_are_names_with_slashes(store: Store) -> None:
    with start(store, strict=True) as run:
        run.log({"train": {"loss": 0.5, "by_class": {"cat": 1, "dog": 2}}, "lr": 0.1}, step=1)
        with pytest.raises(InvalidInput, match="'train/loss' is given twice"):
            run.log({"train/loss": 1.0, "train": {"loss": 2.0}}, step=2)
    assert sorted(points(run)) == [
        ("lr", 1, 0.1),
        ("train/by_class/cat", 1, 1.0),
        ("train/by_class/dog", 1, 2.0),
        ("train/loss", 1, 0.5),
    ]


def test_a_run_has_at_most_ten_thousand_names_and_says_which_one_is_too_many(store: Store) -> None:
    run = start(store)
    for first in range(0, 10_000, 1_000):
        run.log({f"k{number}": 1.0 for number in range(first, first + 1_000)}, step=0)
    with pytest.warns(
        UserWarning,
        match="metric 'sample/17' is one name too many: a run has at most 10,000; put what varies",
    ):
        run.log({"k3": 2.0, "sample/17": 1.0}, step=1)
    with pytest.warns(UserWarning, match="1 values of r were not accepted"):
        run.finish()
    assert len(points(run)) == 10_001


def test_logging_after_the_end_is_warned_of_and_never_raises(store: Store) -> None:
    run = start(store, strict=True)
    run.log({"a": 1.0}, step=1)
    run.finish()
    with pytest.warns(UserWarning, match="the run is finished"):
        run.log({"a": 2.0}, step=2)
    assert points(run) == [("a", 1, 1.0)]


def test_what_is_no_dict_is_refused(store: Store) -> None:
    with (
        start(store, strict=True) as run,
        pytest.raises(InvalidInput, match=r"values a float is not accepted: give a dict"),
    ):
        run.log(0.5, step=1)  # type: ignore[arg-type]


def test_names_in_another_order_and_another_set_of_that_size_are_told_apart(store: Store) -> None:
    with start(store) as run:
        run.log({"a": 1.0, "b": 2.0}, step=1)
        run.log({"b": 3.0, "a": 4.0}, step=2)
        run.log({"a": 5.0, "c": 6.0}, step=3)
        run.log({"a": 7.0, "b": 8.0, "c": 9.0}, step=4)
        run.log({}, step=5)
    values = {(key, step): value for key, step, value in points(run)}
    assert values == {
        ("a", 1): 1.0,
        ("b", 1): 2.0,
        ("b", 2): 3.0,
        ("a", 2): 4.0,
        ("a", 3): 5.0,
        ("c", 3): 6.0,
        ("a", 4): 7.0,
        ("b", 4): 8.0,
        ("c", 4): 9.0,
    }


def test_the_last_value_of_a_name_that_stands_in_two_sets_is_the_one_logged_last(store: Store) -> None:
    with start(store) as run:
        for step in range(50):
            run.log({"epoch": float(step), "loss": 1.0}, step=step)
            run.log({"epoch": step + 0.5, "val": 1.0}, step=step)
    assert [value for key, _, value in points(run) if key == "epoch"] == [
        step + half for step in range(50) for half in (0.0, 0.5)
    ]
    assert end_of(run)["summary"] == {"epoch": 49.5, "loss": 1.0, "val": 1.0}


class OnDevice(torch.Tensor):
    """A tensor as of a GPU: asking for its value in the thread that trains is what must not happen."""

    device = torch.device("cuda:0")  # type: ignore[assignment]


def test_a_device_tensors_value_is_fetched_by_the_drain_thread(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a GPU: the copy and the fetch are real, on the CPU; the device's name and its event stand
    in.
    """
    threads: list[str] = []

    class Event:
        def record(self, stream: object) -> None: ...

        def synchronize(self) -> None:
            threads.append(threading.current_thread().name)

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: None)
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: None)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: contextlib.nullcontext())
    with start(store, strict=True) as run:
        loss = torch.tensor(0.5).as_subclass(OnDevice)
        run.log({"loss": loss, "lr": 0.1, "nested": {"acc": torch.tensor(1.0).as_subclass(OnDevice)}}, step=3)
        loss += 1.0  # in place, as training does
        run.flush()
    assert sorted(points(run)) == [("loss", 3, 0.5), ("lr", 3, pytest.approx(0.1)), ("nested/acc", 3, 1.0)]
    assert threads
    assert all(name.startswith("halving-metrics") for name in threads)


def test_artifacts_of_a_call_are_stored_by_content_with_a_reference(store: Store) -> None:
    with start(store, strict=True) as run:
        run.log(
            {
                "loss": 1.0,
                "image": halving.Image(np.zeros((2, 3), np.uint8)),
                "said": halving.Text("hello", caption="c"),
            },
            step=4,
        )
        run.log(
            {
                "table": halving.Table(columns=["a"], rows=[[1], [2]]),
                "weights": halving.Histogram([1.0, 2.0, math.nan]),
            },
            step=5,
        )
    folder = "runs/project=p/r/media"
    records = [json.loads(store.read(f"{folder}/{name}")) for name in store.names(folder)]
    assert [(row["key"], row["step"], row["kind"], row["attempt"]) for row in records] == [
        ("image", 4, "image", 1),
        ("said", 4, "text", 1),
        ("table", 5, "table", 1),
        ("weights", 5, "histogram", 1),
    ]
    assert store.get_blob(records[0]["digest"]).startswith(b"\x89PNG")
    assert all(len(store.get_blob(row["digest"])) == row["bytes"] for row in records)
    assert points(run) == [("loss", 4, 1.0)]


def test_throughput_is_logged_in_samples_per_second(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("halving.run.system_metrics._FIRST", 0.05)
    with start(store, system_metrics=3600.0) as run:
        wait_for(lambda: run.flush() and points(run), 30, "the first sample", every=0.01)
        began = time.monotonic()
        run.throughput(1)
        time.sleep(0.1)
        run.throughput(100)
    took = time.monotonic() - began
    (rate,) = [value for key, _, value in points(run) if key == "system/throughput"]
    assert 100 / took <= rate <= 100 / 0.1


def test_the_last_sample_of_system_metrics_is_logged_while_the_run_finishes(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("halving.run.system_metrics._FIRST", 0.05)
    with start(store, system_metrics=3600.0) as run:
        until = time.monotonic() + 30
        while not any(key.startswith("system/") for key, _, _ in points(run)):
            run.flush()
            assert time.monotonic() < until
        run.log({"loss": 1.0}, step=1)
        time.sleep(0.1)
    assert len([key for key, _, _ in points(run) if key == "system/memory/used"]) == 2
    assert end_of(run)["rejected_values"] == 0


def test_every_kind_of_number_is_a_metric(store: Store) -> None:
    tensors = [torch.tensor(1), torch.tensor(1.0, requires_grad=True)]
    numbers = [1, 1.0, True, np.float32(1), np.int64(1), np.bool_(True), np.array(1), *tensors]
    with start(store) as run:
        run.log({str(index): number for index, number in enumerate(numbers)}, step=np.int64(4))  # type: ignore[arg-type]
    assert points(run) == [(str(index), 4, 1.0) for index in range(len(numbers))]


def test_a_metric_is_what_it_was_when_it_was_logged(store: Store) -> None:
    tensor = torch.tensor(1.0)
    array = np.array(1.0)
    with start(store) as run:
        run.log({"tensor": tensor, "array": array}, step=1)
        tensor += 1
        array += 1
    assert sorted(points(run)) == [("array", 1, 1.0), ("tensor", 1, 1.0)]


@pytest.mark.parametrize("step", [2**63, -(2**63) - 1, math.nan, 1.5, "1", None])
def test_a_step_that_is_no_int64_is_refused(store: Store, step: Any) -> None:
    with start(store, strict=True) as run:
        run.log({"a": 1.0}, step=1)
        with pytest.raises(
            InvalidInput, match=r"step .* is not accepted: give an integer of at most 63 bits"
        ):
            run.log({"a": 1.0}, step=step)
    assert points(run) == [("a", 1, 1.0)]


@pytest.mark.parametrize("name", [1, "", "a\nb", "a\0", "\ud800", "x" * 257, None])
def test_a_name_that_no_segment_could_hold_is_refused(store: Store, name: Any) -> None:
    with start(store, strict=True) as run:
        with pytest.raises(InvalidInput, match=r"metric name .* is not accepted: give 1-256 characters"):
            run.log({name: 1.0}, step=1)
        run.log({"a b/ü-日本 %": 1.0}, step=1)
    assert points(run) == [("a b/ü-日本 %", 1, 1.0)]
