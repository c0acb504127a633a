"""Cross-field checks: fields of a spec that are valid alone but cannot go together."""

import math
import re
from collections.abc import Iterator
from typing import Any

from halving.errors import InvalidInput
from halving.text import comma_list, did_you_mean
from resources.sweep_spec.constraints import constraint, is_word, quote_name
from resources.sweep_spec.final import TEST, TRAIN
from resources.sweep_spec.metrics import CLASS_METRICS, NUMBER_METRICS, SCORERS
from resources.sweep_spec.points import axis, feasible, grid_size, order, problems_of
from resources.sweep_spec.space import spell
from resources.sweep_spec.strategy import EarlyStopping, GridSearch, Nsga2Search
from resources.sweep_spec.sweep import SweepSpec

_TEXT = re.compile(r"""(["']).*?\1""", re.DOTALL)  # a text in quotes
# Texts that YAML 1.2 reads as numbers, but YAML 1.1, by which Dagster's launchpad and command line read a
# spec, does not.
_LIKE_A_NUMBER = re.compile(r"[-+]?([0-9]+(_[0-9]+)*\.?[0-9]*|\.[0-9]+)[eE][-+]?[0-9]+|[-+]\.[0-9]+")


def contradictions(spec: SweepSpec) -> list[str]:
    """List the problems between fields, each with the field's path, its value and the remedy."""
    problems = [
        *_objectives(spec),
        *_warm_start(spec),
        *_restored_from(spec),
        *_evaluation(spec),
        *_final(spec),
        *_gates(spec),
    ]
    problems += [*_rungs_of_resources(spec), *_nodes(spec)]
    # A text that should have been a number breaks other rules as well, whose remedies would mislead.
    space_problems = [*_texts_like_numbers(spec)] or [*_conditions(spec), *_constraints(spec)]
    if not space_problems:  # Points can only be drawn from a valid space.
        space_problems = _points(spec)
    return [*problems, *space_problems]


def _objectives(spec: SweepSpec) -> Iterator[str]:
    metrics = [objective.metric for objective in spec.objectives]
    for index, metric in enumerate(metrics[1:]):
        if metric in metrics[: index + 1]:
            yield _refusal(
                f"other_objectives.{index}.metric",
                metric,
                "it is an objective already; give each metric once",
            )
    if len(metrics) > 1 and isinstance(spec.strategy.chosen, EarlyStopping):
        yield _refusal(
            "other_objectives",
            metrics[1:],
            f"strategy.{spec.strategy.name} stops trials by one objective; "
            "give one of random, grid, tpe, gp, nsga2, optuna, or state the other objectives as bounds",
        )


def _warm_start(spec: SweepSpec) -> Iterator[str]:
    if spec.warm_start is None:
        return
    name = spec.strategy.name
    strategy = spec.strategy.chosen
    if isinstance(strategy, GridSearch):
        yield _refusal(
            "warm_start",
            spec.warm_start,
            "strategy.grid tries every point, whatever earlier sweeps found; leave it out",
        )
    elif isinstance(strategy, Nsga2Search):
        yield _refusal(
            "warm_start",
            spec.warm_start,
            "strategy.nsga2 learns from its own generations alone; leave it out, or give start_from",
        )
    elif spec.sampler[0] == "random":
        field = "strategy.random"
        if name != "random":
            field = f"strategy.{name}.sampler = 'random'"
        yield _refusal(
            "warm_start",
            spec.warm_start,
            f"{field} does not learn from trials; give sampler tpe or gp, or leave it out",
        )


def _restored_from(spec: SweepSpec) -> Iterator[str]:
    first = min(ladder[0] for ladder in spec.ladders)
    if spec.restored_from and spec.restored_from.epoch >= first:
        yield _refusal(
            "restored_from.epoch",
            spec.restored_from.epoch,
            f"the first result is due after {first} epochs; train for more than that",
        )


def _final(spec: SweepSpec) -> Iterator[str]:
    if spec.final is None:
        return
    on = spec.final.on
    if spec.judged_by is None:
        remedy = (
            "the median seed is chosen by its test metrics; give a predictor or an evaluator, or leave "
            "final out"
        )
        yield _refusal("final.seeds", spec.final.seeds, remedy)
    if TEST in on:
        yield _refusal("final.on", on, f"what is trained on cannot be judged on; leave {TEST} out")
    elif TRAIN not in on:
        yield _refusal(
            "final.on", on, f"it is the trainings' train split; give {TRAIN}, and others beside it"
        )
    if len(set(on)) < len(on):
        yield _refusal("final.on", on, "give each split once")
    # The splits that a column names are not known before the snapshot is taken.
    if spec.dataset.split_column is None and (problem := spec.final.unknown_split(spec.dataset.splits)):
        yield _refusal("final.on", on, problem)
    if spec.restored_from and spec.restored_from.epoch >= spec.final_epochs:
        yield _refusal(
            "final.epochs",
            spec.final_epochs,
            f"each training goes on from epoch {spec.restored_from.epoch} of restored_from; "
            "give more than that",
        )


def _rungs_of_resources(spec: SweepSpec) -> Iterator[str]:
    """Counts by rung must begin at the first rung and name existing ones.

    A misspelled rung would never be reached.
    """
    rungs = sorted({budget for ladder in spec.ladders for budget in ladder})
    for field in ("processes", "gpus", "nodes"):
        counts = getattr(spec.resources, field)
        if not isinstance(counts, dict):
            continue
        first = min(counts)
        for budget in counts:
            if budget not in rungs and budget != first:
                yield _refusal(
                    f"resources.{field}",
                    counts,
                    f"there is no rung of {budget} epochs; the rungs are {comma_list(rungs)}",
                )
        if first not in (1, rungs[0]):
            remedy = "begin with 1, the first rung"
            if rungs[0] != 1:
                remedy = f"it says nothing of the first rung; begin with 1 or {rungs[0]}"
            yield _refusal(f"resources.{field}", counts, remedy)


def _nodes(spec: SweepSpec) -> Iterator[str]:
    nodes = max(attempt.nodes for attempt in spec.resources.by_rung.values())
    if nodes > 1 and spec.image is None:
        yield _refusal(
            "resources.nodes",
            spec.resources.nodes,
            "a trial has many nodes only in pods of its own, made from an image; "
            "give image (with HALVING_CLUSTER set), or ask for more processes or gpus on one node",
        )
    if spec.elastic is None:
        return
    if nodes == 1:
        yield _refusal(
            "elastic",
            spec.elastic.model_dump(),
            "a trial on one node cannot shrink; give resources.nodes, or leave it out",
        )
    elif spec.elastic.min_nodes > nodes:
        yield _refusal(
            "elastic.min_nodes",
            spec.elastic.min_nodes,
            f"resources.nodes is {nodes} at the most; give a number up to that",
        )


def _gates(spec: SweepSpec) -> Iterator[str]:
    """Refuse gates on what is not measured: they would hold back every winner."""
    for place, gate in enumerate(spec.gates):
        path = f"gates.{place}"
        if gate.name == "slices" and not spec.slices:
            yield _refusal(path, "slices", "the spec has no slices; give some, for example slices: [age]")
        if gate.name == "integration_tests" and spec.evaluator is not None:
            yield _refusal(
                path,
                gate.name,
                "only a predictor can be exported, and the spec has an evaluator; leave it out",
            )
        measured = gate.name == "latency" or (gate.name == "size" and gate.chosen.memory_mib is not None)
        if measured and spec.evaluator is not None:
            yield _refusal(
                path,
                gate.name,
                "the cost of serving is measured of a predictor, and the spec has an evaluator; leave it out",
            )
        elif measured and not spec.serving.seconds:
            yield _refusal(
                path, gate.name, "serving.seconds = 0 measures nothing; give some seconds, or leave it out"
            )


def _evaluation(spec: SweepSpec) -> Iterator[str]:
    if spec.predictor is not None and spec.evaluator is not None:
        yield _refusal(
            "evaluator",
            spec.evaluator,
            f"predictor = {spec.predictor!r} judges the winner already; give one of the two",
        )
    for name, values in (("metrics", spec.metrics), ("slices", spec.slices)):
        for index, value in enumerate(values):
            if value in values[:index]:
                yield _refusal(f"{name}.{index}", value, "it is given already; give each once")
    if spec.evaluator is not None:
        if spec.metrics:
            yield _refusal(
                "metrics", spec.metrics, "the evaluator gives its own; leave it out, or give a predictor"
            )
        return
    accepted = spec.metrics or [*CLASS_METRICS, *NUMBER_METRICS]
    for field, metric in spec.gate_metrics.items():
        if metric not in accepted:
            where = ""
            if metric in SCORERS:
                where = "add it to metrics, or "
            yield _refusal(
                field,
                metric,
                f"it is not among the metrics{did_you_mean(metric, accepted)}; {where}give one of {accepted}",
            )


def _texts_like_numbers(spec: SweepSpec) -> Iterator[str]:
    """Refuse texts that look like numbers: they would be trained with as texts.

    Stored specs of earlier versions may have such texts, and must stay readable, so this is no check of the
    fields.
    """
    fields: dict[str, Any] = {
        "start_from": spec.start_from,
        f"strategy.{spec.strategy.name}.options": spec.sampler[1],
    }
    for name, parameter in spec.space.items():
        fields |= {
            f"space.{name}.categorical": parameter.categorical,
            f"space.{name}.constant": parameter.constant,
            f"space.{name}.when": parameter.when,
        }
    for field, values in fields.items():
        for path, text in _texts(field, values):
            if _LIKE_A_NUMBER.fullmatch(text) and math.isfinite(float(text)):
                number = repr(float(text))
                # YAML 1.1 reads a number with an exponent only if it has a point.
                if "." not in number:
                    number = number.replace("e", ".0e")
                yield _refusal(
                    path, text, f"it is a text that is written like a number; write the number as {number}"
                )


def _texts(path: str, value: Any) -> Iterator[tuple[str, str]]:
    """All texts in a value, each with its path; names in mappings do not count."""
    if isinstance(value, str):
        yield path, value
    if isinstance(value, list):
        value = dict(enumerate(value))
    if isinstance(value, dict):
        for key, inside in value.items():
            yield from _texts(f"{path}.{key}", inside)


def _conditions(spec: SweepSpec) -> Iterator[str]:
    """``when`` must name other parameters and choices that these have, and must not form a circle."""
    all_exist = True
    for name, parameter in spec.space.items():
        for parent, wanted in parameter.when.items():
            path = f"space.{name}.when.{parent}"
            if parent not in spec.space or parent == name:
                others = [other for other in spec.space if other != name]
                all_exist = False
                hint = f"{did_you_mean(parent, others)}; there are {', '.join(others) or 'no others'}"
                yield _refusal(path, wanted, f"there is no other parameter {parent!r}{hint}")
                continue
            choices = spec.space[parent].choices
            if choices is None:
                yield _refusal(
                    path,
                    wanted,
                    f"{parent} is a range; only a categorical or a constant can open another parameter",
                )
                continue
            for choice in wanted:
                if choice not in choices:
                    hint = f"{did_you_mean(choice, choices)}; it has {comma_list(map(spell, choices))}"
                    yield _refusal(path, choice, f"{parent} has no such choice{hint}")
    if all_exist:
        try:
            order(spec.space)
        except InvalidInput as error:
            yield f"space is not accepted: {error}"


def _constraints(spec: SweepSpec) -> Iterator[str]:
    for index, expression in enumerate(spec.constraints):
        path = f"constraints.{index}"
        try:
            names = constraint(expression).names
        except InvalidInput as error:
            yield _refusal(path, expression, f"{error}{_way_to_write(expression, spec)}")
            continue
        for name in sorted(names - set(spec.space)):
            hint = did_you_mean(name, spec.space)
            way = _way_to_write(expression, spec)
            yield _refusal(
                path,
                expression,
                f"there is no parameter {name!r}{hint}; there are {', '.join(spec.space)}{way}",
            )


def _way_to_write(expression: str, spec: SweepSpec) -> str:
    """How to write the parameters whose names are no words, but stand in the expression unquoted."""
    bare = _TEXT.sub("", expression)
    names = [name for name in spec.space if name in bare and not is_word(name)]
    if not names:
        return ""
    return f"; write {comma_list(quote_name(name) for name in names)}"


def _points(spec: SweepSpec) -> list[str]:
    try:
        if not feasible(spec):
            return [
                _refusal(
                    "constraints",
                    spec.constraints,
                    "no point of 1,000 random ones meets them all; loosen one, or widen the space",
                )
            ]
        if isinstance(spec.strategy.chosen, GridSearch):
            return _grid_problems(spec)
        return list(_starting_points(spec))
    except InvalidInput as error:
        return [f"constraints are not accepted: {error}"]


def _grid_problems(spec: SweepSpec) -> list[str]:
    problems = []
    if spec.start_from:
        problems.append(
            _refusal("start_from", spec.start_from, "strategy.grid has an order of its own; leave it out")
        )
    for name, parameter in spec.space.items():
        try:
            axis(parameter, spec.strategy.chosen.points)
        except InvalidInput as error:
            fields = parameter.model_dump(by_alias=True, exclude_none=True, exclude={"when"})
            problems.append(_refusal(f"space.{name}", fields, f"with strategy.grid: {error}"))
    try:
        if not problems and (size := grid_size(spec)) > spec.max_trials:
            remedy = "raise max_trials, or give fewer points or parameters"
            problems.append(
                f"strategy.grid has {size} combinations, more than max_trials = {spec.max_trials}: {remedy}"
            )
    except InvalidInput as error:
        problems.append(f"strategy.grid is not accepted: {error}")
    return problems


def _starting_points(spec: SweepSpec) -> Iterator[str]:
    if len(spec.start_from) > spec.max_trials:
        yield (
            f"start_from has {len(spec.start_from)} points, more than max_trials = {spec.max_trials}: "
            "raise max_trials, or give fewer"
        )
    for index, params in enumerate(spec.start_from):
        path = f"start_from.{index}"
        problems = problems_of(spec, params, partial=True)
        yield from (f"{path} is not accepted: {problem}" for problem in problems)
        if not problems and not feasible(spec, params):
            yield _refusal(
                path,
                params,
                "no values of the parameters it leaves out meet the constraints; give them too, or change it",
            )


def _refusal(path: str, value: Any, remedy: str) -> str:
    return f"{path} = {value!r:.120} is not accepted: {remedy}"
