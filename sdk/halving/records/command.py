"""The script of this process, and the folder in which it was started."""

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path


def script_at(arguments: Sequence[str]) -> int | None:
    """The index of the script among an interpreter's arguments; None if it runs no script."""
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
            if option.end() == len(argument):
                place += 1  # The option's value is the next argument.
        place += 1
    return None


def started_in() -> Path:
    """The folder in which the script was started, even if it has left it; else the working directory."""
    arguments = sys.orig_argv[1:]
    main = getattr(sys.modules.get("__main__"), "__file__", None) or ""
    place = script_at(arguments)
    if place is None:
        return Path.cwd()
    script = arguments[place]
    if not Path(script).is_absolute() and main.endswith(os.sep + script):
        return Path(main.removesuffix(script))
    return Path.cwd()
