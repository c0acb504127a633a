"""A wrong spec is refused with the field's path, the value and what is accepted."""

from collections.abc import Callable
from types import UnionType
from typing import Any, Union, get_args, get_origin

import pytest
from pydantic import BaseModel, ValidationError

from halving import InvalidInput
from resources.sweep_spec import SweepSpec, parse_spec

X = {"float": {"low": 0.0, "high": 1.0}}
KIND = {"categorical": ["adam", "sgd"]}
LATENCY = {"metric": "latency", "direction": "minimize"}


def space(**parameters: Any) -> dict[str, Any]:
    return {"space": parameters}


def strategy(**strategy: Any) -> dict[str, Any]:
    return {"strategy": strategy}


def objective(**changes: Any) -> dict[str, Any]:
    return {"objective": {"metric": "score", "direction": "maximize", **changes}}


def data_checks(**checks: Any) -> dict[str, Any]:
    return {
        "dataset": {"name": "points", "source": "tests.trainables:data", "target": "label", "checks": checks}
    }


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
    ("change", "parts"),
    RANGES
    + TEXTS_LIKE_NUMBERS
    + CONDITIONS
    + CONSTRAINTS
    + STRATEGIES
    + STARTS
    + LIMITS
    + DATA_CHECKS
    + OTHERS,
    ids=lambda value: str(value)[:60],
)
def test_a_wrong_field_is_named_with_its_value_and_what_is_accepted(
    small: Callable[..., dict[str, Any]], change: dict[str, Any], parts: list[str]
) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_spec(small(**change))
    for part in parts:
        assert part in str(caught.value)
    assert len(str(caught.value).splitlines()) == 2  # There is one problem, reported once.


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
