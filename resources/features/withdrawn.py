"""Withdrawing online what a day that was made again has no more.

A push takes only values that are newer, so by itself it would leave the value of a row that is gone online
for ever. So of each day that was made again, the rows of its older generations are compared with the newest
one. Where one that is gone is still online, the latest row that its entity has takes its place. Where the
file of an older generation is gone, all values of that day and an older generation are taken for such rows:
those that are still right were replaced by the newest generation's in the same push.

A push may be killed anywhere, and two may run at once. So a day is settled, and not looked at again, only
once a push has withdrawn what it must at least :data:`UNDER_WAY` after the day was made: until then another
push may still bring values of an older generation.
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
from resources.features.engine import columns, quoted, text
from resources.features.labels import BATCH, day_of
from resources.features.online_rows import latest_rows, packed
from resources.features.online_writer import Withdrawal, Writer
from resources.features.partitions import Partition, older_generations
from resources.features.view import EVENT, KNOWN

if TYPE_CHECKING:
    import duckdb

UNDER_WAY = timedelta(hours=1)
"""For no longer a push goes on after it has looked which generations there are."""

_REMOVED = "removed"  # the table of rows that are withdrawn: the entity, the event and the known time
_DAY = 86_400_000_000  # µs
_SQL_TYPES = {"int64": "BIGINT", "string": "VARCHAR"}


@dataclass(frozen=True)
class Push:
    """What a push has pushed.

    Attributes:
        chosen: the days that it pushes.
        in_reach: all days of which a row may count, also others than it pushes.
        until: by when rows are known, in µs since 1970.
        ends_now: whether that is this moment: what was pushed before is not of later.
    """

    chosen: Sequence[Partition]
    in_reach: Sequence[Partition]
    until: int
    ends_now: bool


def settle_new(writer: Writer, view: str, days: Iterable[Partition]) -> None:
    """Note of a view that was never pushed to a store that nothing of older generations is there."""
    writer.settle(view, {day.day: day.generation for day in days if _is_long_ago(day)})


def withdraw(
    connection: "duckdb.DuckDBPyConnection", store: Store, writer: Writer, definition: Definition, push: Push
) -> int:
    """Withdraw what days that were made again have no more, once their latest rows are pushed; how many
    values those were.

    Raises:
        StoreError: the store cannot be read.
        StoreUnavailable: the online store does not answer.
    """
    settled = writer.settled(definition.key)
    days = [day for day in push.chosen if settled.get(day.day, 1) < day.generation]
    if not days:
        return 0
    columns_of = ", ".join(f"{quoted(name)} {_SQL_TYPES[kind]}" for name, kind in definition.entity.items())
    connection.execute(f"CREATE TABLE {_REMOVED} ({columns_of}, {EVENT} TIMESTAMPTZ, {KNOWN} TIMESTAMPTZ)")
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
    is_known = f"{KNOWN} <= make_timestamptz({push.until})"
    # an earlier push may have been of what is known only later
    may_be_online = "true" if push.ends_now else is_known
    connection.execute(f"""
        INSERT INTO {_REMOVED}
        SELECT {columns([*definition.entity, EVENT, KNOWN], "r")}
        FROM (
            SELECT {entity}, {EVENT}, {KNOWN} FROM {before} WHERE {may_be_online}
            EXCEPT SELECT {entity}, {EVENT}, {KNOWN} FROM {after}
        ) r
        LEFT JOIN (
            SELECT {entity}, max(ROW({EVENT}, {KNOWN})) AS _latest
            FROM {after} WHERE {is_known} GROUP BY {entity}
        ) n USING ({entity})
        WHERE n._latest IS NULL OR n._latest < ROW(r.{EVENT}, r.{KNOWN})""")


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
    """Add the rows of all values that are online of a day and an older generation."""
    import pyarrow as pa

    start = micros(datetime(day.day.year, day.day.month, day.day.day, tzinfo=UTC))
    for values in writer.values_of(definition.key, start, start + _DAY, day.generation):
        rows = [
            (key, event_of(header), known_of(header))
            for key, header in values
            if push.ends_now or known_of(header) <= push.until
        ]
        table = entities_of(definition, [key for key, _, _ in rows])
        table = table.append_column(EVENT, pa.array([event for _, event, _ in rows], arrow_type("timestamp")))
        table = table.append_column(KNOWN, pa.array([known for _, _, known in rows], arrow_type("timestamp")))
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
        latest.update(packed(definition, layout, rows))
    for batch in connection.sql(f"SELECT * FROM {_REMOVED}").to_arrow_reader(BATCH):
        keys = entity_keys(definition, pa.Table.from_batches([batch]))
        times = [batch.column(name).cast("int64").to_pylist() for name in (EVENT, KNOWN)]
        yield [
            Withdrawal(
                key, TIMES.pack(event + OFFSET, known + OFFSET), generations[day_of(event)], latest.get(key)
            )
            for key, event, known in zip(keys, *times, strict=True)
            if key is not None
        ]


def _is_long_ago(generation: Partition) -> bool:
    """Whether no push is under way that has not seen this generation."""
    return datetime.fromisoformat(generation.made["at"]) + UNDER_WAY <= datetime.now(UTC)
