"""``halving index``: update the catalog's index of runs, or rebuild it."""

import argparse
import os
from contextlib import nullcontext
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from commands.shared import answer, console_of, existing_backend
from halving.cli.parser import add_command

if TYPE_CHECKING:
    from rich.console import Console

    from resources.analysis.run_index import Refreshed

_MAX_PROCESSES = 8


def add_index_command(commands: Any) -> None:
    """Add ``halving index``."""
    description = "bring the catalog's index of runs up to date with the store; a server does so by itself"
    index = add_command(commands, "index", description, run_index)
    index.add_argument(
        "--rebuild", action="store_true", help="read every run again; meanwhile the index stays as it is"
    )


def run_index(arguments: argparse.Namespace) -> int:
    """Refresh or rebuild the index of runs.

    JSON: ``{"runs", "added", "changed", "deleted", "looked", "problems", "left", "complete", "seconds"}``;
    ``runs`` counts the store's runs, and ``problems`` are the reasons for those that could not be read, by
    ``project/run``. The exit status is 1 if there are any.
    """
    from rich.live import Live
    from rich.text import Text

    from resources.analysis.run_index import Refresher
    from resources.analysis.run_index.rebuild import rebuild

    backend = existing_backend(arguments)
    console = console_of(arguments)
    processes = min(os.cpu_count() or 1, _MAX_PROCESSES)
    display: Any = nullcontext()
    if console.is_terminal:
        display = Live(Text("listing runs"), console=console, refresh_per_second=4, transient=True)
    with display as live:

        def progress(done: "Refreshed") -> None:
            if live:
                live.update(Text(f"{done.seconds:4.0f} s  {_line(done)}"))

        if arguments.rebuild:
            done = rebuild(backend.store, backend.catalog, progress, processes=processes)
        else:
            done = Refresher(backend.store, backend.catalog, processes=processes).refresh(progress=progress)
    answer(arguments, asdict(done), lambda console: _print(console, done))
    return 1 if done.problems else 0


def _print(console: "Console", done: "Refreshed") -> None:
    console.print(f"{_line(done)}, in {done.seconds:.1f} s", highlight=False)
    for run, reason in sorted(done.problems.items()):
        console.print(
            f"{run} is not in the index as it is: {reason}", style="red", highlight=False, markup=False
        )


def _line(done: "Refreshed") -> str:
    return (
        f"{done.runs} runs: {done.added} added, {done.changed} read again, {done.deleted} deleted, "
        f"{done.looked} looked at"
    )
