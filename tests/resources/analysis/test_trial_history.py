"""Why a trial waits, as its history tells it."""

from collections.abc import Callable
from typing import Any

import pytest

from halving.trial.messages import ReachedRung
from resources.analysis.trial_history import history_of
from resources.backend import Backend
from resources.catalog import Catalog
from resources.scheduling.assignment import Assignment
from resources.scheduling.scheduler import Scheduler
from resources.scheduling.sweeps import open_sweep, pause_sweep, resume_sweep, stop_sweep
from resources.sweep_spec import SweepSpec
from tests.backends import snapshot_row


@pytest.mark.parametrize(
    ("ask", "paused", "queued"),
    [
        (resume_sweep, "to be promoted, when it is among the best of its rung", "for a free worker"),
        (pause_sweep, "for its sweep, which is paused", "for its sweep, which is paused"),
        (stop_sweep, "for nothing: its sweep is being stopped", "for nothing: its sweep is being stopped"),
    ],
)
def test_a_trial_waits_only_for_what_can_come(
    backend: Backend,
    small_spec: Callable[..., SweepSpec],
    ask: Callable[[Catalog, str], Any],
    paused: str,
    queued: str,
) -> None:
    with backend.catalog.write() as session:
        session.add(snapshot_row("sha256:s"))
    scheduler = Scheduler(
        backend.catalog, open_sweep(backend.catalog, small_spec(), "sha256:s", driver="job", commit=None).id
    )
    work = [scheduler.next_work(f"w:{number}") for number in range(3)]
    first, second, third = [assignment for assignment in work if isinstance(assignment, Assignment)]
    scheduler.report_rung(first, ReachedRung(1, {"score": 0.1}, "sha256:c"), 1.0)
    scheduler.release(second, 1.0)
    ask(backend.catalog, scheduler.id)
    assert [history_of(backend.catalog, assignment.key).waiting for assignment in (first, second, third)] == [
        paused,
        queued,
        None,
    ]
