"""Where values are kept online: in a SQLite file, or in Redis.

This module only reads; ``resources/features/online.py`` pushes.

SQLite has a table for each view, from entity key to value (:func:`table_of` names it), and ``definitions``.
Redis has a text key for each value, ``halving:features:clicks@1:`` followed by the entity key, and
``halving:features:clicks@1`` for the definition.
"""

import os
import re
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from halving.errors import ExtraMissing, InvalidInput, NotFound, StoreError, StoreUnavailable

PREFIX = b"halving:features:"
# Keys in one statement. SQLite takes 32,766, but statements of many lengths would crowd its cache.
_MAX_KEYS = 500
_REDIS = ("redis", "rediss", "unix")

Wanted = Sequence[tuple[str, Sequence[bytes]]]
"""Keys of entities, by view."""


class Values(Protocol):
    """What the reader needs of an online store."""

    def definition(self, view: str) -> bytes | None:
        """The definition of ``clicks@1`` as it was pushed; None if it was not."""

    def fetch(self, wanted: Wanted) -> list[list[bytes | None]]:
        """Fetch the value of each key, in order."""

    def close(self) -> None:
        """Close the connections."""


def open_values(address: str, timeout: float) -> Values:
    """Open the online store at ``redis://…`` or in a file.

    Raises:
        InvalidInput: the address is neither.
        NotFound: there is no such file.
        ExtraMissing: Redis' client is not installed.
    """
    if is_redis(address):
        return RedisValues(address, timeout)
    return SqliteValues(address, timeout)


def is_redis(address: str) -> bool:
    """Whether an address means Redis, and not a file.

    Raises:
        InvalidInput: it means neither.
    """
    scheme, separator, _ = os.fspath(address).partition("://")
    if separator and scheme not in _REDIS:
        raise InvalidInput(
            f"the online store {hide_password(address)!r} is not accepted: give redis://HOST:PORT/NUMBER, or "
            "the path of a file"
        )
    return bool(separator)


def table_of(view: str) -> str:
    """The table of a view in a SQLite file: ``clicks@1``, but ``^clicks@1`` for ``Clicks@1``.

    SQLite takes names that differ by case alone for one table, and reserves ``sqlite_…``. No view's name has
    a ``^``.
    """
    lower = re.sub("[A-Z]", lambda capital: f"^{capital[0].lower()}", view)
    if lower.startswith("sqlite_"):
        return f"^^{lower}"
    return lower


def hide_password(address: str) -> str:
    """Remove the user and password from an address."""
    parts = urlsplit(os.fspath(address))
    if "@" not in parts.netloc:
        return os.fspath(address)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


class SqliteValues:
    """A SQLite file, which each thread reads over a connection of its own.

    Writers do not delay readers, because the file is in WAL mode.
    """

    def __init__(self, path: str, timeout: float) -> None:
        self._path = Path(path).absolute()
        self._timeout = timeout
        self._kept: dict[tuple[int, int], sqlite3.Connection] = {}
        if not self._path.is_file():
            raise NotFound(f"there is no online store {str(self._path)!r}: push features there first")

    def definition(self, view: str) -> bytes | None:
        """The definition of a view as it was pushed; None if it was not."""
        with self._connect() as connection:
            row = connection.execute("SELECT definition FROM definitions WHERE view = ?", (view,)).fetchone()
        if row is None:
            return None
        return str(row[0]).encode()

    def fetch(self, wanted: Wanted) -> list[list[bytes | None]]:
        """Fetch the value of each key, in order."""
        with self._connect() as connection:
            return [self._of_view(connection, view, keys) for view, keys in wanted]

    def close(self) -> None:
        """Close the connections of all threads."""
        while self._kept:
            self._kept.popitem()[1].close()

    def _of_view(
        self, connection: sqlite3.Connection, view: str, keys: Sequence[bytes]
    ) -> list[bytes | None]:
        table = table_of(view)
        if len(keys) == 1:
            row = connection.execute(f'SELECT value FROM "{table}" WHERE entity = ?', (keys[0],)).fetchone()
            return list(row or [None])
        by_key: dict[bytes, bytes] = {}
        for start in range(0, len(keys), _MAX_KEYS):
            batch = keys[start : start + _MAX_KEYS]
            places = ",".join("?" * len(batch))
            by_key.update(
                connection.execute(f'SELECT entity, value FROM "{table}" WHERE entity IN ({places})', batch)
            )
        return [by_key.get(key) for key in keys]

    @contextmanager
    def _connect(self) -> Iterator[sqlite3.Connection]:
        user = (os.getpid(), threading.get_ident())  # a forked child must not use its parent's connection
        try:
            connection = self._kept.get(user)
            if connection is None:
                address = f"{self._path.as_uri()}?mode=rw"
                connection = sqlite3.connect(
                    address, uri=True, timeout=self._timeout, isolation_level=None, check_same_thread=False
                )
                connection.execute("PRAGMA query_only = true")
                self._kept[user] = connection
            yield connection
        except sqlite3.OperationalError as error:
            if str(error).startswith("no such table: ^"):
                # An earlier version wrote this file, and nobody has written to it since.
                raise StoreError(
                    f"the online store {self._path} has a view with capitals from an earlier version: push "
                    "it again"
                ) from error
            kind = StoreError
            if error.sqlite_errorcode in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                kind = StoreUnavailable
            raise kind(f"cannot read the online store {self._path}: {error}") from error
        except sqlite3.DatabaseError as error:
            raise StoreError(
                f"the online store {self._path} is damaged: {error}; delete it and push the features again"
            ) from error


class RedisValues:
    """A Redis server; all keys of a fetch are read with one command."""

    def __init__(self, address: str, timeout: float) -> None:
        self._address = hide_password(address)
        self._client = redis_client(address, timeout)

    def definition(self, view: str) -> bytes | None:
        """The definition of a view as it was pushed; None if it was not."""
        with redis_faults(self._address):
            definition: bytes | None = self._client.get(PREFIX + view.encode())
        return definition

    def fetch(self, wanted: Wanted) -> list[list[bytes | None]]:
        """Fetch the value of each key, in order."""
        redis_keys: list[bytes] = []
        for view, keys in wanted:
            prefix = value_prefix(view)
            redis_keys += [prefix + key for key in keys]
        if not redis_keys:
            return [[] for _ in wanted]
        with redis_faults(self._address):
            answers = iter(self._client.mget(redis_keys))
        return [[next(answers) for _ in keys] for _, keys in wanted]

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


def value_prefix(view: str) -> bytes:
    """The prefix of the keys of a view's values."""
    return PREFIX + view.encode() + b":"


def redis_client(address: str, timeout: float) -> Any:
    """Make a client of the server at ``redis://…``.

    Raises:
        InvalidInput: the address is not accepted.
        ExtraMissing: it is not installed.
    """
    try:
        import redis
    except ImportError:
        raise ExtraMissing(
            "an online store in Redis needs its client: pip install 'halving[online]'"
        ) from None
    try:
        return redis.Redis.from_url(address, socket_timeout=timeout, socket_connect_timeout=timeout)
    except ValueError as error:
        raise InvalidInput(f"the online store {hide_password(address)!r} is not accepted: {error}") from None


@contextmanager
def redis_faults(address: str) -> Iterator[None]:
    """Raise Redis' errors as the store's."""
    import redis

    try:
        yield
    except (redis.ConnectionError, redis.TimeoutError) as error:
        kind = StoreError if isinstance(error, redis.AuthenticationError) else StoreUnavailable
        raise kind(f"the online store {address} does not answer: {error}") from error
    except redis.RedisError as error:
        raise StoreError(f"the online store {address} refuses: {error}") from error
