"""How DuckDB opens a store's files: local ones by path, an object store's through Arrow's filesystem."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from halving.store.store import Store

if TYPE_CHECKING:
    import duckdb

PROTOCOL = "halving"


def duckdb_paths(connection: "duckdb.DuckDBPyConnection", store: Store, names: Iterable[str]) -> list[str]:
    """The paths by which a DuckDB connection opens files of the store.

    For an object store, Arrow's filesystem is registered with the connection.
    """
    if store.folder is not None:
        return [store.path(name) for name in names]
    from fsspec.implementations.arrow import ArrowFSWrapper  # type: ignore[import-untyped]

    class _Reachable(ArrowFSWrapper):  # type: ignore[misc]
        protocol = PROTOCOL

        @classmethod
        def _strip_protocol(cls, path: str) -> str:
            # The method of the wrapper, made for HDFS, takes the bucket for a host and drops it.
            return path.removeprefix(f"{PROTOCOL}://")

    if not connection.filesystem_is_registered(PROTOCOL):
        connection.register_filesystem(_Reachable(store.filesystem))
    return [f"{PROTOCOL}://{store.path(name)}" for name in names]
