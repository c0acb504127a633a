"""The rows that a feature view is made of, as a relation of DuckDB's: files, a pinned version of a Delta table, a function's result."""

import inspect
from datetime import date
from typing import TYPE_CHECKING, Any

from halving.errors import ExtraMissing, InvalidInput
from halving.trial.import_string import import_function, where
from resources.features.engine import text
from resources.features.view import Source

if TYPE_CHECKING:
    import duckdb

SOURCE = "source"


def open_source(connection: "duckdb.DuckDBPyConnection", source: Source, day: date | None) -> None:
    """Make the relation :data:`SOURCE` of a source's rows. It may be read once; a function's may have more days than ``day``.

    Raises:
        InvalidInput: it cannot be read; the message names it.
        ExtraMissing: it needs a package that is not installed.
    """
    import duckdb

    try:
        if source.files is not None:
            connection.execute(f"CREATE VIEW {SOURCE} AS SELECT * FROM read_parquet({text(source.files)}, hive_partitioning = false)")
        elif source.delta is not None:
            connection.register(SOURCE, _delta(source.delta, source.version))
        else:
            connection.register(SOURCE, _called(source.function or "", day))
    except duckdb.Error as error:
        raise InvalidInput(f"source.{source.place} is not accepted: {error}") from None


def _delta(path: str, version: int | None) -> Any:
    try:
        import deltalake
    except ImportError:
        raise ExtraMissing("a Delta table needs the package deltalake: pip install 'halving-platform[lake]'") from None
    from deltalake.exceptions import DeltaError

    try:
        return deltalake.DeltaTable(path, version=version).to_pyarrow_dataset()
    except (DeltaError, OSError, ValueError) as error:
        raise InvalidInput(f"source.delta = {path!r} with version = {version} is not accepted: {error}") from None


def _called(path: str, day: date | None) -> Any:
    import pyarrow as pa

    function = import_function("source.function", path)
    try:
        given = function(day=day) if "day" in inspect.signature(function).parameters else function()
    except Exception as error:
        raise InvalidInput(f"source.function = {path!r} raised {type(error).__name__} at {where(error)}: {error}") from error
    if not isinstance(given, pa.Table | pa.RecordBatchReader):
        raise InvalidInput(
            f"source.function = {path!r} is not accepted: it returned {type(given).__name__}; return a pyarrow.Table or RecordBatchReader"
        )
    return given
