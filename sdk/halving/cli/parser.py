"""The SDK's commands. A command's module is imported when it runs, so that ``halving --help`` answers at once."""

import argparse
from collections.abc import Callable
from importlib import import_module
from typing import Any

_RUN_HELP = "a run's id, the beginning of one, or project/run"
_FILTER_HELP = """in quotes, such as 'status = finished and params.lr < 0.01 order by metrics.val_loss limit 10' (docs/filter.md)"""


def add_commands(commands: Any) -> None:
    """Add ``runs``, ``show``, ``compare``, ``export``, ``recover``, ``compact`` and ``import`` to the ``halving`` command."""
    runs = _command(commands, "runs", "list runs, newest first, or those that a filter chooses, in its order", "runs:run_runs")
    runs.add_argument("filter", nargs="?", metavar="FILTER", help=_FILTER_HELP)
    runs.add_argument("--project", "-p", metavar="NAME", help="only runs of this project")
    runs.add_argument("--metrics", "-m", metavar="KEYS", help="metrics to show, A,B,C (default: those that most runs have)")
    runs.add_argument("--limit", "-n", type=_count, default=50, metavar="N", help="at most N runs (default 50; 0: all)")

    show = _command(commands, "show", "show one run: params, code, environment, attempts, metrics, artifacts", "show:run_show")
    show.add_argument("run_name", metavar="RUN", help=_RUN_HELP)
    show.add_argument("--packages", action="store_true", help="list every installed package")

    compare = _command(commands, "compare", "show what differs between runs, side by side", "compare:run_compare")
    compare.add_argument("run_names", nargs="+", metavar="RUN", help=f"two or more; {_RUN_HELP}")
    compare.add_argument("--all", "-a", action="store_true", help="show also what is equal")

    export = _command(commands, "export", "write runs' metric points as CSV, JSON or Parquet", "export:run_export")
    export.add_argument("run_names", nargs="+", metavar="RUN", help=_RUN_HELP)
    export.add_argument("--keys", "-k", metavar="KEYS", help="only these metrics, A,B,C")
    export.add_argument("--format", "-f", choices=("csv", "json", "parquet"), help="default: by the file name's ending, else csv")
    export.add_argument("--output", "-o", metavar="FILE", help="default: the standard output")

    recover = _command(
        commands,
        "recover",
        "save the points that killed processes left in this machine's journals",
        "maintenance:run_recover",
    )
    recover.add_argument("run_name", nargs="?", metavar="RUN", help=f"only this run; {_RUN_HELP}")
    recover.add_argument("--project", "-p", metavar="NAME", help="only runs of this project")
    recover.add_argument("--url", metavar="URL", help="of the server that the runs were sent to (default without --root: HALVING_URL)")

    compact = _command(
        commands, "compact", "join runs' segments into one file with rollups, to read them faster", "maintenance:run_compact"
    )
    compact.add_argument("run_names", nargs="*", metavar="RUN", help=_RUN_HELP)
    compact.add_argument("--project", "-p", metavar="NAME", help="every run of this project")
    compact.add_argument("--all", "-a", action="store_true", help="every run of the store")

    imported = _command(
        commands, "import", "copy the runs that another tool recorded; again, to go on or to take what is new", "imports:run_import"
    )
    imported.add_argument("tool", choices=("tensorboard", "wandb", "mlflow"), help="who recorded them")
    imported.add_argument(
        "source",
        metavar="SOURCE",
        help="tensorboard: a folder of event files; wandb: a folder of offline runs; mlflow: a tracking URI, such as http://host:5000, "
        "sqlite:///mlflow.db or ./mlruns",
    )
    imported.add_argument("--project", "-p", metavar="NAME", help="put every run into this project (default: as the tool has it)")


def add_command(
    commands: Any, name: str, summary: str, run: Callable[[argparse.Namespace], int], **needed: str | None
) -> argparse.ArgumentParser:
    """Add a command with the options that every command has; what it needs are its arguments, each with its help."""
    parser = _described(commands, name, summary)
    parser.set_defaults(run=run)
    parser.add_argument("--root", metavar="ROOT", help="the store (default: HALVING_ROOT, then ./.halving)")
    parser.add_argument("--json", action="store_true", help="print one JSON document, and nothing else, on the standard output")
    for argument, help_text in needed.items():
        parser.add_argument(argument, help=help_text)
    return parser


def add_group(commands: Any, name: str, summary: str) -> Any:
    """Add a command that has commands of its own, and give these, for :func:`add_command`."""
    return _described(commands, name, summary).add_subparsers(metavar="COMMAND", required=True)


def _described(commands: Any, name: str, summary: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.")
    return parser


def _command(commands: Any, name: str, summary: str, function: str) -> argparse.ArgumentParser:
    return add_command(commands, name, summary, _later(function))


def _later(function: str) -> Callable[[argparse.Namespace], int]:
    module, _, name = function.partition(":")

    def run(arguments: argparse.Namespace) -> int:
        return int(getattr(import_module(f"halving.cli.{module}"), name)(arguments))

    return run


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not accepted: give a whole number, 0 for all")
    return int(text)
