"""What specs that come over HTTP may name: project functions, snapshots, and the places listed for them."""

import inspect
import sys
from types import BuiltinFunctionType, FunctionType

from halving.errors import InvalidInput
from halving.trial.import_string import import_function
from resources.datasets.query_source import check_query
from resources.source_files.places import Places
from resources.sweep_spec.dataset import Source
from resources.sweep_spec.functions import functions_of
from resources.sweep_spec.sweep import SweepSpec

_PLATFORM = frozenset({"__main__", "assets", "commands", "halving", "pipelines", "resources", "server"})


def check_over_http(spec: SweepSpec, places: Places, *, trains: bool = True) -> None:
    """Refuse a spec that names Python's own functions, or a source outside of the listed places.

    Nothing is imported, and no disk is read.

    Args:
        trains: whether the platform trains its trials. Where external loops do, a trainable is only a name.

    Raises:
        InvalidInput: naming the field, its value and what is accepted.
    """
    for field, path in functions_of(spec, trains=trains):
        module = path.partition(":")[0].partition(".")[0]
        if module in sys.stdlib_module_names or module in _PLATFORM:
            owner = "Python"
            if module in _PLATFORM:
                owner = "the platform"
            raise _refusal(field, path, f"{module} is {owner}'s own")
    name, rows = spec.dataset.origin
    if spec.snapshot is None and isinstance(rows, Source):
        check_source(f"dataset.{name}", rows, places)


def check_source(field: str, source: Source, places: Places) -> None:
    """Refuse a source that, by its text, is not in one of these places.

    Raises:
        InvalidInput: naming the field, its value and the places.
    """
    if source.sql is not None:
        check_query(source.sql, field, places)
    elif source.iceberg is not None:
        places.check_catalog(f"{field}.catalog", source.catalog or "default")
    elif source.files is not None:
        patterns = source.files
        if isinstance(patterns, str):
            patterns = [patterns]
        for pattern in patterns:
            places.check(f"{field}.files", pattern)
    elif source.folder is not None:
        places.check(f"{field}.folder", source.folder)
    else:
        places.check(f"{field}.delta", str(source.delta))


def check_imported(spec: SweepSpec, *, trains: bool = True) -> None:
    """Refuse Python's own functions that a project module has only imported, as ``my_project:Path``.

    Raises:
        InvalidInput: naming the field, its value and what is accepted; or there is no such function.
    """
    for field, path in functions_of(spec, trains=trains):
        if field == "trainable" and spec.image is not None:  # The image may have other code.
            continue
        function = inspect.unwrap(import_function(field, path))
        if isinstance(function, FunctionType | BuiltinFunctionType | type):
            module = str(function.__module__).partition(".")[0]
            if module in sys.stdlib_module_names:
                raise _refusal(field, path, f"it is Python's own {module}.{function.__name__}")


def _refusal(field: str, path: str, reason: str) -> InvalidInput:
    return InvalidInput(
        f"{field} = {path!r} is not accepted over HTTP: {reason}; give a function of the code location"
    )
