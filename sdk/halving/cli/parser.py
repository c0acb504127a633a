"""The SDK's commands.

A command's module is imported when it runs, so that ``halving --help`` answers at once.
"""

import argparse
from collections.abc import Callable
from importlib import import_module
from typing import Any

_RUN_HELP = "a run's id, the beginning of one, or project/run"
_FILTER_HELP = (
    "in quotes, such as 'status = finished and params.lr < 0.01 order by metrics.val_loss limit 10' "
    "(docs/filter.md)"
)


class Command(argparse.ArgumentParser):
    """A command that may have subcommands beside its own arguments.

    ``halving runs delete RUN`` is one beside ``halving runs FILTER``.

    Attributes:
        inner: its subcommands, for :func:`add_command`.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.inner = _Inner(self)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse arguments as argparse does, or as the subcommand that they begin with does."""
        if args and args[0] in self.inner.choices:
            return self.inner.choices[args[0]].parse_known_args(args[1:], namespace)
        return super().parse_known_args(args, namespace)


class _Inner:
    """Subcommands like those of argparse, except that the command can be called without one."""

    def __init__(self, parent: Command) -> None:
        self._parent = parent
        self.choices: dict[str, Command] = {}

    def add_parser(self, name: str, *, help: str, description: str) -> Command:
        """Add a subcommand; the signature is that of argparse."""
        command = Command(prog=f"{self._parent.prog} {name}", description=description)
        self.choices[name] = command
        epilog = f"{command.prog}: {help}"
        if self._parent.epilog:
            epilog = f"{self._parent.epilog}; {epilog}"
        self._parent.epilog = epilog
        return command


def add_commands(commands: Any) -> None:
    """Add the commands that need nothing but the store."""
    runs = _command(
        commands,
        "runs",
        "list runs, newest first, or those that a filter chooses, in its order; change them",
        "runs:run_runs",
    )
    runs.add_argument("filter", nargs="?", metavar="FILTER", help=_FILTER_HELP)
    runs.add_argument("--project", "-p", metavar="NAME", help="only runs of this project")
    runs.add_argument(
        "--metrics", "-m", metavar="KEYS", help="metrics to show, A,B,C (default: those that most runs have)"
    )
    runs.add_argument(
        "--limit", "-n", type=_count, default=50, metavar="N", help="at most N runs (default 50; 0: all)"
    )

    started = _command(
        commands,
        "run",
        "run a script that is written for W&B, unchanged: its wandb is halving.wandb",
        "run:run_run",
    )
    started.usage = (
        "halving run --as-wandb [--root ROOT] (train.py ARGS… | -m package.module ARGS… | -- COMMAND ARGS…)"
    )
    started.add_argument(
        "--as-wandb",
        action="store_true",
        help="`import wandb` is `import halving.wandb`, also in processes that the script starts",
    )
    started.add_argument(
        "-m", dest="module", nargs=argparse.REMAINDER, metavar="MODULE", help="a module and its arguments"
    )
    started.add_argument(
        "script",
        nargs=argparse.REMAINDER,
        metavar="SCRIPT",
        help="train.py and its arguments, or -- and a command such as torchrun --nproc-per-node 2 train.py",
    )

    show = _command(
        commands,
        "show",
        "show one run: params, code, environment, attempts, metrics, artifacts",
        "show:run_show",
    )
    show.add_argument("run_name", metavar="RUN", help=_RUN_HELP)
    show.add_argument("--packages", action="store_true", help="list every installed package")

    compare = _command(
        commands, "compare", "show what differs between runs, side by side", "compare:run_compare"
    )
    compare.add_argument("run_names", nargs="+", metavar="RUN", help=f"two or more; {_RUN_HELP}")
    compare.add_argument("--all", "-a", action="store_true", help="show also what is equal")

    summary = _command(
        commands,
        "summary",
        "say what stands out in a run's curves: best, trend, plateau, spikes, NaN, gaps, resumes",
        "summary:run_summary",
    )
    summary.add_argument("run_name", metavar="RUN", help=_RUN_HELP)
    summary.add_argument("metrics", nargs="*", metavar="METRIC", help="only these (default: all)")
    summary.add_argument(
        "--direction",
        choices=("minimize", "maximize"),
        help="which value is the best (default: guessed from each metric's name)",
    )

    rerun = _command(
        commands, "rerun", "train a run or a trial again and say whether the same came out", "rerun:run_rerun"
    )
    rerun.add_argument(
        "run_name", metavar="RUN", help=f"{_RUN_HELP}; of a trial its name, such as digits-7f3a.0007"
    )
    _add_how_to_rerun(rerun)
    rerun.set_defaults(error_status=2)
    rerun.add_argument(
        "--strict", action="store_true", help="refuse to train where something differs from the record"
    )
    rerun.add_argument(
        "--ignore",
        action="append",
        default=[],
        metavar="METRIC",
        help="do not compare these, such as 'time/*'",
    )

    why = _command(
        commands,
        "why",
        "say in what two runs differ, and by reruns how much of it explains a metric's change",
        "why:run_why",
    )
    why.add_argument("run_name", metavar="A", help=_RUN_HELP)
    why.add_argument("other_name", metavar="B", help=_RUN_HELP)
    why.add_argument(
        "--rerun",
        action="store_true",
        help="train A again with one factor of B at a time; says first what it will cost",
    )
    why.add_argument("--repeat", type=int, default=3, metavar="N", help="seeds for each factor (default 3)")
    why.add_argument(
        "--metric",
        metavar="METRIC",
        help="whose change is explained (default: a trial's objective, or the only one)",
    )
    why.add_argument("--yes", action="store_true", help="train without asking")
    _add_how_to_rerun(why)
    why.set_defaults(strict=False, ignore=[])

    export = _command(
        commands, "export", "write runs' metric points as CSV, JSON or Parquet", "export:run_export"
    )
    export.add_argument("run_names", nargs="+", metavar="RUN", help=_RUN_HELP)
    export.add_argument("--keys", "-k", metavar="KEYS", help="only these metrics, A,B,C")
    export.add_argument(
        "--format",
        "-f",
        choices=("csv", "json", "parquet"),
        help="default: by the file name's ending, else csv",
    )
    export.add_argument("--output", "-o", metavar="FILE", help="default: the standard output")

    recover = _command(
        commands,
        "recover",
        "save the points that killed processes left in this machine's journals",
        "maintenance:run_recover",
    )
    recover.add_argument("run_name", nargs="?", metavar="RUN", help=f"only this run; {_RUN_HELP}")
    recover.add_argument("--project", "-p", metavar="NAME", help="only runs of this project")
    recover.add_argument(
        "--url",
        metavar="URL",
        help="of the server that the runs were sent to (default without --root: HALVING_URL)",
    )

    compact = _command(
        commands,
        "compact",
        "join runs' segments into one file with rollups, to read them faster",
        "maintenance:run_compact",
    )
    compact.add_argument("run_names", nargs="*", metavar="RUN", help=_RUN_HELP)
    compact.add_argument("--project", "-p", metavar="NAME", help="every run of this project")
    compact.add_argument("--all", "-a", action="store_true", help="every run of the store")

    doctor = _command(
        commands,
        "doctor",
        "say what is wrong with the store and around it, what it means and what mends it",
        "doctor:run_doctor",
    )
    doctor.add_argument("--repair", action="store_true", help="mend what can be mended safely")
    doctor.add_argument(
        "--all", "-a", action="store_true", help="read everything, such as each blob, instead of a sample"
    )

    imported = _command(
        commands,
        "import",
        "copy the runs that another tool recorded; again, to go on or to take what is new",
        "imports:run_import",
    )
    imported.add_argument(
        "tool", choices=("tensorboard", "wandb", "mlflow", "neptune", "trackio"), help="who recorded them"
    )
    imported.add_argument(
        "source",
        metavar="SOURCE",
        help="tensorboard: a folder of event files; wandb: a folder of offline runs; mlflow: a tracking "
        "URI, such as http://host:5000, sqlite:///mlflow.db or ./mlruns; neptune: the folder that "
        "neptune-exporter wrote; trackio: its folder, or a PROJECT.db in it",
    )
    imported.add_argument(
        "--files", metavar="FOLDER", help="neptune: its exporter's files (default: files/ beside its data/)"
    )
    imported.add_argument(
        "--project",
        "-p",
        metavar="NAME",
        help="put every run into this project (default: as the tool has it)",
    )
    imported.add_argument(
        "--follow",
        action="store_true",
        help="wandb: go on copying what its offline runs write, until Ctrl-C or until a single run has ended",
    )


def _add_how_to_rerun(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--repository",
        default=".",
        metavar="PATH",
        help="the checkout that has the commit (default: that around here)",
    )
    command.add_argument(
        "--env", action="store_true", help="train in a new virtual environment of the recorded packages"
    )
    command.add_argument(
        "--except",
        dest="accepted",
        action="append",
        default=[],
        metavar="FACTOR",
        help=(
            "a factor that may differ: code, python, packages, hardware or image; may be given several times"
        ),
    )


def add_command(
    commands: Any, name: str, summary: str, run: Callable[[argparse.Namespace], int], **needed: str | None
) -> argparse.ArgumentParser:
    """Add a command with the options that every command has.

    Args:
        needed: the help of each positional argument.
    """
    parser = _add_parser(commands, name, summary)
    parser.set_defaults(run=run)
    parser.add_argument("--root", metavar="ROOT", help="the store (default: HALVING_ROOT, then ./.halving)")
    parser.add_argument(
        "--json",
        action="store_true",
        help="print one JSON document, and nothing else, on the standard output",
    )
    for argument, help_text in needed.items():
        parser.add_argument(argument, help=help_text)
    return parser


def add_group(commands: Any, name: str, summary: str) -> Any:
    """Add a command that has only subcommands, and return these, for :func:`add_command`."""
    return _add_parser(commands, name, summary).add_subparsers(metavar="COMMAND", required=True)


def _add_parser(commands: Any, name: str, summary: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=summary, description=f"{summary[0].upper()}{summary[1:]}."
    )
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
