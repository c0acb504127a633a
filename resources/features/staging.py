"""The rows of a view's source before its transform: with their times in UTC, checked for what no join could
do with.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

from halving.errors import InvalidInput
from halving.features.packing import entity_type
from halving.features.whole_numbers import BITS, REMEDY
from resources.features.engine import columns, fault_of, quoted, text
from resources.features.iso_texts import EXAMPLE, FINER, MOMENT, ZONED_MOMENT
from resources.features.partitions import Partition
from resources.features.source import SOURCE, open_source
from resources.features.view import EVENT, KNOWN, FeatureView, micros_of
from resources.sweep_spec.base import listed

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

STAGED = "staged"
_FLOATS = {"DOUBLE": BITS[64], "FLOAT": BITS[32]}
_SHOWN = 3  # rows in a message
_RECENT_DAYS = 7  # of those that are materialised: how late their rows became known
# from the day of events to the day that rows were created of which it is not believed
_LATE = timedelta(days=2)


def stage(connection: "duckdb.DuckDBPyConnection", view: FeatureView, day: date | None) -> dict[str, str]:
    """Read the source into the table :data:`STAGED`: its columns, and before them ``_event`` and ``_known``
    (µs, UTC).

    The entity's types.

    The source is read once. Times finer than microseconds are rounded up.

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
    known = (
        f"{event} + to_microseconds({micros_of(view.delay)})"
        if view.delay
        else _utc(view, "created", view.created or "", types)
    )
    narrowed = ""
    if day is not None:
        of_day = f"{event}::DATE = {text(str(day))}"
        if _is_text(types[view.event_time]):
            narrowed = f"WHERE {of_day} OR {event} IS NULL"
        else:
            # by a plain comparison too, by which files need not be read; a day more on each side for other
            # time zones
            around = (
                f"{quoted(view.event_time)} BETWEEN {text(str(day - timedelta(1)))} AND "
                f"{text(str(day + timedelta(2)))}"
            )
            narrowed = (
                f"WHERE ({around} AND {of_day}) OR {quoted(view.event_time)} IS NULL OR "
                f"{_is_infinite(view.event_time)}"
            )
    import duckdb

    try:
        connection.execute(
            f"CREATE TABLE {STAGED} AS SELECT {event} AS {EVENT}, {known} AS {KNOWN}, * FROM {SOURCE} "
            f"{narrowed}"
        )
    except (duckdb.OutOfMemoryException, duckdb.IOException):
        # of the disk that is spilled to, as the engine says
        raise
    except duckdb.Error as error:
        raise fault_of(error, f"source.{view.source.place} of {view.key}") from error
    check_unchanged()
    times = [
        name for name in (view.event_time, view.created) if name is not None and not _is_text(types[name])
    ]
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
    nulls = " OR ".join(f"{quoted(name)} IS NULL" for name in (EVENT, KNOWN, *view.entity))
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
    """Refuse days that were not materialised before, where the rows of most of them were created on one day,
    long after their events.

    That is what a table looks like that was loaded anew with ``created = now()``: by it nothing was known
    before today, and every label of the past would get nulls. A source that always loads its rows some days
    late does so again: its days are accepted.

    Args:
        materialized: the days that are materialised already, in order; they are not looked at.

    Raises:
        InvalidInput: it is so; the message proposes ``delay``.
    """
    if view.created is None:
        return
    # Most days are enough, since beside a table's past that was loaded anew there may be some recent days
    # whose times are right.
    query = f"""
        WITH days AS (
            SELECT {EVENT}::DATE AS day, count(*) AS "rows",
                min({KNOWN})::DATE AS created, max({KNOWN})::DATE AS latest
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
                f"rows of the days from {first} to "
                f"{last} were created on {created}. That is when the table was loaded, not when its rows "
                "were known: a join would find "
                "nothing before. Give delay in place of created, for example delay: 1h; or say that they "
                "really became known that late: "
                "--late, in Dagster late: true"
            )


def check_times(connection: "duckdb.DuckDBPyConnection", view: FeatureView, day: date) -> None:
    """Refuse rows that were created before their event.

    Raises:
        InvalidInput: naming the first of them.
    """
    of_day = f"{EVENT}::DATE = {text(str(day))} AND {KNOWN} < {EVENT}"
    why = (
        f"were created ({view.created}) before their event ({view.event_time}); is one of them in another "
        "time zone?"
    )
    _refuse_rows(connection, view, of_day, why)


def check_unique(connection: "duckdb.DuckDBPyConnection", view: FeatureView, relation: str) -> None:
    """Refuse rows of which nothing says which one counts.

    Raises:
        InvalidInput: naming the first of them.
    """
    key = columns([*view.entity, EVENT, KNOWN])
    found = connection.sql(
        f"SELECT {key}, count(*) AS _rows FROM {relation} GROUP BY {key} HAVING count(*) > 1 ORDER BY "
        f"{key} LIMIT {_SHOWN}"
    ).to_arrow_table()
    if found.num_rows:
        named = f"({listed([*view.entity, view.event_time, *([view.created] if view.created else [])])})"
        raise InvalidInput(
            f"the rows of the feature view {view.key} are not accepted: {named} is not unique, for example "
            f"{_shown(found)}; keep one "
            "row of each in the source"
        )


def staged_rows(connection: "duckdb.DuckDBPyConnection", day: date, batch: int) -> "pa.RecordBatchReader":
    """The staged rows of a day as Arrow, in batches."""
    return connection.sql(f"SELECT * FROM {STAGED} WHERE {EVENT}::DATE = {text(str(day))}").to_arrow_reader(
        batch
    )


def _column_types(connection: "duckdb.DuckDBPyConnection") -> dict[str, str]:
    return {row[0]: row[1] for row in connection.execute(f"DESCRIBE {SOURCE}").fetchall()}


def _check_columns(view: FeatureView, types: Mapping[str, str]) -> None:
    wanted = [
        ("event_time", view.event_time),
        *((f"entity.{place}", name) for place, name in enumerate(view.entity)),
    ]
    for field, name in [*wanted, *([("created", view.created)] if view.created else [])]:
        if name not in types:
            raise InvalidInput(
                f"{field} = {name!r} of the feature view {view.key} is not accepted: the source has "
                f"{listed(types)}; name one of these"
            )
    if reserved := {EVENT, KNOWN} & set(map(str.lower, types)):
        raise InvalidInput(
            f"the source of the feature view {view.key} is not accepted: its column {min(reserved)!r} has "
            "a name of the store's own; "
            "give it another one"
        )


def _entity_types(connection: "duckdb.DuckDBPyConnection", view: FeatureView) -> dict[str, str]:
    schema = connection.sql(f"SELECT {columns(view.entity)} FROM {SOURCE} LIMIT 0").to_arrow_table().schema
    found = {name: entity_type(schema.field(name).type) for name in view.entity}
    for name, kind in found.items():
        if kind is None:
            raise InvalidInput(
                f"entity = {name!r} of the feature view {view.key} is not accepted: it is "
                f"{schema.field(name).type}; "
                "give a whole number below 2**63 or a text"
            )
    return {name: kind for name, kind in found.items() if kind}


def _make_ids_whole(
    connection: "duckdb.DuckDBPyConnection", view: FeatureView, types: Mapping[str, str]
) -> None:
    """Make BIGINT of the entity's floats and decimals, as :mod:`halving.features.whole_numbers` does: NaN is
    null.

    Raises:
        InvalidInput: a value is no whole number, or a float that two of them would be.
    """
    for name in view.entity:
        kind = types[name]
        column = quoted(name)
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
    """SQL for a time as a TIMESTAMP (µs) in UTC, rounded up: no row is known before it was.

    Of an hour that is there twice, the second.
    """
    kind = types[name]
    column = quoted(name)
    if _is_text(kind):
        return _utc_of_text(view, f"{column}::VARCHAR")
    if kind == "DATE":
        raise InvalidInput(
            f"{field} = {name!r} of the feature view {view.key} is not accepted: it is DATE, which does "
            "not say when in the day; give a "
            "column of timestamps, for what is of a whole day the first moment after it"
        )
    if not kind.startswith("TIMESTAMP"):
        raise InvalidInput(
            f"{field} = {name!r} of the feature view {view.key} is not accepted: it is {kind}; give a "
            "column of timestamps"
        )
    plain = (
        f"make_timestamp((epoch_ns({column}) + 999) // 1000)"
        if kind.endswith("_NS")
        else f"{column}::TIMESTAMP"
    )
    if kind.startswith(("TIMESTAMP WITH TIME ZONE", "TIMESTAMPTZ")):
        return plain  # the connection's time zone is UTC
    if view.timezone is None:
        raise InvalidInput(
            f"{field} = {name!r} of the feature view {view.key} is not accepted: its times have no time "
            "zone. "
            "Say which one they are in, for example timezone: UTC"
        )
    return _from_zone(view.timezone, plain)


def _is_infinite(name: str) -> str:
    """SQL for whether a time is none: a plain comparison, for which files need not be read."""
    return f"{quoted(name)} IN ('infinity', '-infinity')"


def _from_zone(timezone: str, plain: str) -> str:
    """SQL for a TIMESTAMP of a time zone as one in UTC."""
    return plain if timezone == "UTC" else f"timezone('UTC', timezone({text(timezone)}, {plain}))"


def _is_text(kind: str) -> bool:
    return kind == "VARCHAR" or kind.startswith("ENUM")


def _utc_of_text(view: FeatureView, words: str) -> str:
    """SQL for a text by ISO 8601 as :func:`_utc` has times; null where it is none, or says no time zone and
    the view neither.
    """
    cut = f"regexp_replace({words}, {text(FINER)}, '\\1')"
    zoned = (
        f"WHEN regexp_full_match({words}, {text(ZONED_MOMENT)}) THEN TRY_CAST({cut} AS "
        "TIMESTAMPTZ)::TIMESTAMP"
    )
    plain = ""
    if view.timezone is not None:
        plain = (
            f"WHEN regexp_full_match({words}, {text(MOMENT)}) THEN "
            f"{_from_zone(view.timezone, f'TRY_CAST({cut} AS TIMESTAMP)')}"
        )
    is_finer = f"regexp_matches({words}, '\\.\\d{{6}}\\d*[1-9]')"
    return f"(CASE {zoned} {plain} END + to_microseconds({is_finer}::BIGINT))"


def _check_texts(
    connection: "duckdb.DuckDBPyConnection", view: FeatureView, types: Mapping[str, str]
) -> None:
    """Refuse texts that say no moment.

    Raises:
        InvalidInput: naming the first of them.
    """
    zone = " with its time zone, or say timezone: UTC" if view.timezone is None else ""
    for name, moment in ((view.event_time, EVENT), (view.created, KNOWN)):
        if name is not None and _is_text(types[name]):
            why = (
                f"have a {name} that is no ISO 8601 moment, with its time of day; write it as {EXAMPLE}{zone}"
            )
            _refuse_rows(connection, view, f"{quoted(name)} IS NOT NULL AND {moment} IS NULL", why)


def _refuse_rows(
    connection: "duckdb.DuckDBPyConnection",
    view: FeatureView,
    condition: str,
    why: str,
    shown_columns: Sequence[str] = (),
) -> None:
    """Refuse rows; of some of them these columns are shown, or else entity and times."""
    count = _one(connection, f"SELECT count(*) FROM {STAGED} WHERE {condition}")[0]
    if count:
        names = shown_columns or [*view.entity, view.event_time, *([view.created] if view.created else [])]
        shown = columns(dict.fromkeys(names))
        found = connection.sql(
            f"SELECT {shown} FROM {STAGED} WHERE {condition} ORDER BY ALL LIMIT {_SHOWN}"
        ).to_arrow_table()
        raise InvalidInput(
            f"{count:,} rows of the feature view {view.key} are not accepted: they {why}; for example "
            f"{_shown(found)}"
        )


def _one(connection: "duckdb.DuckDBPyConnection", query: str) -> Any:
    return connection.execute(query).fetchall()[0]


def _shown(rows: "pa.Table") -> str:
    """Rows for people: ``user_id = 3, ts = 2026-11-25 10:00:00+00:00``."""
    lines = []
    for row in rows.to_pylist():
        lines.append(listed(f"{name} = {_moment(value)}" for name, value in row.items()))
    return " | ".join(lines)


def _moment(value: Any) -> str:
    if isinstance(value, datetime):
        return str(value.astimezone(UTC) if value.tzinfo else value)
    return repr(value)
