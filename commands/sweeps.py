"""Commands on specs and running sweeps: ``halving check``, ``pause``, ``resume``, ``stop``, ``extend``."""

import argparse
from dataclasses import asdict
from typing import Any

from commands.shared import answer, backend_of, console_of
from halving.cli.output import print_json
from halving.cli.parser import add_command

_CONTROLS = {
    "pause": "start no more trials of a sweep; running ones save a checkpoint and stop",
    "resume": "continue a paused sweep where it stands",
    "stop": "end the search of a sweep now and evaluate what it found",
    "extend": "allow a running sweep to start more trials",
}


def add_sweeps_commands(commands: Any) -> None:
    """Add ``halving check``, and the commands that control a sweep."""
    description = "check a sweep spec and warn of settings that may work badly, without running anything"
    add_command(
        commands, "check", description, run_check, spec="a sweep spec, for example sweeps/digits.yaml"
    )
    for name, description in _CONTROLS.items():
        control = add_command(
            commands, name, description, run_control, sweep="the sweep's id, for example digits-7f3a"
        )
    control.add_argument(
        "--max-trials", type=int, required=True, help="how many trials the sweep may start in all"
    )


def run_check(arguments: argparse.Namespace) -> int:
    """Check a spec as a launch does, with the GPU-hours of its project.

    JSON: ``{"spec": {…, with all defaults}, "largest": {"trials", "gpus", "processes", "nodes", "cpus",
    "memory"}, "gpu_hours": {"project", "expected", "how", "quota", "left", "others"}, "warnings": [...]}``.
    ``largest`` is what the sweep needs at its largest, for so many trials at a time (null: as many as there
    is room for), with memory in bytes. ``gpu_hours`` are those that it is expected to take (null: unknown),
    the project's ``quota`` for this month (null: no limit), and in ``others`` what the project's unfinished
    sweeps are expected to take of it.
    """
    from resources.catalog.opening import catalog_at_hand
    from resources.features.wanted import views_of
    from resources.scheduling.gpu_hours import check_gpu_hours
    from resources.scheduling.sweeps import has_unfinished
    from resources.scheduling.warm_start import warm_start_sources
    from resources.search.rules import max_trials
    from resources.sweep_spec import check_functions, load_spec
    from resources.sweep_spec.lint import lint
    from resources.sweep_spec.needs import largest_need, needs_in_words

    spec = load_spec(arguments.spec)
    check_functions(spec)
    if spec.snapshot is None:
        views_of(spec.dataset)  # It raises when there is no such view.
    if spec.warm_start:
        warm_start_sources(backend_of(arguments).catalog, spec)  # It raises when one of them does not fit.
    catalog = None
    if spec.resources.largest.gpus:
        catalog = catalog_at_hand(backend_of(arguments).store)
    # It raises when too few GPU-hours are left.
    forecast = check_gpu_hours(catalog, spec, goes_on=has_unfinished(catalog, spec, "job"))
    warnings = lint(spec)
    if arguments.json:
        dumped = spec.model_dump(mode="json", by_alias=True, exclude_none=True)
        print_json(
            {
                "spec": dumped,
                "largest": asdict(largest_need(spec)),
                "gpu_hours": forecast.as_dict(),
                "warnings": warnings,
            }
        )
        return 0
    console = console_of(arguments)
    summary = f"{spec.strategy.name}, up to {max_trials(spec)} trials, {spec.rungs}"
    if spec.final:
        summary += f"; then {spec.final.seeds} final trainings of {spec.final_epochs} epochs"
    console.print(f"[bold]{spec.name}[/] is in order: {summary}")
    for line in needs_in_words(spec):
        console.print(line, highlight=False)
    console.print(str(forecast), highlight=False, markup=False)
    for warning in warnings:
        console.print(f"[yellow]note:[/] {warning}")
    return 0


def run_control(arguments: argparse.Namespace) -> int:
    """Pause, resume, stop or extend a sweep.

    JSON: ``{"sweep", "status", "control", "max_trials"}``, ``max_trials`` null unless it was extended.
    """
    from resources.catalog import IntentRow
    from resources.registry.by_hand import user
    from resources.scheduling import intents
    from resources.scheduling.sweeps import extend_sweep, pause_sweep, resume_sweep

    actor = user()
    controls: dict[str, Any] = {
        "pause": lambda catalog, sweep: pause_sweep(catalog, sweep, actor=actor),
        "resume": lambda catalog, sweep: resume_sweep(catalog, sweep, actor=actor),
        "stop": lambda catalog, sweep: intents.stop_sweep(catalog, sweep, actor),
        "extend": lambda catalog, sweep: extend_sweep(catalog, sweep, arguments.max_trials, actor=actor),
    }
    row = controls[arguments.command](backend_of(arguments).catalog, arguments.sweep)
    if isinstance(row, IntentRow):
        data = {"sweep": row.sweep, "status": row.status, "control": "stop", "max_trials": None}
        return answer(
            arguments,
            data,
            lambda console: console.print(
                f"sweep {row.sweep} was not open yet: it never will be", highlight=False
            ),
        )
    messages = {
        "pause": f"sweep {row.id} is paused: running trials save a checkpoint and stop within seconds.\n"
        f"[bold]halving resume {row.id}[/] continues it.",
        "resume": (
            f"sweep {row.id} goes on in its job or with the sensors.\nIf its job has ended, launch its "
            "spec again."
        ),
        "stop": f"sweep {row.id} is being stopped: running trials save a checkpoint, then its job or the "
        "sensors\n"
        "evaluate its winner. If its job has ended, launch its spec again.",
        "extend": f"sweep {row.id} may start {row.max_trials} trials in all.",
    }
    data = {"sweep": row.id, "status": row.status, "control": row.control, "max_trials": row.max_trials}
    return answer(
        arguments, data, lambda console: console.print(messages[arguments.command], highlight=False)
    )
