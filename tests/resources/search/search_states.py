"""States of a search, and events that are put to it."""

from typing import Any

from resources.search.decide import Decision, Event, Reached, decide
from resources.search.state import (
    Control,
    Halving,
    MedianStop,
    Result,
    Rules,
    SearchState,
    Status,
    TrialState,
)

HALF = MedianStop(min_trials=2, quantile=0.5)


def searching(
    *trials: TrialState, max_trials: int = 4, control: Control = Control.RUN, **changes: Any
) -> SearchState:
    rules = {"ladders": ((1, 3, 9),), "early_stopping": Halving(3), "maximize": (True,), "max_retries": 1}
    return SearchState(Rules(**{**rules, **changes}), max_trials, trials, control)


def single(**changes: Any) -> SearchState:
    """One rung, as random search, grids and models alone have it."""
    return searching(**{"ladders": ((9,),), "early_stopping": None, **changes})


def run(state: SearchState, *events: Event) -> list[Decision]:
    """Carry these events out; give the decision on each."""
    decisions = []
    for event in events:
        decision, trial = decide(state, event)
        if trial is not None:
            state.put(trial)
        decisions.append(decision)
    return decisions


def results(*values: float | None) -> tuple[Result | None, ...]:
    return tuple(None if value is None else Result((value,)) for value in values)


def trial(number: int, status: Status, *values: float | None, **changes: Any) -> TrialState:
    return TrialState(number, status, results(*values), **changes)


def reach(number: int, value: float, violation: float = 0.0) -> Reached:
    return Reached(number, Result((value,), violation))
