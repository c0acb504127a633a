"""A wrong search space, strategy or starting point is refused with its path, its value and the remedy."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.resources.sweep_spec.wrong_specs import (
    KIND,
    X,
    check_refusal,
    space,
    strategy,
)

RANGES = [
    (space(lr={"float": {"low": 1.0, "high": 0.1}}), ["space.lr.float", "low = 1.0", "below high = 0.1"]),
    (
        space(lr={"float": {"low": 1.0, "high": 1.0}}),
        ["space.lr.float", "low = 1.0", "below high = 1.0", "give constant"],
    ),
    (space(n={"int": {"low": 5, "high": 2}}), ["space.n.int", "low = 5", "below high = 2"]),
    (space(lr={"float": {"low": 0.0, "high": 0.1, "log": True}}), ["space.lr.float", "low = 0.0", "above 0"]),
    (
        space(n={"int": {"low": True, "high": 10}}),
        ["space.n.int.low = True is not accepted: true and false are no numbers; give a whole number"],
    ),
    (
        space(x={"float": {"low": 0, "high": True}}),
        ["space.x.float.high = True", "true and false are no numbers; give a number"],
    ),
    (space(lr={"float": {"low": 0.0, "high": float("nan")}}), ["space.lr.float.high", "nan", "finite"]),
    (
        space(lr={"float": {"low": 0, "high": 2**53 + 1}}),
        ["space.lr.float.high", "9007199254740993", "no double", "a range of int"],
    ),
    (
        space(lr={"float": {"low": 0, "high": "9007199254740993"}}),
        ["space.lr.float.high", "9007199254740993", "no double"],
    ),
    (space(lr={"float": {"low": 0, "high": 10**400}}), ["space.lr.float.high", "no double"]),
    (
        space(x={"float": {"low": 0.1, "high": 0.5, "log": True, "step": 0.1}}),
        ["space.x.float", "step = 0.1", "log = true", "leave one"],
    ),
    (
        space(n={"int": {"low": 1, "high": 10, "log": True, "step": 2}}),
        ["space.n.int", "high = 10", "steps of 2", "give high = 9 or 11"],
    ),
    (
        space(x={"float": {"low": 0.0, "high": 0.5, "step": 0.7}}),
        ["space.x.float", "step = 0.7", "larger than the range", "at most 0.5"],
    ),
    (
        space(n={"int": {"low": 0, "high": 5, "step": 6}}),
        ["space.n.int", "step = 6", "larger than the range", "at most 5"],
    ),
    (
        space(n={"int": {"low": 16, "high": 100, "step": 16}}),
        ["space.n.int", "high = 100", "steps of 16", "give high = 96 or 112"],
    ),
    (
        space(x={"float": {"low": 0.0, "high": 1.0, "step": 0.3}}),
        ["space.x.float", "high = 1.0", "give high = 0.9 or 1.2"],
    ),
    (space(x={"float": {"low": 0.0, "high": 1.0, "step": 0}}), ["space.x.float.step", "0", "greater than 0"]),
    (space(a={"categorical": []}), ["space.a.categorical", "[]", "at least 1"]),
    (space(a={"categorical": ["x", "x"]}), ["space.a", "each value once; 'x' is there twice"]),
    (space(a={"categorical": [1, 1.0]}), ["space.a", "each value once; 1.0 is there twice"]),
    (space(a={"categorical": [None, 1, None]}), ["space.a", "each value once; null is there twice"]),
    (space(a={"categorical": [1, True]}), ["space.a", "each value once; true is there twice"]),
    (space(a={"categorical": [[1], [2], [1.0]]}), ["space.a", "each value once; [1.0] is there twice"]),
    (space(a={"categorical": [[1], "[1]"]}), ["space.a", "each value once; '[1]' is there twice"]),
    (space(a={"categorical": [{"a": [1]}, '{"a": [1]}']}), ["space.a", "each value once", "is there twice"]),
    (
        space(a={"categorical": [{"a": 1, "b": 2}, {"b": 2, "a": 1}]}),
        ["space.a", "each value once", "is there twice"],
    ),
    (
        space(a={"categorical": [float("nan")]}),
        ["space.a.categorical.0 = nan", "a text, a finite number, true, false, null, or a list"],
    ),
    (
        space(a={"categorical": [[float("inf")]]}),
        ["space.a.categorical.0 = [inf]", "a text, a finite number, true, false, null, or a list"],
    ),
    (space(a={"constant": {"b": [2**63]}}), ["space.a.constant", "a whole number from -2**63"]),
    (
        space(a={"constant": {"b": {1: 2}}}),
        ["space.a.constant", "the name 1 in a mapping is no text; write it in quotes"],
    ),
    (
        space(a={"categorical": [[[[[[[1]]]]]]]}),
        ["space.a.categorical.0 = [[[[[[1]]]]]]", "more than 5 deep"],
    ),
    (space(a={"constant": [0] * 20_000}), ["space.a.constant", "more than 10000 values"]),
    (
        space(a={"constant": ["x" * 9_000] * 2}),
        ["space.a.constant", "characters as JSON; give at most 10000"],
    ),
    (
        space(a={"constant": {1, 2}}),
        ["space.a.constant", "a text, a finite number, true, false, null, or a list or mapping of them"],
    ),
    (space(a={"categorical": [["1e-3"]]}), ["space.a.categorical.0.0 = '1e-3'", "write the number as 0.001"]),
    (space(a={"constant": {"lr": "1e-3"}}), ["space.a.constant.lr = '1e-3'", "write the number as 0.001"]),
    (
        space(a={"constant": None, "categorical": [1], "int": {"low": 1, "high": 2}}),
        ["space.a", "got int, categorical, constant"],
    ),
    (
        space(a={"constant": None, "categorical": [1]}),
        ["space.a", "exactly one of", "got categorical, constant"],
    ),
    (space(a={"constant": None, **X}), ["space.a", "exactly one of", "got float, constant"]),
    (
        space(a={**X, "int": {"low": 0, "high": 1}}),
        ["space.a", "exactly one of", "categorical", "got float, int"],
    ),
    (space(a={**X, "constant": 1}), ["space.a", "exactly one of", "got float, constant"]),
    (space(a={"when": {}}), ["space.a", "exactly one of", "got nothing"]),
    (
        space(a={"uniform": {"low": 0, "high": 1}}),
        ["space.a.uniform", "no such field", "accepted are categorical, constant, float"],
    ),
    (space(a=[1, 2]), ["space.a = [1, 2]", "the fields are categorical, constant, float, int, when"]),
    (space(), ["space", "{}", "at least 1"]),
]


# Dagster's YAML 1.1 reads these as texts, and a program may send them so.
TEXTS_LIKE_NUMBERS = [
    (
        space(lr={"categorical": ["1e-2", 0.1]}),
        ["space.lr.categorical.0 = '1e-2'", "written like a number", "write the number as 0.01"],
    ),
    (
        space(lr={"categorical": [1, "1e-5"]}),
        ["space.lr.categorical.1 = '1e-5'", "write the number as 1.0e-05"],
    ),
    (space(lr={"categorical": ["1E20"]}), ["space.lr.categorical.0 = '1E20'", "write the number as 1.0e+20"]),
    (space(lr={"constant": "1.5e3"}), ["space.lr.constant = '1.5e3'", "write the number as 1500.0"]),
    (space(lr={"constant": "-.5"}), ["space.lr.constant = '-.5'", "write the number as -0.5"]),
    (space(lr={"constant": "+.5"}), ["space.lr.constant = '+.5'", "write the number as 0.5"]),
    (space(lr={"constant": "1_000e2"}), ["space.lr.constant = '1_000e2'", "write the number as 100000.0"]),
    (
        space(kind=KIND, n={**X, "when": {"kind": ".5e3"}}),
        ["space.n.when.kind.0 = '.5e3'", "write the number as 500.0"],
    ),
    ({"start_from": [{"x": "1e-3"}]}, ["start_from.0.x = '1e-3'", "write the number as 0.001"]),
    (
        strategy(optuna={"sampler": "optuna.samplers:TPESampler", "options": {"prior_weight": "1e-1"}}),
        ["strategy.optuna.options.prior_weight = '1e-1'", "write the number as 0.1"],
    ),
    (
        strategy(asha={"sampler": "gp", "options": {"deep": {"grid": [1, "2e-1"]}}}),
        ["strategy.asha.options.deep.grid.1 = '2e-1'", "write the number as 0.2"],
    ),
]


CONDITIONS = [
    (
        space(kind=KIND, m={**X, "when": {"knd": "sgd"}}),
        ["space.m.when.knd = ['sgd']", "did you mean 'kind'", "there are kind"],
    ),
    (
        space(kind=KIND, m={**X, "when": {"kind": "sgdd"}}),
        ["space.m.when.kind = 'sgdd'", "did you mean 'sgd'", "it has 'adam', 'sgd'"],
    ),
    (
        space(x=X, m={**X, "when": {"x": 0.5}}),
        ["space.m.when.x = [0.5]", "x is a range", "categorical or a constant"],
    ),
    (space(m={**KIND, "when": {"m": "sgd"}}), ["space.m.when.m = ['sgd']", "no other parameter"]),
    (space(kind=KIND, m={**X, "when": {"kind": []}}), ["space.m.when.kind = []", "at least 1"]),
    (space(kind=KIND, m={**X, "when": "kind"}), ["space.m.when = 'kind'", "give names and values"]),
    (
        space(a={**KIND, "when": {"b": "sgd"}}, b={**KIND, "when": {"a": "sgd"}}),
        ["space is not accepted", "['a', 'b'] form a circle", "let one of them exist always"],
    ),
]


CONSTRAINTS = [
    (
        {"constraints": ["x <"]},
        ["constraints.0 = 'x <'", "no expression", "give a comparison of hyperparameters"],
    ),
    ({"constraints": ["x < 1", "y < 1"]}, ["constraints.1 = 'y < 1'", "no parameter 'y'", "there are x"]),
    (
        {"constraints": ["x.real < 1"]},
        [
            "constraints.0 = 'x.real < 1'",
            "'x.real < 1' is not accepted: x.real is not accepted in it",
            "give a comparison",
        ],
    ),
    (
        {"constraints": ["pow(x, 2) < 1"]},
        ["constraints.0", "'pow(x, 2)' is no call of min, max, abs, log, sqrt"],
    ),
    ({"constraints": ["log(x, 2) < 1"]}, ["constraints.0", "'log(x, 2)' has 2 arguments; log takes one"]),
    ({"constraints": ["x * 2"]}, ["constraints.0 = 'x * 2'", "compares nothing", "give a comparison"]),
    ({"constraints": ["1 < 2"]}, ["constraints.0 = '1 < 2'", "names no hyperparameter"]),
    ({"constraints": ["x < 'a'"]}, ["constraint \"x < 'a'\"", "compare numbers with numbers"]),
    (
        {"constraints": ["lambda < 1"], **space(**{"lambda": X})},
        ["'lambda < 1'", "no expression", 'write params["lambda"]'],
    ),
    (
        {
            "constraints": ["optimizer.lr < batch-size"],
            **space(**{"optimizer.lr": X, "batch-size": X, "x-y": X}),
        },
        ["optimizer.lr is not accepted in it", 'write params["optimizer.lr"], params["batch-size"]'],
    ),
    (
        {"constraints": ["batch-size < 1"], **space(**{"batch-size": X, "size": X})},
        [
            (
                "no parameter 'batch', did you mean 'batch-size'?; there are batch-size, size; write "
                'params["batch-size"]'
            )
        ],
    ),
    ({"constraints": ["µ < 1"], "space": {"µ": X}}, ["no parameter 'μ'", 'write params["µ"]']),
    ({"constraints": ["`a b` < 1"], **space(**{"a b": X})}, ["no expression", 'write params["a b"]']),
    (
        {"constraints": ['params["a-c"] < 1'], **space(**{"a-b": X})},
        ["no parameter 'a-c', did you mean 'a-b'?; there are a-b"],
    ),
    ({"constraints": ["x > 2"]}, ["constraints = ['x > 2']", "no point of 1,000", "loosen one"]),
    ({"constraints": "x > 2"}, ["constraints = 'x > 2'", "list"]),
]


STRATEGIES = [
    (
        strategy(asha={"min_budget": 9, "max_budget": 3}),
        ["strategy.asha", "min_budget = 9", "max_budget = 3"],
    ),
    (
        strategy(hyperband={"min_budget": 9, "max_budget": 3}),
        ["strategy.hyperband", "min_budget = 9", "max_budget = 3"],
    ),
    (
        strategy(median={"min_budget": 9, "max_budget": 3}),
        ["strategy.median", "min_budget = 9", "max_budget = 3"],
    ),
    (
        strategy(asha={"reduction_factor": 1}),
        ["strategy.asha.reduction_factor", "1", "greater than or equal to 2"],
    ),
    (strategy(bohb={"reduction_factor": 1.5}), ["strategy.bohb.reduction_factor", "1.5", "integer"]),
    (
        strategy(asha={"sampler": "tpee"}),
        ["strategy.asha.sampler", "'tpee'", "'random', 'tpe', 'gp' or module:Class", "did you mean 'tpe'"],
    ),
    (strategy(optuna={"sampler": "tpe"}), ["strategy.optuna.sampler", "'tpe'", "module:Class"]),
    (strategy(optuna={}), ["strategy.optuna.sampler is missing"]),
    (strategy(asha={"options": {"seed": 3}}), ["strategy.asha.options", "seed = 3", "leave it out"]),
    (strategy(asha={"audit": 1.5}), ["strategy.asha.audit", "1.5", "less than or equal to 1"]),
    (strategy(median={"audit": -0.1}), ["strategy.median.audit", "-0.1", "greater than or equal to 0"]),
    (
        strategy(tpe={"audit": 0.1}),
        ["strategy.tpe.audit", "0.1", "audit is a field of asha, hyperband, bohb, median"],
    ),
    (
        strategy(asha={"min_budget": 9, "max_budget": 9, "audit": 0.1}),
        ["strategy.asha", "audit = 0.1", "one rung", "leave audit out"],
    ),
    (
        strategy(hyperband={"min_budget": 5, "max_budget": 9, "audit": 0.1}),
        ["strategy.hyperband", "audit = 0.1", "one rung"],
    ),
    (strategy(median={"quantile": 1}), ["strategy.median.quantile", "1", "less than 1"]),
    (strategy(median={"interval": 0}), ["strategy.median.interval", "0", "greater than or equal to 1"]),
    (
        strategy(nsga2={"population_size": 1}),
        ["strategy.nsga2.population_size", "1", "greater than or equal to 2"],
    ),
    (strategy(hyperopt={}), ["strategy.hyperopt", "no such field", "asha, bohb, gp, grid"]),
    (strategy(asha={}, tpe={}), ["strategy", "exactly one of", "got asha, tpe"]),
    (
        {**strategy(grid={"points": 4}), "max_trials": 3},
        ["strategy.grid has 4 combinations", "max_trials = 3", "raise max_trials"],
    ),
    (
        strategy(grid={}),
        ["space.x = {'float'", "with strategy.grid", "give it a step, or strategy.grid.points"],
    ),
    (
        {**strategy(grid={}), **space(n={"int": {"low": 0, "high": 10**9}})},
        ["space.n", "1,000,000,001 values", "give it a step, or strategy.grid.points"],
    ),
    (
        {**strategy(grid={"points": 2}), "start_from": [{"x": 0}]},
        ["start_from = [{'x': 0}]", "strategy.grid", "leave it out"],
    ),
]


FROM_CHECKPOINT = {"project": "p", "run": "p-1.0000", "epoch": 3, "checkpoint": "sha256:" + "a" * 64}


STARTS = [
    ({"restored_from": FROM_CHECKPOINT}, ["restored_from.epoch = 3", "due after 1 epochs", "train for more"]),
    (
        {"restored_from": {**FROM_CHECKPOINT, "checkpoint": "latest"}},
        ["restored_from.checkpoint = 'latest'", "give sha256:"],
    ),
    ({"snapshot": "points@12"}, ["snapshot = 'points@12'", "give sha256: and 64"]),
    ({"start_from": [{"x": 0.5}, {"x": 1.5}]}, ["start_from.1", "x = 1.5", "a number from 0.0 to 1.0"]),
    ({"start_from": [{"y": 1}]}, ["start_from.0", "y = 1", "no such parameter", "there are x"]),
    ({"start_from": [{"x": "low"}]}, ["start_from.0", "x = 'low'", "a number from"]),
    ({"start_from": [{"x": None}]}, ["start_from.0", "x = None", "a number from 0.0 to 1.0"]),
    (
        {**space(n={"categorical": [1, 2]}), "start_from": [{"n": True}]},
        ["start_from.0", "n = True", "give one of 1, 2"],
    ),
    ({"start_from": [{"x": 0.1}] * 10}, ["start_from has 10 points", "max_trials = 9"]),
    (
        {"start_from": [{"x": 0.9}], "constraints": ["x < 0.5"]},
        ["start_from.0", "{'x': 0.9}", "break the constraint 'x < 0.5'"],
    ),
    (
        {**space(x=X, y=X), "start_from": [{"x": 0.9}], "constraints": ["x + y < 0.7"]},
        ["start_from.0 = {'x': 0.9}", "no values of the parameters it leaves out", "give them too"],
    ),
    (
        {**space(kind=KIND, m={**X, "when": {"kind": "sgd"}}), "start_from": [{"m": 0.5}]},
        ["start_from.0", "m = 0.5", "only when {'kind': ['sgd']}", "given is {}"],
    ),
    (
        {"warm_start": "auto"},
        ["warm_start = 'auto'", "strategy.asha.sampler = 'random'", "give sampler tpe or gp"],
    ),
    (
        {"warm_start": ["a-1"], **strategy(random={})},
        ["warm_start = ['a-1']", "strategy.random does not learn from trials"],
    ),
    (
        {"warm_start": ["a-1"], **strategy(grid={"points": 2})},
        ["warm_start = ['a-1']", "strategy.grid", "leave it out"],
    ),
    ({"warm_start": ["a-1"], **strategy(nsga2={})}, ["warm_start = ['a-1']", "strategy.nsga2", "start_from"]),
    (
        {"warm_start": ["a-1"], **strategy(hyperband={})},
        ["warm_start = ['a-1']", "strategy.hyperband.sampler = 'random'"],
    ),
    ({"warm_start": "all", **strategy(tpe={})}, ["warm_start = 'all'", "give auto, or a list"]),
    ({"warm_start": [], **strategy(tpe={})}, ["warm_start = []", "give auto, or a list"]),
    (
        {"warm_start": ["a b"], **strategy(tpe={})},
        ["warm_start = ['a b']", "'a b' is not the id of a sweep", "letters, digits"],
    ),
]


@pytest.mark.parametrize(
    ("change", "parts"),
    RANGES + TEXTS_LIKE_NUMBERS + CONDITIONS + CONSTRAINTS + STRATEGIES + STARTS,
    ids=lambda value: str(value)[:60],
)
def test_a_wrong_field_is_named_with_its_value_and_what_is_accepted(
    small: Callable[..., dict[str, Any]], change: dict[str, Any], parts: list[str]
) -> None:
    check_refusal(small(**change), parts)
