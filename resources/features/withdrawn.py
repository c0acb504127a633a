"""Withdrawing online values of rows that a day, made again, no longer has.

A push takes only newer values, so by itself it would leave the value of a vanished row online for ever.
Therefore the rows of a day's older generations are compared with the newest one. If a vanished row is still
online, the latest row of its entity takes its place. If the file of an older generation is gone, all online
values of that day and of older generations count as vanished: those that are still right were replaced by the
newest generation's in the same push.

A push may be killed anywhere, and two may run at once. So a day counts as settled, and is not looked at
again, only after a push has withdrawn its rows at least :data:`UNDER_WAY` after the day was made. Until then
another push may still bring values of an older generation.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from halving import Store
from halving.features.definition import Definition, arrow_type
from halving.features.packing import (
    OFFSET,
    TIMES,
    Layout,
    entities_of,
    entity_keys,
    event_of,
    known_of,
    micros,
)
from halving.query.duckdb_paths import duckdb_paths
from resources.features.engine import columns, identifier, text
from resources.features.labels import BATCH, day_of
from resources.features.online_rows import latest_rows, pack_rows
from resources.features.online_writer import Withdrawal, Writer
from resources.features.partitions import Partition, older_generations
from resources.features.view import EVENT, KNOWN_AT

if TYPE_CHECKING:
    import duckdb

UNDER_WAY = timedelta(hours=1)
"""The longest time that a push goes on after it has listed the generations."""

_REMOVED = "removed"  # the table of withdrawn rows: the entity, the event and the known time
_DAY = 86_400_000_000  # µs
_SQL_TYPES = {"int64": "BIGINT", "string": "VARCHAR"}


@dataclass(frozen=True)
class Push:
    """What a push has pushed.

    Attributes:
        chosen: the days that it pushes.
        in_reach: all days of which a row may count, including days that it does not push.
        until: the time by which its rows are known, in µs since 1970.
        ends_now: whether that is now, so that no value was pushed for a later time.
    """

    chosen: Sequence[Partition]
    in_reach: Sequence[Partition]
    until: int
    ends_now: bool


def settle_new(writer: Writer, view: str, days: Iterable[Partition]) -> None:
    """Note for a view that was never pushed to a store that no older generation is online there."""
    writer.settle(view, {day.day: day.generation for day in days if _is_long_ago(day)})


def withdraw(
    connection: "duckdb.DuckDBPyConnection", store: Store, writer: Writer, definition: Definition, push: Push
) -> int:
    """Withdraw the values of rows that days no longer have, after the latest rows are pushed; give how many.

    Raises:
        StoreError: the store cannot be read.
        StoreUnavailable: the online store does not answer.
    """
    settled = writer.settled_generations(definition.key)
    days = [day for day in push.chosen if settled.get(day.day, 1) < day.generation]
    if not days:
        return 0
    entity = [f"{identifier(name)} {_SQL_TYPES[kind]}" for name, kind in definition.entity.items()]
    table = ", ".join([*entity, f"{EVENT} TIMESTAMPTZ", f"{KNOWN_AT} TIMESTAMPTZ"])
    connection.execute(f"CREATE TABLE {_REMOVED} ({table})")
    older: list[Partition] = []
    newest: list[Partition] = []
    for day in days:
        generations = older_generations(store, day, settled.get(day.day, 1))
        if generations is None:
            _add_online(connection, writer, definition, day, push)
        else:
            older += generations
            newest.append(day)
    if older:
        _add_compared(connection, store, definition, older, newest, push)
    withdrawn = 0
    for rows in _withdrawals(connection, store, definition, push):
        withdrawn += writer.withdraw(definition.key, rows, definition.ttl)
    if push.ends_now:
        long_ago = sorted(filter(_is_long_ago, [*older, *days]), key=lambda partition: partition.generation)
        writer.settle(definition.key, {partition.day: partition.generation for partition in long_ago})
    return withdrawn


def _add_compared(
    connection: "duckdb.DuckDBPyConnection",
    store: Store,
    definition: Definition,
    older: Collection[Partition],
    newest: Collection[Partition],
    push: Push,
) -> None:
    """Add the rows of older generations that the newest ones lack.

    Rows of an entity that has a newer row in the newest generations are left out: the push has just put that
    one in their place.
    """
    entity = columns(definition.entity)
    before = _read_parquet(connection, store, older)
    after = _read_parquet(connection, store, newest)
    is_known = f"{KNOWN_AT} <= make_timestamptz({push.until})"
    may_be_online = is_known
    if push.ends_now:
        may_be_online = "true"  # An earlier push may have pushed rows that are known only later.
    connection.execute(f"""
        INSERT INTO {_REMOVED}
        SELECT {columns([*definition.entity, EVENT, KNOWN_AT], "r")}
        FROM (
            SELECT {entity}, {EVENT}, {KNOWN_AT} FROM {before} WHERE {may_be_online}
            EXCEPT SELECT {entity}, {EVENT}, {KNOWN_AT} FROM {after}
        ) r
        LEFT JOIN (
            SELECT {entity}, max(ROW({EVENT}, {KNOWN_AT})) AS _latest
            FROM {after} WHERE {is_known} GROUP BY {entity}
        ) n USING ({entity})
        WHERE n._latest IS NULL OR n._latest < ROW(r.{EVENT}, r.{KNOWN_AT})""")


def _read_parquet(
    connection: "duckdb.DuckDBPyConnection", store: Store, partitions: Iterable[Partition]
) -> str:
    paths = duckdb_paths(connection, store, sorted({partition.name for partition in partitions}))
    return f"read_parquet([{', '.join(map(text, paths))}], hive_partitioning = false, union_by_name = true)"


def _add_online(
    connection: "duckdb.DuckDBPyConnection",
    writer: Writer,
    definition: Definition,
    day: Partition,
    push: Push,
) -> None:
    """Add the rows of all online values of a day that are of an older generation."""
    import pyarrow as pa

    start = micros(datetime(day.day.year, day.day.month, day.day.day, tzinfo=UTC))
    for values in writer.values_of(definition.key, start, start + _DAY, day.generation):
        rows = [
            (key, event_of(header), known_of(header))
            for key, header in values
            if push.ends_now or known_of(header) <= push.until
        ]
        table = entities_of(definition, [row[0] for row in rows])
        table = table.append_column(EVENT, pa.array([row[1] for row in rows], arrow_type("timestamp")))
        table = table.append_column(KNOWN_AT, pa.array([row[2] for row in rows], arrow_type("timestamp")))
        connection.register("values_online", table)
        connection.execute(f"INSERT INTO {_REMOVED} SELECT {columns(table.column_names)} FROM values_online")


def _withdrawals(
    connection: "duckdb.DuckDBPyConnection", store: Store, definition: Definition, push: Push
) -> Iterator[list[Withdrawal]]:
    """The removed rows, each with what takes its place."""
    import pyarrow as pa

    if connection.execute(f"SELECT count(*) FROM {_REMOVED}").fetchall()[0][0] == 0:
        return
    layout = Layout(definition.features)
    generations = {day.day: day.generation for day in push.chosen}
    latest: dict[bytes, bytes] = {}
    for rows in latest_rows(connection, store, definition, push.in_reach, push.until, among=_REMOVED):
        latest.update(pack_rows(definition, layout, rows))
    for batch in connection.sql(f"SELECT * FROM {_REMOVED}").to_arrow_reader(BATCH):
        keys = entity_keys(definition, pa.Table.from_batches([batch]))
        times = [batch.column(name).cast("int64").to_pylist() for name in (EVENT, KNOWN_AT)]
        withdrawals = []
        for key, event, known_time in zip(keys, *times, strict=True):
            if key is not None:
                row_times = TIMES.pack(event + OFFSET, known_time + OFFSET)
                withdrawals.append(Withdrawal(key, row_times, generations[day_of(event)], latest.get(key)))
        yield withdrawals


def _is_long_ago(generation: Partition) -> bool:
    """Whether every push that is under way has seen this generation."""
    return datetime.fromisoformat(generation.made["at"]) + UNDER_WAY <= datetime.now(UTC)
