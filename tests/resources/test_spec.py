"""A wrong spec is refused with the field's path, the value and what is accepted."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from halving import InvalidInput
from resources.spec import SweepSpec, check_functions, load_spec, parse_spec
from tests.conftest import CHECKOUT, SMALL

WRONG = [
    ({"space": {"lr": {"float": {"low": 1.0, "high": 0.1}}}}, ["space.lr.float", "low = 1.0", "below high = 0.1"]),
    ({"space": {"lr": {"float": {"low": 1.0, "high": 1.0}}}}, ["space.lr.float", "low = 1.0", "below high = 1.0"]),
    ({"space": {"n": {"int": {"low": 5, "high": 2}}}}, ["space.n.int", "low = 5", "below high = 2"]),
    ({"space": {"lr": {"float": {"low": 0.0, "high": 0.1, "log": True}}}}, ["space.lr.float", "low = 0.0", "above 0"]),
    ({"space": {"lr": {"float": {"low": 0.0, "high": float("nan")}}}}, ["space.lr.float.high", "nan", "finite"]),
    ({"space": {"a": {"categorical": []}}}, ["space.a.categorical", "[]", "at least 1"]),
    ({"space": {"a": {"categorical": ["x", "x"]}}}, ["space.a", "['x', 'x']", "each value once"]),
    ({"space": {"a": {"float": {"low": 0, "high": 1}, "int": {"low": 0, "high": 1}}}}, ["space.a", "exactly one of", "categorical"]),
    ({"space": {"a": {"uniform": {"low": 0, "high": 1}}}}, ["space.a.uniform", "no such field", "'float'"]),
    ({"space": {}}, ["space", "{}", "at least 1"]),
    ({"objective": {"metric": "score", "direction": "up"}}, ["objective.direction", "'up'", "'maximize' or 'minimize'"]),
    ({"trainable": "tests/trainables.py"}, ["trainable", "'tests/trainables.py'", "module:function"]),
    ({"name": "two words"}, ["name", "'two words'", "letters, digits"]),
    ({"strategy": {"asha": {"min_budget": 9, "max_budget": 3}}}, ["strategy.asha", "min_budget = 9", "max_budget = 3"]),
    ({"strategy": {"asha": {"reduction_factor": 1}}}, ["strategy.asha.reduction_factor", "1", "greater than or equal to 2"]),
    ({"strategy": {"asha": {"sampler": "best"}}}, ["strategy.asha.sampler", "'best'", "'random' or 'tpe'"]),
    ({"strategy": {"hyperopt": {}}}, ["strategy.hyperopt", "no such field", "['asha', 'grid', 'random']"]),
    ({"strategy": {"grid": {"points": 4}}, "max_trials": 3}, ["strategy.grid has 4 combinations", "max_trials = 3"]),
    ({"space": {"a": [1, 2]}}, ["space.a = [1, 2]", "['categorical', 'float', 'int']"]),
    ({"max_trials": 0}, ["max_trials", "0", "greater than or equal to 1"]),
    ({"max_trials": "many"}, ["max_trials", "'many'", "integer"]),
    ({"concurency": 2}, ["concurency", "no such field, did you mean 'concurrency'?"]),
    ({"gates": {"metric": "auc"}}, ["gates.metric", "'auc'", "'accuracy'"]),
]


@pytest.mark.parametrize(("change", "said"), WRONG, ids=lambda value: str(value)[:60])
def test_a_wrong_field_is_named_with_its_value_and_what_is_accepted(
    small: Callable[..., dict[str, Any]], change: dict[str, Any], said: list[str]
) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_spec(small(**change))
    for part in said:
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("splits", "said"),
    [({"train": 0.5, "test": 0.5}, "validation"), ({"train": 0.5, "validation": 0.2, "test": 0.2}, "add up to 1, not 0.9")],
)
def test_splits_that_do_not_cover_the_rows_are_refused(small: Callable[..., dict[str, Any]], splits: dict[str, float], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        parse_spec(small(dataset={**SMALL["dataset"], "splits": splits}))


def test_every_missing_field_is_named_at_once() -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_spec({})
    for field in ("name", "trainable", "predictor", "dataset", "objective", "space"):
        assert f"- {field} is missing" in str(caught.value)


def test_a_file_that_is_not_there_or_not_yaml_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"nowhere\.yaml.*No such file"):
        load_spec(tmp_path / "nowhere.yaml")
    (tmp_path / "broken.yaml").write_text("a: [")
    with pytest.raises(InvalidInput, match=r"broken\.yaml.*not YAML"):
        load_spec(tmp_path / "broken.yaml")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"trainable": "tests.nothing:train"}, "trainable = 'tests.nothing:train'.*no module 'tests.nothing'"),
        ({"trainable": "tests.trainables:trian"}, "trainable.*no function 'trian'.*'train'"),
        ({"predictor": "tests.trainables:guess"}, "predictor.*no function 'guess'.*'predict'"),
        ({"dataset": {**SMALL["dataset"], "source": "tests.trainables:dat"}}, "dataset.source.*no function 'dat'.*'data'"),
    ],
)
def test_a_function_that_does_not_exist_is_named_with_those_that_do(
    small_spec: Callable[..., SweepSpec], change: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidInput, match=said):
        check_functions(small_spec(**change))


def test_the_digest_is_that_of_the_meaning_not_of_the_spelling(small: Callable[..., dict[str, Any]]) -> None:
    spelled_out = small(seed=0, auto_promote=False, resources={"cpus": 1, "gpus": 0})
    assert parse_spec(spelled_out).digest == parse_spec(small()).digest
    assert parse_spec(small(seed=1)).digest != parse_spec(small()).digest


@pytest.mark.parametrize(
    ("low", "high", "factor", "rungs"),
    [(1, 27, 3, (1, 3, 9, 27)), (1, 1, 3, (1,)), (2, 20, 3, (2, 6, 18, 20)), (1, 16, 4, (1, 4, 16)), (5, 6, 2, (5, 6))],
)
def test_rungs_rise_by_the_reduction_factor_and_end_at_the_maximum(
    small_spec: Callable[..., SweepSpec], low: int, high: int, factor: int, rungs: tuple[int, ...]
) -> None:
    strategy = {"asha": {"min_budget": low, "max_budget": high, "reduction_factor": factor}}
    assert small_spec(strategy=strategy).budgets == rungs


def test_the_sweeps_that_ship_are_valid_and_their_functions_exist() -> None:
    files = sorted((CHECKOUT / "sweeps").glob("*.yaml"))
    assert files
    for file in files:
        check_functions(parse_spec(yaml.safe_load(file.read_text())))


@pytest.mark.parametrize(("trials", "rungs"), [(27, 4), (26, 3), (9, 3), (3, 2), (1, 1)])
def test_few_trials_fill_few_rungs(small_spec: Callable[..., SweepSpec], trials: int, rungs: int) -> None:
    spec = small_spec(max_trials=trials, strategy={"asha": {"max_budget": 27}})
    assert spec.reachable_rungs == rungs


def test_a_grid_of_many_parameters_is_counted_without_being_built(small_spec: Callable[..., SweepSpec]) -> None:
    space = {f"p{number}": {"float": {"low": 0.0, "high": 1.0}} for number in range(40)}
    with pytest.raises(InvalidInput, match="12157665459056928801 combinations"):
        small_spec(space=space, strategy={"grid": {"points": 3}})
