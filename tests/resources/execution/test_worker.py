"""Trials in real processes: what a trainable may do to its process, and what the sweep makes of it."""

import os
import signal
import sqlite3
import time
from collections.abc import Callable
from multiprocessing import active_children
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from resources.backend import Backend
from resources.catalog import Catalog, TrialRow
from resources.execution import watches
from resources.execution.machine import local_concurrency
from resources.execution.worker import work, worker_name
from resources.scheduling import leases
from resources.scheduling.assignment import Assignment
from resources.scheduling.scheduler import Scheduler
from resources.search.state import Control, Status
from tests.resources.execution.worked_sweeps import (
    Spec,
    WorkedSweep,
    act_after_epochs,
    count_epochs,
    state_of,
    taking_its_place,
)


@pytest.mark.slow
def test_a_sweep_runs_to_its_end_and_trains_every_epoch_once(backend: Backend, small_spec: Spec) -> None:
    ran = WorkedSweep(backend, small_spec()).work()
    assert [trial.status for trial in ran.scheduler.state().trials].count(Status.COMPLETED) >= 1
    for row in ran.rows():
        results = [result for result in ran.results() if result.trial == row.number]
        saved = {entry.epoch: entry.digest for entry in ran.records(row.number).checkpoints()}
        assert all(saved[result.epochs] == result.checkpoint for result in results)
        assert count_epochs(ran, row.number) == [(epoch, 1) for epoch in range(1, results[-1].epochs + 1)]
    reached = {(result.trial, result.rung) for result in ran.results()}
    assert {(change.trial) for change in ran.changes} == {trial for trial, _ in reached}


@pytest.mark.slow
def test_the_record_of_a_trial_says_where_it_comes_from(backend: Backend, small_spec: Spec) -> None:
    ran = WorkedSweep(backend, small_spec(max_trials=1)).work()
    record = ran.records(0).read()
    assert record["params"] == ran.rows()[0].params
    assert record["parent"]["sweep"] == ran.sweep
    assert record["parent"]["snapshot"].startswith("sha256:")
    assert record["parent"]["trainable"] == "tests.trainables:train"
    assert len(record["parent"]["trainable_sha256"]) == 64
    assert record["provenance"]["git"]["commit"] or record["provenance"]["git"]["patch"]
    assert record["provenance"]["lockfile"]["name"] == "constraints.txt"
    assert "dagster" in record["provenance"]["packages"]
    assert isinstance(record["seed"], int)
    assert record["trial"]["resources"] == ran.scheduler.spec.resources.at(1).model_dump(mode="json"), (
        "a rerun in a pod asks for the same"
    )


@pytest.mark.slow
def test_a_killed_trial_is_resumed_from_its_checkpoint_and_retrains_no_epoch(
    backend: Backend, small_spec: Spec
) -> None:
    search = {"max_trials": 2, "strategy": {"random": {"budget": 4}}}
    ran = WorkedSweep(
        backend,
        small_spec(trainable="tests.trainables:train_crashing", **search, final={"seeds": 1, "epochs": 5}),
    ).work()
    assert [row.final for row in ran.rows()] == [None, None, 0]
    for row in ran.rows():
        assert (row.status, row.failures, row.attempt) == ("completed", 1, 2)
        assert count_epochs(ran, row.number) == [
            (epoch, 1) for epoch in range(1, 5 if row.final is None else 6)
        ]


@pytest.mark.slow
def test_a_trial_that_is_always_killed_is_given_up_after_its_retries_and_says_why(
    backend: Backend, small_spec: Spec
) -> None:
    ran = WorkedSweep(
        backend, small_spec(trainable="tests.trainables:train_killed_always", max_trials=1, max_retries=2)
    ).work()
    (row,) = ran.rows()
    assert (row.status, row.attempt) == ("failed", 3)
    assert "killed by SIGKILL" in str(row.error)
    assert ran.scheduler.state().trials[0].results == (None,)


@pytest.mark.slow
def test_a_trainable_that_raises_fails_with_its_own_lines_and_the_sweep_goes_on(
    backend: Backend, small_spec: Spec
) -> None:
    ran = WorkedSweep(backend, small_spec(trainable="tests.trainables:train_raising", max_retries=0)).work()
    failed = [row for row in ran.rows() if row.status == "failed"]
    assert failed
    assert len(failed) < 9
    for row in failed:
        assert "tests/trainables.py" in str(row.error)
        assert f"RuntimeError: x = {row.params['x']:.3f} is too much for me" in str(row.error)
        assert "execute.py" not in str(row.error)
    assert len(ran.rows()) == 9


@pytest.mark.slow
def test_a_nan_objective_fails_its_trial_at_once_and_keeps_the_last_good_checkpoint(
    backend: Backend, small_spec: Spec
) -> None:
    spec = small_spec(trainable="tests.trainables:train_diverging", strategy={"random": {"budget": 4}})
    ran = WorkedSweep(backend, spec).work()
    diverged = [row for row in ran.rows() if row.params["x"] > 0.5]
    assert diverged
    for row in diverged:
        assert (row.status, row.attempt) == ("failed", 1)
        assert "objective 'score' became nan at epoch 2" in str(row.error)
        (kept,) = ran.records(row.number).checkpoints()
        assert (kept.epoch, kept.digest) == (1, row.checkpoint)
        assert backend.store.get_blob(kept.digest)
    assert [row.status for row in ran.rows() if row.params["x"] <= 0.5] == ["completed"] * (9 - len(diverged))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("trainable", "said"),
    [
        ("train_silently", "objective 'score' was not reported in epoch 1: it reported ['accuracy']"),
        ("train_without_checkpoint", "epoch 1 ends a rung and has no checkpoint; call run.save("),
    ],
)
def test_an_incomplete_trainable_fails_naming_what_is_missing_and_is_not_retried(
    backend: Backend, small_spec: Spec, trainable: str, said: str
) -> None:
    ran = WorkedSweep(backend, small_spec(trainable=f"tests.trainables:{trainable}", max_trials=2)).work()
    for row in ran.rows():
        assert (row.status, row.attempt) == ("failed", 1)
        assert said in str(row.error)


@pytest.mark.slow
def test_a_trainable_that_returns_early_ends_its_trial_with_its_last_result(
    backend: Backend, small_spec: Spec
) -> None:
    spec = small_spec(
        trainable="tests.trainables:train_giving_up", max_trials=2, strategy={"random": {"budget": 9}}
    )
    ran = WorkedSweep(backend, spec).work()
    assert [(row.status, row.attempt) for row in ran.rows()] == [("completed", 1)] * 2
    assert [result.epochs for result in ran.results()] == [2, 2]


@pytest.mark.slow
def test_a_worker_that_is_stopped_gives_its_trial_back_and_ends_its_process(
    backend: Backend, small_spec: Spec
) -> None:
    epochs = Path(backend.store.root, "epochs")
    ran = WorkedSweep(
        backend,
        small_spec(
            trainable="tests.trainables:train_slowly", max_trials=1, strategy={"random": {"budget": 50}}
        ),
    )
    act_after_epochs(epochs, 3, lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        ran.work()
    (row,) = ran.rows()
    assert (row.status, row.failures) == ("queued", 0)
    assert active_children() == []


@pytest.mark.slow
def test_a_trial_that_gives_its_place_back_later_goes_on_with_nothing_trained_again(
    backend: Backend, small_spec: Spec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watches, "HEARTBEAT_SECONDS", 0.1)
    ran = WorkedSweep(
        backend,
        small_spec(
            trainable="tests.trainables:train_slowly", max_trials=1, strategy={"random": {"budget": 12}}
        ),
    )
    act_after_epochs(Path(backend.store.root, "epochs"), 3, taking_its_place(ran, small_spec))
    ran.work()
    (row,) = ran.rows()
    assert (row.status, row.failures, row.preemptions, row.attempt) == ("completed", 0, 0, 2)
    assert count_epochs(ran, 0) == [(epoch, 1) for epoch in range(1, 13)]


@pytest.mark.slow
def test_an_epoch_longer_than_the_grace_period_is_not_lost_to_an_important_sweep(
    backend: Backend, small_spec: Spec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watches, "HEARTBEAT_SECONDS", 0.1)
    spec = small_spec(
        trainable="tests.trainables:train_through_a_long_epoch",
        max_trials=1,
        strategy={"random": {"budget": 3}},
        resources={"grace_seconds": 0.1},
    )
    ran = WorkedSweep(backend, spec)
    act_after_epochs(Path(backend.store.root, "epochs"), 2, taking_its_place(ran, small_spec))
    ran.work()
    (row,) = ran.rows()
    assert (row.status, row.failures, row.preemptions, row.attempt) == ("completed", 0, 0, 2)
    assert state_of(ran)["seen"] == [[1, 1], [2, 1], [3, 2]]


@pytest.mark.slow
def test_a_trial_of_which_nobody_wants_the_place_any_more_has_saved_and_goes_on(
    backend: Backend, small_spec: Spec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watches, "HEARTBEAT_SECONDS", 0.1)
    spec = small_spec(
        trainable="tests.trainables:train_through_a_long_epoch",
        max_trials=1,
        strategy={"random": {"budget": 3}},
    )
    ran = WorkedSweep(backend, spec)
    heartbeat = Scheduler.heartbeat
    controls = [Control.YIELD]

    def renew(scheduler: Scheduler, assignment: Assignment) -> Control:
        control = heartbeat(scheduler, assignment)
        return controls.pop() if controls and ran.records(0).checkpoints() else control

    monkeypatch.setattr(Scheduler, "heartbeat", renew)
    ran.work()
    (row,) = ran.rows()
    assert (row.status, row.failures, row.preemptions, row.attempt) == ("completed", 0, 0, 2)
    assert state_of(ran)["seen"] == [[1, 1], [2, 1], [3, 2]]


@pytest.mark.slow
def test_an_attempt_that_lost_its_lease_is_stopped_without_an_opinion(
    backend: Backend, small_spec: Spec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watches, "HEARTBEAT_SECONDS", 0.1)
    ran = WorkedSweep(
        backend,
        small_spec(
            trainable="tests.trainables:train_slowly", max_trials=1, strategy={"random": {"budget": 50}}
        ),
    )
    assignment = ran.scheduler.next_work(worker_name())
    assert isinstance(assignment, Assignment)

    def take_over() -> None:
        with Backend(root=backend.store.root).catalog.write() as session:
            row = session.get(TrialRow, (ran.sweep, 0))
            assert row is not None
            row.attempt = 2

    act_after_epochs(Path(backend.store.root, "epochs"), 2, take_over)
    assert ran.runner.run(assignment, ran.changes.append) is None
    assert ran.rows()[0].attempt == 2
    assert ran.changes == []
    assert active_children() == []


@pytest.mark.slow
def test_a_trainable_may_have_processes_of_its_own(backend: Backend, small_spec: Spec) -> None:
    ran = WorkedSweep(
        backend, small_spec(trainable="tests.trainables:train_with_children", max_trials=1)
    ).work()
    assert [(row.status, row.error) for row in ran.rows()] == [("paused", None)]


@pytest.mark.slow
def test_a_trial_whose_child_outlives_it_is_noticed_by_its_own_death(
    backend: Backend, small_spec: Spec
) -> None:
    ran = WorkedSweep(
        backend,
        small_spec(trainable="tests.trainables:train_killed_beside_a_child", max_trials=1, max_retries=0),
    )
    began = time.monotonic()
    ran.work()
    assert "killed by SIGKILL" in str(ran.rows()[0].error)
    assert time.monotonic() - began < 80, "the child sleeps for longer"


@pytest.mark.slow
def test_a_trainable_that_takes_long_to_import_keeps_its_lease(
    backend: Backend, small_spec: Spec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watches, "HEARTBEAT_SECONDS", 0.2)
    monkeypatch.setattr(leases, "LEASE_SECONDS", 2.0)
    ran = WorkedSweep(backend, small_spec(trainable="tests.slow_to_import:train", max_trials=1)).work()
    assert [(row.status, row.attempt, row.failures) for row in ran.rows()] == [("paused", 1, 0)]


@pytest.mark.slow
def test_a_catalog_that_is_unavailable_for_a_moment_costs_no_attempt(
    backend: Backend, small_spec: Spec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watches, "HEARTBEAT_SECONDS", 0.05)
    ran = WorkedSweep(
        backend,
        small_spec(
            trainable="tests.trainables:train_slowly", max_trials=1, strategy={"random": {"budget": 4}}
        ),
    )
    failing = iter(range(6))
    transaction = Catalog.transaction

    def begin(catalog: Catalog) -> Any:
        if ran.records(0).checkpoints() and next(failing, None) is not None:
            raise OperationalError("BEGIN", {}, sqlite3.OperationalError("database is locked"))
        return transaction(catalog)

    monkeypatch.setattr(Catalog, "transaction", begin)
    ran.work()
    assert next(failing, None) is None
    assert [(row.status, row.attempt) for row in ran.rows()] == [("completed", 1)]


@pytest.mark.slow
def test_a_listener_that_fails_changes_nothing_for_the_trial(backend: Backend, small_spec: Spec) -> None:
    ran = WorkedSweep(backend, small_spec(max_trials=3))

    def fail(changed: Assignment) -> None:
        raise RuntimeError("Dagster's event log is unavailable")

    work(ran.scheduler, ran.runner, fail)
    assert [row.failures for row in ran.rows()] == [0, 0, 0]


@pytest.mark.parametrize(
    ("cores", "gpus", "resources", "expected"),
    [
        (8, "", {}, 8),
        (8, "", {"concurrency": 3}, 3),
        (8, "", {"resources": {"cpus": 3}}, 2),
        (8, "0,1,2,3", {"resources": {"gpus": 2}}, 2),
        (2, "0,1,2,3", {"resources": {"gpus": 1}}, 2),
        (8, "0,1,2,3", {"resources": {"gpus": {1: 1, 3: 2}}}, 2),
        (
            8,
            "0,1",
            {"resources": {"gpus": {1: 1, 9: 4}}},
            r"resources.gpus = {1: 1, 9: 4} is not accepted here: this machine has 2",
        ),
        (8, "", {"resources": {"gpus": 1}}, "resources.gpus = 1 is not accepted here: this machine has 0"),
        (2, "", {"resources": {"cpus": 4}}, "resources.cpus = 4 is not accepted here: this machine has 2"),
    ],
)
def test_concurrency_is_bounded_by_the_machine(
    small: Callable[..., dict[str, Any]],
    small_spec: Spec,
    monkeypatch: pytest.MonkeyPatch,
    cores: int,
    gpus: str,
    resources: dict[str, Any],
    expected: int | str,
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", gpus)
    monkeypatch.setattr("resources.execution.machine.usable_cpus", lambda: cores)
    spec = small_spec(**{"concurrency": 0, **resources})
    if isinstance(expected, int):
        assert local_concurrency(spec) == expected
    else:
        with pytest.raises(ValueError, match=expected):
            local_concurrency(spec)
