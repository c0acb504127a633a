"""Numbers and times for people: as they are written, and as they are read."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from halving.text import closest, count_of, did_you_mean, duration, local_time, parse_time, size, with_zone


def test_a_time_without_a_zone_is_in_utc_and_another_keeps_its_own() -> None:
    assert parse_time("2026-03-01T12:00") == datetime(2026, 3, 1, 12, tzinfo=UTC)
    ahead = timezone(timedelta(hours=2))
    assert parse_time("2026-03-01T12:00+02:00") == datetime(2026, 3, 1, 12, tzinfo=ahead)
    assert with_zone(datetime(2026, 3, 1, tzinfo=ahead)).tzinfo is ahead
    with pytest.raises(ValueError, match="next week"):
        parse_time("next week")


def test_a_time_is_shown_alike_whether_it_is_one_or_its_text() -> None:
    time = datetime(2026, 3, 1, 12, 30, 59, tzinfo=UTC)
    assert local_time(time) == local_time(time.isoformat()) == f"{time.astimezone():%Y-%m-%d %H:%M:%S}"
    assert (local_time(None), local_time("yesterday")) == ("-", "yesterday")
    before_year_1 = "0001-01-01T00:00:00+14:00"
    assert local_time(before_year_1) == before_year_1


def test_counts_sizes_and_durations_have_their_units() -> None:
    assert [count_of(count, "step") for count in (0, 1, 2)] == ["0 steps", "1 step", "2 steps"]
    assert [size(count) for count in (1023, 1536, 3 << 20, 5 << 40)] == [
        "1023 B",
        "1.5 KiB",
        "3.0 MiB",
        "5.0 TiB",
    ]
    seconds = (None, 0, 2.25, 12.4, 90, 5400, 129600)
    assert [duration(each) for each in seconds] == ["-", "0 s", "2.2 s", "12 s", "1.5 min", "1.5 h", "1.5 d"]
    assert duration(-0.25) == "-0.2 s"  # clocks of two machines may differ


def test_the_closest_name_is_suggested_and_nothing_where_none_is_similar() -> None:
    assert closest("vison", ["vision", "speech"]) == "vision"
    assert did_you_mean("vison", ["vision", "speech"]) == ", did you mean 'vision'?"
    assert (closest("x", ["vision"]), did_you_mean("x", ["vision"])) == (None, "")
