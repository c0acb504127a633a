"""``halving projects``: the projects' shares of the machines, their limits, and what they hold now."""

import argparse
from typing import TYPE_CHECKING, Any

from commands.shared import answer, backend_of
from halving.cli.output import print_table
from halving.cli.parser import add_command, add_group
from halving.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from resources.catalog import Catalog
    from resources.tenancy.projects import ProjectLine

_NONE = "none"
_NAME = "the project's name; * is all projects together"


def add_projects_commands(commands: Any) -> None:
    """Add ``halving projects list|show|set|unset|rename``."""
    inner = add_group(
        commands, "projects", "who may use how much: projects, their weights, quotas and owners"
    )
    add_command(inner, "list", "list the projects with what they may use and what they hold now", run_list)
    add_command(inner, "show", "show a project, and why its sweeps wait", run_show, project=_NAME)
    change = add_command(
        inner, "set", "set some settings of a project; the others stay", run_set, project=_NAME
    )
    change.add_argument(
        "--owner",
        action="append",
        metavar="NAME",
        help=f"who is responsible for it; may be given several times; {_NONE}: nobody",
    )
    change.add_argument(
        "--weight",
        type=float,
        metavar="W",
        help="its share beside the others': 2 is twice that of 1 (the default)",
    )
    for option, noun in (("--max-trials", "trials at a time"), ("--max-gpus", "GPUs at a time")):
        change.add_argument(option, type=_limit(int), metavar="N", help=f"most {noun}; {_NONE}: no limit")
    change.add_argument(
        "--gpu-hours",
        type=_limit(float),
        metavar="H",
        help=f"most hours of one GPU in a month; {_NONE}: no limit",
    )
    description = (
        "take back all that was set of a project: its owners, weight and quotas; its sweeps, runs and "
        "names stay"
    )
    add_command(inner, "unset", description, run_unset, project=_NAME)
    rename = add_command(
        inner,
        "rename",
        "call a project otherwise; its trials go on, and its runs stay where they are",
        run_rename,
    )
    rename.add_argument("project", help="what it is called now")
    rename.add_argument("new", help="what it is called from now on")


def run_list(arguments: argparse.Namespace) -> int:
    """List projects.

    JSON: ``{"projects": [{"name", "owners", "weight", "max_trials", "max_gpus", "gpu_hours",
    "gpu_hours_used", "former_names", "searching", "trials", "gpus", "gpus_waiting", "waiting"}]}``. A limit
    that is null is none. ``gpu_hours_used`` are those of this month, null where they are not limited.
    ``searching`` counts the sweeps that search, ``trials`` and ``gpus`` what these hold now, and
    ``gpus_waiting`` those of the GPUs whose trials still wait for a device or a node. ``waiting`` says why
    sweeps wait, by their ids.
    """
    from resources.tenancy.projects import list_projects

    catalog = backend_of(arguments).catalog
    lines = list_projects(catalog)
    used = _hours_used(catalog, lines)
    data = {"projects": [_as_dict(line, used) for line in lines]}
    return answer(arguments, data, lambda console: _print_list(console, lines, used))


def run_show(arguments: argparse.Namespace) -> int:
    """Show a project. JSON: one entry of ``halving projects list``."""
    from resources.tenancy.projects import show_project

    catalog = backend_of(arguments).catalog
    return _answer_project(arguments, catalog, show_project(catalog, arguments.project))


def run_set(arguments: argparse.Namespace) -> int:
    """Change settings of a project; others stay. JSON: as ``halving projects show``."""
    from resources.tenancy.projects import set_project, show_project

    settings: dict[str, Any] = {}
    for name in ("weight", "max_trials", "max_gpus", "gpu_hours"):
        value = getattr(arguments, name)
        if value is not None:
            settings[name] = value
            if value == _NONE:
                settings[name] = None
    if arguments.owner:
        settings["owners"] = _owners(arguments.owner)
    catalog = backend_of(arguments).catalog
    set_project(catalog, arguments.project, **settings)
    return _answer_project(arguments, catalog, show_project(catalog, arguments.project))


def run_unset(arguments: argparse.Namespace) -> int:
    """Take back what was set. JSON: ``{"name", "former_names"}``."""
    from resources.tenancy.projects import unset_project

    former_names = unset_project(backend_of(arguments).catalog, arguments.project)

    def say(console: "Console") -> None:
        text = f"nothing is set for project {arguments.project} any more."
        if former_names:
            text += f" It still has the names {', '.join(former_names)}, too."
        console.print(text, highlight=False, markup=False)

    return answer(arguments, {"name": arguments.project, "former_names": former_names}, say)


def run_rename(arguments: argparse.Namespace) -> int:
    """Rename a project. JSON: one entry of ``halving projects list``."""
    from resources.tenancy.projects import rename_project, show_project

    catalog = backend_of(arguments).catalog
    rename_project(catalog, arguments.project, arguments.new)
    line = show_project(catalog, arguments.new)

    def say(console: "Console") -> None:
        console.print(
            f"project {arguments.project} is called {line.name} now. Its trials go on and its runs stay "
            "where they are;\n"
            f"specs that say {arguments.project} still mean it.",
            highlight=False,
            markup=False,
        )

    return answer(arguments, _as_dict(line, _hours_used(catalog, [line])), say)


def _hours_used(catalog: "Catalog", lines: "list[ProjectLine]") -> dict[str, float]:
    """The GPU-hours of this month that projects have used, by name, where they are limited."""
    from resources.tenancy.gpu_hours import gpu_hours_used

    with catalog.read() as session:
        now = catalog.now()
        limited = [line for line in lines if line.gpu_hours is not None]
        return {line.name: gpu_hours_used(session, [line.name, *line.former_names], now) for line in limited}


def _as_dict(line: "ProjectLine", used: dict[str, float]) -> dict[str, Any]:
    return {**line.as_dict(), "gpu_hours_used": used.get(line.name)}


def _owners(names: list[str]) -> list[str]:
    if _NONE not in names:
        return names
    if len(names) > 1:
        raise InvalidInput(
            f"owner = {_NONE!r} is not accepted beside others: it takes all owners away; give it alone, or "
            "leave it out"
        )
    return []


def _limit(number: type) -> "Callable[[str], Any]":
    def read(text: str) -> Any:
        if text == _NONE:
            return _NONE
        return number(text)

    read.__name__ = f"{number.__name__} or {_NONE}"  # The parser's message quotes it.
    return read


def _print_list(console: "Console", lines: "list[ProjectLine]", used: dict[str, float]) -> None:
    if not lines:
        console.print(
            "no project has limits, and no sweep is searching: every project has the weight 1 and no quota.",
            highlight=False,
        )
        return
    columns = (
        "project",
        "weight",
        "trials",
        "of",
        "GPUs",
        "of",
        "GPU-hours this month",
        "of",
        "sweeps",
        "wait",
        "owners",
    )
    rows = []
    for line in lines:
        weight = f"{line.weight:g}"
        if line.name == "*":
            weight = ""
        hours = ""
        if line.name in used:
            hours = f"{used[line.name]:.4g}"
        trials = [line.trials, _limit_text(line.max_trials)]
        gpus = [_gpus(line), _limit_text(line.max_gpus)]
        sweeps = [line.searching, len(line.waiting)]
        rows.append(
            [
                line.name,
                weight,
                *trials,
                *gpus,
                hours,
                _limit_text(line.gpu_hours),
                *sweeps,
                ", ".join(line.owners),
            ]
        )
    print_table(console, columns, rows, right=[*{*columns} - {"project", "owners"}], first=True)


def _answer_project(arguments: argparse.Namespace, catalog: "Catalog", line: "ProjectLine") -> int:
    used = _hours_used(catalog, [line])
    return answer(arguments, _as_dict(line, used), lambda console: _print_project(console, line, used))


def _print_project(console: "Console", line: "ProjectLine", used: dict[str, float]) -> None:
    whose = f"project {line.name}, weight {line.weight:g}"
    if line.name == "*":
        whose = "all projects together"
    hours = f"GPU-hours a month: {_limit_text(line.gpu_hours)}"
    if used:
        hours += f", of which {used[line.name]:.4g} are used"
    facts = [
        whose,
        f"trials: {line.trials} of {_limit_text(line.max_trials)}",
        f"GPUs: {_gpus(line)} of {_limit_text(line.max_gpus)}",
        hours,
        f"sweeps that search: {line.searching}",
    ]
    if line.owners:
        facts.append(f"owners: {', '.join(line.owners)}")
    if line.former_names:
        facts.append(f"former names: {', '.join(line.former_names)}")
    facts += [f"{sweep} waits: {reason}" for sweep, reason in line.waiting.items()]
    console.print("\n".join(facts), highlight=False, markup=False)


def _gpus(line: "ProjectLine") -> str:
    """The number of GPUs that a project's trials hold, with that of trials that wait for a device or node."""
    if line.gpus_waiting:
        return f"{line.gpus} ({line.gpus_waiting} waiting)"
    return str(line.gpus)


def _limit_text(limit: float | None) -> str:
    return "no limit" if limit is None else f"{limit:g}"
