"""W&B's configuration of a sweep as the spec of a study.

What has no equal is refused, all of it in one error, so that no sweep searches another space than was
written.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from halving.identifiers import sanitize_name
from halving.text import comma_list
from halving.wandb.errors import UsageError
from halving.wandb.errors.term import termwarn

FACTS = "_wandb"
"""The constant of the space that tells agents what of W&B's configuration a spec has no field for."""
SEPARATOR = "/"
NO_METRIC = "_runtime"
MAX_TRIALS = 90_000
BANDS = 12
"""Bands of ``min_iter``; W&B has 100, which no training reaches: the last is ``min_iter · etaⁿ``."""

_METHODS = ("bayes", "grid", "random")
_GOALS = ("minimize", "maximize")
_FIELDS = (
    "command",
    "description",
    "early_terminate",
    "entity",
    "method",
    "metric",
    "name",
    "parameters",
    "program",
    "project",
    "run_cap",
)
_HYPERBAND = ("eta", "max_iter", "min_iter", "s", "strict", "type")
_NO_EQUAL = (
    "beta",
    "inv_log_uniform",
    "inv_log_uniform_values",
    "log_normal",
    "normal",
    "q_beta",
    "q_log_normal",
    "q_log_uniform",
    "q_log_uniform_values",
    "q_normal",
)


def study_spec(config: Mapping[str, Any], project: str) -> dict[str, Any]:
    """The spec of the study that searches as a sweep's configuration says.

    Args:
        config: as W&B's YAML has it: ``method``, ``metric``, ``parameters``, ``early_terminate``,
            ``run_cap``.
        project: of the runs, as the store names it.

    Raises:
        UsageError: naming every field that is wrong or has no equal.
    """
    problems: list[str] = []
    for name in config:
        if name not in _FIELDS:
            problems.append(f"{name} has no equal here; accepted are {comma_list(_FIELDS)}")
    method = config.get("method")
    if method not in _METHODS:
        problems.append(f"method = {method!r} is not accepted: give {comma_list(_METHODS)}")
    metric = _metric(config, problems)
    space = dict(_space(config.get("parameters"), "parameters", "", problems))
    if method == "grid":
        problems += [
            f"parameters.{name} has no grid: give values, a range of whole numbers, or q"
            for name, parameter in space.items()
            if "float" in parameter and "step" not in parameter["float"]
        ]
    bands = _bands(config.get("early_terminate"), method, metric, problems)
    max_trials = _max_trials(config.get("run_cap"), method, space, problems)
    if problems:
        lines = "\n".join(f"  - {problem}" for problem in problems)
        raise UsageError(f"the sweep is not accepted:\n{lines}\ndocs/wandb.md says what sweeps may have")
    if config.get("description"):
        termwarn("description of the sweep is not kept: a sweep here has its name")
    facts = {"metric": metric["name"], "goal": metric["goal"], "bands": bands}
    if config.get("program"):
        facts |= {"program": str(config["program"]), "command": list(config.get("command") or [])}
    name = sanitize_name(str(config.get("name") or project), otherwise="sweep")
    return {
        "name": name,
        "project": project,
        "objective": {"metric": metric["name"], "direction": metric["goal"]},
        "space": {**space, FACTS: {"constant": facts}},
        "strategy": _strategy(str(method), bands, config.get("early_terminate") or {}),
        "max_trials": max_trials,
    }


def nested_params(params: Mapping[str, Any]) -> dict[str, Any]:
    """A trial's params as W&B's config has them: nested ones as dicts, without :data:`FACTS`."""
    nested: dict[str, Any] = {}
    for name, value in params.items():
        if name == FACTS:
            continue
        *above, last = name.split(SEPARATOR)
        place = nested
        for part in above:
            place = place.setdefault(part, {})
        place[last] = value
    return nested


def _metric(config: Mapping[str, Any], problems: list[str]) -> dict[str, str]:
    metric = config.get("metric")
    if metric is None:
        if config.get("method") == "bayes":
            problems.append("metric is missing: method bayes needs it: give {name: …, goal: minimize}")
        # Nothing is compared, so trials are ordered by what each run has.
        return {"name": NO_METRIC, "goal": "minimize"}
    if not isinstance(metric, Mapping) or not isinstance(metric.get("name"), str) or not metric["name"]:
        problems.append(f"metric = {metric!r:.80} is not accepted: give {{name: …, goal: minimize}}")
        return {"name": NO_METRIC, "goal": "minimize"}
    goal = metric.get("goal", "minimize")
    if goal not in _GOALS:
        problems.append(f"metric.goal = {goal!r:.80} is not accepted: give {comma_list(_GOALS)}")
    for name in metric:
        if name not in ("name", "goal"):
            problems.append(f"metric.{name} has no equal here: end the sweep with halving stop SWEEP")
    return {"name": metric["name"], "goal": str(goal)}


def _space(
    parameters: Any, place: str, prefix: str, problems: list[str]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The parameters by their names in the spec, where nested ones have those above before them."""
    if not isinstance(parameters, Mapping) or not parameters:
        problems.append(f"{place} = {parameters!r:.80} is not accepted: give names and what each may be")
        return
    for name, fields in parameters.items():
        here = f"{place}.{name}"
        if not isinstance(name, str) or not name or SEPARATOR in name or name == FACTS:
            problems.append(f"{here} has a name that is not accepted: give a text without {SEPARATOR}")
        elif not isinstance(fields, Mapping):
            problems.append(f"{here} = {fields!r:.80} is not accepted: give value, values, or min and max")
        elif "parameters" in fields:
            yield from _space(
                fields["parameters"], f"{here}.parameters", f"{prefix}{name}{SEPARATOR}", problems
            )
        else:
            try:
                yield f"{prefix}{name}", _parameter(fields)
            except ValueError as error:
                problems.append(f"{here}: {error}")


def _parameter(fields: Mapping[str, Any]) -> dict[str, Any]:
    """One parameter of the spec.

    Raises:
        ValueError: it has no equal, or is wrong.
    """
    distribution = fields.get("distribution") or _default_distribution(fields)
    make = _MAKERS.get(distribution)
    if make is None:
        if distribution in _NO_EQUAL:
            raise ValueError(f"distribution {distribution} has no equal here; there are {_accepted()}")
        raise ValueError(f"distribution = {distribution!r:.80} is not accepted: give {_accepted()}")
    parameter, used = make(fields)
    if more := sorted(set(fields) - {"distribution", "description", *used}):
        raise ValueError(f"{comma_list(more)} means nothing with distribution {distribution}: leave it out")
    return parameter


def _default_distribution(fields: Mapping[str, Any]) -> str:
    if "value" in fields:
        return "constant"
    if "values" in fields:
        return "categorical"
    if all(_is_whole(fields.get(end)) for end in ("min", "max")):
        return "int_uniform"
    return "uniform"


def _constant(fields: Mapping[str, Any]) -> tuple[dict[str, Any], set[str]]:
    if "value" not in fields:
        raise ValueError("value is missing")
    return {"constant": fields["value"]}, {"value"}


def _categorical(fields: Mapping[str, Any]) -> tuple[dict[str, Any], set[str]]:
    values = fields.get("values")
    if not isinstance(values, (list, tuple)) or not values:
        raise ValueError(f"values = {values!r:.80} is not accepted: give a list of one or more")
    probabilities = fields.get("probabilities")
    if probabilities is not None and not isinstance(probabilities, (list, tuple)):
        raise ValueError(f"probabilities = {probabilities!r:.80} is not accepted: give a list of numbers")
    if probabilities is not None and any(each != probabilities[0] for each in probabilities):
        raise ValueError("probabilities that differ have no equal here: leave them out, or repeat no value")
    if len(values) == 1:
        return {"constant": values[0]}, {"values", "probabilities"}
    return {"categorical": list(values)}, {"values", "probabilities"}


def _int_uniform(fields: Mapping[str, Any]) -> tuple[dict[str, Any], set[str]]:
    low, high = _ends(fields)
    if not _is_whole(low) or not _is_whole(high):
        raise ValueError(f"min = {low!r} and max = {high!r} must be whole numbers with int_uniform")
    return {"int": {"low": int(low), "high": int(high)}}, {"min", "max"}


def _uniform(fields: Mapping[str, Any]) -> tuple[dict[str, Any], set[str]]:
    low, high = _ends(fields)
    return {"float": {"low": float(low), "high": float(high)}}, {"min", "max"}


def _log_uniform(fields: Mapping[str, Any]) -> tuple[dict[str, Any], set[str]]:
    low, high = _ends(fields)  # of the exponents of e
    try:
        ends = {"low": math.exp(low), "high": math.exp(high)}
    except OverflowError:
        raise ValueError(
            f"max = {high!r} is an exponent of e with log_uniform, which is too large; for the values "
            "themselves give log_uniform_values"
        ) from None
    return {"float": {**ends, "log": True}}, {"min", "max"}


def _log_uniform_values(fields: Mapping[str, Any]) -> tuple[dict[str, Any], set[str]]:
    low, high = _ends(fields)
    if low <= 0:
        raise ValueError(f"min = {low!r} must be above 0 with log_uniform_values")
    return {"float": {"low": float(low), "high": float(high), "log": True}}, {"min", "max"}


def _q_uniform(fields: Mapping[str, Any]) -> tuple[dict[str, Any], set[str]]:
    low, high = _ends(fields)
    step = fields.get("q", 1)
    if not _is_number(step) or step <= 0:
        raise ValueError(f"q = {step!r:.80} is not accepted: give a number above 0")
    for name, end in (("min", low), ("max", high)):
        if not math.isclose(end / step, round(end / step), abs_tol=1e-9):
            raise ValueError(f"{name} = {end!r} has no equal here: it must be a multiple of q = {step!r}")
    used = {"min", "max", "q"}
    if all(map(_is_whole, (low, high, step))):
        return {"int": {"low": int(low), "high": int(high), "step": int(step)}}, used
    return {"float": {"low": float(low), "high": float(high), "step": float(step)}}, used


_MAKERS: dict[str, Callable[[Mapping[str, Any]], tuple[dict[str, Any], set[str]]]] = {
    "constant": _constant,
    "categorical": _categorical,
    "categorical_w_probabilities": _categorical,
    "int_uniform": _int_uniform,
    "uniform": _uniform,
    "log_uniform": _log_uniform,
    "log_uniform_values": _log_uniform_values,
    "q_uniform": _q_uniform,
}


def _accepted() -> str:
    return comma_list(sorted(_MAKERS))


def _ends(fields: Mapping[str, Any]) -> tuple[Any, Any]:
    low: Any = fields.get("min")
    high: Any = fields.get("max")
    for name, end in (("min", low), ("max", high)):
        if not _is_number(end):
            raise ValueError(f"{name} = {end!r:.80} is not accepted: give a finite number")
    if low >= high:
        raise ValueError(f"min = {low!r} must be below max = {high!r}; for a single value give value")
    return low, high


def _bands(stopping: Any, method: Any, metric: Mapping[str, str], problems: list[str]) -> list[int]:
    """How many times the metric has been logged when a trial is compared with others, rising."""
    if not stopping:
        return []
    before = len(problems)
    if not isinstance(stopping, Mapping) or stopping.get("type") != "hyperband":
        problems.append(f"early_terminate = {stopping!r:.80} is not accepted: give {{type: hyperband, …}}")
        return []
    if method == "grid":
        problems.append("early_terminate with method grid has no equal here: give method random")
    if metric["name"] == NO_METRIC:
        problems.append("early_terminate needs a metric: give {name: …, goal: minimize}")
    for name in stopping:
        if name not in _HYPERBAND:
            problems.append(f"early_terminate.{name} has no equal here; there are {comma_list(_HYPERBAND)}")
    if stopping.get("strict"):
        problems.append("early_terminate.strict = true has no equal here: leave it out")
    eta: Any = stopping.get("eta", 3)
    if not _is_number(eta) or eta <= 1:
        problems.append(f"early_terminate.eta = {eta!r:.80} is not accepted: give a number above 1")
    counts = {name: stopping[name] for name in ("min_iter", "max_iter", "s") if name in stopping}
    for name, count in counts.items():
        if not _is_whole(count) or count < 1:
            problems.append(f"early_terminate.{name} = {count!r:.80} is not accepted: give 1 or more")
    if ("max_iter" in counts) != ("s" in counts) or not counts:
        problems.append("early_terminate needs min_iter, or max_iter with s")
    if len(problems) > before:
        return []
    if "max_iter" in counts:
        bands = [int(counts["max_iter"] / eta**power) for power in range(1, counts["s"] + 1)]
    else:
        bands = [int(counts["min_iter"] * eta**power) for power in range(BANDS)]
    return sorted({band for band in bands if band >= 1})


def _strategy(method: str, bands: list[int], stopping: Mapping[str, Any]) -> dict[str, Any]:
    """The strategy, whose budgets count bands: after the last one a trial goes on to its own end."""
    sampler = {"bayes": "gp", "random": "random", "grid": "grid"}[method]
    if not bands:
        return {sampler: {"budget": 1}}
    # Of those that were compared, W&B lets the best 1/eta go on, and stops the others for good.
    rule = {"min_budget": 1, "interval": 1, "min_trials": 1, "quantile": 1 / stopping.get("eta", 3)}
    return {"median": {**rule, "sampler": sampler, "max_budget": len(bands) + 1}}


def _max_trials(cap: Any, method: Any, space: Mapping[str, Any], problems: list[str]) -> int:
    if cap is None:
        return MAX_TRIALS
    if not _is_whole(cap) or not 1 <= cap <= MAX_TRIALS:
        problems.append(f"run_cap = {cap!r:.80} is not accepted: give a whole number from 1 to {MAX_TRIALS}")
        return MAX_TRIALS
    if method == "grid":
        points = math.prod(_count(parameter) for parameter in space.values())
        if cap < points:
            problems.append(
                f"run_cap = {cap} has no equal here with a grid of {points} points: leave it out, and give "
                f"agent(count={cap})"
            )
        return MAX_TRIALS
    return int(cap)


def _count(parameter: Mapping[str, Any]) -> int:
    """How many values a parameter has on a grid."""
    if "categorical" in parameter:
        return len(parameter["categorical"])
    for kind in ("int", "float"):
        if kind in parameter:
            ends = parameter[kind]
            steps: float = (ends["high"] - ends["low"]) / ends.get("step", 1)
            return 1 + round(steps)
    return 1


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
