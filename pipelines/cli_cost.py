"""``halving cost``: what sweeps, models and projects cost, and what that was for."""

import argparse
from typing import TYPE_CHECKING, Any

from halving.cli.output import duration, print_table, size
from halving.cli.parser import add_command
from halving.errors import NotFound
from pipelines.cli_views import answer, backend_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from resources.analysis.costs.questions import Costs, Kind, SweepCost
    from resources.analysis.costs.sums import Line

_ROWS = 20
_REFRESH_SECONDS = 20.0  # that the index of runs may take; what it has not read then is said
# resources.analysis.costs.sums has them too; importing that here would slow down every command.
_BY = ("sweep", "project", "model", "trial", "purpose", "outcome", "month", "gpu_type")


def add_cost_command(commands: Any) -> None:
    """Add ``halving cost``."""
    cost = add_command(
        commands, "cost", "show what a sweep, a model or a project cost, and what for", run_cost
    )
    what = cost.add_mutually_exclusive_group()
    what.add_argument(
        "of",
        nargs="?",
        metavar="SWEEP|MODEL|PROJECT",
        help="a sweep's id, or a model's or a project's name (default: all)",
    )
    what.add_argument("--project", "-p", metavar="NAME", help="a project's name, which may be a model's, too")
    what.add_argument("--model", metavar="NAME", help="a model's name, which may be a project's, too")
    cost.add_argument(
        "--by",
        choices=_BY,
        help="what to tell apart (default: purpose of a sweep, sweep of a name, project of all)",
    )


def run_cost(arguments: argparse.Namespace) -> int:
    """Show what a sweep, a model, a project or everything cost until now.

    But for a sweep, the index of runs is brought up to date first.

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
        found = sweep_cost(backend.catalog, arguments.of, prices)
        by: Any = arguments.by or "purpose"
        lines = found.purposes if by == "purpose" else sweep_lines(backend.catalog, arguments.of, by, prices)
        data = {**found.as_dict(), "by": by, "lines": [line.as_dict() for line in lines]}
        return answer(arguments, data, lambda console: _print_sweep(console, found, by, lines))
    kind, name = _named(arguments)
    refreshed = Refresher(backend.store, backend.catalog).refresh(_REFRESH_SECONDS)
    unread = refreshed.left + len(refreshed.problems)
    summed = costs(
        backend.store,
        backend.catalog,
        name,
        arguments.by or ("project" if name is None else "sweep"),
        prices,
        kind,
    )
    return answer(
        arguments,
        {**summed.as_dict(), "unread": unread},
        lambda console: _print_costs(console, summed, unread),
    )


def _named(arguments: argparse.Namespace) -> "tuple[Kind | None, str | None]":
    """What is asked about, if that is said, and its name; no name is everything."""
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


def _print_sweep(console: "Console", found: "SweepCost", by: str, lines: "list[Line]") -> None:
    from resources.analysis.costs.sums import money

    console.print(f"[bold]{found.sweep}[/]: {found.in_words()}", highlight=False)
    _print_lines(console, by, lines, found.prices)
    if found.evaluation:
        console.print(
            f"evaluation: {money(found.evaluation, found.prices)}, by the cores that its spec gives a trial",
            highlight=False,
        )


def _print_costs(console: "Console", found: "Costs", unread: int) -> None:
    from resources.analysis.costs.sums import money

    prices = found.prices
    whole = found.trained.cost + found.evaluation
    counted = "sweeps" if found.kind == "model" else "sweeps and runs"
    what = f"all {counted}" if found.of is None else f"the {counted} of {found.kind} {found.of}"
    hours = f", {found.trained.gpu_hours:,.2f} GPU-hours" if round(found.trained.gpu_hours, 2) else ""
    lost = (
        f", of which at most {money(found.trained.lost, prices)} for work that crashed or was preempted"
        if found.trained.lost
        else ""
    )
    console.print(f"[bold]{what}[/]: {money(whole, prices)}{hours}{lost} ({prices.about()})", highlight=False)
    _print_lines(console, found.by, found.lines, prices)
    for said in _about_runs(found, unread):
        console.print(said, highlight=False, markup=False)
    if found.evaluation:
        console.print(f"evaluation: {money(found.evaluation, prices)}", highlight=False)
    if found.champion_run:
        own_run = found.champion_run
        said = (
            f"the champion {found.of} {found.champion_version} is of the run {own_run.name}: "
            f"{money(own_run.cost, prices)}"
        )
        console.print(said, highlight=False)
    if found.champion:
        own = found.champion
        console.print(
            f"the champion {found.of} {found.champion_version} is of {own.sweep}: {own.in_words()}",
            highlight=False,
        )
        for line in own.purposes:
            console.print(f"  {line.name}: {money(line.cost, prices)}", highlight=False)
    if found.hours:
        month = found.hours
        console.print(
            (
                f"GPU-hours of sweeps this month: {month.used:.4g} of {month.quota:g}, renewed on "
                f"{month.renewed:%Y-%m-%d} UTC"
            ),
            highlight=False,
        )
    for one in found.stored:
        how = f", estimated from {one.sampled} of {one.runs} runs" if one.estimated else ""
        parts = (
            f"points {size(one.points)}, checkpoints {size(one.checkpoints)}, artifacts {size(one.artifacts)}"
        )
        console.print(
            f"storage of {one.project}: {money(one.month, prices)} a month ({parts}{how})", highlight=False
        )


def _about_runs(found: "Costs", unread: int) -> "Iterator[str]":
    """What is counted of runs that are no trials, and what is not."""
    from resources.analysis.costs.sums import money

    if found.runs.attempts:
        cost = money(found.runs.cost, found.prices)
        yield (
            f"{found.runs.name}: {cost} at most, as if they used all GPUs that they could see, or else all "
            "cores"
        )
    if found.estimated:
        yield (
            f"  of these {money(found.estimated, found.prices)} for what runs or was killed, until its "
            "last sign of life"
        )
    if found.elsewhere:
        yield (
            "not counted: attempts at runs that other tools trained (imported, or logged by their "
            f"clients): {found.elsewhere}"
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
        for line in largest(lines, _ROWS)
    ]
    columns = (by.replace("_", " "), "cost", "GPU-hours", "time", "attempts", "lost, at most")
    if rows:
        print_table(console, columns, rows, right=columns[1:], first=True)
