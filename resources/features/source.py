"""The source of a feature view as a relation of DuckDB: files, a version of a Delta table, or a function."""

import inspect
from collections.abc import Callable
from datetime import date
from typing import TYPE_CHECKING, Any

from halving.errors import ExtraMissing, InvalidInput
from halving.store.faults import store_faults
from halving.trial.import_string import import_function, where
from resources.features.engine import fault_of
from resources.features.parquet_files import select_parquet
from resources.features.view import Source
from resources.source_files.listing import find_files, refuse_changes

if TYPE_CHECKING:
    import duckdb

SOURCE = "source"


def open_source(
    connection: "duckdb.DuckDBPyConnection", source: Source, day: date | None
) -> Callable[[], None]:
    """Make the relation :data:`SOURCE` of a source's rows.

    It may be read once; that of a function may have more days than ``day``.

    Returns:
        The check that its files did not change while they were read, to be called afterwards.

    Raises:
        InvalidInput: it is not there, or of another kind; the message names it.
        StoreError: the disk or an object store cannot be read.
        ExtraMissing: it needs a package that is not installed.
    """
    import duckdb

    try:
        if source.files is not None:
            return _open_files(connection, source.files)
        if source.delta is not None:
            connection.register(SOURCE, _delta(source.delta, source.version))
        else:
            connection.register(SOURCE, _call(source.function or "", day))
    except duckdb.Error as error:
        raise fault_of(error, f"source.{source.place}") from None
    return _check_nothing


def _check_nothing() -> None:
    """Do nothing, because a version of a table and the result of a function do not change."""


def _open_files(connection: "duckdb.DuckDBPyConnection", pattern: str) -> Callable[[], None]:
    files = find_files("source.files", pattern)
    with store_faults(f"source.files = {pattern!r} cannot be read"):
        connection.execute(
            f"CREATE TEMP VIEW {SOURCE} AS {select_parquet(connection, 'source.files', files)}"
        )
    return refuse_changes("source.files", files, lambda: find_files("source.files", pattern))


def _delta(path: str, version: int | None) -> Any:
    try:
        import deltalake
    except ImportError:
        raise ExtraMissing(
            "a Delta table needs the package deltalake: pip install 'halving-platform[lake]'"
        ) from None
    from deltalake.exceptions import DeltaError

    with store_faults(f"source.delta = {path!r} cannot be read"):
        try:
            return deltalake.DeltaTable(path, version=version).to_pyarrow_dataset()
        except (DeltaError, ValueError) as error:
            raise InvalidInput(
                f"source.delta = {path!r} with version = {version} is not accepted: {error}; give the path "
                "of a Delta table and a version that it has"
            ) from None


def _call(path: str, day: date | None) -> Any:
    import pyarrow as pa

    function = import_function("source.function", path)
    try:
        options = {}
        if "day" in inspect.signature(function).parameters:
            options["day"] = day
        rows = function(**options)
    except Exception as error:
        raise InvalidInput(
            f"source.function = {path!r} raised {type(error).__name__} at {where(error)}: {error}"
        ) from error
    if not isinstance(rows, pa.Table | pa.RecordBatchReader):
        raise InvalidInput(
            f"source.function = {path!r} is not accepted: it returned {type(rows).__name__}; return a "
            "pyarrow.Table or RecordBatchReader"
        )
    return rows
