"""A spec is read with its defaults, and what it names is imported before anything runs."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from halving import InvalidInput
from resources.sweep_spec import SweepSpec, check_functions, load_spec, parse_spec, stored_spec
from tests.backends import CHECKOUT, SMALL


@pytest.mark.parametrize(
    ("splits", "message"),
    [
        ({"train": 0.5, "test": 0.5}, "validation"),
        ({"train": 0.5, "validation": 0.2, "test": 0.2}, "add up to 1, not 0.9"),
    ],
)
def test_splits_that_do_not_cover_the_rows_are_refused(
    small: Callable[..., dict[str, Any]], splits: dict[str, float], message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        parse_spec(small(dataset={**SMALL["dataset"], "splits": splits}))


def test_every_missing_field_is_named_at_once() -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_spec({})
    for field in ("name", "trainable", "dataset", "objective", "space"):
        assert f"- {field} is missing" in str(caught.value)


def test_a_file_that_is_not_there_or_not_yaml_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"nowhere\.yaml.*No such file"):
        load_spec(tmp_path / "nowhere.yaml")
    (tmp_path / "broken.yaml").write_text("a: [")
    with pytest.raises(InvalidInput, match=r"broken\.yaml.*not YAML"):
        load_spec(tmp_path / "broken.yaml")


def optuna(sampler: str, **options: Any) -> dict[str, Any]:
    return {"strategy": {"optuna": {"sampler": f"optuna.samplers:{sampler}", "options": options}}}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"trainable": "tests.nothing:train"},
            "trainable = 'tests.nothing:train'.*no module 'tests.nothing'",
        ),
        ({"trainable": "tests.trainables:trian"}, "trainable.*no function 'trian'.*'train'"),
        ({"predictor": "tests.trainables:guess"}, "predictor.*no function 'guess'.*'predict'"),
        (
            {"dataset": {**SMALL["dataset"], "source": "tests.trainables:dat"}},
            "dataset.source.*no function 'dat'.*'data'",
        ),
        (
            {"strategy": {"optuna": {"sampler": "optuna.samplers:TPESample"}}},
            r"strategy\.optuna\.sampler.*no function 'TPESample'",
        ),
        (
            {"strategy": {"asha": {"sampler": "tests.trainables:train"}}},
            r"strategy\.asha\.sampler.*no optuna\.samplers\.BaseSampler",
        ),
        (
            {"strategy": {"asha": {"options": {"gama": 3}}}},
            r"strategy\.asha\.options = \{'gama': 3\}.*'gama'.*its options are .*'gamma'",
        ),
        (
            {"strategy": {"hyperband": {"options": {"a": 3}}}},
            r"strategy\.hyperband\.options = \{'a': 3\}.*'random'.*its options are \[\]",
        ),
        (
            optuna("GridSampler", search_space=5),
            "search_space.*attribute",
        ),
        (
            optuna("PartialFixedSampler", fixed_params=1, base_sampler=1),
            r"strategy\.optuna\.options = .*base_sampler",
        ),
    ],
)
def test_what_does_not_exist_is_named_with_what_does(
    small_spec: Callable[..., SweepSpec], change: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        check_functions(small_spec(**change))


@pytest.mark.parametrize(
    "strategy",
    [
        {"asha": {"sampler": "tpe", "options": {"n_startup_trials": 3, "gamma": None}}},
        {"optuna": {"sampler": "optuna.samplers:NSGAIIISampler", "options": {"population_size": 8}}},
        {"optuna": {"sampler": "optuna.samplers:QMCSampler"}},
        {"nsga2": {"population_size": 8}},
    ],
)
def test_a_sampler_of_optunas_is_accepted_with_its_own_options(
    small_spec: Callable[..., SweepSpec], strategy: dict[str, Any]
) -> None:
    check_functions(small_spec(strategy=strategy))


def test_a_sampler_whose_package_is_missing_names_the_package(small_spec: Callable[..., SweepSpec]) -> None:
    spec = small_spec(strategy={"optuna": {"sampler": "tests.resources.sweep_spec.samplers:NeedsAPackage"}})
    with pytest.raises(
        InvalidInput,
        match=r"strategy\.optuna\.sampler = 'tests.*NeedsAPackage'.*pip install package_that_is_missing",
    ):
        check_functions(spec)


def test_a_sampler_for_one_objective_is_refused_for_two(small_spec: Callable[..., SweepSpec]) -> None:
    spec = small_spec(
        strategy={"optuna": {"sampler": "tests.resources.sweep_spec.samplers:SingleObjective"}},
        other_objectives=[{"metric": "latency", "direction": "minimize"}],
    )
    with pytest.raises(InvalidInput, match="with 2 objectives: "):
        check_functions(spec)


def test_the_digest_is_that_of_the_meaning_not_of_the_spelling(small: Callable[..., dict[str, Any]]) -> None:
    spelled_out = small(seed=0, auto_promote=False, resources={"cpus": 1, "gpus": 0})
    assert parse_spec(spelled_out).digest == parse_spec(small()).digest
    assert parse_spec(small(seed=1)).digest != parse_spec(small()).digest
    space = {"a": {"categorical": ["x", "y"]}, "b": {"constant": 1, "when": {"a": "x"}}}
    as_list = {**space, "b": {"constant": 1, "when": {"a": ["x"]}}}
    assert parse_spec(small(space=space)).digest == parse_spec(small(space=as_list)).digest
    average = {"metric": "score", "direction": "maximize", "summary": "average"}
    assert (
        parse_spec(small(objective=average)).digest
        == parse_spec(small(objective={**average, "window": 5})).digest
    )


def test_a_spec_that_does_not_ask_for_determinism_has_the_digest_that_it_had(
    small: Callable[..., dict[str, Any]],
) -> None:
    spec = parse_spec(small())
    assert "deterministic" not in spec.canonical_json()
    assert (
        parse_spec(small(deterministic=False)).digest
        == spec.digest
        != parse_spec(small(deterministic=True)).digest
    )


def test_a_spec_is_of_the_project_of_its_name_unless_it_names_one(
    small: Callable[..., dict[str, Any]],
) -> None:
    spec = parse_spec(small())
    assert (spec.project, spec.priority) == (spec.name, 0)
    named = parse_spec(small(project="vision", priority=3))
    assert (named.project, stored_spec(json.loads(named.canonical_json())).project) == ("vision", "vision")
    assert named.digest == spec.digest, "its place among other sweeps is no part of what it is"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"project": "a/b"}, "project = 'a/b' is not accepted: give 1-128 letters"),
        ({"project": ""}, "project = '' is not accepted: give 1-128 letters"),
        ({"priority": 1001}, "priority = 1001 is not accepted: Input should be less than or equal to 1000"),
        ({"name": "a/b"}, "name = 'a/b' is not accepted: give 1-128 letters"),
    ],
)
def test_a_wrong_project_or_priority_is_one_error(
    small: Callable[..., dict[str, Any]], change: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_spec(small(**change))
    assert str(refused.value).count("is not accepted: ") == 1
    assert message in str(refused.value)


def test_a_stored_spec_is_read_back_as_it_was(small_spec: Callable[..., SweepSpec]) -> None:
    spec = small_spec(
        space={
            "a": {"categorical": [1, True, 2.5, "x"][1:]},
            "b": {"int": {"low": 1, "high": 9, "step": 2}, "when": {"a": [True, "x"]}},
        },
        strategy={"median": {"options": {"gamma": None}}},
        warm_start="auto",
        bounds={"latency": {"max": 2}},
    )
    again = stored_spec(spec.model_dump(mode="json", by_alias=True, exclude_none=True))
    assert again == spec
    assert again.digest == spec.digest
    assert [type(choice) for choice in again.space["a"].choices or []] == [bool, float, str]


def test_a_stored_spec_loads_although_its_fields_would_be_refused_together_now(
    small: Callable[..., dict[str, Any]],
) -> None:
    data = small(strategy={"tpe": {}}, constraints=["x > 2"])
    with pytest.raises(InvalidInput, match="constraints"):
        parse_spec(data)
    assert stored_spec(data).constraints == ["x > 2"]


def test_a_stored_spec_of_another_version_is_refused_with_the_field_that_it_has(
    small: Callable[..., dict[str, Any]],
) -> None:
    with pytest.raises(InvalidInput, match="patience = 3 is not accepted: there is no such field"):
        stored_spec(small(patience=3))


def test_the_sweeps_that_ship_are_valid_and_their_functions_exist() -> None:
    files = sorted((CHECKOUT / "sweeps").glob("*.yaml"))
    assert files
    for file in files:
        check_functions(parse_spec(yaml.safe_load(file.read_text())))


def test_the_objectives_are_the_first_and_the_others(small_spec: Callable[..., SweepSpec]) -> None:
    spec = small_spec(
        strategy={"tpe": {}},
        other_objectives=[{"metric": "latency", "direction": "minimize", "summary": "average", "window": 2}],
    )
    assert [(objective.metric, objective.maximize, objective.window) for objective in spec.objectives] == [
        ("score", True, None),
        ("latency", False, 2),
    ]
