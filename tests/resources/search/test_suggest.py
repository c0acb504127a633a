"""Suggestions lie in the space and repeat for the same history in any process."""

from typing import Any

import optuna
import pytest

from halving.errors import InvalidInput
from resources.search.rules import max_trials
from resources.search.state import Result, Status, TrialState
from resources.search.suggest import make_suggester
from resources.search.suggestions import optuna_suggester, random_points
from resources.search.suggestions.suggester import Tried
from resources.search.suggestions.tpe import TpeSuggester
from resources.sweep_spec.points import problems_of
from tests.resources.search.played_sweeps import (
    CONSTRAINTS,
    NSGA2,
    QMC,
    SLOW,
    SPACE,
    STRATEGIES,
    UNIT_SQUARE,
    Played,
    Spec,
    complete_with,
    finish_mixed,
    near,
    play,
)

# The suggester silences it once for its process, and pytest undoes that after each test.
pytestmark = pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")


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
    sweep = Played(spec, make_suggester(spec))
    for tried in play(small_spec(strategy=STRATEGIES["random"], **changes), 30).tried:
        sweep.tried.append(Tried(tried.params, finish_mixed(sweep, tried.state.number, {})))
    params = sweep.next().params
    sweep.afresh = True
    assert sweep.next().params == params
    assert problems_of(spec, params) == []


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
    suggester = make_suggester(spec)
    assert not suggester.needs_history
    points = [suggester.suggest(number).params for number in range(max_trials(spec))]
    assert points == [{"a": a, "b": b, "c": "c"} for a in (1, 2, 3) for b in (0.0, 0.5, 1.0)]


def test_random_suggestions_depend_on_the_seed_and_the_number_alone(small_spec: Spec) -> None:
    spec = small_spec(space=SPACE, strategy=STRATEGIES["random"])
    suggester = make_suggester(spec)
    assert not suggester.needs_history
    backwards = [suggester.suggest(number).params for number in reversed(range(5))]
    assert [make_suggester(spec).suggest(number).params for number in range(5)] == backwards[::-1]


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
    monkeypatch.setattr(optuna_suggester, "MAX_ASKS", 3)
    monkeypatch.setattr(random_points, "_MAX_DRAWS", 3)
    suggester = TpeSuggester(spec)
    with pytest.raises(InvalidInput, match=r"x \+ y > 2.* none of 3 at random satisfies them"):
        suggester.suggest(0)
    assert suggester.history.storage.get_all_trials(0) == []  # what was refused is not in flight
