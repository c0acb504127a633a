"""A table that was loaded anew with ``created = now()`` is told from one that is late each day."""

from pathlib import Path

import pytest

from halving import InvalidInput, Store
from resources.features.materialize import materialize_all, materialize_day
from tests.resources.features.histories import DAY, FIRST, SECOND, SOURCE, Row, at, days, refusal, table, view


def test_a_first_backfill_that_was_all_created_today_is_named_and_delay_proposed(tmp_path: Path) -> None:
    store = Store(tmp_path)
    rows = [Row(1, day * DAY, 40 * DAY, 1.0) for day in range(5)]
    SOURCE["rows"] = table(rows)
    message = (
        r"all 5 rows of the days from 2026-03-01 to 2026-03-05 were created on 2026-04-10.* Give delay in "
        r"place of created"
    )
    with pytest.raises(InvalidInput, match=message):
        materialize_all(store, view())
    # a backfill by Dagster
    assert "Give delay in place of created, for example delay: 1h" in refusal(
        store, rows, day=SECOND, late=False
    )
    assert not materialize_all(store, view(created=None, delay="1h", version=2)).failed
    assert not materialize_all(store, view(), late=True).failed  # they were known that late


def test_days_before_those_that_are_there_are_looked_at_as_the_first_ones_are(tmp_path: Path) -> None:
    store = Store(tmp_path)
    shape = view()
    usual = [Row(1, day * DAY, day * DAY + 60, 1.0) for day in range(60, 63)]
    SOURCE["rows"] = table(usual)
    assert not materialize_all(store, shape).failed
    # loaded again, each row created when that was
    past = [Row(1, day * DAY, 63 * DAY, 1.0) for day in range(60)]
    SOURCE["rows"] = table([*usual, *past, Row(1, 63 * DAY, 63 * DAY + 60, 1.0)])
    with pytest.raises(
        InvalidInput,
        match=r"all 61 rows of the days from 2026-03-01 to 2026-05-03 were created on 2026-05-03.* --late",
    ):
        materialize_all(store, shape)
    assert "all 1 rows of the days from 2026-03-02 to 2026-03-02" in refusal(
        store, past, shape, SECOND, late=False
    )  # a backfill by Dagster
    assert [part.day for part in days(store, shape)] == [at(row.event).date() for row in usual]
    assert not materialize_all(store, shape, late=True).failed
    assert len(days(store, shape)) == 63
    SOURCE["rows"] = table([Row(1, row.event, 64 * DAY, 2.0) for row in past])
    # days that are there may become known later
    assert all(done.new for done in materialize_all(store, shape).days.values())


def test_days_of_a_source_that_always_loads_late_are_no_backfill(tmp_path: Path) -> None:
    """Once its first days were accepted."""
    store = Store(tmp_path)
    shape = view()
    for day in range(4):
        SOURCE["rows"] = table([Row(1, day * DAY + minute, (day + 3) * DAY + 60, 1.0) for minute in (0, 700)])
        assert materialize_day(store, shape, at(day * DAY).date(), late=day == 0).new
    SOURCE["rows"] = table([Row(1, 4 * DAY, 40 * DAY, 1.0)])
    with pytest.raises(
        InvalidInput, match="all 1 rows of the days from 2026-03-05 to 2026-03-05 were created on 2026-04-10"
    ):
        materialize_day(store, shape, at(4 * DAY).date())


def test_of_a_long_past_a_day_that_came_late_is_no_backfill(tmp_path: Path) -> None:
    rows = [Row(1, day * DAY, day * DAY + (5 * DAY if day == 3 else 60), 1.0) for day in range(10)]
    SOURCE["rows"] = table(rows)
    assert len(materialize_all(Store(tmp_path), view()).days) == 10


def test_a_view_of_which_the_rows_came_within_a_day_is_no_backfill(tmp_path: Path) -> None:
    SOURCE["rows"] = table([Row(1, 10, DAY + 120, 1.0), Row(2, DAY - 1, DAY + 120, 1.0)])
    assert materialize_day(Store(tmp_path), view(), FIRST).new
