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
        InvalidInput: there is no such function; the message names the field, what is missing and the
            functions of the module.
    """
    add_working_folder()
    module_name, _, name = path.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        hint = ""
        if not module_name.startswith(str(error.name)):
            hint = " (imported by it)"
        raise InvalidInput(
            f"{field} = {path!r} is not accepted: there is no module {error.name!r}{hint} that Python can "
            "import from here"
        ) from None
    function: Callable[..., Any] | None = getattr(module, name, None)
    if not callable(function):
        # A package's functions include those that it re-exports from its own modules.
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
    """SHA-256, in hex, of the source file of ``module:function``; None without such a file."""
    add_working_folder()
    try:
        spec = find_spec(path.partition(":")[0])
    except ModuleNotFoundError:  # The package of the module is missing.
        return None
    if spec is None or not spec.origin or not spec.has_location:
        return None
    return hashlib.sha256(Path(spec.origin).read_bytes()).hexdigest()


def add_working_folder() -> None:
    """Add the folder in which a sweep was started to Python's path, behind installed packages.

    A script's own folder is on its path, but the processes that Dagster spawns for a job's steps have no such
    entry.
    """
    if str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))


def where(error: BaseException) -> str:
    """The place where an error was raised: ``file.py:17``."""
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return "unknown place"
    return f"{frames[-1].filename.rpartition('/')[2]}:{frames[-1].lineno}"
