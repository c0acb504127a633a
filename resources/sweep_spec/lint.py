"""Warnings about settings that will work badly, before GPU time is spent; none stops the sweep.

Early stopping assumes that trials rank at a rung as they would at the end. Most of these warnings are about
settings that make the two rankings differ: learning-rate schedules that do not fit the rungs, and rungs that
too few trials reach.
"""

from collections.abc import Iterator

from halving.text import comma_list
from resources.sweep_spec.space import Parameter
from resources.sweep_spec.strategy import STARTUP_TRIALS, EarlyStopping, Nsga2Search, SuccessiveHalving
from resources.sweep_spec.sweep import SweepSpec

_GP_TRIALS = 1_000
_WARMUPS = ("warmup_epochs", "lr_warmup_epochs", "warmup")
_LENGTHS = ("schedule_epochs", "lr_schedule_epochs", "t_max")
_SCHEDULES = ("lr_schedule", "schedule", "scheduler")
_ANNEALING = ("cosine", "linear")


def lint(spec: SweepSpec) -> list[str]:
    """Warnings about a valid spec: each names the field, its value, what that means and what to do."""
    return [
        *_predictor(spec),
        *_cores(spec),
        *_elastic(spec),
        *_warmup(spec),
        *_schedule(spec),
        *_rungs(spec),
        *_reach(spec),
        *_sampler(spec),
    ]


def _predictor(spec: SweepSpec) -> Iterator[str]:
    if spec.judged_by is None and spec.max_trials > 1:
        yield (
            "predictor is left out: the winner is neither evaluated on the test split nor promoted; give "
            "one if it is to be"
        )


def _cores(spec: SweepSpec) -> Iterator[str]:
    processes = spec.resources.largest.processes
    cpus = spec.resources.cpus
    if processes > max(1, cpus):
        yield (
            f"resources.cpus = {cpus:g}: the {processes} processes of a trial share so many cores of a node, "
            "and each has its own work beside the GPU's; "
            f"give cpus = {processes} or more"
        )


def _elastic(spec: SweepSpec) -> Iterator[str]:
    if spec.elastic and spec.resources.queue:
        yield (
            f"elastic.min_nodes = {spec.elastic.min_nodes}: "
            f"no effect with resources.queue = {spec.resources.queue!r}, "
            "because a Kueue admits all pods of a trial together, or none; leave out one of the two"
        )


def _warmup(spec: SweepSpec) -> Iterator[str]:
    field = "training.warmup_epochs"
    epochs = spec.training.warmup_epochs
    if epochs is None:
        searched = {
            name: _numbers(parameter)[-1]
            for name, parameter in spec.space.items()
            if name in _WARMUPS and _numbers(parameter)
        }
        if not searched:
            return
        longest = max(searched, key=searched.__getitem__)
        field = f"space.{longest}"
        epochs = searched[longest]
    first = min(ladder[0] for ladder in spec.ladders)
    if first <= epochs:
        budget = "budget"
        if isinstance(spec.strategy.chosen, EarlyStopping):
            budget = "min_budget"
        yield (
            f"{field} = {epochs:g}: the first rung, at {first} epochs, ends inside the learning-rate "
            "warm-up, where trials with a low learning rate look best; "
            f"give strategy.{spec.strategy.name}.{budget} above {epochs:g}, or a shorter warm-up"
        )


def _schedule(spec: SweepSpec) -> Iterator[str]:
    if spec.training.lr_schedule in ("step", "constant"):
        return
    last = spec.budgets[-1]
    rungs = comma_list(spec.budgets)
    named = {name: parameter for name, parameter in spec.space.items() if name.lower() in _LENGTHS}
    searched = [name for name, parameter in named.items() if not parameter.is_fixed]
    if len(spec.budgets) > 1:
        for name in searched:
            yield (
                f"space.{name} is searched: results at the rungs {rungs} are not comparable, because a trial "
                "whose learning rate falls sooner looks better there than at its end; "
                "make it constant, or anneal over run.max_epochs"
            )
    fixed = {f"space.{name}": parameter.value for name, parameter in named.items() if parameter.is_fixed}
    lengths = {field: value for field, value in fixed.items() if isinstance(value, int | float)}
    if spec.training.schedule_epochs is not None:
        lengths["training.schedule_epochs"] = spec.training.schedule_epochs
    for field, epochs in lengths.items():
        if epochs < last:
            yield (
                f"{field} = {epochs:g}: the learning rate reaches its end before the last rung, at {last} "
                f"epochs, and the epochs after {epochs:g} teach little; "
                f"give {last}, or anneal over run.max_epochs"
            )
        elif epochs > last:
            yield (
                f"{field} = {epochs:g}: no trial reaches the end of its schedule, because the last rung is "
                f"at {last} epochs: no result is that of a finished training; "
                f"give {last}, or anneal over run.max_epochs"
            )
        # The final training keeps a constant of the winner's params, while a schedule that is only stated as
        # training.schedule_epochs may follow run.max_epochs there.
        if spec.final and field.startswith("space.") and epochs == last != spec.final_epochs:
            when = "does not reach its end"
            if epochs < spec.final_epochs:
                when = "has reached its end before"
            yield (
                f"final.epochs = {spec.final_epochs}: the learning rate, which falls over "
                f"{field} = {epochs:g}, {when} in the final training; "
                "leave epochs out, or anneal over run.max_epochs"
            )
    if not searched and not lengths and len(spec.budgets) > 1:
        yield from _unknown_length(spec)


def _unknown_length(spec: SweepSpec) -> Iterator[str]:
    named = {"training.lr_schedule": [spec.training.lr_schedule]}
    named |= {
        f"space.{name}": parameter.choices or []
        for name, parameter in spec.space.items()
        if name.lower() in _SCHEDULES
    }
    for field, choices in named.items():
        for schedule in choices:
            if schedule in _ANNEALING:
                yield (
                    f"{field} = {schedule!r} of unknown length: results at the rungs "
                    f"{comma_list(spec.budgets)} are comparable only if all trials anneal over the same "
                    "epochs; anneal over run.max_epochs (the last rung), "
                    f"and state training.schedule_epochs = {spec.budgets[-1]}"
                )


def _rungs(spec: SweepSpec) -> Iterator[str]:
    strategy = spec.strategy.chosen
    if not isinstance(strategy, SuccessiveHalving):
        return
    path = f"strategy.{spec.strategy.name}"
    count = len(spec.budgets)
    if not 3 <= strategy.reduction_factor <= 5:
        effect = "one noisy result ends most trials"
        if strategy.reduction_factor < 3:
            effect = "weak trials get far"
        yield (
            f"{path}.reduction_factor = {strategy.reduction_factor}: {effect}; 3 to 5 has been found to work"
        )
    budgets = f"{path}.min_budget = {strategy.min_budget} with max_budget = {strategy.max_budget}"
    if count < 3:
        yield (
            f"{budgets}: the rungs {comma_list(spec.budgets)} are too few to save much; "
            "give a lower min_budget or reduction_factor, for 3 to 5 rungs"
        )
    if count > 5:
        yield (
            f"{budgets}: with {count} rungs, at {comma_list(spec.budgets)} epochs, the first ones decide by "
            "very little training; give a higher min_budget or reduction_factor, for 3 to 5 rungs"
        )


def _reach(spec: SweepSpec) -> Iterator[str]:
    short = [number for number, ladder in enumerate(spec.ladders) if spec.reachable(number) < len(ladder)]
    if short:
        ladder = spec.ladders[short[0]]
        enough = max(_enough(spec, number) for number in short)
        bracket = ""
        if len(spec.ladders) > 1:
            bracket = f" of bracket {short[0] + 1}"
        yield (
            f"max_trials = {spec.max_trials}: few for the rungs{bracket} at {comma_list(ladder)} epochs, "
            f"of which about {spec.reachable(short[0])} will be reached; "
            f"give max_trials = {enough} or more, or a higher min_budget"
        )


def _enough(spec: SweepSpec, ladder: int) -> int:
    """How many trials it takes to reach the last rung of a ladder."""
    strategy = spec.strategy.chosen
    needed = strategy.reduction_factor ** (len(spec.ladders[ladder]) - 1)
    return int(-(-needed * sum(strategy.weights) // strategy.weights[ladder]))


def _sampler(spec: SweepSpec) -> Iterator[str]:
    name, options = spec.sampler
    path = f"strategy.{spec.strategy.name}"
    if name in ("tpe", "gp"):
        startup = options.get("n_startup_trials", STARTUP_TRIALS)
        if isinstance(startup, int) and spec.max_trials <= startup and spec.warm_start is None:
            yield (
                f"max_trials = {spec.max_trials}: the first {startup} trials of {path} ({name}) are "
                f"random, so this is a random search; give more than {startup}, or sampler random"
            )
    if name == "gp" and spec.max_trials > _GP_TRIALS:
        yield (
            f"max_trials = {spec.max_trials}: a Gaussian process takes time that grows with the cube of "
            f"the trials; give {path} at most {_GP_TRIALS:,}, or tpe"
        )
    strategy = spec.strategy.chosen
    if isinstance(strategy, Nsga2Search) and spec.max_trials <= strategy.population_size:
        yield (
            f"{path}.population_size = {strategy.population_size} with max_trials = {spec.max_trials}: "
            "the first generation is random and no other follows; give a smaller population or more trials"
        )


def _numbers(parameter: Parameter) -> list[float]:
    """The numbers that a parameter may take, ascending; for a range its two ends."""
    if parameter.range is not None:
        return [parameter.range.low, parameter.range.high]
    return sorted(
        value
        for value in parameter.choices or []
        if isinstance(value, int | float) and not isinstance(value, bool)
    )
