"""The labels of a join, spooled to the temporary disk together with the keys for the join."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from halving.errors import InvalidInput
from halving.features.definition import Definition, arrow_type
from halving.features.packing import entity_column
from halving.text import comma_list
from resources.features.iso_texts import DAY, EXAMPLE, FINER, TIME, ZONED_TIME

if TYPE_CHECKING:
    import pyarrow as pa

BATCH = 1 << 16  # rows at most
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROS = {"days": 86_400 * 10**6, "s": 10**6, "ms": 10**3}
"""Microseconds of the larger units."""

_ZONES = 2 * _MICROS["days"]  # more than a time zone shifts a time


@dataclass(frozen=True)
class Spooled:
    """Labels on the disk.

    Attributes:
        labels: the labels as they came, in Arrow's stream format.
        keys: a Parquet file with ``row``, ``time`` (µs, UTC) and the entities' columns.
        keys_of: the names of the entities' columns there.
        rows: how many labels there are.
        first, last: the earliest and the latest time, µs since 1970.
    """

    schema: "pa.Schema"
    labels: Path
    keys: Path
    keys_of: dict[str, str]
    rows: int
    first: int
    last: int

    @property
    def last_day(self) -> date:
        return day_of(self.last)

    def batches(self) -> "Iterator[pa.RecordBatch]":
        """The labels as they came, in order."""
        import pyarrow as pa

        with pa.OSFile(str(self.labels)) as file, pa.ipc.open_stream(file) as reader:
            yield from reader


def spool(
    labels: "pa.Table | pa.RecordBatchReader",
    time: str,
    definitions: Iterable[Definition],
    folder: Path,
    timezone: str | None = None,
) -> Spooled:
    """Write labels and their keys to files of a folder, reading the labels once.

    Args:
        time: the column with the time at which features are wanted: timestamps, texts by ISO 8601, or dates,
            which mean their beginning.
        timezone: the time zone of times without one. An ambiguous local time (end of daylight saving) means
            the earlier one.

    Raises:
        InvalidInput: a column is missing or not of the type that a view has, or a time is null, has no time
            zone, or is no time.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    entity = _entities(definitions)
    schema = labels.schema
    _check_columns(schema, time, entity, timezone)
    keys_of = {name: f"key_{place}" for place, name in enumerate(entity)}
    kinds = [(keys_of[name], arrow_type(definition.entity[name])) for name, definition in entity.items()]
    keys = pa.schema([("row", pa.int64()), ("time", arrow_type("timestamp")), *kinds])
    rows = 0
    first = 2**63 - 1
    last = -(2**63)
    paths = folder / "labels.arrows", folder / "keys.parquet"
    with (
        pa.OSFile(str(paths[0]), "wb") as file,
        pa.ipc.new_stream(file, schema) as kept,
        pq.ParquetWriter(paths[1], keys, compression="none", use_dictionary=False) as writer,
    ):
        for batch in _in_batches(labels):
            kept.write_batch(batch)
            table = pa.Table.from_batches([batch])
            times = _parse_times(table[time], time, timezone, rows)
            if times.null_count:
                row = rows + pc.index(times.is_null(), True).as_py()
                raise InvalidInput(
                    f"label {row} is not accepted: its {time} is null, so that nothing says what was known"
                )
            numbers = times.cast("int64").to_numpy()
            first = min(first, int(numbers.min()))
            last = max(last, int(numbers.max()))
            columns = [entity_column(definition, table, name) for name, definition in entity.items()]
            row_numbers = pa.array(np.arange(rows, rows + batch.num_rows))
            writer.write_table(pa.Table.from_arrays([row_numbers, times, *columns], schema=keys))
            rows += batch.num_rows
    if not rows:
        first = 0
        last = 0
    return Spooled(schema, *paths, keys_of, rows, first, last)


def day_of(micros: int) -> date:
    """The day in UTC of a time in µs since 1970; beyond the calendar, its first or last day."""
    try:
        return (_EPOCH + timedelta(microseconds=micros)).date()
    except OverflowError:
        if micros < 0:
            return date.min
        return date.max


def _entities(definitions: Iterable[Definition]) -> dict[str, Definition]:
    """The columns of all entities, each with a view that has it.

    Raises:
        InvalidInput: two views have a column with different types.
    """
    entities: dict[str, Definition] = {}
    for definition in definitions:
        for name, kind in definition.entity.items():
            other = entities.setdefault(name, definition)
            if other.entity[name] != kind:
                raise InvalidInput(
                    f"the feature views {other.key} and {definition.key} are not accepted together: the "
                    f"entity {name} is {other.entity[name]} in one and {kind} in the other"
                )
    return entities


def _check_columns(
    schema: "pa.Schema", time: str, entity: Mapping[str, Definition], timezone: str | None
) -> None:
    import pyarrow as pa

    for name in (time, *entity):
        if schema.get_field_index(name) < 0:
            what = "time of the labels"
            if name != time:
                what = f"entity of {entity[name].key}"
            raise InvalidInput(
                f"the labels are not accepted: they have no column {name!r} ({what}), but "
                f"{comma_list(schema.names)}"
            )
    kind = schema.field(time).type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if _is_text(kind):
        return  # each text says itself whether it has a time zone
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        raise InvalidInput(
            f"the labels' time {time!r} is not accepted: it is {kind}; give a column of timestamps, for a "
            "number does not say its unit (pandas: to_datetime(…, unit='s', utc=True))"
        )
    if not pa.types.is_timestamp(kind) and not pa.types.is_date(kind):
        raise InvalidInput(
            f"the labels' time {time!r} is not accepted: it is {kind}; give a column of timestamps, dates "
            "or texts"
        )
    if (pa.types.is_date(kind) or kind.tz is None) and timezone is None:
        raise InvalidInput(
            f"the labels' time {time!r} is not accepted: it has no time zone. Say which one it is in, for "
            "example timezone = 'UTC'"
        )


def _in_batches(labels: "pa.Table | pa.RecordBatchReader") -> "Iterator[pa.RecordBatch]":
    import pyarrow as pa

    if isinstance(labels, pa.Table):
        labels = labels.to_reader()
    for batch in labels:
        for start in range(0, batch.num_rows, BATCH):
            yield batch.slice(start, BATCH)


def _is_text(kind: "pa.DataType") -> bool:
    return str(kind) in ("string", "large_string", "string_view")


def _parse_times(times: "pa.ChunkedArray", time: str, timezone: str | None, row: int) -> Any:
    """Parse the times of labels into µs in UTC.

    Args:
        row: the number of the first of these labels, for messages.
    """
    import pyarrow as pa

    if pa.types.is_dictionary(times.type):
        times = times.cast(times.type.value_type)
    if _is_text(times.type):
        return _parse_texts(times, time, timezone, row)
    _refuse_beyond(times, time, row)
    if pa.types.is_date(times.type):
        times = times.cast(pa.date32()).cast(pa.timestamp("us"))
    return _utc(times, timezone)


def _parse_texts(times: "pa.ChunkedArray", time: str, timezone: str | None, row: int) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = times.cast(pa.large_string())
    is_zoned = pc.match_substring_regex(texts, f"^{ZONED_TIME}$")
    is_unzoned = pc.match_substring_regex(texts, f"^({DAY}|{TIME})$")
    _refuse_first(
        texts,
        pc.invert(pc.or_(is_zoned, is_unzoned)),
        time,
        row,
        f"which is no ISO 8601 moment; write it as {EXAMPLE}",
    )
    if timezone is None:
        why = "which has no time zone. Say which one it is in, for example timezone = 'UTC'"
        _refuse_first(texts, is_unzoned, time, row, why)
    cut = pc.replace_substring_regex(texts, FINER, r"\1")
    nothing = pa.scalar(None, pa.large_string())
    try:
        zoned = pc.if_else(is_zoned, cut, nothing).cast(arrow_type("timestamp"))
        unzoned = pc.if_else(is_unzoned, cut, nothing).cast(pa.timestamp("us"))
    except pa.ArrowInvalid:
        is_none = pa.chunked_array([[not _is_day(text) for text in texts.to_pylist()]])
        _refuse_first(texts, is_none, time, row, f"which is no day of the calendar; write it as {EXAMPLE}")
        raise
    if timezone is None:
        return zoned
    return pc.coalesce(zoned, _utc(unzoned, timezone))


def _refuse_beyond(times: "pa.ChunkedArray", time: str, row: int) -> None:
    """Refuse times that microseconds cannot hold, as when a number was read in too large a unit."""
    import pyarrow as pa
    import pyarrow.compute as pc

    unit = getattr(times.type, "unit", "ms")
    kind = pa.int64()
    if pa.types.is_date32(times.type):
        unit = "days"
        kind = pa.int32()
    if unit not in _MICROS:
        return
    numbers = times.cast(kind).cast(pa.int64())
    limit = (2**63 - _ZONES) // _MICROS[unit]
    place = pc.index(pc.or_(pc.greater(numbers, limit), pc.less(numbers, -limit)), True).as_py()
    if place >= 0:
        raise InvalidInput(
            f"the labels' time {time!r} is not accepted: label {row + place} has "
            f"{numbers[place].as_py():,} {unit} since 1970, which is no time that there can be; is its unit "
            "the right one?"
        )


def _is_day(text: str | None) -> bool:
    """Whether a text begins with a day of the calendar."""
    try:
        return text is None or date.fromisoformat(text[:10]) is not None
    except ValueError:
        return False


def _refuse_first(
    texts: "pa.ChunkedArray", is_wrong: "pa.ChunkedArray", time: str, row: int, why: str
) -> None:
    import pyarrow.compute as pc

    place = pc.index(is_wrong, True).as_py()
    if place >= 0:
        value = texts[place].as_py()
        raise InvalidInput(
            f"the labels' time {time!r} is not accepted: label {row + place} has {value!r:.80}, {why}"
        )


def _utc(times: "pa.ChunkedArray", timezone: str | None) -> Any:
    """Times in µs, UTC; finer digits are cut off."""
    import pyarrow.compute as pc

    if times.type.unit == "ns":
        times = pc.floor_temporal(times, unit="microsecond")
    if times.type.tz is None:
        times = pc.assume_timezone(times, timezone, ambiguous="earliest", nonexistent="earliest")
    return times.cast(arrow_type("timestamp"), safe=False)
