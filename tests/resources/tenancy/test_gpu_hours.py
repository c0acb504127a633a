"""Hours of GPUs count by the month in which they were held, on whatever side of its ends an attempt lies."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resources.catalog import AttemptRow, Catalog, ProjectRow, SweepRow, TrialRow, utcnow
from resources.catalog.held_time import month_of, seconds_by_month, seconds_within
from resources.tenancy.gpu_hours import gpu_hours_of, gpu_hours_used
from tests.backends import snapshot_row
from tests.properties import examples

BEGIN = datetime(2026, 11, 1, tzinfo=UTC)
END = datetime(2026, 12, 1, tzinfo=UTC)
NOW = datetime(2026, 11, 26, 12, tzinfo=UTC).timestamp()
HOUR = timedelta(hours=1)


def sweep_of(catalog: Catalog, project: str) -> str:
    with catalog.write() as session:
        if session.get(SweepRow, project) is None:
            session.merge(snapshot_row("sha256:s"))
            session.flush()
            columns = {
                "spec": {},
                "spec_digest": project,
                "snapshot": "sha256:s",
                "driver": "job",
                "ordinal": 0,
                "status": "searching",
            }
            session.add(SweepRow(id=project, name=project, project=project, created_at=BEGIN, **columns))
    return project


def add(
    catalog: Catalog,
    began: datetime,
    ended: datetime | None,
    *,
    project: str = "p",
    gpus: int = 1,
    lease: float | None = None,
) -> None:
    sweep = sweep_of(catalog, project)
    with catalog.write() as session:
        number = len(catalog.trials(session, sweep))
        session.add(
            TrialRow(sweep=sweep, number=number, params={}, status="running", attempt=1, lease_until=lease)
        )
        session.flush()
        seconds = 0.0
        if ended:
            seconds = (ended - began).total_seconds()
        held = {"nodes": 2, "gpus": gpus, "held_since": began, "seconds": seconds}
        session.add(
            AttemptRow(
                sweep=sweep,
                trial=number,
                attempt=1,
                rung=0,
                worker="w",
                started_at=began,
                ended_at=ended,
                **held,
            )
        )


def hours_used(catalog: Catalog, now: float = NOW) -> float:
    with catalog.read() as session:
        return gpu_hours_used(session, ["p"], now)


def test_a_month_ends_where_the_next_one_begins_also_at_the_end_of_a_year() -> None:
    assert month_of(NOW) == (BEGIN, END)
    assert month_of(END.timestamp()) == (END, datetime(2027, 1, 1, tzinfo=UTC))
    assert month_of(END.timestamp() - 1e-3) == (BEGIN, END)


@given(st.floats(0, 4e9), st.floats(-1e7, 1e8), st.floats(0, 1e8))
@settings(max_examples=examples(300))
def test_the_months_of_an_attempt_add_up_to_its_seconds_whatever_two_clocks_say(
    since: float, held: float, seconds: float
) -> None:
    months = seconds_by_month(seconds, since, since + held)
    assert sum(months.values()) == pytest.approx(seconds)
    assert min(months.values()) >= 0
    for month, part in months.items():
        begin, end = month_of(datetime.fromisoformat(f"{month}-01T00:00:00+00:00").timestamp())
        assert part == seconds_within(seconds, since, since + held, begin.timestamp(), end.timestamp())


def test_what_an_attempt_held_is_counted_in_each_month_for_its_part(catalog: Catalog) -> None:
    add(catalog, BEGIN + HOUR, BEGIN + 3 * HOUR)
    assert hours_used(catalog) == pytest.approx(4.0)
    add(catalog, BEGIN - 3 * HOUR, BEGIN + HOUR)
    assert hours_used(catalog) == pytest.approx(6.0)
    assert hours_used(catalog, BEGIN.timestamp() - 1) == pytest.approx(6.0)
    add(catalog, END - HOUR, END + HOUR)
    add(catalog, END + HOUR, END + 2 * HOUR)
    assert hours_used(catalog) == pytest.approx(8.0)
    assert hours_used(catalog, END.timestamp() + 86_400) == pytest.approx(4.0)
    add(catalog, BEGIN, BEGIN + HOUR, project="another")
    add(catalog, BEGIN, BEGIN + HOUR, gpus=0)
    assert hours_used(catalog) == pytest.approx(8.0)


def test_what_runs_counts_until_now_but_not_beyond_its_lease_nor_before_the_month(catalog: Catalog) -> None:
    add(catalog, BEGIN - HOUR, None, lease=BEGIN.timestamp() + 1800)
    assert hours_used(catalog) == pytest.approx(1.0), "its worker has been silent since"
    add(catalog, datetime.fromtimestamp(NOW, UTC) - HOUR, None, lease=NOW + 15)
    assert hours_used(catalog) == pytest.approx(3.0)


def test_only_a_project_with_a_quota_has_limited_hours_under_any_of_its_names(
    catalog: Catalog,
) -> None:
    add(catalog, BEGIN, BEGIN + HOUR)
    with catalog.read() as session:
        assert gpu_hours_of(session, "p", NOW) is None
    with catalog.write() as session:
        session.add(
            ProjectRow(
                name="vision", owners=[], weight=1.0, gpu_hours=5.0, former_names=["p"], created_at=utcnow()
            )
        )
        session.add(
            ProjectRow(
                name="speech", owners=[], weight=1.0, gpu_hours=0.0, former_names=[], created_at=utcnow()
            )
        )
    with catalog.read() as session:
        hours = gpu_hours_of(session, "p", NOW)
        assert hours == gpu_hours_of(session, "vision", NOW)
        assert hours is not None
        assert (hours.project, hours.used, hours.left, hours.spent, hours.renewed) == (
            "vision",
            2.0,
            3.0,
            False,
            END,
        )
        none = gpu_hours_of(session, "speech", NOW)
        assert none is not None
        assert none.spent
        assert none.why_paused().startswith(
            "project speech has used its 0 GPU-hours of 2026-11; they are renewed on 2026-12-01 00:00 UTC"
        )
