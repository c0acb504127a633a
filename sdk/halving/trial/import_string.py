"""Functions named as ``module:function``: trainables, predictors and data sources."""

import hashlib
import importlib
import sys
import traceback
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from halving.errors import InvalidInput


def import_function(field: str, path: str) -> Callable[..., Any]:
    """Import the function that ``module:function`` names.

    Raises:
        InvalidInput: naming the field, what is missing and what the module has instead.
    """
    add_working_folder()
    module_name, _, name = path.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        hint = "" if module_name.startswith(str(error.name)) else " (imported by it)"
        raise InvalidInput(
            f"{field} = {path!r} is not accepted: there is no module {error.name!r}{hint} that Python can "
            "import from here"
        ) from None
    function: Callable[..., Any] | None = getattr(module, name, None)
    if not callable(function):
        # For a package, also what it re-exports from its own modules.
        defined = sorted(
            key
            for key, value in vars(module).items()
            if callable(value)
            and not key.startswith("_")
            and f"{getattr(value, '__module__', '')}.".startswith(f"{module_name}.")
        )
        raise InvalidInput(
            f"{field} = {path!r} is not accepted: {module_name} has no function {name!r}; it has {defined}"
        )
    return function


def source_digest(path: str) -> str | None:
    """SHA-256, in hex, of the source file of ``module:function``; None where there is no such file."""
    add_working_folder()
    try:
        found = find_spec(path.partition(":")[0])
    except ModuleNotFoundError:  # of a package that contains the module
        return None
    return (
        hashlib.sha256(Path(found.origin).read_bytes()).hexdigest()
        if found and found.origin and found.has_location
        else None
    )


def add_working_folder() -> None:
    """Let functions be imported from the folder in which a sweep was started; installed packages come first.

    A script's own folder is on its path, but the processes that Dagster spawns for a job's steps have no such
    entry.
    """
    if str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))


def where(error: BaseException) -> str:
    """Where an error was raised: ``file.py:17``."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"{frames[-1].filename.rpartition('/')[2]}:{frames[-1].lineno}" if frames else "unknown place"
