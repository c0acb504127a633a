"""DuckDB for snapshots and features, with bounded memory and a folder to spill to.

Times are in UTC, and SQL sees no variables of this process.
"""

import re
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from halving.errors import ExtraMissing, HalvingError, InvalidInput, StoreError, StoreUnavailable
from halving.machine.temporary_folders import scratch_folder
from halving.store.faults import is_transient, store_faults
from resources.source_files.places import Places

if TYPE_CHECKING:
    import duckdb

MEMORY = "1200MB"
"""What DuckDB may take; with Arrow's batches and the interpreter a process stays below 2.5 GB."""

# How DuckDB words a network or a server in trouble; Arrow's words are halving.store.faults'.
_UNREACHABLE = re.compile(
    r"[Cc]ould not (?:connect|resolve|establish connection)|[Tt]imed out|\bHTTP (?:408|429|5\d\d)\b|: "
    r"(?:408|429|5\d\d) \("
)
_NOT_THERE = re.compile(r"No files found that match|\bHTTP 404\b|: 404 \(")
_EXTENSION = re.compile(
    r"(?:Failed to download extension|Extension) \"([^\"]*)\".*(?:at URL|not found)", re.DOTALL
)


@contextmanager
def engine(
    what: str, memory: str = MEMORY, threads: int | None = None, places: Places | None = None
) -> "Iterator[tuple[duckdb.DuckDBPyConnection, Path]]":
    """A connection to a database of its own, and a folder on the temporary disk; both are gone afterwards.

    Args:
        what: what is done with it, as the beginning of messages.
        memory: the memory limit in DuckDB's notation, ``1200MB``; what does not fit is spilled to the disk.
        threads: the number of threads (default: one for each core).
        places: the only places of this machine's disk that can be read; then there is no network, and queries
            can change no setting. None: whatever this process may read.

    Raises:
        StoreError: a file cannot be read, the temporary disk is full, or the memory does not suffice even so.
    """
    import duckdb

    with _spill_folder(what) as folder, duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        # a name in a query is never one of our variables
        connection.execute("SET python_enable_replacements = false")
        # under python -c it would go to stdout, amid a command's output
        connection.execute("SET enable_progress_bar_print = false")
        connection.execute(f"SET temp_directory = {text(f'{folder}/spilled')}")
        connection.execute(f"SET memory_limit = {text(memory)}")
        if threads is not None:
            connection.execute(f"SET threads = {threads}")
        if places is not None:
            _lock(connection, places)
        try:
            with store_faults(f"{what} failed"):
                yield connection, folder
        except (duckdb.IOException, duckdb.OutOfMemoryException) as error:
            kind: type[HalvingError] = StoreError
            if _may_pass(str(error)):
                kind = StoreUnavailable
            raise kind(f"{what} failed: {error}") from error


def _lock(connection: "duckdb.DuckDBPyConnection", places: Places) -> None:
    """Let the connection read only these places and the spilled files; no query can change that."""
    connection.execute("SET autoinstall_known_extensions = false")
    connection.execute("SET autoload_known_extensions = false")
    folders = [f"{path.rstrip('/')}/" for path in places.paths]
    connection.execute(f"SET allowed_directories = [{', '.join(map(text, folders))}]")
    connection.execute(f"SET allowed_paths = [{', '.join(map(text, places.paths))}]")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def parser() -> "duckdb.DuckDBPyConnection":
    """A connection that parses queries, and can reach no file and no network."""
    import duckdb

    return duckdb.connect(config={"enable_external_access": False})


def fault_of(error: "duckdb.Error", what: str) -> HalvingError:
    """The error to raise when DuckDB cannot read what a user named.

    It is a fault of the store, perhaps a passing one, or of what was named.

    Args:
        what: what is read, as the beginning of the message: ``dataset.source.sql = '…'``.
    """
    import duckdb

    words = str(error)
    if extension := _EXTENSION.search(words):
        name = extension[1].rpartition("/")[2].removesuffix(".duckdb_extension")
        return ExtraMissing(
            f"{what} needs DuckDB's extension {name}; install it: python -c \"import duckdb; "
            f"duckdb.execute('INSTALL {name}')\""
        )
    if _NOT_THERE.search(words):
        return InvalidInput(f"{what} is not accepted: {error}")
    if _may_pass(words):
        return StoreUnavailable(f"{what} cannot be read: {error}")
    # An error of Arrow, reading for DuckDB, is known only by its text.
    if isinstance(error, duckdb.IOException | duckdb.OutOfMemoryException) or "IOError: " in words:
        return StoreError(f"{what} cannot be read: {error}")
    return InvalidInput(f"{what} is not accepted: {error}")


def _may_pass(words: str) -> bool:
    """Whether a fault, by DuckDB's or Arrow's words, may be over when the same is tried again."""
    return is_transient(words) or _UNREACHABLE.search(words) is not None


@contextmanager
def _spill_folder(what: str) -> Iterator[Path]:
    with ExitStack() as stack:
        with store_faults(f"{what} failed"):
            folder = stack.enter_context(scratch_folder("duckdb"))
        yield folder


def text(value: str) -> str:
    """A text as an SQL literal."""
    return "'" + value.replace("'", "''") + "'"


def identifier(name: str) -> str:
    """A column's name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def columns(names: Iterable[str], table: str = "") -> str:
    """A list of columns in SQL, each of ``table`` if that is given."""
    prefix = ""
    if table:
        prefix = f"{table}."
    return ", ".join(f"{prefix}{identifier(name)}" for name in names)


def select_exactly(name: str, kind: str, table: str = "") -> str:
    """SQL that selects a feature's column without changing any bit.

    A float goes as a double, from which it is cast back exactly: DuckDB 2.0 loses the sign of a FLOAT zero in
    ASOF joins and in its plan for ``row_number() = 1`` (duckdb/duckdb#25417 is related). Doubles are kept,
    including the bits of NaN; tests hold it to that.
    """
    column = columns([name], table)
    if kind == "float":
        return f"{column}::DOUBLE AS {identifier(name)}"
    return column
