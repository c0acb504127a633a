"""Pushing a view's latest known features online, as they were computed: nothing is computed here. And deleting an entity's.

An older event never replaces a newer one, whoever pushes when: values are compared by event, known time and generation where they are
kept, in one transaction of SQLite's or one script of Redis'. Pushing again changes nothing.
"""

import sqlite3
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from halving import Store
from halving.errors import InvalidInput, NotFound, StoreError, StoreUnavailable
from halving.features.definition import Definition, arrow_type
from halving.features.online_values import PREFIX, is_redis, open_values, redis_client, redis_faults, shown, value_prefix
from halving.features.packing import HEADER, Layout, count_of, deleted, entity_key, entity_keys, event_of, micros
from halving.query.duckdb_paths import duckdb_paths
from halving.store.backoff import backoff
from resources.features.engine import MEMORY, carried, columns, engine, quoted, text
from resources.features.labels import BATCH, day_of
from resources.features.partitions import Partition, partitions
from resources.features.view import EVENT, KNOWN, FeatureView

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

GENERATION = "_generation"
_WAIT = 30.0  # seconds for another writer, or for Redis to answer
_DAY_MS = 86_400_000
_AT_ONCE = 1_000  # values in one call of Redis' script, which holds up other clients for about a millisecond
_TAKE_NEWER = f"""
local taken, lives = 0, tonumber(ARGV[#KEYS + 1])
for place, key in ipairs(KEYS) do
  local old, new = redis.call('GETRANGE', key, 0, {HEADER.size - 1}), ARGV[place]
  local newer = old == ''
  if not newer then
    local before = {{struct.unpack('>I4I4I4I4I4', old)}}  -- numbers, because texts are compared by the server's locale
    local after = {{struct.unpack('>I4I4I4I4I4', new)}}
    for part = 1, 5 do
      if after[part] ~= before[part] then newer = after[part] > before[part]; break end
    end
  end
  if newer then
    if lives > 0 then redis.call('SET', key, new, 'PX', lives) else redis.call('SET', key, new) end
    taken = taken + 1
  end
end
return taken
"""


@dataclass(frozen=True)
class Pushed:
    """What a push did: how many entities had a latest row, and of how many it was newer than what was online."""

    entities: int
    taken: int


class Writer(Protocol):
    """An online store as it is written."""

    def define(self, definition: Definition) -> Definition:
        """Register a view before its values; gives it with its features in the order in which they are packed."""

    def put(self, view: str, values: Sequence[tuple[bytes, bytes]], ttl: int | None) -> int:
        """Take the values, by entity key, that are newer than what is there; how many those are."""

    def delete(self, view: str, key: bytes, moment: int, ttl: int | None) -> bool:
        """Let what is there of an entity be gone, and nothing come back that happened until then; whether there was something."""


def push(
    store: Store,
    view: FeatureView,
    address: str,
    *,
    until: datetime | None = None,
    days: Collection[date] | None = None,
    memory: str = MEMORY,
) -> Pushed:
    """Push what is known of each entity at a time.

    Args:
        address: ``redis://…``, or a file, which is made.
        until: only rows that are known by then, with a time zone (default: this moment).
        days: only rows whose events are of these days (default: all that may still count).

    Raises:
        InvalidInput: the view was pushed with another definition, or ``until`` has no time zone.
        NotFound: the view has not been materialised.
        StoreUnavailable: the online store does not answer.
    """
    if until is not None and until.tzinfo is None:
        raise InvalidInput(f"until = {until} is not accepted: it has no time zone; give one, for example datetime.now(UTC)")
    moment = time.time_ns() // 1000 if until is None else micros(until)
    known = partitions(store, view.name, view.version)
    if not known:
        raise NotFound(f"the feature view {view.key} has not been materialised in {store.root}; halving features materialize does it")
    ttl = view.ttl_micros
    first, last = date.min if ttl is None else day_of(moment - ttl), day_of(moment)
    chosen = [one for one in known if one.rows and first <= one.day <= last and (days is None or one.day in days)]
    newest = known[-1].definition
    with open_writer(address) as writer:
        definition = writer.define(view.definition(dict(newest.entity), newest.inputs))
        if not chosen:
            return Pushed(0, 0)
        entities = taken = 0
        layout = Layout(definition.features)
        with engine(f"pushing the feature view {view.key}", memory) as (connection, _):
            for batch in _latest(connection, store, definition, chosen, moment):
                taken += writer.put(view.key, packed(definition, layout, batch), ttl)
                entities += batch.num_rows
    return Pushed(entities, taken)


def delete(view: str, entity: Mapping[str, Any], address: str) -> bool:
    """Delete an entity's features online, of a view (``clicks@1``); whether there were some.

    A push of what happened until now does not bring them back; what happens from now on counts again. So something stays: the entity's
    key, and when it was deleted. Days in the store, from which features are pushed, and snapshots are not changed.

    Args:
        entity: the entity's columns, none of them null.

    Raises:
        InvalidInput: a column is missing, or not of the view's type.
        NotFound: there is no such online store, or the view was never pushed there.
        StoreUnavailable: it does not answer.
    """
    definition = pushed_definition(view, address)
    key = entity_key(definition, entity)
    if key is None:
        raise InvalidInput(f"the entity {dict(entity)} is not accepted: a part of it is null, so it has no features")
    with open_writer(address) as writer:
        return writer.delete(view, key, time.time_ns() // 1000, definition.ttl)


def pushed_definition(view: str, address: str) -> Definition:
    """A view as it was pushed.

    Raises:
        NotFound: there is no such online store, or the view was never pushed there.
        StoreUnavailable: it does not answer.
    """
    with closing(open_values(address, _WAIT)) as values:
        found = values.definition(view)
    if found is None:
        raise NotFound(f"the online store {shown(address)} has no feature view {view}: it was never pushed there")
    return Definition.from_json(found)


def packed(definition: Definition, layout: Layout, rows: "pa.Table") -> list[tuple[bytes, bytes]]:
    """Entity keys and values of rows with the entity's columns, ``_event``, ``_known``, ``_generation`` and the features."""
    import pyarrow as pa

    features = {
        name: rows[name].cast(arrow_type(kind))
        if name in rows.column_names
        else pa.chunked_array([pa.nulls(rows.num_rows, arrow_type(kind))])
        for name, kind in definition.features.items()
    }
    event, known = (rows[name].cast("int64").to_numpy() for name in (EVENT, KNOWN))
    values = layout.pack(pa.table(features), event, known, rows[GENERATION].to_numpy())
    return [(key, value) for key, value in zip(entity_keys(definition, rows), values, strict=True) if key is not None]


@contextmanager
def open_writer(address: str) -> Iterator[Writer]:
    """The online store at an address, to be written.

    Raises:
        InvalidInput: the address is not accepted.
        ExtraMissing: Redis' client is not installed.
        StoreUnavailable: it does not answer, or another writer holds it for half a minute.
    """
    writer = RedisWriter(address) if is_redis(address) else SqliteWriter(Path(address))
    try:
        yield writer
    finally:
        writer.close()


class SqliteWriter:
    """A file of SQLite's; its readers are not held up."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with self._faults():
            path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(path, timeout=_WAIT, isolation_level=None)
            self._write_ahead()
            self._connection.execute("PRAGMA synchronous = normal")  # after a power cut the last pushes may be missing: push again
            self._connection.execute("CREATE TABLE IF NOT EXISTS definitions (view TEXT PRIMARY KEY, definition TEXT NOT NULL)")

    def _write_ahead(self) -> None:
        end, pauses = time.monotonic() + _WAIT, backoff(0.01, 0.5)
        while True:
            try:
                self._connection.execute("PRAGMA journal_mode = wal")
                return
            except sqlite3.OperationalError as error:  # SQLite does not wait here where another writer makes the file
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                    raise
            time.sleep(next(pauses))

    def define(self, definition: Definition) -> Definition:
        with self._transaction():
            found = self._connection.execute("SELECT definition FROM definitions WHERE view = ?", (definition.key,)).fetchone()
            merged = definition if found is None else definition.merged_into(Definition.from_json(found[0]))
            self._connection.execute("INSERT OR REPLACE INTO definitions VALUES (?, ?)", (merged.key, merged.to_json()))
            table = f"CREATE TABLE IF NOT EXISTS {quoted(merged.key)} (entity BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID"
            self._connection.execute(table)
        return merged

    def put(self, view: str, values: Sequence[tuple[bytes, bytes]], ttl: int | None) -> int:
        before = self._connection.total_changes
        with self._transaction():
            self._connection.executemany(
                f"INSERT INTO {quoted(view)} VALUES (?, ?) ON CONFLICT (entity) DO UPDATE SET value = excluded.value "
                f"WHERE substr(excluded.value, 1, {HEADER.size}) > substr(value, 1, {HEADER.size})",
                sorted(values),  # in the order of the table's pages
            )
        return self._connection.total_changes - before

    def delete(self, view: str, key: bytes, moment: int, ttl: int | None) -> bool:
        self._connection.execute("PRAGMA secure_delete = on")  # no byte of it stays in the file
        with self._transaction():
            found = self._connection.execute(f"SELECT value FROM {quoted(view)} WHERE entity = ?", (key,)).fetchone()
            gone = _deleted(found[0] if found else None, moment)
            self._connection.execute(f"INSERT OR REPLACE INTO {quoted(view)} VALUES (?, ?)", (key, gone))
        with self._faults():
            self._connection.execute("PRAGMA wal_checkpoint(truncate)").fetchall()  # nor in the log, once nobody reads what was before
        return found is not None and count_of(found[0]) > 0

    def close(self) -> None:
        self._connection.close()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._faults():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")

    @contextmanager
    def _faults(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            busy = getattr(error, "sqlite_errorcode", None) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
            raise (StoreUnavailable if busy else StoreError)(f"cannot write the online store {self._path}: {error}") from error


class RedisWriter:
    """A Redis server (one, not a cluster of them); a value's key goes when its time to live is over, counted from when it was taken."""

    def __init__(self, address: str) -> None:
        self._address = shown(address)
        self._client = redis_client(address, _WAIT)
        self._take_newer = self._client.register_script(_TAKE_NEWER)

    def define(self, definition: Definition) -> Definition:
        import redis

        key = PREFIX + definition.key.encode()
        with redis_faults(self._address):
            while True:
                with self._client.pipeline() as transaction:
                    transaction.watch(key)
                    found = transaction.get(key)
                    merged = definition if found is None else definition.merged_into(Definition.from_json(found))
                    transaction.multi()
                    transaction.set(key, merged.to_json())
                    try:
                        transaction.execute()
                    except redis.WatchError:
                        continue  # another writer was faster
                    return merged

    def put(self, view: str, values: Sequence[tuple[bytes, bytes]], ttl: int | None) -> int:
        prefix, taken = value_prefix(view), 0
        lives = 0 if ttl is None else max(1, -(-ttl // 1000))
        with redis_faults(self._address):
            for start in range(0, len(values), _AT_ONCE):
                some = values[start : start + _AT_ONCE]
                taken += int(self._take_newer([prefix + key for key, _ in some], [*(value for _, value in some), lives]))
        return taken

    def delete(self, view: str, key: bytes, moment: int, ttl: int | None) -> bool:
        import redis

        place = value_prefix(view) + key
        # Rows are pushed by whole days, so for a day longer than they count.
        lives = None if ttl is None else -(-ttl // 1000) + _DAY_MS
        with redis_faults(self._address):
            while True:
                with self._client.pipeline() as transaction:
                    transaction.watch(place)
                    found = transaction.get(place)
                    transaction.multi()
                    transaction.set(place, _deleted(found, moment), px=lives)
                    try:
                        transaction.execute()
                    except redis.WatchError:
                        continue  # a push was faster
                    return found is not None and count_of(found) > 0

    def close(self) -> None:
        self._client.close()


def _deleted(value: bytes | None, moment: int) -> bytes:
    """What takes the place of a value, also of one whose event is yet to come."""
    return deleted(moment if value is None else max(moment, event_of(value)))


def _latest(
    connection: "duckdb.DuckDBPyConnection", store: Store, definition: Definition, days: Sequence[Partition], until: int
) -> "Iterator[pa.Table]":
    """The latest row of each entity that is known by ``until``: of the latest event, and of equal ones the one known last."""
    import pyarrow as pa

    paths = duckdb_paths(connection, store, [one.name for one in days])
    generations = pa.table({"filename": paths, GENERATION: pa.array([one.generation for one in days], pa.uint32())})
    connection.register("generations", generations)
    had = [name for name in definition.features if any(name in one.definition.features for one in days)]
    features = [carried(name, definition.features[name], "f") for name in had]
    query = f"""
        SELECT {", ".join([columns([*definition.entity, EVENT, KNOWN], "f"), *features])}, g.{GENERATION}
        FROM read_parquet([{", ".join(map(text, paths))}], hive_partitioning = false, union_by_name = true, filename = '_filename') f
        JOIN generations g ON f._filename = g.filename
        WHERE f.{KNOWN} <= make_timestamptz({until})
        QUALIFY row_number() OVER (PARTITION BY {columns(definition.entity, "f")} ORDER BY f.{EVENT} DESC, f.{KNOWN} DESC) = 1"""
    for batch in connection.sql(query).to_arrow_reader(BATCH):
        yield pa.Table.from_batches([batch])
