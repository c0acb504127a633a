"""``halving cost``: the cost of sweeps, models and projects, and its purposes."""

import argparse
from typing import TYPE_CHECKING, Any

from commands.shared import answer, backend_of
from halving.cli.output import print_table
from halving.cli.parser import add_command
from halving.errors import NotFound
from halving.text import duration, size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from resources.analysis.costs.questions import Costs, Kind, SweepCost
    from resources.analysis.costs.sums import Line

_MAX_ROWS = 20
_REFRESH_SECONDS = 20.0  # The index of runs may take this long; the runs that it has not read are counted.
# resources.analysis.costs.sums has them too; importing that here would slow down every command.
_BY = ("sweep", "project", "model", "trial", "purpose", "outcome", "month", "gpu_type")


def add_cost_command(commands: Any) -> None:
    """Add ``halving cost``."""
    cost = add_command(
        commands, "cost", "show what a sweep, a model or a project cost, and what for", run_cost
    )
    subject = cost.add_mutually_exclusive_group()
    subject.add_argument(
        "of",
        nargs="?",
        metavar="SWEEP|MODEL|PROJECT",
        help="a sweep's id, or a model's or a project's name (default: all)",
    )
    subject.add_argument(
        "--project", "-p", metavar="NAME", help="a project's name, which may be a model's, too"
    )
    subject.add_argument("--model", metavar="NAME", help="a model's name, which may be a project's, too")
    cost.add_argument(
        "--by",
        choices=_BY,
        help="what to tell apart (default: purpose of a sweep, sweep of a name, project of all)",
    )


def run_cost(arguments: argparse.Namespace) -> int:
    """Show what a sweep, a model, a project or everything cost until now.

    Unless it is a sweep, the index of runs is updated first.

    JSON of a sweep: ``{"sweep", "cost", "currency", "prices_of", "gpu_hours", "purposes": [...],
    "evaluation", "saved", "lost", "text", "by", "lines"}``; of all else ``{"of", "kind": "project", "model"
    or null, "by", "cost", "currency", "prices_of", "gpu_hours", "seconds", "attempts", "lost", "evaluation",
    "lines": [...], "runs": {…a line of runs of scripts and reruns, "estimated", "elsewhere"}, "champion":
    {"version", …as of a sweep} or null, "champion_run": {"version", …a line} or null, "gpu_hours_this_month":
    {"quota", "used", "left", "renewed"} or null, "storage": [{"project", "runs", "sampled", "points",
    "checkpoints", "artifacts", "bytes", "month", "estimated"}], "unread": runs that the index does not have
    yet}``. A line has ``name``, ``cost``, ``gpu_hours``, ``seconds``, ``attempts``, ``lost``; a month has no
    attempts of those that ended later.
    """
    from resources.analysis.costs.prices import load_prices
    from resources.analysis.costs.questions import costs, sweep_cost, sweep_lines
    from resources.analysis.run_index import Refresher

    prices = load_prices()
    backend = backend_of(arguments)
    if arguments.of is not None and _is_sweep(backend, arguments.of):
        cost = sweep_cost(backend.catalog, arguments.of, prices)
        by: Any = arguments.by or "purpose"
        lines = cost.purposes
        if by != "purpose":
            lines = sweep_lines(backend.catalog, arguments.of, by, prices)
        data = {**cost.as_dict(), "by": by, "lines": [line.as_dict() for line in lines]}
        return answer(arguments, data, lambda console: _print_sweep(console, cost, by, lines))
    kind, name = _kind_and_name(arguments)
    refreshed = Refresher(backend.store, backend.catalog).refresh(_REFRESH_SECONDS)
    unread = refreshed.left + len(refreshed.problems)
    default_by = "sweep"
    if name is None:
        default_by = "project"
    by = arguments.by or default_by
    summed = costs(backend.store, backend.catalog, name, by, prices, kind)
    return answer(
        arguments,
        {**summed.as_dict(), "unread": unread},
        lambda console: _print_costs(console, summed, unread),
    )


def _kind_and_name(arguments: argparse.Namespace) -> "tuple[Kind | None, str | None]":
    """The kind, if an option says it, and the name; no name is everything."""
    if arguments.project is not None:
        return "project", arguments.project
    if arguments.model is not None:
        return "model", arguments.model
    return None, arguments.of


def _is_sweep(backend: Any, name: str) -> bool:
    with backend.catalog.read() as session:
        try:
            backend.catalog.sweep(session, name)
        except NotFound:
            return False
        return True


def _print_sweep(console: "Console", cost: "SweepCost", by: str, lines: "list[Line]") -> None:
    from resources.analysis.costs.sums import money

    console.print(f"[bold]{cost.sweep}[/]: {cost.in_words()}", highlight=False)
    _print_lines(console, by, lines, cost.prices)
    if cost.evaluation:
        console.print(
            f"evaluation: {money(cost.evaluation, cost.prices)}, by the cores that its spec gives a trial",
            highlight=False,
        )


def _print_costs(console: "Console", costs: "Costs", unread: int) -> None:
    from resources.analysis.costs.sums import money

    prices = costs.prices
    total = money(costs.trained.cost + costs.evaluation, prices)
    if round(costs.trained.gpu_hours, 2):
        total += f", {costs.trained.gpu_hours:,.2f} GPU-hours"
    if costs.trained.lost:
        lost = money(costs.trained.lost, prices)
        total += f", of which at most {lost} for work that crashed or was preempted"
    counted = "sweeps and runs"
    if costs.kind == "model":
        counted = "sweeps"
    subject = f"all {counted}"
    if costs.of is not None:
        subject = f"the {counted} of {costs.kind} {costs.of}"
    console.print(f"[bold]{subject}[/]: {total} ({prices.about()})", highlight=False)
    _print_lines(console, costs.by, costs.lines, prices)
    for sentence in _about_runs(costs, unread):
        console.print(sentence, highlight=False, markup=False)
    if costs.evaluation:
        console.print(f"evaluation: {money(costs.evaluation, prices)}", highlight=False)
    champion = f"the champion {costs.of} {costs.champion_version} is of"
    if costs.champion_run:
        run = costs.champion_run
        console.print(f"{champion} the run {run.name}: {money(run.cost, prices)}", highlight=False)
    if costs.champion:
        sweep = costs.champion
        console.print(f"{champion} {sweep.sweep}: {sweep.in_words()}", highlight=False)
        for line in sweep.purposes:
            console.print(f"  {line.name}: {money(line.cost, prices)}", highlight=False)
    if costs.hours:
        month = costs.hours
        console.print(
            (
                f"GPU-hours of sweeps this month: {month.used:.4g} of {month.quota:g}, renewed on "
                f"{month.renewed:%Y-%m-%d} UTC"
            ),
            highlight=False,
        )
    for storage in costs.stored:
        parts = (
            f"points {size(storage.points)}, checkpoints {size(storage.checkpoints)}, "
            f"artifacts {size(storage.artifacts)}"
        )
        if storage.estimated:
            parts += f", estimated from {storage.sampled} of {storage.runs} runs"
        month_cost = money(storage.month, prices)
        console.print(f"storage of {storage.project}: {month_cost} a month ({parts})", highlight=False)


def _about_runs(costs: "Costs", unread: int) -> "Iterator[str]":
    """Sentences on what is counted of runs that are no trials, and what is not."""
    from resources.analysis.costs.sums import money

    if costs.runs.attempts:
        cost = money(costs.runs.cost, costs.prices)
        yield (
            f"{costs.runs.name}: {cost} at most, as if they used all GPUs that they could see, or else all "
            "cores"
        )
    if costs.estimated:
        yield (
            f"  of these {money(costs.estimated, costs.prices)} for what runs or was killed, until its "
            "last sign of life"
        )
    if costs.elsewhere:
        yield (
            "not counted: attempts at runs that other tools trained (imported, or logged by their "
            f"clients): {costs.elsewhere}"
        )
    if unread:
        yield (
            f"not counted: runs that the index does not have yet: {unread}; halving index reads them, or "
            "says why it cannot"
        )


def _print_lines(console: "Console", by: str, lines: "list[Line]", prices: Any) -> None:
    from resources.analysis.costs.sums import largest, money

    rows = [
        [
            line.name,
            money(line.cost, prices),
            f"{line.gpu_hours:.2f}",
            duration(line.seconds),
            line.attempts,
            money(line.lost, prices),
        ]
        for line in largest(lines, _MAX_ROWS)
    ]
    columns = (by.replace("_", " "), "cost", "GPU-hours", "time", "attempts", "lost, at most")
    if rows:
        print_table(console, columns, rows, right=columns[1:], first=True)
