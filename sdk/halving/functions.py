"""Functions named as ``module:function``: trainables, predictors and data sources."""

import importlib
from collections.abc import Callable
from typing import Any

from halving.errors import InvalidInput


def import_function(field: str, path: str) -> Callable[..., Any]:
    """The function behind ``module:function``.

    Raises:
        InvalidInput: naming the field, what is missing and what the module has instead.
    """
    module_name, _, name = path.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        hint = "" if module_name.startswith(str(error.name)) else " (imported by it)"
        raise InvalidInput(
            f"{field} = {path!r} is not accepted: there is no module {error.name!r}{hint} that Python can import from here"
        ) from None
    function = getattr(module, name, None)
    if not callable(function):
        defined = sorted(
            key for key, value in vars(module).items() if getattr(value, "__module__", None) == module_name and callable(value)
        )
        raise InvalidInput(f"{field} = {path!r} is not accepted: {module_name} has no function {name!r}; it has {defined}")
    found: Callable[..., Any] = function
    return found
