"""The ``halving`` command. The SDK brings the frame; installed applications add commands (group ``halving.commands``)."""

import argparse
import sys
from importlib.metadata import entry_points

from halving import __version__
from halving.errors import HalvingError


def main(arguments: list[str] | None = None) -> int:
    """Run a command and give its exit status: 0, 1 when it failed, 2 when it was called wrongly."""
    parser = argparse.ArgumentParser(prog="halving", description="Experiment tracking and hyperparameter search on Dagster.")
    parser.add_argument("--version", action="version", version=f"halving {__version__}")
    commands = parser.add_subparsers(title="commands", dest="command")
    for entry in entry_points(group="halving.commands"):
        entry.load()(commands)
    parsed = parser.parse_args(arguments)
    if parsed.command is None:
        parser.print_help()
        return 2
    try:
        return int(parsed.run(parsed))
    except HalvingError as error:
        print(f"halving {parsed.command}: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
