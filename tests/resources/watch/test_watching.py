"""What happens is told once: not before there is a watch, not twice, and not when nothing is wrong."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import delete, select, update

from halving.errors import InvalidInput
from resources.alerts.channels import add_channel
from resources.analysis.run_index.run_alerts import MAX_AGE_SECONDS
from resources.catalog import (
    AlertDeliveryRow,
    AlertRow,
    AttemptRow,
    Catalog,
    IntentRow,
    ModelVersionRow,
    ProjectRow,
    RunIndexRow,
    RunNameRow,
    RunRow,
    RunValueRow,
    SweepRow,
    TrialRow,
    utcnow,
)
from resources.registry.events import REGISTERED, add_event
from resources.watch import Watch
from resources.watch.rules import parse_bound, set_rule
from tests.backends import SMALL, add_version, snapshot_row


def look(catalog: Catalog) -> int:
    return Watch(catalog).look()


@pytest.fixture
def watched(catalog: Catalog) -> Catalog:
    """A catalog whose watch has begun, with a channel."""
    with catalog.write() as session:
        add_channel(session, "hook", "webhook", "https://hooks.example.com/", actor="ada")
        session.add(snapshot_row("sha256:a"))
    assert look(catalog) == 0
    return catalog


def index_run(catalog: Catalog, run: str, status: str, **changes: Any) -> None:
    """Write a run's row as the index does, with a new revision."""
    with catalog.write() as session:
        session.execute(update(RunIndexRow).values(revision=RunIndexRow.revision + 1))
        revision = session.scalars(select(RunIndexRow.revision)).one()
        now = catalog.now()
        fields: dict[str, Any] = {
            "project": "digits",
            "run": run,
            "status": status,
            "lifecycle": "active",
            "started": now - 60,
            "ended": now,
            "seconds": 60.0,
            "attempt": 1,
            "look_again": 1e12,
            "signature": "s",
            "revision": revision,
            **changes,
        }
        row = session.scalars(select(RunRow).where(RunRow.run == run)).one_or_none()
        if row is None:
            session.add(RunRow(**fields))
        else:
            for name, value in fields.items():
                setattr(row, name, value)


def add_sweep(catalog: Catalog, sweep: str, status: str, **changes: Any) -> None:
    with catalog.write() as session:
        fields: dict[str, Any] = {
            "name": "small",
            "project": "small",
            "spec": SMALL,
            "spec_digest": sweep,
            "snapshot": "sha256:a",
            "driver": "job",
            "ordinal": 0,
            "status": status,
            "created_at": utcnow(),
            **changes,
        }
        session.add(SweepRow(id=sweep, **fields))


def alerts_of(catalog: Catalog) -> list[tuple[str, str]]:
    with catalog.read() as session:
        rows = session.scalars(select(AlertRow).order_by(AlertRow.id))
        return [(row.event, row.subject) for row in rows]


def test_a_run_that_crashes_is_told_once_and_again_in_its_next_attempt(watched: Catalog) -> None:
    index_run(watched, "a", "running", ended=None)
    assert look(watched) == 0
    index_run(watched, "a", "unfinished", ended=None)
    assert look(watched) == 1
    index_run(watched, "a", "crashed", signature="recovered since")
    assert look(watched) == 0
    index_run(watched, "a", "running", attempt=2, ended=None)
    assert look(watched) == 1
    index_run(watched, "a", "crashed", attempt=2)
    assert look(watched) == 1
    events = [event for event, _ in alerts_of(watched)]
    assert events == ["crashed", "recovered", "crashed"]
    with watched.read() as session:
        assert len(session.scalars(select(AlertDeliveryRow)).all()) == 3


@pytest.mark.parametrize("status", ["finished", "paused", "stopped", "running", "terminated"])
def test_a_run_that_is_well_pages_nobody(watched: Catalog, status: str) -> None:
    index_run(watched, "a", status)
    assert look(watched) == 0


def test_what_was_before_the_watch_is_not_told(catalog: Catalog) -> None:
    index_run(catalog, "old", "crashed")
    look(catalog)
    index_run(catalog, "imported", "failed", ended=catalog.now() - MAX_AGE_SECONDS - 1)
    index_run(catalog, "imported without an end", "crashed", ended=None, started=1.0, seconds=5.0)
    assert look(catalog) == 0


def test_archived_and_deleted_runs_page_nobody(watched: Catalog) -> None:
    index_run(watched, "a", "crashed", lifecycle="archived")
    index_run(watched, "b", "failed", lifecycle="deleted")
    assert look(watched) == 0


@pytest.mark.parametrize(
    ("status", "event"),
    [
        ("finished", "sweep finished"),
        ("failed", "sweep failed"),
        ("rejected", "gate failed"),
        ("held", "gate failed"),
    ],
)
def test_the_end_of_a_sweep_is_told_once(watched: Catalog, status: str, event: str) -> None:
    add_sweep(watched, "small-1", "searching")
    assert look(watched) == 0
    watched.end_sweep("small-1", status)
    assert look(watched) == 1
    assert look(watched) == 0
    assert alerts_of(watched) == [(event, "small-1")]


@pytest.mark.parametrize(
    ("error", "outcome", "event"),
    [
        ("killed by SIGKILL: out of memory (the limit is 512Mi)", "retry", "out of memory"),
        ("killed by SIGKILL", "retry", "crashed"),
        ("ValueError: no such column", "fail", "failed"),
        ("Diverged: metric 'loss' became nan at step 7", "fail", "diverged"),
    ],
)
def test_a_failed_attempt_at_a_trial_is_told_with_its_reason(
    watched: Catalog, error: str, outcome: str, event: str
) -> None:
    add_sweep(watched, "small-1", "searching")
    trial: dict[str, Any] = {
        "sweep": "small-1",
        "number": 3,
        "params": {},
        "status": "failed",
        "failures": 1,
        "preemptions": 0,
        "attempt": 1,
        "seconds": 1.0,
        "gpus": 0,
        "asked_back": False,
        "revision": 1,
    }
    attempt: dict[str, Any] = {
        "sweep": "small-1",
        "trial": 3,
        "attempt": 1,
        "rung": 0,
        "started_at": utcnow(),
        "ended_at": utcnow(),
        "outcome": outcome,
        "error": error,
        "seconds": 1.0,
        "nodes": 1,
        "gpus": 0,
        "cpus": 1.0,
    }
    with watched.write() as session:
        session.add(TrialRow(**trial))
        session.flush()
        session.add(AttemptRow(**attempt))
    assert look(watched) == 1
    assert alerts_of(watched) == [(event, "small/small-1.0003")]
    with watched.read() as session:
        assert error.partition(":")[0] in session.scalars(select(AlertRow.title)).one()


def test_a_launch_that_was_refused_is_told(watched: Catalog) -> None:
    fields: dict[str, Any] = {
        "kind": "study",
        "payload": {"spec": {"name": "small"}},
        "status": "failed",
        "error": "no module my_project",
        "actor": "ada",
        "created_at": utcnow(),
    }
    with watched.write() as session:
        session.add(IntentRow(id="1", sweep="small-9", **fields))
    assert look(watched) == 1
    assert alerts_of(watched) == [("sweep failed", "small-9")]


def test_a_version_that_waits_is_told_and_one_that_is_champion_is_not(watched: Catalog) -> None:
    for sweep in ("small-0", "small-1"):
        add_sweep(watched, sweep, "evaluating")
    with watched.write(exclusive=True) as session:
        rows = [
            add_version(
                session, model="small", version=version, stage=stage, sweep=f"small-{number}", trial=0
            )
            for number, (version, stage) in enumerate([("1.0.0", "champion"), ("1.0.1", "staging")])
        ]
        for row in rows:
            add_event(session, "small", REGISTERED, f"sweep {row.sweep}", version=row)
    assert look(watched) == 1
    assert look(watched) == 0
    with watched.read() as session:
        (alert,) = session.scalars(select(AlertRow)).all()
        assert session.get_one(ModelVersionRow, ("small", "1.0.1")).stage == "staging"
    assert alert.title == "small 1.0.1 waits in staging for a decision"


def test_looks_of_two_servers_at_the_same_time_tell_once(watched: Catalog) -> None:
    for number in range(20):
        index_run(watched, f"r{number}", "failed")
    with ThreadPoolExecutor(4) as pool:
        counts = list(pool.map(look, [watched] * 4))
    assert sum(counts) == 20
    assert len(alerts_of(watched)) == 20


def test_a_watch_that_two_servers_have_tells_of_a_condition_once(watched: Catalog) -> None:
    rule(watched, silent_after=60.0)
    index_run(watched, "a", "running", **silent_for(watched, 61.0))
    first = Watch(watched)
    second = Watch(watched)
    assert [first.look(), second.look(), first.look()] == [1, 0, 0]


def rule(catalog: Catalog, project: str = "digits", silent_after: float | None = None, *bounds: str) -> None:
    with catalog.write() as session:
        set_rule(session, project, silent_after, [parse_bound(bound) for bound in bounds], actor="ada")


def silent_for(catalog: Catalog, seconds: float) -> dict[str, Any]:
    """The columns of a running run whose metrics stand still for so long, by the last look at it."""
    now = catalog.now()
    return {"ended": None, "progressed_at": now - seconds, "look_again": now, "read_at": now}


@pytest.mark.parametrize(("seconds", "count"), [(59.0, 0), (61.0, 1)])
def test_a_run_is_silent_after_its_projects_limit(watched: Catalog, seconds: float, count: int) -> None:
    rule(watched, silent_after=60.0)
    index_run(watched, "a", "running", **silent_for(watched, seconds))
    assert look(watched) == count


def test_a_runs_own_limit_counts_before_its_projects_and_all_others_have_theirs(watched: Catalog) -> None:
    rule(watched, "*", 60.0)
    index_run(watched, "patient", "running", silent_after=3_600.0, **silent_for(watched, 600.0))
    assert look(watched) == 0
    index_run(watched, "hasty", "running", silent_after=30.0, **silent_for(watched, 31.0))
    assert look(watched) == 1
    index_run(watched, "other", "running", project="letters", **silent_for(watched, 61.0))
    assert look(watched) == 1


def test_a_run_without_a_limit_may_be_silent_for_ever(watched: Catalog) -> None:
    index_run(watched, "a", "running", **silent_for(watched, 1e6))
    assert look(watched) == 0


def test_a_server_that_was_down_takes_no_run_for_silent_before_it_has_looked(watched: Catalog) -> None:
    rule(watched, silent_after=60.0)
    columns = silent_for(watched, 3_600.0)
    # The last look was just after the last point; then no server ran for an hour.
    index_run(watched, "a", "running", **{**columns, "read_at": columns["progressed_at"]})
    assert look(watched) == 0


@pytest.mark.parametrize(
    ("changes", "titles"),
    [
        ({"progressed_at": 4e9}, ["digits/a logs again"]),
        ({"status": "finished"}, ["digits/a has finished"]),
        ({"status": "crashed", "ended": 4e9}, ["digits/a crashed after 1.0 min"]),
        ({"lifecycle": "archived"}, []),
    ],
)
def test_the_end_of_a_silence_is_told_as_it_is(
    watched: Catalog, changes: dict[str, Any], titles: list[str]
) -> None:
    rule(watched, silent_after=60.0)
    columns = silent_for(watched, 61.0)
    index_run(watched, "a", "running", **columns)
    assert look(watched) == 1
    index_run(watched, "a", **{"status": "running", **columns, **changes})
    assert look(watched) == len(titles)
    assert look(watched) == 0
    with watched.read() as session:
        others = session.scalars(select(AlertRow.title).where(AlertRow.event != "silent")).all()
    assert others == titles


def log_value(catalog: Catalog, run: str, metric: str, last: float | None, **ends: float) -> None:
    """Write a metric's value as the index does."""
    with catalog.write() as session:
        number = session.scalar(select(RunRow.id).where(RunRow.run == run))
        name = session.scalars(select(RunNameRow).where(RunNameRow.name == metric)).one_or_none()
        if name is None:
            name = RunNameRow(kind="metrics", name=metric)
            session.add(name)
            session.flush()
        row = RunValueRow(name_id=name.id, run_id=number, type=0, number=last)
        row.min = ends.get("low", last)
        row.max = ends.get("high", last)
        session.merge(row)


@pytest.mark.parametrize(
    ("bound", "low", "high", "count"),
    [
        ("acc < 0.1", 0.05, 0.9, 1),
        ("acc < 0.1", 0.1, 0.9, 0),
        ("acc > 0.8", 0.2, 0.9, 1),
        ("acc > 0.9", 0.2, 0.9, 0),
        ("other > 0", 0.2, 0.9, 0),
    ],
)
def test_a_metric_that_passed_its_bound_is_told_once(
    watched: Catalog, bound: str, low: float, high: float, count: int
) -> None:
    rule(watched, "digits", None, bound)
    index_run(watched, "a", "running", ended=None)
    log_value(watched, "a", "acc", 0.5, low=low, high=high)
    assert look(watched) == count
    index_run(watched, "a", "running", ended=None, attempt=2)  # the resume repeats what was logged
    assert look(watched) == 0


@pytest.mark.parametrize(
    ("metric", "last", "count"),
    [
        ("loss", None, 1),
        ("train/loss", float("inf"), 1),
        ("val_loss", None, 1),
        ("loss", 0.5, 0),
        ("best_f1", None, 0),
        ("losses_seen", None, 0),
    ],
)
def test_a_loss_that_is_no_finite_number_has_diverged(
    watched: Catalog, metric: str, last: float | None, count: int
) -> None:
    index_run(watched, "a", "running", ended=None)
    log_value(watched, "a", metric, last, low=0.1, high=0.9)
    assert look(watched) == count
    assert look(watched) == 0


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("acc", "METRIC > VALUE"),
        ("acc > x", "METRIC > VALUE"),
        (" > 1", "name of a metric"),
        ("a > nan", "finite"),
    ],
)
def test_a_wrong_bound_is_refused_with_what_is_accepted(text: str, reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        parse_bound(text)


def test_a_budget_is_told_at_80_and_at_100_percent_once_a_month(
    watched: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = [79.9]
    monkeypatch.setattr("resources.tenancy.gpu_hours.gpu_hours_used", lambda *_: used[0])
    with watched.write() as session:
        session.add(
            ProjectRow(
                name="digits", owners=[], weight=1.0, former_names=[], gpu_hours=100.0, created_at=utcnow()
            )
        )
    assert look(watched) == 0
    counts = []
    for hours in (80.0, 95.0, 100.0, 120.0):
        used[0] = hours
        counts.append(look(watched))
    assert counts == [1, 0, 1, 0]


def test_a_crash_is_told_after_a_restored_catalog_counts_its_index_from_zero(watched: Catalog) -> None:
    for number in range(5):
        index_run(watched, f"r{number}", "finished")
    look(watched)
    with watched.write() as session:
        session.execute(update(RunIndexRow).values(revision=0))
        session.execute(delete(RunRow))
    index_run(watched, "a", "crashed")
    assert look(watched) == 1
    index_run(watched, "b", "crashed")
    assert look(watched) == 1


def test_a_run_that_was_only_not_reached_is_told_when_it_crashes(watched: Catalog) -> None:
    index_run(watched, "a", "unfinished", ended=None, seconds=60.0)
    assert look(watched) == 1
    index_run(watched, "a", "running", ended=None, seconds=90.0)
    assert look(watched) == 1
    index_run(watched, "a", "crashed", seconds=100.0)
    assert look(watched) == 1
    index_run(watched, "a", "crashed", seconds=101.0)
    assert look(watched) == 0


def test_more_values_beyond_a_bound_than_a_query_takes_are_told_once(watched: Catalog) -> None:
    with watched.write() as session:
        set_rule(session, "digits", None, [parse_bound("x > 1")], actor="ada")
        session.add(RunNameRow(id=900, kind="metrics", name="x"))
        session.execute(update(RunIndexRow).values(revision=RunIndexRow.revision + 1))
        revision = session.scalars(select(RunIndexRow.revision)).one()
        common = {"project": "digits", "status": "running", "lifecycle": "active", "started": 1.0}
        common |= {"attempt": 1, "look_again": 1e12, "signature": "s", "revision": revision}
        session.add_all(RunRow(id=number, run=f"r{number}", **common) for number in range(1, 1_201))
        session.flush()
        session.add_all(
            RunValueRow(name_id=900, run_id=number, type=0, number=2.0, max=2.0) for number in range(1, 1_201)
        )
    assert look(watched) == 1_200
    assert look(watched) == 0


def test_a_channel_of_a_project_gets_what_it_is_told_under_its_other_name(watched: Catalog) -> None:
    with watched.write() as session:
        add_channel(session, "old", "slack", "https://hooks.example.com/a", actor="ada", projects=["mnist"])
        row = ProjectRow(name="digits", owners=[], weight=1.0, former_names=["mnist"], created_at=utcnow())
        session.add(row)
    index_run(watched, "a", "crashed")
    look(watched)
    with watched.read() as session:
        assert set(session.scalars(select(AlertDeliveryRow.channel))) == {"hook", "old"}
