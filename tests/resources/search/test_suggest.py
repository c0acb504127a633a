"""Suggestions lie in the space, repeat for the same history in any process, and keep apart from what is in
flight.
"""

import json
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import optuna
import pytest

from halving.errors import InvalidInput
from resources.search import suggest
from resources.search.rules import max_trials, rules_of
from resources.search.state import Result, Status, TrialState
from resources.search.study import HISTORY, IN_FLIGHT
from resources.search.suggest import Earlier, Params, Suggester, Suggestion, Tried
from resources.sweep_spec import SweepSpec
from resources.sweep_spec.points import problems_of
from resources.sweep_spec.strategy import STARTUP_TRIALS

Spec = Callable[..., SweepSpec]

# The suggester silences it once for its process, and pytest undoes that after each test.
pytestmark = pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")

SPACE: dict[str, Any] = {
    "momentum": {"float": {"low": 0.0, "high": 0.9, "step": 0.1}, "when": {"kind": ["a", 3]}},
    "nesterov": {"categorical": [True, False], "when": {"nested": "deep"}},
    "lr": {"float": {"low": 1e-5, "high": 1e-1, "log": True}},
    "x": {"float": {"low": -2.0, "high": 2.0}},
    "n": {"int": {"low": 2, "high": 64, "log": True}},
    "k": {"int": {"low": 4, "high": 16, "step": 4}},
    "batch": {"int": {"low": 16, "high": 1024, "step": 16, "log": True}},
    "kind": {"categorical": ["a", "b", 3, True]},
    "nested": {"categorical": ["deep", "flat"], "when": {"kind": "a"}},
    "warmup": {"constant": 3},
}
UNIT_SQUARE = {"x": {"float": {"low": 0.0, "high": 1.0}}, "y": {"float": {"low": 0.0, "high": 1.0}}}
CONSTRAINTS = ["n * k <= 300", "momentum < 0.5 or lr < 0.01"]

NSGA2 = {"nsga2": {"budget": 9, "population_size": 5}}
QMC = {"optuna": {"sampler": "optuna.samplers:QMCSampler", "budget": 9}}
BOHB = {"bohb": {"max_budget": 9}}
STRATEGIES: dict[str, dict[str, Any]] = {
    "random": {"random": {"budget": 9}},
    "tpe": {"tpe": {"budget": 9}},
    "nsga2": NSGA2,
    "qmc": QMC,
    "scrambled qmc": {"optuna": {**QMC["optuna"], "options": {"scramble": True, "qmc_type": "halton"}}},
    "asha": {"asha": {"sampler": "tpe", "max_budget": 9}},
    "hyperband": {"hyperband": {"sampler": "tpe", "max_budget": 9}},
    "bohb": BOHB,
    "median": {"median": {"sampler": "tpe", "max_budget": 3}},
}
SLOW = {"gp": {"gp": {"budget": 9}}, "asha gp": {"asha": {"sampler": "gp", "max_budget": 9}}}


@dataclass
class Played:
    """A sweep whose suggestions were asked for one by one, as a process would that keeps its suggester."""

    spec: SweepSpec
    suggester: Suggester
    afresh: bool = False  # every suggestion from a new process, which knows what the catalog has kept
    tried: list[Tried] = field(default_factory=list)
    sweep_attrs: dict[str, Any] = field(default_factory=dict)

    def next(self) -> Suggestion:
        suggester = Suggester(self.spec) if self.afresh else self.suggester
        suggester.learn(self.tried, self.sweep_attrs)
        suggestion = suggester.suggest(len(self.tried))
        self.sweep_attrs = json.loads(json.dumps(suggestion.sweep_attrs))
        return suggestion

    def add(self, suggestion: Suggestion, state: TrialState) -> None:
        kept = json.loads(json.dumps({"params": suggestion.params, "attrs": suggestion.trial_attrs}))
        self.tried.append(Tried(kept["params"], state, kept["attrs"]))


def play(
    spec: SweepSpec,
    count: int,
    *,
    afresh: bool = False,
    finish: Callable[[Played, int, Params], TrialState] | None = None,
) -> Played:
    """So many trials: complete, paused, failed and running ones in turn, some of which go on later."""
    sweep = Played(spec, Suggester(spec), afresh)
    for number in range(count):
        suggestion = sweep.next()
        sweep.add(suggestion, (finish or _finish_mixed)(sweep, number, suggestion.params))
        if number >= 6 and finish is None:  # the one that ran six trials ago has got further
            before = sweep.tried[number - 6]
            if before.state.status is Status.RUNNING:
                moved = TrialState(
                    number - 6, Status.COMPLETED, _results(spec, number - 6, len(_ladder(spec, number - 6)))
                )
                sweep.tried[number - 6] = Tried(before.params, moved, before.attrs)
    return sweep


def _ladder(spec: SweepSpec, number: int) -> tuple[int, ...]:
    return rules_of(spec).ladder(number)


def _results(spec: SweepSpec, number: int, count: int) -> tuple[Result, ...]:
    value = math.sin(number)
    return tuple(
        Result((value,) * len(spec.objectives), max(0.0, value) if spec.bounds else 0.0) for _ in range(count)
    )


def _finish_mixed(sweep: Played, number: int, params: Params) -> TrialState:
    rungs = len(_ladder(sweep.spec, number))
    paused = (
        TrialState(number, Status.PAUSED, _results(sweep.spec, number, 1))
        if rungs > 1
        else TrialState(number, Status.FAILED, (None,))
    )
    return [
        TrialState(number, Status.COMPLETED, _results(sweep.spec, number, rungs)),
        paused,
        TrialState(number, Status.FAILED, (None,)),
        TrialState(number, Status.RUNNING),
        TrialState(number, Status.COMPLETED, _results(sweep.spec, number, rungs)),
    ][number % 5]


def complete_with(
    score: Callable[[Params], tuple[float, ...]],
) -> Callable[[Played, int, Params], TrialState]:
    return lambda sweep, number, params: TrialState(number, Status.COMPLETED, (Result(score(params)),))


def near(params: Params) -> tuple[float, ...]:
    return (-((params["x"] - 0.3) ** 2) - (params["y"] - 0.6) ** 2,)


@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
def test_every_suggestion_is_a_point_of_the_space_and_meets_the_constraints(
    small_spec: Spec, strategy: dict[str, Any]
) -> None:
    spec = small_spec(space=SPACE, constraints=CONSTRAINTS, strategy=strategy, max_trials=99)
    kinds = set()
    for tried in play(spec, 40).tried:
        assert problems_of(spec, tried.params) == []
        assert list(tried.params) == [name for name in SPACE if name in tried.params]
        assert type(tried.params["n"]) is type(tried.params["k"]) is int
        assert type(tried.params["lr"]) is float
        assert tried.params["warmup"] == 3
        kinds.add(
            (
                tried.params["kind"],
                "momentum" in tried.params,
                "nested" in tried.params,
                "nesterov" in tried.params,
            )
        )
    assert len(kinds) >= 3


@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
def test_the_same_seed_and_history_suggest_the_same_in_one_process_or_in_many(
    small_spec: Spec, strategy: dict[str, Any]
) -> None:
    changes: dict[str, Any] = {
        "space": SPACE,
        "constraints": CONSTRAINTS,
        "strategy": strategy,
        "max_trials": 99,
    }
    once = play(small_spec(**changes), 40).tried
    assert play(small_spec(**changes), 40, afresh=True).tried == once
    other = play(small_spec(seed=1, **changes), 40).tried
    assert [tried.params for tried in other] != [tried.params for tried in once]


@pytest.mark.slow
@pytest.mark.parametrize("strategy", SLOW.values(), ids=SLOW)
def test_a_gaussian_process_suggests_the_same_point_of_the_space_in_a_new_process(
    small_spec: Spec, strategy: dict[str, Any]
) -> None:
    space = {name: SPACE[name] for name in ("x", "kind", "momentum")}
    changes: dict[str, Any] = {"space": space, "constraints": ["momentum * x <= 1"], "max_trials": 99}
    spec = small_spec(strategy=strategy, **changes)
    sweep = Played(spec, Suggester(spec))
    for tried in play(small_spec(strategy=STRATEGIES["random"], **changes), 30).tried:
        sweep.tried.append(Tried(tried.params, _finish_mixed(sweep, tried.state.number, {})))
    params = sweep.next().params
    sweep.afresh = True
    assert sweep.next().params == params
    assert problems_of(spec, params) == []


# Who is shown to the sampler.


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
        TrialState(0, Status.COMPLETED, _results(spec, 0, 3)),
        TrialState(1, Status.PAUSED, _results(spec, 1, 2)),
        TrialState(2, Status.FAILED, (None,)),
        TrialState(3, Status.FAILED, (Result((0.5,)), None)),
        TrialState(4, Status.RUNNING),
        TrialState(5, Status.RUNNING, _results(spec, 5, 1)),
        TrialState(6, Status.QUEUED),
        TrialState(7, Status.SUGGESTED),
    ]
    suggester = Suggester(spec)
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
    suggester = Suggester(spec)
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
    afresh = Suggester(spec)
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
    long = [number for number in range(99) if len(_ladder(spec, number)) == 3]
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

    suggester = Suggester(spec)
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
    values = list(range(2 * HISTORY["tpe"]))
    random.Random(0).shuffle(values)
    tried = [
        Tried({"x": 0.5, "y": 0.5}, TrialState(n, Status.COMPLETED, (Result((float(value),)),)))
        for n, value in enumerate(values)
    ]
    running = [Tried({"x": 0.5, "y": 0.5}, TrialState(len(tried) + n, Status.RUNNING)) for n in range(20)]
    suggester = Suggester(spec)
    suggester.learn([*tried, *running], {})
    suggester.suggest(len(tried) + 20)
    finished = sorted(trial.values[0] for trial in histories[-1] if trial.state.is_finished())
    assert len(finished) == HISTORY["tpe"]
    assert len(histories[-1]) == HISTORY["tpe"] + 20
    best = HISTORY["tpe"] // 4
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
    suggester = Suggester(spec)
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
    suggester = Suggester(spec, earlier)
    suggester.learn([], {})
    suggestion = suggester.suggest(0)
    assert len(histories[-1]) == len(earlier)
    assert {trial.state.name for trial in histories[-1]} == {"COMPLETE"}
    assert suggestion.params != Suggester(spec).suggest(0).params
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
    suggester = Suggester(spec)
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
    suggester = Suggester(spec)
    suggester.learn(
        [Tried({"x": 0.5, "y": 0.5}, TrialState(number, Status.RUNNING)) for number in range(100)], {}
    )
    assert [trial.number for trial in suggester._open_storage().get_all_trials(0)] == list(
        range(100 - IN_FLIGHT["gp"], 100)
    )


# Single strategies.


def test_tpe_learns_from_paused_trials(small_spec: Spec) -> None:
    spec = small_spec(
        space={"x": {"float": {"low": 0.0, "high": 1.0}}}, strategy=STRATEGIES["asha"], max_trials=99
    )
    search = play(
        spec,
        60,
        finish=lambda sweep, number, params: TrialState(
            number, Status.PAUSED, (Result((-abs(params["x"] - 0.7),)),)
        ),
    )
    misses = [abs(tried.params["x"] - 0.7) for tried in search.tried]
    assert sum(misses[-20:]) < 0.5 * sum(misses[:20])


def test_points_to_start_from_come_first_and_what_they_leave_out_is_sampled(small_spec: Spec) -> None:
    first: list[dict[str, Any]] = [
        {"lr": 0.01, "n": 3, "k": 8},
        {"kind": "a", "momentum": 0.3, "nested": "deep", "nesterov": False, "lr": 1e-3},
        {"x": 1},
    ]
    for strategy in ("random", "tpe", "nsga2", "qmc", "bohb"):
        spec = small_spec(
            space=SPACE,
            constraints=CONSTRAINTS,
            strategy=STRATEGIES[strategy],
            start_from=first,
            max_trials=99,
        )
        search = play(spec, 5)
        for wanted, tried in zip(first, search.tried, strict=False):
            assert {name: tried.params[name] for name in wanted} == wanted
            assert problems_of(spec, tried.params) == []
        assert "fixed_params" not in search.tried[0].attrs
        assert search.tried[3].params["lr"] not in (0.01, 1e-3)


def test_a_grid_is_every_combination_once_in_order(small_spec: Spec) -> None:
    space = {
        "a": {"int": {"low": 1, "high": 3}},
        "b": {"float": {"low": 0.0, "high": 1.0}},
        "c": {"constant": "c"},
    }
    spec = small_spec(space=space, strategy={"grid": {"points": 3}}, max_trials=1000)
    suggester = Suggester(spec)
    assert not suggester.needs_history
    points = [suggester.suggest(number).params for number in range(max_trials(spec))]
    assert points == [{"a": a, "b": b, "c": "c"} for a in (1, 2, 3) for b in (0.0, 0.5, 1.0)]


def test_random_suggestions_depend_on_the_seed_and_the_number_alone(small_spec: Spec) -> None:
    spec = small_spec(space=SPACE, strategy=STRATEGIES["random"])
    suggester = Suggester(spec)
    assert not suggester.needs_history
    backwards = [suggester.suggest(number).params for number in reversed(range(5))]
    assert [Suggester(spec).suggest(number).params for number in range(5)] == backwards[::-1]


@pytest.mark.parametrize(
    "options", [{}, {"scramble": True}, {"qmc_type": "halton", "scramble": True}], ids=str
)
def test_new_processes_walk_along_one_quasi_random_sequence(
    small_spec: Spec, options: dict[str, Any]
) -> None:
    """The sequence is Optuna's own, as it gives it in one process; its first trial is a random one."""
    spec = small_spec(
        space=UNIT_SQUARE, strategy={"optuna": {**QMC["optuna"], "options": options}}, seed=5, max_trials=99
    )
    search = play(spec, 16, afresh=True, finish=complete_with(near))
    points = [tuple(tried.params.values()) for tried in search.tried]
    assert len(set(points)) == 16
    study = optuna.create_study(sampler=optuna.samplers.QMCSampler(seed=5, **options))
    for _ in range(16):
        trial_of_optuna = study.ask(
            {name: optuna.distributions.FloatDistribution(0.0, 1.0) for name in UNIT_SQUARE}
        )
        study.tell(trial_of_optuna, 0.0)
    assert points[1:] == [tuple(trial.params.values()) for trial in study.trials[1:]]


def test_new_processes_visit_every_point_of_optunas_grid_once(small_spec: Spec) -> None:
    options = {"search_space": {"x": [0.0, 0.5, 1.0], "y": [0.25, 0.75]}}
    spec = small_spec(
        space=UNIT_SQUARE,
        strategy={"optuna": {"sampler": "optuna.samplers:GridSampler", "options": options}},
        max_trials=6,
    )
    search = play(spec, 6, afresh=True, finish=complete_with(near))
    assert sorted(tuple(tried.params.values()) for tried in search.tried) == [
        (x, y) for x in (0.0, 0.5, 1.0) for y in (0.25, 0.75)
    ]


def test_generations_of_a_genetic_search_outlive_the_process(small_spec: Spec) -> None:
    other = [{"metric": "cost", "direction": "minimize"}]
    spec = small_spec(space=UNIT_SQUARE, strategy=NSGA2, other_objectives=other, max_trials=99)
    finish = complete_with(lambda params: (params["x"] + params["y"], params["x"] ** 2))
    search = play(spec, 40, afresh=True, finish=finish)
    generations = [
        next(value for key, value in tried.attrs.items() if key.endswith(":generation"))
        for tried in search.tried
    ]
    assert generations == [number // 5 for number in range(40)]
    assert any(":parent:" in key for key in search.sweep_attrs)
    assert play(spec, 40, finish=finish).tried == search.tried


@pytest.mark.parametrize("strategy", ["random", "tpe", "nsga2"])
def test_several_objectives_work_with_failures_and_bounds(small_spec: Spec, strategy: str) -> None:
    changes = {
        "other_objectives": [{"metric": "cost", "direction": "minimize"}],
        "bounds": {"cost": {"max": 0.0}},
    }
    spec = small_spec(space=SPACE, strategy=STRATEGIES[strategy], max_trials=99, **changes)
    first, other = (play(spec, 30, afresh=afresh) for afresh in (False, True))
    assert first.tried == other.tried


def test_cma_es_by_its_path_goes_on_in_new_processes(small_spec: Spec) -> None:
    pytest.importorskip("cmaes")
    spec = small_spec(
        space=UNIT_SQUARE,
        strategy={"optuna": {"sampler": "optuna.samplers:CmaEsSampler", "budget": 9}},
        max_trials=200,
    )
    search = play(spec, 80, afresh=True, finish=complete_with(near))
    misses = [-near(tried.params)[0] for tried in search.tried]
    assert sum(misses[-20:]) < 0.3 * sum(misses[:20])
    generations = [tried.attrs.get("cma:generation", 0) for tried in search.tried]
    assert max(generations) >= 5
    # The params alone: what it keeps of itself are pickles, whose bytes differ.
    assert [tried.params for tried in play(spec, 30, finish=complete_with(near)).tried] == [
        tried.params for tried in search.tried[:30]
    ]


def test_constraints_that_leave_no_point_are_named(small_spec: Spec, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = small_spec(space=UNIT_SQUARE, strategy=STRATEGIES["tpe"]).model_copy(
        update={"constraints": ["x + y > 2"]}
    )
    monkeypatch.setattr(suggest, "_TRIES", 3)
    monkeypatch.setattr(suggest, "_RANDOM_TRIES", 3)
    suggester = Suggester(spec)
    with pytest.raises(InvalidInput, match=r"x \+ y > 2.* none of 3 at random satisfies them"):
        suggester.suggest(0)
    assert suggester._open_storage().get_all_trials(0) == []  # what was refused is not in flight


def test_a_refused_point_counts_as_in_flight_until_another_is_found(
    small_spec: Spec, histories: list[Any]
) -> None:
    """Else a sampler that maximises comes to the same point again, try after try."""
    spec = small_spec(space=UNIT_SQUARE, strategy=STRATEGIES["tpe"], max_trials=99).model_copy(
        update={"constraints": ["x > 0.9"]}
    )
    suggester = Suggester(spec)
    suggester.learn([], {})
    assert suggester.suggest(0).params["x"] > 0.9
    assert [len(history) for history in histories] == list(range(len(histories)))
    assert len(histories) > 1
    suggester.suggest(1)
    assert len(suggester._open_storage().get_all_trials(0)) == 2
