"""Staging the rows of a view's source before its transform, with times in UTC and without bad rows."""

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

from halving.errors import InvalidInput
from halving.features.packing import entity_type
from halving.features.whole_numbers import BITS, REMEDY
from halving.text import comma_list
from resources.features.engine import columns, fault_of, identifier, text
from resources.features.iso_texts import EXAMPLE, FINER, TIME, ZONED_TIME
from resources.features.partitions import Partition
from resources.features.source import SOURCE, open_source
from resources.features.view import EVENT, KNOWN_AT, FeatureView, micros_of

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

STAGED = "staged"
_FLOATS = {"DOUBLE": BITS[64], "FLOAT": BITS[32]}
_EXAMPLES = 3  # rows in a message
_RECENT_DAYS = 7  # materialised days that show how late rows become known
_LATE = timedelta(days=2)  # a delay from event to creation that is not believed by itself


def stage(connection: "duckdb.DuckDBPyConnection", view: FeatureView, day: date | None) -> dict[str, str]:
    """Read the source into the table :data:`STAGED`: ``_event`` and ``_known`` (µs, UTC), then its columns.

    The source is read once. Times finer than microseconds are rounded up.

    Returns:
        The types of the entity's columns.

    Args:
        day: only rows of this day; None is all.

    Raises:
        StoreError: the source cannot be read.
        InvalidInput: the source is not there, a column is missing or not of an accepted type, or a row has no
            entity or time.
    """
    check_unchanged = open_source(connection, view.source, day)
    types = _column_types(connection)
    _check_columns(view, types)
    entity = _entity_types(connection, view)
    event = _utc(view, "event_time", view.event_time, types)
    if view.delay:
        known_time = f"{event} + to_microseconds({micros_of(view.delay)})"
    else:
        known_time = _utc(view, "created", view.created or "", types)
    narrowed = ""
    if day is not None:
        of_day = f"{event}::DATE = {text(str(day))}"
        if _is_text(types[view.event_time]):
            narrowed = f"WHERE {of_day} OR {event} IS NULL"
        else:
            # A simple comparison as well, by which whole files can be skipped; it covers a day more on each
            # side for other time zones.
            around = (
                f"{identifier(view.event_time)} BETWEEN {text(str(day - timedelta(1)))} AND "
                f"{text(str(day + timedelta(2)))}"
            )
            narrowed = (
                f"WHERE ({around} AND {of_day}) OR {identifier(view.event_time)} IS NULL OR "
                f"{_is_infinite(view.event_time)}"
            )
    import duckdb

    try:
        connection.execute(
            f"CREATE TABLE {STAGED} AS SELECT {event} AS {EVENT}, {known_time} AS {KNOWN_AT}, * "
            f"FROM {SOURCE} {narrowed}"
        )
    except (duckdb.OutOfMemoryException, duckdb.IOException):
        # The engine explains errors of memory and of the disk that it spills to.
        raise
    except duckdb.Error as error:
        raise fault_of(error, f"source.{view.source.place} of {view.key}") from error
    check_unchanged()
    times = [name for name in _time_columns(view) if not _is_text(types[name])]
    if times:
        infinite = " OR ".join(map(_is_infinite, times))
        _refuse_rows(
            connection,
            view,
            infinite,
            "have an infinite time, which is of no day; filter them in the source",
            view.entity,
        )
    _check_texts(connection, view, types)
    _make_ids_whole(connection, view, types)
    nulls = " OR ".join(f"{identifier(name)} IS NULL" for name in (EVENT, KNOWN_AT, *view.entity))
    _refuse_rows(
        connection,
        view,
        nulls,
        "have no entity or no time, so that nothing could ever be joined to them; filter them in the source",
    )
    return entity


def days_of(connection: "duckdb.DuckDBPyConnection") -> list[date]:
    """The days on which the staged rows' events are, in order."""
    return [
        row[0]
        for row in connection.execute(f"SELECT DISTINCT {EVENT}::DATE FROM {STAGED} ORDER BY 1").fetchall()
    ]


def check_backfill(
    connection: "duckdb.DuckDBPyConnection", view: FeatureView, materialized: Sequence[Partition]
) -> None:
    """Refuse new days if the rows of most of them were created on a single day, long after their events.

    A table that was loaded anew with ``created = now()`` looks like that. By it nothing was known before
    today, and every label of the past would get nulls. A source that always loads its rows some days late is
    accepted.

    Args:
        materialized: the days that are materialised already, in order; they are not checked.

    Raises:
        InvalidInput: it is so; the message proposes ``delay``.
    """
    if view.created is None:
        return
    # Most days suffice, because a table whose past was loaded anew may have some recent days whose times are
    # right.
    query = f"""
        WITH days AS (
            SELECT {EVENT}::DATE AS day, count(*) AS "rows",
                min({KNOWN_AT})::DATE AS created, max({KNOWN_AT})::DATE AS latest
            FROM {STAGED} WHERE NOT list_contains(?::DATE[], {EVENT}::DATE) GROUP BY day
        )
        SELECT created, sum("rows")::BIGINT, min(day), max(day) FROM days
        WHERE created = latest GROUP BY created HAVING 2 * count(*) > (SELECT count(*) FROM days)"""
    lags = [partition.last_known - partition.last for partition in materialized if partition.rows][
        -_RECENT_DAYS:
    ]
    usual = timedelta(microseconds=max(lags, default=0))
    for created, rows, first, last in connection.execute(
        query, [[partition.day for partition in materialized]]
    ).fetchall():
        if created - first > 2 * usual and (last - first >= _LATE or created - last >= _LATE):
            raise InvalidInput(
                f"created = {view.created!r} of the feature view {view.key} is not accepted: all {rows:,} "
                f"rows of the days from {first} to {last} were created on {created}. That is when the table "
                "was loaded, not when its rows were known: a join would find nothing before. Give delay in "
                "place of created, for example delay: 1h; or say that they really became known that late: "
                "--late, in Dagster late: true"
            )


def check_times(connection: "duckdb.DuckDBPyConnection", view: FeatureView, day: date) -> None:
    """Refuse rows that were created before their event.

    Raises:
        InvalidInput: naming the first of them.
    """
    of_day = f"{EVENT}::DATE = {text(str(day))} AND {KNOWN_AT} < {EVENT}"
    why = (
        f"were created ({view.created}) before their event ({view.event_time}); is one of them in another "
        "time zone?"
    )
    _refuse_rows(connection, view, of_day, why)


def check_unique(connection: "duckdb.DuckDBPyConnection", view: FeatureView, relation: str) -> None:
    """Refuse rows with the same entity and times, of which nothing says which one counts.

    Raises:
        InvalidInput: naming the first of them.
    """
    key = columns([*view.entity, EVENT, KNOWN_AT])
    rows = connection.sql(
        f"SELECT {key}, count(*) AS _rows FROM {relation} GROUP BY {key} HAVING count(*) > 1 ORDER BY "
        f"{key} LIMIT {_EXAMPLES}"
    ).to_arrow_table()
    if rows.num_rows:
        key_text = comma_list([*view.entity, *_time_columns(view)])
        raise InvalidInput(
            f"the rows of the feature view {view.key} are not accepted: ({key_text}) is not unique, for "
            f"example {_rows_text(rows)}; keep one row of each in the source"
        )


def staged_rows(connection: "duckdb.DuckDBPyConnection", day: date, batch: int) -> "pa.RecordBatchReader":
    """The staged rows of a day as Arrow, in batches."""
    return connection.sql(f"SELECT * FROM {STAGED} WHERE {EVENT}::DATE = {text(str(day))}").to_arrow_reader(
        batch
    )


def _time_columns(view: FeatureView) -> list[str]:
    """The source's columns of times: that of the event, and that of the creation if there is one."""
    if view.created is None:
        return [view.event_time]
    return [view.event_time, view.created]


def _column_types(connection: "duckdb.DuckDBPyConnection") -> dict[str, str]:
    return {row[0]: row[1] for row in connection.execute(f"DESCRIBE {SOURCE}").fetchall()}


def _check_columns(view: FeatureView, types: Mapping[str, str]) -> None:
    wanted = [
        ("event_time", view.event_time),
        *((f"entity.{place}", name) for place, name in enumerate(view.entity)),
    ]
    if view.created:
        wanted.append(("created", view.created))
    for field, name in wanted:
        if name not in types:
            raise InvalidInput(
                f"{field} = {name!r} of the feature view {view.key} is not accepted: the source has "
                f"{comma_list(types)}; name one of these"
            )
    if reserved := {EVENT, KNOWN_AT} & set(map(str.lower, types)):
        raise InvalidInput(
            f"the source of the feature view {view.key} is not accepted: its column {min(reserved)!r} has "
            "a name of the store's own; give it another one"
        )


def _entity_types(connection: "duckdb.DuckDBPyConnection", view: FeatureView) -> dict[str, str]:
    schema = connection.sql(f"SELECT {columns(view.entity)} FROM {SOURCE} LIMIT 0").to_arrow_table().schema
    types = {name: entity_type(schema.field(name).type) for name in view.entity}
    for name, kind in types.items():
        if kind is None:
            raise InvalidInput(
                f"entity = {name!r} of the feature view {view.key} is not accepted: it is "
                f"{schema.field(name).type}; give a whole number below 2**63 or a text"
            )
    return {name: kind for name, kind in types.items() if kind}


def _make_ids_whole(
    connection: "duckdb.DuckDBPyConnection", view: FeatureView, types: Mapping[str, str]
) -> None:
    """Cast the entity's floats and decimals to BIGINT, as :mod:`halving.features.whole_numbers` does.

    NaN becomes null.

    Raises:
        InvalidInput: a value is no whole number, or a float that stands for several of them.
    """
    for name in view.entity:
        kind = types[name]
        column = identifier(name)
        if kind.startswith(("DECIMAL", "UBIGINT", "HUGEINT", "UHUGEINT")):
            wrong = (
                f"{column} IS NOT NULL AND TRY_CAST(TRY_CAST({column} AS BIGINT) AS {kind}) IS DISTINCT "
                f"FROM {column}"
            )
            whole = f"{column}::BIGINT"
            limit = "2**63"
        elif kind in _FLOATS:
            limit = f"2**{_FLOATS[kind]}"
            wrong = f"NOT isnan({column}) AND ({column} <> trunc({column}) OR abs({column}) >= {limit})"
            whole = f"CASE WHEN NOT isnan({column}) THEN {column}::BIGINT END"
        else:
            continue
        _refuse_rows(
            connection, view, wrong, f"have a {name} that is no whole number below {limit}; {REMEDY}"
        )
        connection.execute(f"ALTER TABLE {STAGED} ALTER {column} TYPE BIGINT USING {whole}")


def _utc(view: FeatureView, field: str, name: str, types: Mapping[str, str]) -> str:
    """SQL for a time as a TIMESTAMP (µs) in UTC, rounded up so that no row is known too early.

    An ambiguous local time (end of daylight saving) means the later one.
    """
    kind = types[name]
    column = identifier(name)
    if _is_text(kind):
        return _utc_of_text(view, f"{column}::VARCHAR")
    if kind == "DATE":
        raise InvalidInput(
            f"{field} = {name!r} of the feature view {view.key} is not accepted: it is DATE, which does "
            "not say when in the day; give a column of timestamps, for what is of a whole day the first "
            "moment after it"
        )
    if not kind.startswith("TIMESTAMP"):
        raise InvalidInput(
            f"{field} = {name!r} of the feature view {view.key} is not accepted: it is {kind}; give a "
            "column of timestamps"
        )
    timestamp = f"{column}::TIMESTAMP"
    if kind.endswith("_NS"):
        timestamp = f"make_timestamp((epoch_ns({column}) + 999) // 1000)"
    if kind.startswith(("TIMESTAMP WITH TIME ZONE", "TIMESTAMPTZ")):
        return timestamp  # the connection's time zone is UTC
    if view.timezone is None:
        raise InvalidInput(
            f"{field} = {name!r} of the feature view {view.key} is not accepted: its times have no time "
            "zone. Say which one they are in, for example timezone: UTC"
        )
    return _from_zone(view.timezone, timestamp)


def _is_infinite(name: str) -> str:
    """SQL for whether a time is infinite: a simple comparison, by which whole files can be skipped."""
    return f"{identifier(name)} IN ('infinity', '-infinity')"


def _from_zone(timezone: str, timestamp: str) -> str:
    """SQL for a TIMESTAMP of a time zone as one in UTC."""
    if timezone == "UTC":
        return timestamp
    return f"timezone('UTC', timezone({text(timezone)}, {timestamp}))"


def _is_text(kind: str) -> bool:
    return kind == "VARCHAR" or kind.startswith("ENUM")


def _utc_of_text(view: FeatureView, words: str) -> str:
    """SQL for a text by ISO 8601 as a TIMESTAMP in UTC.

    It is null if the text is no time, or neither the text nor the view has a time zone.
    """
    cut = f"regexp_replace({words}, {text(FINER)}, '\\1')"
    zoned = (
        f"WHEN regexp_full_match({words}, {text(ZONED_TIME)}) THEN TRY_CAST({cut} AS TIMESTAMPTZ)::TIMESTAMP"
    )
    unzoned = ""
    if view.timezone is not None:
        unzoned = (
            f"WHEN regexp_full_match({words}, {text(TIME)}) THEN "
            f"{_from_zone(view.timezone, f'TRY_CAST({cut} AS TIMESTAMP)')}"
        )
    is_finer = f"regexp_matches({words}, '\\.\\d{{6}}\\d*[1-9]')"
    return f"(CASE {zoned} {unzoned} END + to_microseconds({is_finer}::BIGINT))"


def _check_texts(
    connection: "duckdb.DuckDBPyConnection", view: FeatureView, types: Mapping[str, str]
) -> None:
    """Refuse texts that are no times.

    Raises:
        InvalidInput: naming the first of them.
    """
    zone = ""
    if view.timezone is None:
        zone = " with its time zone, or say timezone: UTC"
    for name, column in ((view.event_time, EVENT), (view.created, KNOWN_AT)):
        if name is not None and _is_text(types[name]):
            why = (
                f"have a {name} that is no ISO 8601 moment, with its time of day; write it as {EXAMPLE}{zone}"
            )
            _refuse_rows(connection, view, f"{identifier(name)} IS NOT NULL AND {column} IS NULL", why)


def _refuse_rows(
    connection: "duckdb.DuckDBPyConnection",
    view: FeatureView,
    condition: str,
    why: str,
    quoted_columns: Sequence[str] = (),
) -> None:
    """Refuse rows; the message quotes these columns of some of them, by default entity and times."""
    count = connection.execute(f"SELECT count(*) FROM {STAGED} WHERE {condition}").fetchall()[0][0]
    if count:
        names = quoted_columns or [*view.entity, *_time_columns(view)]
        selected = columns(dict.fromkeys(names))
        rows = connection.sql(
            f"SELECT {selected} FROM {STAGED} WHERE {condition} ORDER BY ALL LIMIT {_EXAMPLES}"
        ).to_arrow_table()
        raise InvalidInput(
            f"{count:,} rows of the feature view {view.key} are not accepted: they {why}; for example "
            f"{_rows_text(rows)}"
        )


def _rows_text(rows: "pa.Table") -> str:
    """Rows for people: ``user_id = 3, ts = 2026-11-25 10:00:00+00:00``."""
    lines = []
    for row in rows.to_pylist():
        lines.append(comma_list(f"{name} = {_value_text(value)}" for name, value in row.items()))
    return " | ".join(lines)


def _value_text(value: Any) -> str:
    if not isinstance(value, datetime):
        return repr(value)
    if value.tzinfo:
        value = value.astimezone(UTC)
    return str(value)
