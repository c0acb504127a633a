"""A wrong spec is refused with the field's path, the value and what is accepted."""

from collections.abc import Callable
from types import UnionType
from typing import Any, Union, get_args, get_origin

import pytest
from pydantic import BaseModel, ValidationError

from halving import InvalidInput
from resources.sweep_spec import SweepSpec, parse_spec
from tests.resources.sweep_spec.wrong_specs import (
    LATENCY,
    X,
    check_refusal,
    data_checks,
    objective,
    space,
    strategy,
)

LIMITS = [
    (strategy(random={"budget": 10**20}), ["strategy.random.budget = 1", "less than or equal to 2147483647"]),
    (
        strategy(asha={"max_budget": 2**31}),
        ["strategy.asha.max_budget = 2147483648", "less than or equal to 2147483647"],
    ),
    (
        strategy(median={"max_budget": 10**9}),
        ["interval = 1 makes 1000000000 checks", "more than 1000", "at least 1001001"],
    ),
    (strategy(median={"max_budget": 1002}), ["strategy.median", "1002 checks", "an interval of at least 2"]),
    ({"max_retries": 2**31}, ["max_retries = 2147483648", "less than or equal to 2147483647"]),
    (
        strategy(asha={"options": {"n_ei_candidates": 10**7}}),
        ["strategy.asha.options", "n_ei_candidates = 10000000", "-10000 to 10000"],
    ),
    (
        strategy(asha={"options": {"space": {k: [1, 2, 3] for k in "abcdefghijkl"}}}),
        ["space = {'a': [1, 2, 3]", "at most 90000 points"],
    ),
    (strategy(asha={"options": {"a": float("nan")}}), ["strategy.asha.options", "a = nan", "give numbers"]),
    (space(**{f"p{i}": X for i in range(1001)}), ["space", "at most 1000 items"]),
    (space(**{"p" * 251: X}), ["space.ppp", "at most 250 characters"]),
    (space(a={"categorical": list(range(1001))}), ["space.a.categorical", "at most 1000 items"]),
    (space(a={"constant": "x" * 10_001}), ["space.a.constant", "10001 characters", "at most 10000"]),
    (space(a={"constant": 10**400}), ["space.a.constant", "from -2**63 to 2**63 - 1"]),
    ({"start_from": [{"x": 0.5}] * 1001}, ["start_from", "at most 1000 items"]),
    (
        {"constraints": ["x < " + "+".join("x" * 2000)]},
        ["constraints.0 = 'x < x+x", "characters; give at most 1000"],
    ),
    ({"constraints": ["x < " + "+".join("x" * 300)]}, ["constraints.0 = 'x < x+x", "more than 50 deep"]),
]


DATA_CHECKS = [
    (
        data_checks(nulls="warn"),
        [
            "dataset.checks.nulls = 'warn'",
            "bounds of columns, such as {age: 0.1}",
            'give nulls_severity: "warn"',
        ],
    ),
    # YAML reads an unquoted off so.
    (data_checks(nulls=False), ["dataset.checks.nulls = False", 'give nulls_severity: "off"']),
    (
        data_checks(nulls={"age": True}),
        ["dataset.checks.nulls is not accepted: age = True: true and false are no numbers"],
    ),
    (
        data_checks(ranges={"age": {"min": False}}),
        ["dataset.checks.ranges.age.min = False", "true and false are no numbers; give a number"],
    ),
    (
        data_checks(ranges="block"),
        ["dataset.checks.ranges = 'block'", "{age: {min: 0, max: 120}}", 'give ranges_severity: "block"'],
    ),
    (data_checks(ranges="all"), ["dataset.checks.ranges = 'all'", "give names and values"]),
    (data_checks(nulls={"age": "warn"}), ["dataset.checks.nulls.age = 'warn'", "a valid number"]),
    (
        data_checks(nulls_severity={"age": 0.1}),
        ["dataset.checks.nulls_severity = {'age': 0.1}", "'block', 'warn' or 'off'"],
    ),
    (data_checks(range_severity="warn"), ["dataset.checks.range_severity", "did you mean 'ranges_severity'"]),
]


OTHERS = [
    ({"metrics": ["roc_ac"]}, ["metrics.0 = 'roc_ac'", "did you mean 'roc_auc'", "neg_log_loss"]),
    ({"metrics": ["rand_score"]}, ["metrics.0 = 'rand_score'", "no such scorer for a table"]),
    ({"metrics": ["roc_auc", "roc_auc"]}, ["metrics.1 = 'roc_auc'", "give each once"]),
    (
        {"metrics": ["roc_auc"], "gates": [{"improvement": {"metric": "f1"}}]},
        ["gates.0.improvement.metric = 'f1'", "add it to metrics, or give one of ['roc_auc']"],
    ),
    (
        {"evaluator": "m:f"},
        ["evaluator = 'm:f'", "predictor = 'tests.trainables:predict' judges the winner already"],
    ),
    (
        {"predictor": None, "evaluator": "m:f", "metrics": ["r2"]},
        ["metrics = ['r2']", "the evaluator gives its own"],
    ),
    ({"slices": ["age >= "]}, ["slices.0 = 'age >= '", "a comparison of columns such as 'age >= 65'"]),
    ({"slices": ["__import__('os') == 1"]}, ["slices.0", "is no call of min"]),
    ({"slices": ["x", "x"]}, ["slices.1 = 'x'", "give each once"]),
    ({"evaluation_limits": {"seconds": 0}}, ["evaluation_limits.seconds", "greater than 0"]),
    ({"evaluation_limits": {"memory": "much"}}, ["evaluation_limits.memory", "for example 512Mi"]),
    ({"serving": {"batch": 1}}, ["serving.batch", "greater than or equal to 2"]),
    (objective(direction="up"), ["objective.direction", "'up'", "'maximize' or 'minimize'"]),
    (objective(window=5), ["objective", "window = 5", "summary = 'average', not 'end'", "leave it out"]),
    (objective(summary="average", window=0), ["objective.window", "0", "greater than or equal to 1"]),
    (objective(summary="last"), ["objective.summary", "'last'", "'end', 'best' or 'average'"]),
    ({"other_objectives": [LATENCY]}, ["other_objectives = ['latency']", "strategy.asha", "nsga2", "bounds"]),
    (
        {"other_objectives": [LATENCY, LATENCY], **strategy(tpe={})},
        ["other_objectives.1.metric = 'latency'", "objective already"],
    ),
    ({"bounds": {"latency": {"min": 5, "max": 3}}}, ["bounds.latency", "min = 5 ", "max = 3"]),
    ({"bounds": {"latency": {}}}, ["bounds.latency", "give min, max or both"]),
    ({"divergence": {"loss": 1000}}, ["divergence.loss = 1000", "the fields are max, min"]),
    ({"training": {"lr_schedule": "cosin"}}, ["training.lr_schedule", "'cosin'", "'cosine'"]),
    ({"training": {"warmup": 3}}, ["training.warmup", "3", "did you mean 'warmup_epochs'"]),
    ({"resources": {"grace_seconds": -1}}, ["resources.grace_seconds", "-1", "greater than or equal to 0"]),
    ({"max_preemptions": -1}, ["max_preemptions", "-1", "greater than or equal to 0"]),
    ({"trainable": "tests/trainables.py"}, ["trainable", "'tests/trainables.py'", "module:function"]),
    ({"name": "two words"}, ["name", "'two words'", "letters, digits"]),
    ({"max_trials": 0}, ["max_trials", "0", "greater than or equal to 1"]),
    ({"max_trials": "many"}, ["max_trials", "'many'", "integer"]),
    ({"concurency": 2}, ["concurency", "no such field, did you mean 'concurrency'?"]),
    ({"gates": {"metric": "accuracy"}}, ["gates", "list"]),
    (
        {"gates": [3]},
        ["gates.0", "give a name, or a name with its settings; the gates are bounds, finite_metrics"],
    ),
    ({"gates": ["linage"]}, ["gates.0.linage", "no such field, did you mean 'lineage'?"]),
    ({"gates": [{"lineage": {}, "leakage": {}}]}, ["gates.0", "give exactly one of"]),
    ({"gates": [{"non_inferior": {"margin": 0}}]}, ["gates.0.non_inferior.margin", "greater than 0"]),
    (
        {"gates": [{"non_inferior": {"margin": 1, "margin_percent": 2}}]},
        ["gates.0.non_inferior", "margin = 1 and margin_percent = 2"],
    ),
    (
        {"gates": [{"improvement": {"effect": 1, "effect_percent": 2}}]},
        ["gates.0.improvement", "effect = 1 and effect_percent = 2"],
    ),
    ({"gates": [{"bounds": {"metric": "accuracy"}}]}, ["gates.0.bounds", "give min, max or both"]),
    ({"gates": ["latency"]}, ["gates.0.latency", "give p50_ms, p99_ms or both"]),
    ({"gates": ["slices"]}, ["gates.0 = 'slices'", "the spec has no slices"]),
    (
        {"gates": [{"latency": {"p50_ms": 1}}], "serving": {"seconds": 0}},
        ["gates.0 = 'latency'", "serving.seconds = 0 measures nothing"],
    ),
]


@pytest.mark.parametrize(
    ("change", "parts"), LIMITS + DATA_CHECKS + OTHERS, ids=lambda value: str(value)[:60]
)
def test_a_wrong_field_is_named_with_its_value_and_what_is_accepted(
    small: Callable[..., dict[str, Any]], change: dict[str, Any], parts: list[str]
) -> None:
    check_refusal(small(**change), parts)


def numeric_fields(model: type[BaseModel]) -> set[tuple[type[BaseModel], str, Any]]:
    """The fields, also of inner parts of a spec, that are numbers or mappings to numbers; and which it is."""
    fields = set()
    for name, field in model.model_fields.items():
        kinds = [field.annotation, *types_inside(field.annotation)]
        if {int, float} & {*kinds} and not {bool, Any} & {*kinds}:
            alone = field.annotation in (int, float) or get_origin(field.annotation) in (UnionType, Union)
            fields.add((model, field.alias or name, alone))
        for kind in kinds:
            if isinstance(kind, type) and get_origin(kind) is None and issubclass(kind, BaseModel):
                fields |= numeric_fields(kind)
    return fields


def types_inside(annotation: Any) -> list[Any]:
    return [
        kind
        for argument in get_args(annotation)
        for kind in (argument, *types_inside(argument))
        if isinstance(kind, type) or kind is Any
    ]


def test_a_flag_is_no_number_in_any_field_of_a_spec() -> None:
    fields = sorted(numeric_fields(SweepSpec), key=str)
    assert len(fields) > 60
    for model, name, is_alone in fields:
        for flag in (True, False):
            with pytest.raises(ValidationError) as caught:
                model.model_validate({name: flag if is_alone else {"a": flag}})
            messages = [error["msg"] for error in caught.value.errors() if error["loc"] == (name,)]
            assert any("no number" in message or "give a whole number" in message for message in messages), (
                model,
                name,
                messages,
            )


def test_a_grid_too_large_to_build_is_refused_without_being_built(
    small: Callable[..., dict[str, Any]],
) -> None:
    with pytest.raises(
        InvalidInput, match=r"strategy\.grid is not accepted: a grid of more than 90,000 combinations"
    ):
        parse_spec(small(space={f"p{number}": X for number in range(40)}, strategy={"grid": {"points": 3}}))


def test_all_that_is_wrong_is_told_at_once(small: Callable[..., dict[str, Any]]) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_spec(small(warm_start="auto", constraints=["y < 1"], other_objectives=[LATENCY]))
    assert len(str(caught.value).splitlines()) == 4
