"""How this process was started: which script, and where."""

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path


def script_at(arguments: Sequence[str]) -> int | None:
    """Which of an interpreter's arguments is the script; None where it runs a module or a command, or is
    interactive.
    """
    place = 0
    while place < len(arguments):
        argument = arguments[place]
        if argument == "-":
            return None
        if not argument.startswith("-"):
            return place
        if argument.startswith("--"):
            place += argument == "--check-hash-based-pycs"
        elif option := re.search("[cmWX]", argument):
            if option[0] in "cm":
                return None
            place += option.end() == len(argument)  # its value is the next argument
        place += 1
    return None


def started_in() -> Path:
    """The folder in which the script was started, although it may have changed to another one since; else the
    working directory.
    """
    arguments = sys.orig_argv[1:]
    main = getattr(sys.modules.get("__main__"), "__file__", None) or ""
    place = script_at(arguments)
    if (
        place is not None
        and not Path(arguments[place]).is_absolute()
        and main.endswith(os.sep + arguments[place])
    ):
        return Path(main.removesuffix(arguments[place]))
    return Path.cwd()
