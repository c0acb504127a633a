"""A run of a script: its record, its epochs, its checkpoints and its end."""

import json
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import halving
from halving import AlreadyExists, InvalidInput, Store
from halving.records.provenance import NOT_CAPTURED
from halving.records.run_record import RunRecords
from tests.sdk.run.runs import end_of, points, start


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
