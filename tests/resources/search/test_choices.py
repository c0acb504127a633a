"""A trial gets a choice as it was written (null, a list, a mapping, a text), whatever suggests it."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from resources.search.state import Result, Status, TrialState
from resources.search.suggest import make_suggester
from resources.search.suggestions.optuna_terms import distribution_of, searched_params
from resources.search.suggestions.suggester import Earlier, Tried
from resources.sweep_spec import SweepSpec, stored_spec
from resources.sweep_spec.points import Params, problems_of
from resources.sweep_spec.space import Parameter, choice_name
from tests.properties import examples

Spec = Callable[..., SweepSpec]

pytestmark = pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")

STRATEGIES: list[dict[str, Any]] = [
    {"random": {"budget": 1}},
    {"grid": {"budget": 1}},
    {"tpe": {"budget": 1}},
    {"nsga2": {"budget": 1, "population_size": 3}},
    {"bohb": {"max_budget": 9}},
]
GP: dict[str, Any] = {"gp": {"budget": 1}}

CHOICES: list[list[Any]] = [
    [None, 3, 5],
    [[64, 64], [128]],
    [{"name": "sgd", "momentum": 0.9}, {"name": "adam"}],
    [[], [1]],
    [{}, {"a": None}],
    [None],
    [[64, 64]],
    [True, False, None],
    ["", None, "null"],
    [
        {f"option {number}": number for number in range(60)},
        {f"option {number}": number for number in range(1, 61)},
    ],
    [9007199254740993, 9007199254740992],
    [2**63 - 1, -(2**63)],
    [[1, 2.5, "three", None, [True]], "four", 5, 6.5, False],
]


def wanted_values(spec: SweepSpec) -> list[str]:
    return [repr(choice) for choice in spec.space["a"].choices or []]


def play(spec: SweepSpec, count: int = 12) -> list[Params]:
    """The params of so many trials, each finished before the next one is suggested."""
    suggester = make_suggester(spec)
    tried = []
    attrs = {}
    for number in range(count):
        suggester.learn(tried, attrs)
        suggestion = suggester.suggest(number)
        assert problems_of(spec, suggestion.params) == []
        attrs = json.loads(json.dumps(suggestion.sweep_attrs))
        kept = json.loads(json.dumps([suggestion.params, suggestion.trial_attrs], sort_keys=True))
        results = tuple(Result((number / 10,), 0.0) for _ in spec.ladders[number % len(spec.ladders)])
        tried.append(Tried(suggestion.params, TrialState(number, Status.COMPLETED, results), kept[1]))
        assert kept[0] == suggestion.params
    return [trial.params for trial in tried]


@pytest.mark.parametrize("choices", CHOICES, ids=lambda choices: repr(choices)[:40])
@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda strategy: next(iter(strategy)))
def test_a_trial_gets_one_of_the_values_as_it_is(
    small_spec: Spec, strategy: dict[str, Any], choices: list[Any]
) -> None:
    space = {"a": {"categorical": choices}, "x": {"float": {"low": 0.0, "high": 1.0, "step": 0.25}}}
    spec = small_spec(space=space, strategy=strategy, max_trials=90)
    count = 12
    if "grid" in strategy:
        count = 5 * len(choices)
    values = [repr(params["a"]) for params in play(spec, count)]
    assert set(values) <= set(wanted_values(spec))
    assert len(set(values)) > 1 or len(choices) == 1, "they are searched"


@pytest.mark.slow
@pytest.mark.parametrize("choices", CHOICES[:4], ids=lambda choices: repr(choices)[:40])
def test_a_gaussian_process_suggests_the_values_as_they_are(small_spec: Spec, choices: list[Any]) -> None:
    spec = small_spec(
        space={"a": {"categorical": choices}, "x": {"float": {"low": 0.0, "high": 1.0}}},
        strategy=GP,
        max_trials=90,
    )
    assert {repr(params["a"]) for params in play(spec)} <= set(wanted_values(spec))


@pytest.mark.parametrize("constant", [None, [], {}, [None], {"a": [1, {"b": None}]}, [64, 64], False, 0, ""])
@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda strategy: next(iter(strategy)))
def test_a_constant_is_in_every_trial_as_it_is(
    small_spec: Spec, strategy: dict[str, Any], constant: Any
) -> None:
    spec = small_spec(
        space={"a": {"constant": constant}, "n": {"int": {"low": 1, "high": 4}}}, strategy=strategy
    )
    assert [repr(params["a"]) for params in play(spec, 4)] == [repr(constant)] * 4
    assert stored_spec(json.loads(spec.canonical_json())) == spec


def test_a_constant_null_is_a_kind_of_its_own() -> None:
    for other in ({"int": {"low": 1, "high": 2}}, {"categorical": [1]}):
        with pytest.raises(ValidationError, match="give exactly one of"):
            Parameter.model_validate({"constant": None, **other})
    assert Parameter.model_validate({"constant": None, "float": None}).choices == [None]


@pytest.mark.parametrize(
    "strategy", [*STRATEGIES[:1], *STRATEGIES[2:]], ids=lambda strategy: next(iter(strategy))
)
def test_points_to_start_from_and_conditions_know_such_values(
    small_spec: Spec, strategy: dict[str, Any]
) -> None:
    spec = small_spec(
        space={
            "layers": {"categorical": [[64, 64], [128], None]},
            "opt": {"categorical": [{"name": "sgd"}, {"name": "adam"}]},
            "momentum": {"float": {"low": 0.1, "high": 0.9}, "when": {"opt": {"name": "sgd"}}},
            "dropout": {"float": {"low": 0.1, "high": 0.9}, "when": {"layers": [[64, 64], None]}},
        },
        start_from=[{"layers": [64, 64], "opt": {"name": "sgd"}}, {"layers": None, "opt": {"name": "adam"}}],
        constraints=["momentum <= 0.9"],
        strategy=strategy,
    )
    first, second, *others = play(spec, 8)
    assert (first["layers"], first["opt"], {"momentum", "dropout"} - set(first)) == (
        [64, 64],
        {"name": "sgd"},
        set(),
    )
    assert (second["layers"], second["opt"], "momentum" in second, "dropout" in second) == (
        None,
        {"name": "adam"},
        False,
        True,
    )
    for params in others:
        assert ("momentum" in params) == (params["opt"] == {"name": "sgd"})
        assert ("dropout" in params) == (params["layers"] != [128])


def test_constraints_compare_null_by_name(small_spec: Spec) -> None:
    space = {"max_depth": {"categorical": [None, 3, 5, 7]}}
    spec = small_spec(
        space=space, constraints=["max_depth == None or max_depth < 5"], strategy={"grid": {"budget": 1}}
    )
    assert [params["max_depth"] for params in play(spec, 2)] == [None, 3]


def test_earlier_trials_are_known_by_the_specs_own_choices(small_spec: Spec) -> None:
    spec = small_spec(
        space={"a": {"categorical": [[1], [2, None]]}, "x": {"float": {"low": 0, "high": 1}}},
        strategy={"tpe": {"budget": 1}},
    )
    earlier = [Earlier({"a": value, "x": 0.5}, 1, Result((0.5,), 0.0)) for value in ([1.0], [2, None])]
    assert [searched_params(spec.space, trial.params)["a"] for trial in earlier] == ["[1]", "[2, null]"]
    suggester = make_suggester(spec, earlier)
    suggester.learn([], {})
    assert repr(suggester.suggest(0).params["a"]) in ("[1]", "[2, None]")


def holding(values: Any) -> Any:
    return values | st.lists(values, max_size=3) | st.dictionaries(st.text(max_size=3), values, max_size=3)


numbers = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
nested = holding(holding(holding(st.none() | st.booleans() | numbers | st.text(max_size=5))))


@settings(max_examples=examples(100))
@given(st.lists(nested, min_size=1, max_size=6))
def test_every_choice_has_a_short_name_of_its_own_and_comes_back_from_its_spec(choices: list[Any]) -> None:
    names = [choice_name(choice) for choice in choices]
    assume(
        all(
            choice not in choices[:place] and names[place] not in names[:place]
            for place, choice in enumerate(choices)
        )
    )
    parameter = Parameter.model_validate({"categorical": choices})
    assert all(
        isinstance(choice, str) or len(str(name)) <= 40 for name, choice in zip(names, choices, strict=True)
    )
    assert distribution_of(parameter).choices == tuple(names)  # type: ignore[attr-defined]
    if not parameter.is_fixed:
        assert [searched_params({"a": parameter}, {"a": choice}) for choice in choices] == [
            {"a": name} for name in names
        ]
    again = Parameter.model_validate(json.loads(parameter.model_dump_json(by_alias=True, exclude_none=True)))
    assert repr(again.categorical) == repr(choices)


def test_long_values_have_short_names() -> None:
    first, second = (choice_name(list(range(start, 100))) for start in (0, 1))
    assert first != second
    assert [len(first), len(second)] == [39, 39]
    assert first.startswith("[0, 1, 2, 3")


@pytest.mark.parametrize("value", [2**53 + 1, -(2**53) - 1, 2**62 + 1, 0])
@pytest.mark.parametrize("strategy", [{"tpe": {"budget": 1}}, {"random": {"budget": 1}}])
def test_a_whole_number_to_start_from_is_exact(
    small_spec: Spec, strategy: dict[str, Any], value: int
) -> None:
    space = {"a": {"int": {"low": -(2**62), "high": 2**62 + 2}}, "x": {"float": {"low": 0.0, "high": 1.0}}}
    assert play(small_spec(space=space, strategy=strategy, start_from=[{"a": value}]), 1)[0]["a"] == value
