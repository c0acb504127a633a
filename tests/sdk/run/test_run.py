"""A run as training code uses it: on its own, and as a trial whose epochs somebody grants."""

import contextlib
import json
import math
import random
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

import halving
from halving import AlreadyExists, CheckpointMissing, Diverged, InvalidInput, ObjectiveMissing, Run, Store
from halving.distributed.ranks import ALONE, Ranks
from halving.records.provenance import NOT_CAPTURED
from halving.records.run_record import RunRecords
from halving.run.init import open_trial
from halving.trial.context import ObjectiveRule, TrialContext
from tests.waiting import wait_for


class Grants:
    """A controller that hands out budgets from a list and remembers what it was asked; after the last it
    pauses.
    """

    def __init__(self, *budgets: int) -> None:
        self.granted = budgets[0]
        self._next = list(budgets[1:])
        self.questions: list[tuple[int, dict[str, float]]] = []
        self.digests: list[str] = []
        self.best: list[str | None] = []

    def report_rung(
        self, epoch: int, values: dict[str, float], checkpoint: str, best_checkpoint: str | None
    ) -> int:
        self.questions.append((epoch, values))
        self.digests.append(checkpoint)
        self.best.append(best_checkpoint)
        return self._next.pop(0) if self._next else epoch


def start(store: Store, **changes: Any) -> Run:
    """A run of one's own, without the half second that looking at all installed packages takes."""
    return Run(
        store,
        **{
            "project": "p",
            "run_id": "r",
            "params": {"lr": 0.1},
            "seed": None,
            "captured": {"git": None},
            "system_metrics": None,
            **changes,
        },
    )


def trial(store: Store, controller: Grants, attempt: int = 1, *, ranks: Ranks = ALONE, **changes: Any) -> Run:
    fields: dict[str, Any] = {
        "root": store.root,
        "project": "p",
        "run": "s.0001",
        "attempt": attempt,
        "params": {"lr": 0.1},
        "seed": 7,
        "objectives": (ObjectiveRule("score"),),
        "max_epochs": 9,
        "dataset_name": "d",
        "dataset_digest": "sha256:" + "0" * 64,
        "parent": {"sweep": "s"},
        "provenance": {"git": None},
    }
    return open_trial(TrialContext(**{**fields, **changes}), controller, ranks)


def train_with(run: Run, score: float) -> None:
    """Train to the end, with the same objective in every epoch."""
    with run:
        for epoch in run.epochs():
            run.report(score=score)
            run.save(epoch=epoch)


def end_of(run: Run) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(run.store.read(f"{run.records.folder}/end-{run.attempt:04d}.json"))
    return record


def points(run: Run) -> list[tuple[str, int, float]]:
    folder = f"metrics/project={run.project}/run={run.id}/live"
    tables = [pq.ParquetFile(run.store.path(f"{folder}/{name}")).read() for name in run.store.names(folder)]
    return [(row["key"], row["step"], row["value"]) for table in tables for row in table.to_pylist()]


# A script of one's own


def test_the_record_is_complete_and_durable_when_init_returns(tmp_path: Path) -> None:
    run = halving.init("p", {"lr": 0.1}, tmp_path / "root", seed=5, tags={"team": "vision"})
    record = RunRecords(Store(tmp_path / "root"), "p", run.id).read()
    assert (record["project"], record["run"], record["params"], record["seed"]) == (
        "p",
        run.id,
        {"lr": 0.1},
        5,
    )
    assert record["parent"] == {"tags": {"team": "vision"}}
    assert set(record["provenance"]) == set(NOT_CAPTURED)
    assert "pyarrow" in record["provenance"]["packages"]
    assert "torch.deterministic_algorithms" in record["determinism"]
    run.finish()


def test_two_runs_without_an_id_are_two_runs(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("halving.records.provenance.capture", lambda store: {"git": None})
    with halving.init("p", root=store.root) as first, halving.init("p", root=store.root) as other:
        assert first.id != other.id
        assert (first.attempt, other.attempt) == (1, 1)


@pytest.mark.parametrize("name", ["", "a/b", "../x", ".hidden", "a b", "x" * 129, "é"])
def test_names_that_could_not_be_paths_are_refused_before_anything_is_written(
    store: Store, name: str
) -> None:
    for field in ("project", "run_id"):
        with pytest.raises(InvalidInput, match="is not accepted: give 1-128 letters"):
            start(store, **{field: name})
    assert store.names("") == []


@pytest.mark.parametrize(
    "seed",
    [-1, -(2**63), 2**63, 2**64 - 1, 10**400, 0.5, 5.0, math.nan, math.inf, "7", "", True, False, [1], b"1"],
)
def test_a_seed_that_is_not_accepted_is_refused_before_anything_is_there(tmp_path: Path, seed: Any) -> None:
    with pytest.raises(
        InvalidInput, match=r"^seed = .* is not accepted: give a whole number from 0 to 2\*\*63 - 1$"
    ):
        halving.init("p", {}, tmp_path / "root", seed=seed)
    assert not (tmp_path / "root").exists()


@pytest.mark.parametrize(
    ("seed", "recorded"),
    [(0, 0), (2**63 - 1, 2**63 - 1), (np.int64(7), 7), (np.uint64(2**62), 2**62), (None, None)],
)
def test_a_seed_is_recorded_as_the_whole_number_that_it_is(
    tmp_path: Path, seed: Any, recorded: int | None
) -> None:
    with halving.init("p", {}, tmp_path / "root", seed=seed, system_metrics=None) as run:
        assert (run.seed, type(run.seed)) == (recorded, type(recorded))


def test_the_same_seed_gives_the_same_random_numbers(store: Store) -> None:
    drawn = []
    for run_id in ("a", "b"):
        start(store, run_id=run_id, seed=2**40 + 3).finish()
        drawn.append((random.random(), float(np.random.rand()), torch.rand(()).item()))
    assert drawn[0] == drawn[1]


def test_without_a_seed_random_generators_are_left_alone(store: Store) -> None:
    random.seed(1)
    expected = random.random()
    random.seed(1)
    start(store).finish()
    assert random.random() == expected


def test_epochs_count_from_one_to_the_total(store: Store) -> None:
    with start(store) as run:
        assert list(run.epochs(3)) == [1, 2, 3]
        assert run.epoch == 3
        assert list(run.epochs(3)) == []
        assert list(run.epochs(5)) == [4, 5]


def test_a_script_of_ones_own_has_to_say_how_many_epochs(store: Store) -> None:
    with start(store) as run, pytest.raises(InvalidInput, match=r"epochs\(total=None\)"):
        next(run.epochs())


def test_a_second_attempt_continues_from_the_last_checkpoint(store: Store) -> None:
    with start(store) as run:
        state = run.restore(seen=[])
        assert state == {"seen": []}
        for epoch in run.epochs(2):
            state["seen"].append(epoch)
            run.report(loss=1 / epoch)
            run.save(**state)
    with start(store) as again:
        assert again.attempt == 2
        state = again.restore(seen=[])
        assert (again.epoch, state, again.reported) == (2, {"seen": [1, 2]}, {"loss": 0.5})
        assert list(again.epochs(4)) == [3, 4]
    assert points(run) == [("loss", 1, 1.0), ("loss", 2, 0.5)]


def test_restored_training_continues_the_random_numbers(store: Store) -> None:
    with start(store, seed=3) as run:
        for _ in run.epochs(1):
            run.save(a=1)
    expected = (random.random(), float(np.random.rand()), torch.rand(()).item())
    with start(store, seed=3) as again:
        again.restore(a=None)
    assert (random.random(), float(np.random.rand()), torch.rand(()).item()) == expected


def test_a_resume_with_other_params_is_refused(store: Store) -> None:
    start(store).finish()
    with pytest.raises(AlreadyExists, match="params never change"):
        start(store, params={"lr": 0.2})


def test_params_are_a_copy(store: Store) -> None:
    params = {"lr": 0.1}
    with start(store, params=params) as run:
        params["lr"] = 9
        assert run.params == {"lr": 0.1}


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


@pytest.mark.usefixtures("every_save")
def test_points_are_in_the_store_before_the_checkpoint_that_follows_them(store: Store) -> None:
    with start(store) as run:
        for epoch in run.epochs(3):
            assert points(run) == [("loss", earlier, 1.0) for earlier in range(1, epoch)]
            run.report(loss=1.0)
            run.save(epoch=epoch)


def test_a_nan_outside_of_a_trial_is_a_metric_like_any_other(store: Store) -> None:
    with start(store) as run:
        for _ in run.epochs(1):
            run.report(loss=math.nan)
    assert math.isnan(points(run)[0][2])


def test_a_loop_left_by_break_after_report_and_save_keeps_that_epoch(store: Store) -> None:
    with start(store) as run:
        for epoch in run.epochs(5):
            run.report(loss=1 / epoch)
            run.save(epoch=epoch)
            if epoch == 2:
                break
        assert run.epoch == 2
    assert [(saved.epoch, saved.reported) for saved in run.records.checkpoints()] == [
        (1, {"loss": 1.0}),
        (2, {"loss": 0.5}),
    ]


@pytest.mark.parametrize("did", ["nothing", "report", "save"])
def test_an_epoch_left_before_it_reported_and_saved_does_not_count(store: Store, did: str) -> None:
    with start(store) as run:
        for epoch in run.epochs(5):
            if epoch == 2:
                if did == "report":
                    run.report(loss=0.5)
                if did == "save":
                    run.save(epoch=epoch)
                break
            run.report(loss=1.0)
            run.save(epoch=epoch)
        assert run.epoch == 1
    assert [saved.epoch for saved in run.records.checkpoints()] == [1]


@pytest.mark.usefixtures("every_save")
def test_an_exception_leaves_its_epoch_uncounted(store: Store) -> None:
    run = start(store)

    def train() -> None:
        with run:
            for epoch in run.epochs(5):
                if epoch == 3:
                    raise RuntimeError("out of memory")
                run.report(loss=1 / epoch)
                run.save(epoch=epoch)

    with pytest.raises(RuntimeError, match="out of memory"):
        train()
    assert (run.epoch, end_of(run)["epoch"], end_of(run)["status"]) == (2, 2, "failed")
    with start(store) as again:
        assert again.restore(epoch=None) == {"epoch": 2}
        assert next(iter(again.epochs(5))) == 3


def test_a_save_after_the_loop_counts_at_once(store: Store) -> None:
    with start(store) as run:
        for epoch in run.epochs(5):
            if epoch == 2:
                break
        digest = run.save(final=True)
        assert run.checkpoint is not None
        assert run.checkpoint.digest == digest
    with start(store) as again:
        assert again.restore(final=None) == {"final": True}


def test_a_save_without_epochs_counts_at_once_and_the_last_one_wins(store: Store) -> None:
    with start(store) as run:
        for step in range(12):
            run.save(step=step)
    with start(store) as again:
        assert again.restore(step=None) == {"step": 11}


def test_an_artifact_is_stored_by_content_and_never_changed(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "confusion.csv"
    path.write_text("1,2")
    with start(store) as run:
        digest = run.log_artifact(path)
        assert run.log_artifact(str(path), name="copy.csv") == digest
        assert run.log_artifact(path) == digest
        assert store.get_blob(digest) == b"1,2"
        described = json.loads(store.read("runs/project=p/r/artifacts/confusion.csv.json"))
        assert described == {"name": "confusion.csv", "digest": digest, "bytes": 3}
        path.write_text("3,4")
        with pytest.raises(AlreadyExists):
            run.log_artifact(path)
        with pytest.raises(InvalidInput, match=r"artifact name '\.\./up' is not accepted"):
            run.log_artifact(path, name="../up")
    assert store.names("runs/project=p/r/artifacts") == ["confusion.csv.json", "copy.csv.json"]


def test_leaving_the_context_says_how_the_attempt_ended(store: Store) -> None:
    with start(store) as run:
        run.log({"loss": 1.0}, step=1)
        run.log({"loss": 0.5, "accuracy": 0.9}, step=2)
    assert (
        end_of(run).items()
        >= {"status": "finished", "dropped_points": 0, "summary": {"loss": 0.5, "accuracy": 0.9}}.items()
    )
    with pytest.raises(KeyboardInterrupt), start(store) as again:
        raise KeyboardInterrupt
    assert (again.attempt, end_of(again)["status"]) == (2, "failed")


def test_finishing_twice_keeps_the_first_end(store: Store) -> None:
    with start(store) as run:
        run.finish("stopped")
        first = end_of(run)
        run.finish("failed")
    assert end_of(run) == first
    assert first["status"] == "stopped"


def test_a_run_outside_of_a_trial_has_no_dataset(store: Store) -> None:
    with (
        start(store) as run,
        pytest.raises(InvalidInput, match=r"run\.dataset is not there outside of a trial"),
    ):
        _ = run.dataset


# A trial


def test_the_controller_is_asked_exactly_at_the_granted_budgets(store: Store) -> None:
    grants = Grants(1, 3, 9)
    trained = []
    with trial(store, grants) as run:
        for epoch in run.epochs():
            trained.append(epoch)
            run.report(score=epoch / 10, loss=1.0)
            run.save(epoch=epoch)
    assert trained == list(range(1, 10))
    assert grants.questions == [(1, {"score": 0.1}), (3, {"score": 0.3}), (9, {"score": 0.9})]
    assert grants.digests == [saved.digest for saved in run.records.checkpoints() if saved.epoch in (1, 3, 9)]


def test_a_pause_ends_the_loop_and_a_later_attempt_continues_from_it(store: Store) -> None:
    trained = []
    for attempt, budget in ((1, 2), (2, 6)):
        grants = Grants(budget)
        with trial(store, grants, attempt) as run:
            run.restore(epoch=None)
            for epoch in run.epochs():
                trained.append((attempt, epoch))
                run.report(score=float(epoch))
                run.save(epoch=epoch)
        assert grants.questions == [(budget, {"score": float(budget)})]
    assert trained == [(1, 1), (1, 2), (2, 3), (2, 4), (2, 5), (2, 6)]


def test_a_trial_killed_before_its_decision_asks_again_and_trains_nothing_again(store: Store) -> None:
    class Killed(Grants):
        def report_rung(
            self, epoch: int, values: dict[str, float], checkpoint: str, best_checkpoint: str | None
        ) -> int:
            raise ConnectionResetError("the worker is gone")

    run = trial(store, Killed(2))
    with pytest.raises(ConnectionResetError):
        train_with(run, score=0.5)
    digest = run.records.checkpoints()[-1].digest

    paused = Grants(2)
    with trial(store, paused, attempt=2) as run:
        run.restore(epoch=None)
        assert list(run.epochs()) == []
    assert (paused.questions, paused.digests) == ([(2, {"score": 0.5})], [digest])

    continued = Grants(2, 3)
    with trial(store, continued, attempt=3) as run:
        run.restore(epoch=None)
        epochs = run.epochs()
        assert next(epochs) == 3
        run.report(score=0.75)
        run.save(epoch=3)
        assert list(epochs) == []
    assert continued.questions == [(2, {"score": 0.5}), (3, {"score": 0.75})]


def test_a_trial_that_was_not_restored_trains_from_the_start(store: Store) -> None:
    for attempt in (1, 2):
        grants = Grants(2)
        with trial(store, grants, attempt) as run:
            for epoch in run.epochs():
                run.report(score=float(epoch))
                run.save(epoch=epoch)
        assert grants.questions == [(2, {"score": 2.0})]
    assert [(saved.epoch, saved.attempt) for saved in run.records.checkpoints()] == [
        (1, 1),
        (1, 2),
        (2, 1),
        (2, 2),
    ]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("save_first", [True, False])
@pytest.mark.usefixtures("every_save")
def test_a_trial_that_diverges_ends_and_keeps_its_last_good_checkpoint(
    store: Store, value: float, save_first: bool
) -> None:
    grants = Grants(5)
    run = trial(store, grants)

    def train() -> None:
        with run:
            for epoch in run.epochs():
                if save_first:
                    run.save(epoch=epoch)
                run.report(score=value if epoch == 3 else 0.5)
                run.save(epoch=epoch)

    with pytest.raises(Diverged, match=f"objective 'score' became {value} at epoch 3"):
        train()
    assert (run.epoch, grants.questions, end_of(run)["status"]) == (2, [], "failed")
    assert [saved.epoch for saved in run.records.checkpoints()] == [1, 2]
    assert run.checkpoint == run.records.latest_checkpoint()
    assert [repr(number) for key, step, number in points(run) if step == 3] == [repr(value)]


def test_a_nan_in_another_metric_does_not_end_a_trial(store: Store) -> None:
    grants = Grants(1)
    with trial(store, grants) as run:
        for epoch in run.epochs():
            run.report(score=0.5, other=math.nan)
            run.save(epoch=epoch)
    assert grants.questions == [(1, {"score": 0.5})]


def test_a_rung_without_its_objective_says_what_was_reported(store: Store) -> None:
    reports: list[tuple[dict[str, float], str]] = [
        ({}, "it reported nothing"),
        ({"loss": 1.0, "acc": 0.5}, r"it reported \['acc', 'loss'\]"),
    ]
    for attempt, (reported, heard) in enumerate(reports, 1):
        with trial(store, Grants(1), attempt) as run:
            epochs = run.epochs()
            next(epochs)
            if reported:
                run.report(**reported)
            run.save(a=1)
            with pytest.raises(
                ObjectiveMissing,
                match=rf"'score' was not reported in epoch 1: {heard}; call run\.report\(score=…\)",
            ):
                next(epochs)


def test_an_objective_of_an_earlier_epoch_does_not_stand_in(store: Store) -> None:
    with trial(store, Grants(2)) as run:
        epochs = run.epochs()
        next(epochs)
        run.report(score=0.5)
        assert next(epochs) == 2
        run.save(a=1)
        with pytest.raises(ObjectiveMissing, match="in epoch 2: it reported nothing"):
            next(epochs)


def test_a_rung_without_a_checkpoint_of_its_own_epoch_says_so(store: Store) -> None:
    grants = Grants(2)
    with trial(store, grants) as run:
        epochs = run.epochs()
        next(epochs)
        run.save(a=1)
        assert next(epochs) == 2
        run.report(score=0.5)
        with pytest.raises(
            CheckpointMissing, match=r"epoch 2 ends a rung and has no checkpoint; call run\.save"
        ):
            next(epochs)
    assert grants.questions == []


def test_a_trial_has_its_snapshot_seed_and_parent(store: Store) -> None:
    with trial(store, Grants(1)) as run:
        assert (run.dataset.name, run.dataset.digest) == ("d", "sha256:" + "0" * 64)
        first = random.random()
    with trial(store, Grants(1), attempt=2):
        assert random.random() == first
    assert run.records.read().items() >= {"seed": 7, "parent": {"sweep": "s"}, "params": {"lr": 0.1}}.items()


def test_a_trial_continues_from_another_runs_checkpoint_until_it_has_its_own(
    store: Store,
) -> None:
    with trial(store, Grants(2)) as source:
        for epoch in source.epochs():
            source.report(score=0.5)
            source.save(seen=epoch)
    checkpoint = source.records.checkpoints()[-1]._asdict()
    trained = []
    for attempt, granted in ((1, 3), (2, 4)):
        with trial(store, Grants(granted), attempt, run="t.0000", start_from=checkpoint) as run:
            assert run.restore(seen=None)["seen"] == granted - 1
            for epoch in run.epochs():
                trained.append(epoch)
                run.report(score=0.6)
                run.save(seen=epoch)
    assert trained == [3, 4]
