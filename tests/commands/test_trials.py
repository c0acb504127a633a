"""``halving trial``, and what the leaderboard says of trials whose pods do not start."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from halving import Run
from halving.cli.main import main
from halving.records.run_record import SavedCheckpoint
from halving.trial.messages import ReachedRung
from resources.backend import Backend
from resources.scheduling.assignment import Assignment
from resources.scheduling.scheduler import Scheduler
from resources.scheduling.sweeps import open_sweep, pause_sweep
from resources.sweep_spec import SweepSpec, parse_spec
from tests.backends import SMALL, snapshot_row
from tests.resources.execution.worked_sweeps import WorkedSweep

_REASON = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu [16 asked]."


@pytest.fixture
def scheduler(backend: Backend, small_spec: Callable[..., SweepSpec]) -> Scheduler:
    with backend.catalog.write() as session:
        session.add(snapshot_row("sha256:s"))
    return Scheduler(
        backend.catalog,
        open_sweep(backend.catalog, small_spec(), "sha256:s", driver="sensors", commit=None).id,
    )


@pytest.fixture
def run_command(backend: Backend, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    def call(*arguments: str) -> str:
        assert main([*arguments, "--root", backend.store.root]) == 0
        return capsys.readouterr().out

    return call


def handed_out(scheduler: Scheduler) -> Assignment:
    assignment = scheduler.next_work(None)
    assert isinstance(assignment, Assignment)
    return assignment


def test_a_trial_is_shown_with_every_attempt_and_how_it_ended(
    scheduler: Scheduler, run_command: Callable[..., str]
) -> None:
    first = handed_out(scheduler)
    scheduler.report_preemption(
        scheduler.claim(first.trial, "pod-a:1"), "pod pod-a was deleted: spot reclaim", 61.0
    )
    second = handed_out(scheduler)
    scheduler.report_crash(
        scheduler.claim(second.trial, "pod-b:1"), "Traceback\n  line 1\nValueError: [boom]", 1.0
    )
    third = scheduler.claim(handed_out(scheduler).trial, "pod-c:1")
    scheduler.report_rung(third, ReachedRung(1, {"score": 0.25}, "sha256:c"), 2.0)
    text = run_command("trial", first.key)
    for part in (
        f"{first.key}: paused",
        "x 0.",
        "1.1 min of training, 1 failures, 1 times preempted",
        "0.2500",
        "to be promoted",
    ):
        assert part in text
    for worker, outcome, reason in (
        ("pod-a:1", "preempted", "spot reclaim"),
        ("pod-b:1", "retry", "ValueError: [boom]"),
        ("pod-c:1", "pause", ""),
    ):
        line = next(line for line in text.splitlines() if worker in line)
        assert outcome in line
        assert reason in line
    data = json.loads(run_command("trial", first.key, "--json"))
    assert [(row["worker"], row["outcome"], row["ended"] is None) for row in data["attempts"]] == [
        ("pod-a:1", "preempted", False),
        ("pod-b:1", "retry", False),
        ("pod-c:1", "pause", False),
    ]
    assert (data["status"], data["failures"], data["preemptions"], data["seconds"]) == ("paused", 1, 1, 64.0)
    assert [(row["epochs"], row["value"], row["decision"]) for row in data["results"]] == [(1, 0.25, "pause")]


def test_each_attempt_is_shown_in_full_and_with_what_it_ran_on(
    backend: Backend,
    small_spec: Callable[..., SweepSpec],
    run_command: Callable[..., str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    with backend.catalog.write() as session:
        session.add(snapshot_row("sha256:s"))
    spec = small_spec(
        resources={"processes": 2, "gpus": 4, "nodes": 2}, image="registry/train:1", max_retries=3
    )
    scheduler = Scheduler(
        backend.catalog, open_sweep(backend.catalog, spec, "sha256:s", driver="sensors", commit=None).id
    )
    first = handed_out(scheduler)
    hang = (
        "Where each rank was:\n  rank 1 (did not come):\n    File [a.py]\nrank 1 did not come to all_reduce"
    )
    scheduler.report_crash(scheduler.claim(first.trial, "pod-a:1"), hang, 1.0)
    scheduler.report_crash(
        scheduler.claim(handed_out(scheduler).trial, "pod-b:1"), "rank 3 of 4 was killed by SIGKILL", 1.0
    )
    raised = "rank 2: Traceback (most recent call last):\n  File 'b.py'\nValueError: [boom]"
    scheduler.report_crash(scheduler.claim(handed_out(scheduler).trial, "pod-c:1"), raised, 1.0)
    text = run_command("trial", first.key)
    reasons = [
        "rank 1 did not come to all_reduce",
        "rank 3 of 4 was killed by SIGKILL",
        "rank 2: ValueError: [boom]",
    ]
    for worker, reason in zip(("pod-a:1", "pod-b:1", "pod-c:1"), reasons, strict=True):
        line = next(line for line in text.splitlines() if worker in line)
        assert "4 ranks, 2 nodes, 8 GPUs" in line
        assert line.rstrip().endswith(reason)
    assert f"attempt 3 in full:\n{raised}\n" in text
    assert f"attempt 1 in full: halving trial {first.key} --attempt 1" in text
    assert "File [a.py]" not in text
    whole = run_command("trial", first.key, "--attempt", "1")
    assert whole.startswith("attempt 1: retry\n")
    assert "on 4 ranks, 2 nodes, 8 GPUs, by pod-a:1" in whole
    assert whole.endswith(f"{hang}\n")
    data = json.loads(run_command("trial", first.key, "--attempt", "2", "--json"))
    assert (data["attempt"], data["ranks"], data["reason"]) == (2, 4, reasons[1])
    assert [
        each["reason"] for each in json.loads(run_command("trial", first.key, "--json"))["attempts"]
    ] == reasons
    assert main(["trial", first.key, "--attempt", "9", "--root", backend.store.root]) != 0
    assert f"no attempt 9 at trial {first.key}: its attempts are 1, 2, 3" in capsys.readouterr().err


def test_what_a_trial_has_left_out_is_said(
    scheduler: Scheduler, backend: Backend, run_command: Callable[..., str]
) -> None:
    assignment = scheduler.claim(handed_out(scheduler).trial, "pod-a:1")
    with Run(
        backend.store,
        project="small",
        run_id=assignment.key,
        params={},
        seed=None,
        attempt=1,
        system_metrics=None,
    ) as run:
        run.log({"system/skipped_steps": 2, "system/nonfinite_loss/rank.1": 2}, step=57)
        missed = {"count": 3, "since": "2026-03-01T10:00:00+00:00", "why": "the store [s3] does not answer"}
        run.records.add_checkpoint(SavedCheckpoint(4, 1, "sha256:c", {}, missed=missed))
    text = run_command("trial", assignment.key)
    assert (
        "attempt 1 left out 2 steps that were NaN or infinite (the loss of rank 1 in 2), the last at step "
        "57, "
    ) in text
    assert (
        "attempt 1 skipped 3 checkpoints, from 2026-03-01 10:00:00 UTC on, until that of epoch 4 was "
        "stored: the store [s3] does"
    ) in text
    skips = json.loads(run_command("trial", assignment.key, "--json"))["skips"]
    assert (skips["steps"][0]["count"], skips["checkpoints"][0]["count"]) == (2, 3)


@pytest.mark.slow  # a gang, three times
@pytest.mark.xdist_group("gangs")
def test_a_gang_that_ended_differently_each_time_says_so_of_each_attempt(
    backend: Backend, run_command: Callable[..., str]
) -> None:
    strategy = {"asha": {"sampler": "random", "min_budget": 3, "max_budget": 3, "reduction_factor": 3}}
    changes = {
        "trainable": "tests.gang_trainables:end_differently",
        "max_trials": 1,
        "max_retries": 3,
        "strategy": strategy,
    }
    resources = {"processes": 2, "collective_timeout_seconds": 4}
    sweep = WorkedSweep(backend, parse_spec({**SMALL, **changes, "resources": resources})).work().sweep
    attempts = json.loads(run_command("trial", f"{sweep}.0000", "--json"))["attempts"]
    assert [(each["attempt"], each["ranks"], each["outcome"]) for each in attempts] == [
        (1, 2, "retry"),
        (2, 2, "retry"),
        (3, 2, "fail"),
    ]
    hang, death, memory = (each["reason"] for each in attempts)
    assert hang.startswith(
        "rank 1 did not come to all_reduce (collective 2 of the process group default_pg) within 4 s"
    )
    assert death == "rank 1 of 2 was killed by SIGKILL"
    assert memory.startswith("rank 1: halving.errors.OutOfMemory: rank 1 ran out of memory in step 2")
    whole = run_command("trial", f"{sweep}.0000", "--attempt", "1")
    for part in (
        "rank 1 (did not come):",
        "was stopped by a signal (SIGSTOP)",
        "rank 0 (waited):",
        "in end_differently",
    ):
        assert part in whole


def test_a_trial_and_the_leaderboard_say_why_a_pod_does_not_start(
    scheduler: Scheduler, run_command: Callable[..., str]
) -> None:
    assignment = handed_out(scheduler)
    assert "waits: for its run, which was launched and has not started yet" in run_command(
        "trial", assignment.key
    )
    scheduler.note_waiting(assignment, _REASON)
    assert f"waits: {_REASON}" in run_command("trial", assignment.key)
    assert f"{assignment.key} waits for its pod: {_REASON}" in run_command("leaderboard", assignment.sweep)
    waiting: list[dict[str, Any]] = json.loads(run_command("leaderboard", assignment.sweep, "--json"))[
        "waiting"
    ]
    assert waiting == [{"trial": 0, "key": assignment.key, "attempt": 1, "reason": _REASON}]
    scheduler.report_failed_launch(assignment, f"the pod did not start: {_REASON}")
    pause_sweep(scheduler.catalog, scheduler.id)
    assert "waits: for its sweep, which is paused" in run_command("trial", assignment.key)
    assert "waits for its pod" not in run_command("leaderboard", assignment.sweep)


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (
            "digits",
            "trial 'digits' is not accepted: give a sweep's id and a number, for example digits-7f3a.0007",
        ),
        ("digits-7f3a.0007", "no sweep 'digits-7f3a' in the catalog"),
        ("{sweep}.0099", "no trial '{sweep}.0099' in the catalog: sweep {sweep} has 0 trials"),
    ],
)
def test_a_name_of_no_trial_is_answered_with_what_there_is(
    scheduler: Scheduler,
    backend: Backend,
    capsys: pytest.CaptureFixture[str],
    key: str,
    message: str,
    tmp_path: Path,
) -> None:
    assert main(["trial", key.format(sweep=scheduler.id), "--root", backend.store.root]) != 0
    assert message.format(sweep=scheduler.id) in capsys.readouterr().err
