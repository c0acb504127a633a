"""Times of labels and of views: dates, texts and timestamps, with and without a time zone."""

import re
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from halving import InvalidInput, Store
from resources.features.materialize import materialize_all, materialize_day
from tests.resources.features.histories import (
    DAY,
    MICROS,
    SOURCE,
    Row,
    at,
    join,
    materialize,
    view,
)

TIME = datetime(2026, 3, 1, 6, tzinfo=UTC)


MIDNIGHT = datetime(2026, 3, 2, tzinfo=UTC)


SIX = datetime(2026, 3, 2, 6, tzinfo=UTC)


# a label's time, the time zone that is said, and the moment that it is
TIMES: list[tuple[pa.Array, str | None, datetime]] = [
    (pa.array([date(2026, 3, 2)]), "UTC", MIDNIGHT),
    (pa.array([date(2026, 3, 2)], pa.date64()), "UTC", MIDNIGHT),
    (pa.array([date(2026, 3, 2)]), "Europe/Berlin", MIDNIGHT - timedelta(hours=1)),
    (pa.array([date(2026, 3, 2)]).dictionary_encode(), "UTC", MIDNIGHT),
    (pa.array(["2026-03-02"]), "UTC", MIDNIGHT),
    (pa.array(["2026-03-02"]), "America/New_York", MIDNIGHT + timedelta(hours=5)),
    (pa.array(["2026-03-02T06:00:00Z"]), None, SIX),
    (pa.array(["2026-03-02T06:00:00Z"]), "Europe/Berlin", SIX),  # its own zone counts
    (pa.array(["2026-03-02 08:00:00+02:00"], pa.large_string()), None, SIX),
    (pa.array(["2026-03-02T08:00+0200"], pa.string_view()), None, SIX),
    (pa.array(["2026-03-02 01:00:00.000-05"]).dictionary_encode(), None, SIX),
    (pa.array(["2026-03-02T07:00"]), "Europe/Berlin", SIX),
    (pa.array(["2026-03-02 06:00:00.000001"]), "UTC", SIX + timedelta(microseconds=1)),
    (pa.array(["2026-03-02T06:00:00.000001999Z"]), None, SIX + timedelta(microseconds=1)),
    (pa.array(["2026-03-02T06:00:00.0000009999999"]), "UTC", SIX),
    (pa.array(["9999-12-31T23:59:59Z"]), None, datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)),
    (pa.array([TIME + timedelta(days=1)], pa.timestamp("s", "Asia/Tokyo")), None, SIX),
]


@pytest.mark.parametrize(("times", "timezone", "time"), TIMES)
def test_a_label_is_of_the_moment_that_its_date_or_text_says(
    times: pa.Array, timezone: str | None, time: datetime, tmp_path: Path
) -> None:
    """What is known by then counts, and what is known a microsecond later does not."""
    known_times = pa.array([time - timedelta(hours=1), time, time + timedelta(microseconds=1)], MICROS)
    rows = pa.table(
        {
            "user": [1, 2, 3],
            "ts": pa.array([TIME] * 3, MICROS),
            "loaded": known_times,
            "value": [1.0, 2.0, 3.0],
        }
    )
    if time.year == 9999:
        rows = rows.slice(0, 2)
    shape = materialize(Store(tmp_path), rows)
    label_rows = pa.table({"user": [1, 2, 3], "when": pa.chunked_array([times, times, times])})
    joined = join(Store(tmp_path), label_rows, ["clicks@1:value"], shape, timezone=timezone)
    assert joined["value"].to_pylist() == [1.0, 2.0, None]
    assert joined.select(["when"]).equals(label_rows.select(["when"]))  # a label keeps its own


def test_texts_with_and_without_a_zone_mean_what_they_say_if_a_zone_is_given(
    tmp_path: Path,
) -> None:
    shape = materialize(Store(tmp_path), [Row(1, DAY + 360, DAY + 360, 1.0)])
    label_rows = pa.table(
        {
            "user": [1] * 4,
            "when": ["2026-03-02T06:00:00Z", "2026-03-02T07:00:00", "2026-03-02", "2026-03-02T05:59:59Z"],
        }
    )
    joined = join(Store(tmp_path), label_rows, ["clicks@1:value"], shape, timezone="Europe/Berlin")
    assert joined["value"].to_pylist() == [1.0, 1.0, None, None]


@pytest.mark.parametrize(
    ("times", "timezone", "message"),
    [
        (
            pa.array([date(2026, 3, 2)] * 2),
            None,
            "'when' is not accepted: it has no time zone. Say which one",
        ),
        (
            pa.array(["2026-03-02T06:00:00Z", "2026-03-02T06:00:00"]),
            None,
            "label 1 has '2026-03-02T06:00:00', which has no time zone",
        ),
        (
            pa.array(["2026-03-02T06:00:00Z", "03/04/2026"]),
            "UTC",
            "label 1 has '03/04/2026', which is no ISO 8601 moment; write it",
        ),
        (pa.array(["2026-03-02", "2026-3-2"]), "UTC", "label 1 has '2026-3-2', which is no ISO 8601 moment"),
        (
            pa.array(["2026-03-02", "2026-02-30"]),
            "UTC",
            "label 1 has '2026-02-30', which is no day of the calendar",
        ),
        (pa.array(["2026-03-02", ""]), "UTC", "label 1 has '', which is no ISO 8601 moment"),
        (pa.array(["2026-03-02", "now"]), "UTC", "label 1 has 'now', which is no ISO 8601 moment"),
        (
            pa.array(["2026-03-02", "1772345678"]),
            "UTC",
            "label 1 has '1772345678', which is no ISO 8601 moment",
        ),
        (
            pa.array(["2026-03-02", "2026-03-02T24:00:00"]),
            "UTC",
            "label 1 has '2026-03-02T24:00:00', which is no ISO 8601 moment",
        ),
        (
            pa.array(["2026-03-02", "2026-03-02 06:00:00 Europe/Berlin"]),
            "UTC",
            "label 1 has '2026-03-02 06:00:00 Europe/Berlin'",
        ),
        (
            pa.array(["2026-03-02", "2026-03-02T06:00:00+24:00"]),
            "UTC",
            "label 1 has '2026-03-02T06:00:00+24:00', which is no ISO",
        ),
        (
            pa.array(["2026-03-02", "2026-03-02T06:00:00-0560"]),
            "UTC",
            "label 1 has '2026-03-02T06:00:00-0560', which is no ISO",
        ),
        (pa.array(["2026-03-02", None]), "UTC", "label 1 is not accepted: its when is null"),
        (pa.array([date(2026, 3, 2), None]), "UTC", "label 1 is not accepted: its when is null"),
        (
            pa.array([1772345678, 1772345678]),
            "UTC",
            "it is int64; give a column of timestamps, for a number does not say its unit",
        ),
        (
            pa.array([1772345678.5, 1.0]),
            "UTC",
            "it is double; give a column of timestamps, for a number does not say its unit",
        ),
        (pa.array([True, True]), "UTC", "it is bool; give a column of timestamps, dates or texts"),
        (
            pa.array([0, 1772345678000000], pa.timestamp("s")),
            "UTC",
            "label 1 has 1,772,345,678,000,000 s since 1970, which is no time",
        ),
        (
            pa.array([0, -(2**62)], pa.timestamp("ms", "UTC")),
            None,
            "label 1 has -4,611,686,018,427,387,904 ms since 1970",
        ),
        (
            pa.array([0, 2**31 - 1], pa.date32()),
            "UTC",
            "label 1 has 2,147,483,647 days since 1970, which is no time that there can be",
        ),
        (
            pa.array([0, 2**62], pa.date64()),
            "UTC",
            "ms since 1970, which is no time that there can be; is its unit the right one?",
        ),
    ],
)
def test_a_time_that_says_no_moment_is_refused_by_row_and_value(
    times: pa.Array, timezone: str | None, message: str, tmp_path: Path
) -> None:
    shape = materialize(Store(tmp_path), [Row(1, 0, 0, 1.0)])
    with pytest.raises(InvalidInput, match=re.escape(message)):
        join(
            Store(tmp_path),
            pa.table({"user": [1, 1], "when": times}),
            ["clicks@1:value"],
            shape,
            timezone=timezone,
        )


@pytest.mark.parametrize(
    ("times", "timezone", "time"),
    [
        (pa.array(["2026-03-02T06:00:00Z"]), None, SIX),
        (pa.array(["2026-03-02 08:00+02:00"], pa.large_string()), None, SIX),
        (pa.array(["2026-03-02T01:00:00.000-0500"]).dictionary_encode(), None, SIX),
        (pa.array(["2026-03-02T06:00:00Z"]), "Europe/Berlin", SIX),
        (pa.array(["2026-03-02 07:00"]), "Europe/Berlin", SIX),
        (pa.array(["2026-03-02T06:00:00.000001"]), "UTC", SIX + timedelta(microseconds=1)),
        (pa.array(["2026-03-02T06:00:00.0000010000Z"]), None, SIX + timedelta(microseconds=1)),
        # never known before it was
        (pa.array(["2026-03-02T06:00:00.0000000001Z"]), None, SIX + timedelta(microseconds=1)),
        (pa.array(["1969-12-31T23:59:59.9999999Z"]), None, datetime(1970, 1, 1, tzinfo=UTC)),
        # of the day before in UTC
        (pa.array(["2026-03-02T00:30:00+01:00"]), None, datetime(2026, 3, 1, 23, 30, tzinfo=UTC)),
    ],
)
def test_an_event_is_of_the_moment_that_its_text_says(
    times: pa.Array, timezone: str | None, time: datetime, tmp_path: Path
) -> None:
    store = Store(tmp_path)
    rows = pa.table({"user": [1], "ts": times, "loaded": times, "value": [1.0]})
    SOURCE["rows"] = rows
    done = materialize_day(store, view(timezone=timezone), time.date(), late=True).partition
    assert (done.rows, done.first, done.last_known) == (
        1,
        int(time.timestamp() * 10**6),
        int(time.timestamp() * 10**6),
    )
    assert list(materialize_all(store, view(timezone=timezone), late=True).days) == [time.date()]


@pytest.mark.parametrize(
    ("times", "timezone", "message"),
    [
        (
            pa.array(["2026-03-01T06:00:00"]),
            None,
            "have a ts that is no ISO 8601 moment, with its time of day; write it as 2026-04-03T10",
        ),
        (
            pa.array(["2026-03-01T06:00:00"]),
            None,
            "with its time zone, or say timezone: UTC; for example user = 1, ts = '2026-03-01T06:0",
        ),
        (pa.array(["2026-03-01"]), "UTC", "have a ts that is no ISO 8601 moment, with its time of day"),
        (pa.array(["03/04/2026 10:00"]), "UTC", "ts = '03/04/2026 10:00'"),
        (pa.array(["2026-02-30T10:00:00"]), "UTC", "ts = '2026-02-30T10:00:00'"),
        (pa.array(["infinity"]), "UTC", "ts = 'infinity'"),
        (pa.array(["2026-03-01T06:00:00+24:00"]), None, "ts = '2026-03-01T06:00:00+24:00'"),
        (pa.array(["2026-03-01 06:00:00 Europe/Berlin"]), "UTC", "ts = '2026-03-01 06:00:00 Europe/Berlin'"),
        (pa.array([""]), "UTC", "ts = ''"),
        (pa.array([None], pa.string()), "UTC", "have no entity or no time"),
        (
            pa.array([date(2026, 3, 1)]),
            "UTC",
            "it is DATE, which does not say when in the day; give a column of timestamps",
        ),
        (pa.array([1772345678]), "UTC", "it is BIGINT; give a column of timestamps"),
    ],
)
def test_an_event_of_no_moment_is_refused_for_any_day(
    times: pa.Array, timezone: str | None, message: str, tmp_path: Path
) -> None:
    SOURCE["rows"] = pa.table(
        {"user": [1], "ts": times, "loaded": pa.array([at(2 * DAY)], MICROS), "value": [1.0]}
    )
    for day in (date(2026, 3, 1), date(2026, 7, 1)):
        with pytest.raises(InvalidInput, match=re.escape(message)):
            materialize_day(Store(tmp_path), view(timezone=timezone), day)


def test_a_text_that_says_when_a_row_was_known_is_refused_where_it_is_none(tmp_path: Path) -> None:
    SOURCE["rows"] = pa.table(
        {"user": [1], "ts": pa.array([at(0)], MICROS), "loaded": ["later"], "value": [1.0]}
    )
    with pytest.raises(
        InvalidInput, match=r"1 rows .* have a loaded that is no ISO 8601 moment.* loaded = 'later'"
    ):
        materialize_day(Store(tmp_path), view(), date(2026, 3, 1))
