"""A sampler sees trials that are finished, paused, failed or in flight, so parallel suggestions differ."""

import math
import random
from itertools import pairwise
from typing import Any

import optuna
import pytest

from resources.search.state import Result, Status, TrialState
from resources.search.suggest import make_suggester
from resources.search.suggestions.gp import GpSuggester
from resources.search.suggestions.suggester import Earlier, Tried
from resources.search.suggestions.tpe import TpeSuggester
from resources.sweep_spec.points import Params
from resources.sweep_spec.strategy import STARTUP_TRIALS
from tests.resources.search.played_sweeps import (
    BOHB,
    SLOW,
    STRATEGIES,
    UNIT_SQUARE,
    Spec,
    ladder_of,
    near,
    results_of,
)

# The suggester silences it once for its process, and pytest undoes that after each test.
pytestmark = pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")


@pytest.fixture
def histories(monkeypatch: pytest.MonkeyPatch) -> list[list[optuna.trial.FrozenTrial]]:
    """For every suggestion of TPE's, the trials that it saw."""
    histories_seen: list[list[optuna.trial.FrozenTrial]] = []

    class Spy(optuna.samplers.TPESampler):
        def before_trial(self, study: optuna.Study, trial: optuna.trial.FrozenTrial) -> None:
            histories_seen.append(
                [other for other in study.get_trials(deepcopy=False) if other.number != trial.number]
            )

    monkeypatch.setattr(optuna.samplers, "TPESampler", Spy)
    return histories_seen


def states_of(trials: list[optuna.trial.FrozenTrial]) -> dict[int, str]:
    return {trial.number: trial.state.name for trial in trials}


def test_a_sampler_sees_what_is_finished_paused_failed_and_in_flight(
    small_spec: Spec, histories: list[Any]
) -> None:
    spec = small_spec(space=UNIT_SQUARE, strategy=STRATEGIES["asha"], max_trials=99)
    states = [
        TrialState(0, Status.COMPLETED, results_of(spec, 0, 3)),
        TrialState(1, Status.PAUSED, results_of(spec, 1, 2)),
        TrialState(2, Status.FAILED, (None,)),
        TrialState(3, Status.FAILED, (Result((0.5,)), None)),
        TrialState(4, Status.RUNNING),
        TrialState(5, Status.RUNNING, results_of(spec, 5, 1)),
        TrialState(6, Status.QUEUED),
        TrialState(7, Status.SUGGESTED),
    ]
    suggester = make_suggester(spec)
    suggester.learn([Tried({"x": 0.1 * state.number, "y": 0.5}, state) for state in states], {})
    suggester.suggest(8)
    assert states_of(histories[-1]) == dict(
        enumerate(["COMPLETE"] + ["PRUNED"] * 3 + ["RUNNING", "PRUNED", "RUNNING", "RUNNING"])
    )
    assert [trial.intermediate_values for trial in histories[-1][1:4]] == [
        {3: math.sin(1)},
        {},
        {},
    ]
    assert [trial.params["x"] for trial in histories[-1]] == [0.1 * number for number in range(8)]


def test_suggestions_count_as_in_flight_until_it_is_known_what_became_of_them(
    small_spec: Spec, histories: list[Any]
) -> None:
    spec = small_spec(space=UNIT_SQUARE, strategy=STRATEGIES["tpe"], max_trials=99)
    suggester = make_suggester(spec)
    suggester.learn([], {})
    first = [suggester.suggest(number).params for number in range(3)]
    assert states_of(histories[-1]) == {0: "RUNNING", 1: "RUNNING"}
    # Another worker was faster with trial 1, and neither 1 nor 2 came of what was suggested here.
    suggester.learn(
        [
            Tried(first[0], TrialState(0, Status.RUNNING)),
            Tried({"x": 0.25, "y": 0.75}, TrialState(1, Status.RUNNING)),
        ],
        {},
    )
    again = suggester.suggest(2).params
    assert [trial.params for trial in histories[-1]] == [first[0], {"x": 0.25, "y": 0.75}]
    afresh = make_suggester(spec)
    afresh.learn(
        [
            Tried(first[0], TrialState(0, Status.RUNNING)),
            Tried({"x": 0.25, "y": 0.75}, TrialState(1, Status.RUNNING)),
        ],
        {},
    )
    assert afresh.suggest(2).params == again


def test_bohb_learns_on_the_highest_rung_that_has_enough_results(
    small_spec: Spec, histories: list[Any]
) -> None:
    spec = small_spec(
        space=UNIT_SQUARE, strategy=BOHB, max_trials=999
    )  # enough: two parameters and three more
    long = [number for number in range(99) if len(ladder_of(spec, number)) == 3]
    states = [TrialState(number, Status.RUNNING) for number in range(99)]

    def states_after(changed: list[TrialState]) -> dict[int, tuple[str, float | None]]:
        for state in changed:
            states[state.number] = state
        suggester.learn([Tried({"x": 0.5, "y": 0.5}, state) for state in states], {})
        suggester.suggest(99)
        return {
            trial.number: (trial.state.name, trial.values and trial.values[0])
            for trial in histories[-1]
            if trial.number in finished
        }

    suggester = make_suggester(spec)
    finished = long[:8]
    first = [TrialState(number, Status.PAUSED, (Result((float(number),)),)) for number in long[:8]]
    few = {**dict.fromkeys(long[:4], ("PRUNED", None)), **dict.fromkeys(long[4:8], ("RUNNING", None))}
    assert states_after(first[:4]) == few  # four make no model yet
    assert states_after(first) == {number: ("COMPLETE", float(number)) for number in long[:8]}
    two = [
        TrialState(number, Status.PAUSED, (Result((float(number),)), Result((-1.0,)))) for number in long[:5]
    ]
    assert states_after(two[:4])[long[0]] == ("COMPLETE", float(long[0]))  # still by its first rung
    # Those paused below it are the worse ones now.
    assert states_after(two) == {
        **dict.fromkeys(long[:5], ("COMPLETE", -1.0)),
        **dict.fromkeys(long[5:8], ("PRUNED", None)),
    }


def test_a_sampler_sees_so_much_history_at_most_and_the_best_of_it(
    small_spec: Spec, histories: list[Any]
) -> None:
    spec = small_spec(space=UNIT_SQUARE, strategy=STRATEGIES["tpe"], max_trials=9999)
    max_finished = TpeSuggester.max_finished or 0
    values = list(range(2 * max_finished))
    random.Random(0).shuffle(values)
    tried = [
        Tried({"x": 0.5, "y": 0.5}, TrialState(n, Status.COMPLETED, (Result((float(value),)),)))
        for n, value in enumerate(values)
    ]
    running = [Tried({"x": 0.5, "y": 0.5}, TrialState(len(tried) + n, Status.RUNNING)) for n in range(20)]
    suggester = make_suggester(spec)
    suggester.learn([*tried, *running], {})
    suggester.suggest(len(tried) + 20)
    finished = sorted(trial.values[0] for trial in histories[-1] if trial.state.is_finished())
    assert len(finished) == max_finished
    assert len(histories[-1]) == max_finished + 20
    best = max_finished // 4
    assert finished[-best:] == [float(value) for value in range(len(values) - best, len(values))]
    assert finished[0] < len(values) * 0.01  # and the others from the whole range
    assert max(b - a for a, b in pairwise(finished)) <= 4


@pytest.mark.parametrize("strategy", [STRATEGIES["tpe"], STRATEGIES["asha"]], ids=["tpe", "asha"])
def test_infeasible_trials_are_shown_with_how_far_they_are_out(
    small_spec: Spec, histories: list[Any], strategy: dict[str, Any]
) -> None:
    spec = small_spec(space=UNIT_SQUARE, strategy=strategy, bounds={"latency": {"max": 1.0}}, max_trials=99)
    rungs = len(spec.budgets)
    reports = [Result((0.9,), 0.5), Result((0.1,))]
    suggester = make_suggester(spec)
    suggester.learn(
        [
            Tried({"x": 0.5, "y": 0.5}, TrialState(n, Status.COMPLETED, (report,) * rungs))
            for n, report in enumerate(reports)
        ],
        {},
    )
    suggester.suggest(2)
    assert [list(trial.constraints.values()) for trial in histories[-1]] == [[0.5], [0.0]]


def test_earlier_trials_are_learned_from_and_never_mistaken_for_the_sweeps_own(
    small_spec: Spec, histories: list[Any]
) -> None:
    spec = small_spec(space=UNIT_SQUARE, strategy=STRATEGIES["tpe"], max_trials=99)
    earlier = [
        Earlier({"x": 0.3, "y": n / 20}, 9, Result((near({"x": 0.3, "y": n / 20})[0],)))
        for n in range(STARTUP_TRIALS + 10)
    ]
    suggester = make_suggester(spec, earlier)
    suggester.learn([], {})
    suggestion = suggester.suggest(0)
    assert len(histories[-1]) == len(earlier)
    assert {trial.state.name for trial in histories[-1]} == {"COMPLETE"}
    assert suggestion.params != make_suggester(spec).suggest(0).params
    suggester.learn([Tried(suggestion.params, TrialState(0, Status.RUNNING))], {})
    suggester.suggest(1)
    assert len(histories[-1]) == len(earlier) + 1


# Parallel suggestions.


def closest(points: list[Params]) -> list[float]:
    """Each point's distance to the closest other one, sorted."""
    places = [tuple(point.values()) for point in points]
    return sorted(
        min(math.dist(place, other) for there, other in enumerate(places) if there != here)
        for here, place in enumerate(places)
    )


@pytest.mark.slow
@pytest.mark.parametrize(("sampler", "hidden_count", "apart"), [("tpe", 32, 0.03), ("gp", 2, 0.003)])
def test_32_suggestions_at_once_keep_a_distance_because_of_pending_trials(
    small_spec: Spec, sampler: str, hidden_count: int, apart: float
) -> None:
    spec = small_spec(space=UNIT_SQUARE, strategy={sampler: {"budget": 9}}, max_trials=99)
    points = random.Random(1)
    history = []
    for number in range(12):
        params = {"x": points.random(), "y": points.random()}
        history.append(Tried(params, TrialState(number, Status.COMPLETED, (Result(near(params)),))))
    suggester = make_suggester(spec)
    suggester.learn(history, {})
    at_once = closest([suggester.suggest(len(history) + pending).params for pending in range(32)])
    hidden = []
    for pending in range(hidden_count):
        suggester.learn(history, {})  # takes back what was suggested
        hidden.append(suggester.suggest(len(history) + pending).params)
    alone = closest(hidden)
    assert at_once[0] > apart
    assert at_once[0] > 2 * alone[0]
    assert at_once[16] > 2 * alone[len(alone) // 2]


def test_a_gaussian_process_is_shown_the_newest_of_many_trials_in_flight(small_spec: Spec) -> None:
    spec = small_spec(space=UNIT_SQUARE, strategy=SLOW["gp"], max_trials=999)
    suggester = GpSuggester(spec)
    suggester.learn(
        [Tried({"x": 0.5, "y": 0.5}, TrialState(number, Status.RUNNING)) for number in range(100)], {}
    )
    assert [trial.number for trial in suggester.history.storage.get_all_trials(0)] == list(
        range(100 - (GpSuggester.max_in_flight or 0), 100)
    )


def test_a_refused_point_counts_as_in_flight_until_another_is_found(
    small_spec: Spec, histories: list[Any]
) -> None:
    """Else a sampler that maximises comes to the same point again, try after try."""
    spec = small_spec(space=UNIT_SQUARE, strategy=STRATEGIES["tpe"], max_trials=99).model_copy(
        update={"constraints": ["x > 0.9"]}
    )
    suggester = TpeSuggester(spec)
    suggester.learn([], {})
    assert suggester.suggest(0).params["x"] > 0.9
    assert [len(history) for history in histories] == list(range(len(histories)))
    assert len(histories) > 1
    suggester.suggest(1)
    assert len(suggester.history.storage.get_all_trials(0)) == 2
