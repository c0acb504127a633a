"""The ``halving`` command: the SDK's own commands, and those of installed applications (entry points
``halving.commands``).
"""

import argparse
import os
import sys
from importlib.metadata import entry_points

from halving import __version__
from halving.cli.parser import Command, add_commands
from halving.errors import HalvingError


def main(arguments: list[str] | None = None) -> int:
    """Run a command and give its exit status: 0, 1 when it failed, 2 when it was called wrongly, 130 after
    Ctrl-C.

    Where 1 is an answer of the command's (``rerun``: it differs), it has set ``error_status``, and a failure
    is that.

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
    except BrokenPipeError:  # the reader has enough (``| head``): not a failure
        # the interpreter flushes once more when it ends
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (HalvingError, OSError) as error:  # OSError: the store is unavailable, or a file cannot be written
        print(f"halving {parsed.command}: {error}", file=sys.stderr)
        return int(getattr(parsed, "error_status", 1))
    except KeyboardInterrupt:
        return 130
    return status


if __name__ == "__main__":
    sys.exit(main())
