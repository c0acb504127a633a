"""``halving trial``, and what the leaderboard says of trials whose pods do not start."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from halving.cli.main import main
from halving.trial.messages import ReachedRung
from resources.backend import Backend
from resources.scheduling.assignment import Assignment
from resources.scheduling.scheduler import Scheduler
from resources.scheduling.sweeps import open_sweep, pause_sweep
from resources.sweep_spec import SweepSpec
from tests.backends import snapshot_row

_REASON = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu [16 asked]."


@pytest.fixture
def scheduler(backend: Backend, small_spec: Callable[..., SweepSpec]) -> Scheduler:
    with backend.catalog.write() as session:
        session.add(snapshot_row("sha256:s"))
    return Scheduler(backend.catalog, open_sweep(backend.catalog, small_spec(), "sha256:s", driver="sensors", commit=None).id)


@pytest.fixture
def said(backend: Backend, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    def call(*arguments: str) -> str:
        assert main([*arguments, "--root", backend.store.root]) == 0
        return capsys.readouterr().out

    return call


def handed_out(scheduler: Scheduler) -> Assignment:
    given = scheduler.next_work(None)
    assert isinstance(given, Assignment)
    return given


def test_a_trial_is_shown_with_every_attempt_and_how_it_ended(scheduler: Scheduler, said: Callable[..., str]) -> None:
    first = handed_out(scheduler)
    scheduler.preempted(scheduler.claim(first.trial, "pod-a:1"), "pod pod-a was deleted: spot reclaim", 61.0)
    second = handed_out(scheduler)
    scheduler.crashed(scheduler.claim(second.trial, "pod-b:1"), "Traceback\n  line 1\nValueError: [boom]", 1.0)
    third = scheduler.claim(handed_out(scheduler).trial, "pod-c:1")
    scheduler.reached(third, ReachedRung(1, {"score": 0.25}, "sha256:c"), 2.0)
    shown = said("trial", first.key)
    for part in (f"{first.key}: paused", "x 0.", "1.1 min of training, 1 failures, 1 times preempted", "0.2500", "to be promoted"):
        assert part in shown
    for worker, outcome, reason in (
        ("pod-a:1", "preempted", "spot reclaim"),
        ("pod-b:1", "retry", "ValueError: [boom]"),
        ("pod-c:1", "pause", ""),
    ):
        line = next(line for line in shown.splitlines() if worker in line)
        assert outcome in line
        assert reason in line
    data = json.loads(said("trial", first.key, "--json"))
    assert [(one["worker"], one["outcome"], one["ended"] is None) for one in data["attempts"]] == [
        ("pod-a:1", "preempted", False),
        ("pod-b:1", "retry", False),
        ("pod-c:1", "pause", False),
    ]
    assert (data["status"], data["failures"], data["preemptions"], data["seconds"]) == ("paused", 1, 1, 64.0)
    assert [(one["epochs"], one["value"], one["decision"]) for one in data["results"]] == [(1, 0.25, "pause")]


def test_a_trial_and_the_leaderboard_say_why_a_pod_does_not_start(scheduler: Scheduler, said: Callable[..., str]) -> None:
    given = handed_out(scheduler)
    assert "waits: for its run, which was launched and has not started yet" in said("trial", given.key)
    scheduler.note_waiting(given, _REASON)
    assert f"waits: {_REASON}" in said("trial", given.key)
    assert f"{given.key} waits for its pod: {_REASON}" in said("leaderboard", given.sweep)
    waiting: list[dict[str, Any]] = json.loads(said("leaderboard", given.sweep, "--json"))["waiting"]
    assert waiting == [{"trial": 0, "key": given.key, "attempt": 1, "reason": _REASON}]
    scheduler.launch_failed(given, f"the pod did not start: {_REASON}")
    pause_sweep(scheduler.catalog, scheduler.id)
    assert "waits: for its sweep, which is paused" in said("trial", given.key)
    assert "waits for its pod" not in said("leaderboard", given.sweep)


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("digits", "trial 'digits' is not accepted: give a sweep's id and a number, for example digits-7f3a.0007"),
        ("digits-7f3a.0007", "no sweep 'digits-7f3a' in the catalog"),
        ("{sweep}.0099", "no trial '{sweep}.0099' in the catalog: sweep {sweep} has 0 trials"),
    ],
)
def test_a_name_of_no_trial_is_answered_with_what_there_is(
    scheduler: Scheduler, backend: Backend, capsys: pytest.CaptureFixture[str], key: str, message: str, tmp_path: Path
) -> None:
    assert main(["trial", key.format(sweep=scheduler.id), "--root", backend.store.root]) != 0
    assert message.format(sweep=scheduler.id) in capsys.readouterr().err
