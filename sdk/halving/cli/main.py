"""The ``halving`` command.

It has the SDK's own commands and those that installed applications add by entry points ``halving.commands``.
"""

import argparse
import os
import sys
from importlib.metadata import entry_points

from halving import __version__
from halving.cli.parser import Command, add_commands
from halving.errors import HalvingError


def main(arguments: list[str] | None = None) -> int:
    """Run a command and return its exit status.

    It is 0 after success, 1 after a failure, 2 when the command was called wrongly and 130 after Ctrl-C. A
    command for which 1 is an answer (``rerun``: the runs differ) sets ``error_status`` for its failures.

    Results go to the standard output, what went wrong to the standard error.
    """
    parser = argparse.ArgumentParser(
        prog="halving", description="Experiment tracking and hyperparameter search on Dagster."
    )
    parser.add_argument("--version", action="version", version=f"halving {__version__}")
    commands = parser.add_subparsers(
        title="commands", dest="command", metavar="COMMAND", parser_class=Command
    )
    add_commands(commands)
    for entry in entry_points(group="halving.commands"):
        entry.load()(commands)
    parsed = parser.parse_args(arguments)
    if parsed.command is None:
        parser.print_help()
        return 2
    try:
        status = int(parsed.run(parsed))
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has enough (``| head``), which is no failure. The interpreter flushes once more when it
        # ends, and must not fail then.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (HalvingError, OSError) as error:
        # OSError: the store is unavailable, or a file cannot be written.
        print(f"halving {parsed.command}: {error}", file=sys.stderr)
        return int(getattr(parsed, "error_status", 1))
    except KeyboardInterrupt:
        return 130
    return status


if __name__ == "__main__":
    sys.exit(main())
