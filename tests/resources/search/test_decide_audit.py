"""The audit trains a share of the pruned trials to the end, and changes no decision of the search."""

from typing import Any

import pytest

from resources.search.decide import (
    Complete,
    Continue,
    Crashed,
    Fail,
    Failed,
    Finish,
    Idle,
    Resume,
    Retry,
    Start,
    Wait,
    pruned_trials,
)
from resources.search.state import Control, SearchState, Status, TrialState
from tests.resources.search.search_states import reach, run, searching, trial


def state_to_audit(audit: float, *extra: TrialState, **changes: Any) -> SearchState:
    """A search that is over: nine trials at rung 0, the best three at rung 1, the best one completed."""
    trials = [trial(number, Status.PAUSED, -float(number)) for number in range(9)]
    trials[0] = trial(0, Status.COMPLETED, 0.0, 0.0, 0.0)
    trials[1], trials[2] = (trial(number, Status.PAUSED, -float(number), -float(number)) for number in (1, 2))
    return searching(*trials, *extra, max_trials=9 + len(extra), audit=audit, **changes)


@pytest.mark.parametrize(("audit", "count"), [(0.0, 0), (0.01, 1), (0.25, 2), (0.5, 4), (1.0, 8)])
def test_the_audit_trains_its_share_of_pruned_trials_to_the_end_after_the_search(
    audit: float, count: int
) -> None:
    state = state_to_audit(audit)
    audits = set()
    while not isinstance(decision := run(state, Idle())[0], Finish):
        assert isinstance(decision, Resume)
        audits.add(decision.trial)
        while not isinstance(run(state, reach(decision.trial, 99.0))[0], Complete):
            pass
    assert len(audits) == count
    assert 0 not in audits
    assert len(pruned_trials(state)) == 8
    assert {trial.number for trial in state.trials if trial.audited is not None} == audits


def test_the_audit_waits_for_the_search_and_then_audits_side_by_side() -> None:
    state = state_to_audit(1.0, trial(9, Status.RUNNING, -9.0))
    assert run(state, Idle(), Crashed(9), Idle(), Failed(9)) == [Wait(), Retry(9), Resume(9), Fail(9)]
    assert len({decision.trial for decision in run(state, *[Idle()] * 8)}) == 8  # type: ignore[union-attr]
    assert run(state, Idle()) == [Wait()]


def test_what_an_audit_finds_changes_no_decision() -> None:
    state = state_to_audit(1.0)
    counted = [trial.counted for trial in state.trials]
    audit = run(state, Idle())[0].trial  # type: ignore[union-attr]
    assert run(state, reach(audit, 99.0))[0] == Continue(audit)
    assert [trial.counted for trial in state.trials] == counted
    # The sweep is extended meanwhile: a new trial is judged as if there were no audit.
    state.max_trials = 10
    assert run(state, Idle(), reach(9, 0.5), reach(9, 0.5)) == [Start(9), Continue(9), Continue(9)]


def test_a_trial_under_audit_may_crash_and_fail_as_any_other() -> None:
    state = state_to_audit(1.0, max_retries=1)
    audit = run(state, Idle())[0].trial  # type: ignore[union-attr]
    assert run(state, Crashed(audit), Idle(), Crashed(audit)) == [Retry(audit), Resume(audit), Fail(audit)]
    assert state.trials[audit].counted == state.trials[audit].results[:-1]


def test_a_stop_ends_a_search_whose_audit_has_not_begun() -> None:
    state = state_to_audit(1.0)
    state.control = Control.STOP
    assert run(state, Idle()) == [Finish()]
