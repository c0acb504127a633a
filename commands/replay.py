"""``halving replay``: strategies, replayed on a finished sweep's curves."""

import argparse
from typing import TYPE_CHECKING, Any

from commands.shared import answer, backend_of
from halving.cli.output import print_table
from halving.cli.parser import add_command
from halving.text import NONE, duration

if TYPE_CHECKING:
    from rich.console import Console


def add_replay_command(commands: Any) -> None:
    """Add ``halving replay``."""
    description = "replay strategies on a finished sweep's curves: what they would have spent and found"
    replay = add_command(
        commands, "replay", description, run_replay, sweep="the sweep's id, for example digits-7f3a"
    )
    replay.add_argument(
        "--strategy",
        action="append",
        required=True,
        help="as in a spec, for example 'hyperband' or 'asha: {min_budget: 3}'; may be given several times",
    )


def run_replay(arguments: argparse.Namespace) -> int:
    """Replay strategies on the curves of a sweep that is over.

    JSON: ``{"sweep", "objective", "direction", "trials", "workers", "itself": {...}, "replayed": [...]}``;
    each of those has ``strategy``, ``trials``, ``completed``, ``epochs``, ``seconds``, ``worker_seconds``,
    ``winner``, ``winner_epochs``, ``winner_objective``, ``place`` (among the sweep's own results, from 1);
    replayed ones have ``unknown_epochs`` and ``unknown_trials`` too.
    """
    from resources.analysis.strategy_replay import read_strategy, replay_sweep

    backend = backend_of(arguments)
    strategies = [read_strategy(text) for text in arguments.strategy]
    replay = replay_sweep(backend.store, backend.catalog, arguments.sweep, strategies)
    return answer(arguments, replay, lambda console: _print_replay(console, replay))


def _print_replay(console: "Console", replay: dict[str, Any]) -> None:
    from resources.evaluation.page import number

    rows = []
    for entry in [replay["itself"], *replay["replayed"]]:
        objective = NONE
        if entry["winner"]:
            objective = f"{number(entry['winner_objective'])} ({entry['winner_epochs']})"
        unknown = entry.get("unknown_epochs")  # None for the sweep itself
        unknown_text = unknown
        if unknown:
            unknown_text = f"{unknown} ({unknown / entry['epochs']:.0%})"
        name = "the sweep itself"
        if entry is not replay["itself"]:
            name = strategy_text(entry["strategy"])
        rows.append(
            [
                name,
                entry["completed"],
                entry["epochs"],
                unknown_text,
                duration(entry["seconds"]),
                entry["winner"],
                objective,
                entry["place"],
            ]
        )
    columns = (
        "strategy",
        "to the end",
        "epochs",
        "unknown",
        "time",
        "winner",
        f"{replay['objective']} (epochs)",
        "place",
    )
    console.print(
        f"{replay['sweep']}: {replay['trials']} trials on {replay['workers']} workers", highlight=False
    )
    print_table(
        console,
        columns,
        rows,
        right=("to the end", "epochs", "unknown", "time", f"{replay['objective']} (epochs)", "place"),
    )
    console.print(
        "unknown: epochs beyond the end of a curve, which were never trained; such a trial counts with the "
        "last value of its curve.\n"
        "place: that of the winner among the sweep's own results. time: with as many workers as the sweep "
        "had; the sweep's own time "
        "includes starts and crashes.",
        style="dim",
        highlight=False,
    )


def strategy_text(strategy: dict[str, Any]) -> str:
    """A strategy in one line, with its budgets and the settings that differ from the defaults."""
    from resources.sweep_spec.strategy import Strategy

    (name, settings) = next(iter(strategy.items()))
    required = {}
    if name == "optuna":
        required["sampler"] = settings["sampler"]
    defaults = Strategy.model_validate({name: required}).chosen.model_dump()
    changed = [
        f"{key}: {value}"
        for key, value in settings.items()
        if value != defaults.get(key) or key in ("budget", "min_budget", "max_budget")
    ]
    return f"{name}: {{{', '.join(changed)}}}"
