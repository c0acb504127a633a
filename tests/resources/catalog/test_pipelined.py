"""Statements that go straight to the driver: what they write, what an error leaves, and how many round trips
they take.
"""

import os
import signal
import threading
from collections.abc import Callable
from contextlib import closing
from typing import Any

import psycopg
import pytest
from sqlalchemy import select, text
from sqlalchemy.exc import DBAPIError, IntegrityError, StatementError

from halving.trial.messages import ReachedRung
from resources.catalog import AttemptRow, Catalog, TrialRow, statements, utcnow
from resources.catalog.pipelined import together, transaction
from resources.scheduling.assignment import Assignment
from resources.scheduling.scheduler import Scheduler
from resources.scheduling.sweeps import open_sweep
from resources.sweep_spec import SweepSpec
from tests.backends import snapshot_row
from tests.cut_line import CutLine
from tests.postgres import Postgres
from tests.waiting import wait_for

Spec = Callable[..., SweepSpec]

TRIAL = {
    "number": 0,
    "status": "running",
    "failures": 0,
    "preemptions": 0,
    "seconds": 0.5,
    "revision": 1,
    "attempt": 1,
}
TRIAL |= {"gpus": 8, "asked_back": False}
PARAMS = {"lr": 1e-3, "name": "naïve 'quoted' %s {}", "layers": [64, None]}


class Interrupted(BaseException):
    """As Dagster's, which a handler of SIGTERM raises wherever the process is."""


def open_small_sweep(catalog: Catalog, spec: Spec) -> str:
    with catalog.write() as session:
        session.add(snapshot_row("sha256:s"))
    return open_sweep(catalog, spec(), "sha256:s", driver="job", commit=None).id


def test_what_is_written_is_what_the_tables_say(catalog: Catalog, small_spec: Spec) -> None:
    sweep = open_small_sweep(catalog, small_spec)
    began = utcnow()
    trial = {"sweep": sweep, **TRIAL, "params": PARAMS, "sampler_attrs": None}
    attempt = {"sweep": sweep, "trial": 0, "attempt": 1, "rung": 0, "worker": "w", "started_at": began}
    ended = {
        "of_sweep": sweep,
        "of_trial": 0,
        "of_attempt": 1,
        "ended_at": began,
        "outcome": "fail",
        "error": "\0" + "x" * 30_000,
        "more_seconds": 2.5,
    }
    with catalog.write() as session:
        bound = [
            (statements.ADD_TRIAL, trial),
            (statements.ADD_ATTEMPT, attempt),
            (statements.CLOSE_ATTEMPT, ended),
        ]
        bound.append((statements.CHANGED_TRIALS, {"of_sweep": sweep, "since": 0}))
        *nothing, (row,) = together(session.connection(), bound)
    assert nothing == [[], [], []]
    assert (row.number, row.params, row.sampler_attrs, row.checkpoint) == (0, PARAMS, None, None)
    with catalog.read() as session:
        (kept,) = session.scalars(select(TrialRow)).all()
        (ended_attempt,) = session.scalars(select(AttemptRow)).all()
    assert (kept.params, kept.sampler_attrs, kept.seconds) == (PARAMS, None, 0.5)
    assert (ended_attempt.started_at, ended_attempt.ended_at, ended_attempt.error) == (
        began,
        began,
        "x" * 20_000,
    )


def test_an_error_amid_them_leaves_nothing_and_the_connection_serves_on(
    catalog: Catalog, small_spec: Spec
) -> None:
    sweep = open_small_sweep(catalog, small_spec)
    adding = (statements.ADD_TRIAL, {"sweep": sweep, **TRIAL, "params": {}, "sampler_attrs": None})

    def write_twice() -> None:
        with transaction(catalog.engine) as connection:
            list(together(connection, [adding, adding], last=True))

    def write_and_think_better() -> None:
        with transaction(catalog.engine) as connection:
            list(together(connection, [adding]))
            raise Interrupted

    def write_in_a_session_and_think_better() -> None:
        with catalog.write() as session:
            session.execute(*adding)
            raise Interrupted

    values = {"of_sweep": sweep, "of_trial": 0}
    for _ in range(2):
        for failing, error in ((write_twice, IntegrityError), (write_and_think_better, Interrupted)):
            with pytest.raises(error):
                failing()
            assert catalog.at_once(statements.STATUS, values) == []
            with pytest.raises(Interrupted):  # what comes next on the same connection is a transaction again
                write_in_a_session_and_think_better()
            assert catalog.at_once(statements.STATUS, values) == []
    with transaction(catalog.engine) as connection:
        list(together(connection, [adding], last=True))
    (stands,) = catalog.at_once(statements.STATUS, values)
    assert (stands.attempt, stands.status) == (1, "running")
    with catalog.write() as session, pytest.raises(IntegrityError):
        session.execute(*adding)


def test_a_connection_that_was_left_in_autocommit_is_mended_before_its_next_use(
    postgres: Postgres, small_spec: Spec
) -> None:
    with closing(Catalog(postgres.database("left"))) as catalog:
        sweep = open_small_sweep(catalog, small_spec)
        with catalog.engine.connect() as connection:
            driver: Any = connection.connection.driver_connection
            driver.autocommit = True

        def write_and_think_better() -> None:
            with catalog.write() as session:
                assert session.connection().connection.driver_connection is driver
                session.execute(
                    statements.ADD_TRIAL, {"sweep": sweep, **TRIAL, "params": {}, "sampler_attrs": None}
                )
                raise Interrupted

        with pytest.raises(Interrupted):
            write_and_think_better()
        assert catalog.at_once(statements.STATUS, {"of_sweep": sweep, "of_trial": 0}) == []


def test_a_transaction_whose_last_is_not_said_is_committed_at_its_end(
    catalog: Catalog, small_spec: Spec
) -> None:
    sweep = open_small_sweep(catalog, small_spec)
    with transaction(catalog.engine) as connection:
        list(
            together(
                connection,
                [(statements.ADD_TRIAL, {"sweep": sweep, **TRIAL, "params": {}, "sampler_attrs": None})],
            )
        )
    (stands,) = catalog.at_once(statements.STATUS, {"of_sweep": sweep, "of_trial": 0})
    assert stands.status == "running"


def test_a_decision_takes_two_round_trips_and_a_heartbeat_one(postgres: Postgres, small_spec: Spec) -> None:
    with closing(CutLine(postgres.database("trips"))) as line, closing(Catalog(line.url)) as catalog:
        scheduler = Scheduler(catalog, open_small_sweep(catalog, small_spec))

        def trips_of(call: Any, *arguments: Any) -> tuple[Any, int]:
            before = line.round_trips
            answer = call(*arguments)
            return answer, line.round_trips - before

        scheduler.next_work("w")  # reads the spec, once
        for _ in range(3):
            assignment, trips = trips_of(scheduler.next_work, "w")
            assert isinstance(assignment, Assignment)
            assert trips == 2, "the look for lost trials is in the first of them"
            assert trips_of(scheduler.heartbeat, assignment)[1] == 1
            report = ReachedRung(assignment.granted, {"score": 0.5}, "sha256:c")
            assert trips_of(scheduler.report_rung, assignment, report, 1.0)[1] == 2

        def decide_nothing() -> None:
            with scheduler._transactions.deciding():
                pass

        assert trips_of(decide_nothing)[1] == 2


def test_an_interruption_while_a_sweep_is_locked_comes_through_for_a_connection(
    postgres: Postgres, small_spec: Spec
) -> None:
    url = postgres.database("interrupted")

    def interrupt(*_: object) -> None:
        raise Interrupted

    def interrupt_who_waits() -> None:
        waiting = (
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type "
            "= 'Lock'"
        )
        with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as looking:
            wait_for(
                lambda: looking.execute(waiting).fetchone() == (1,), 60, "somebody who waits for the lock"
            )
        os.kill(os.getpid(), signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with closing(Catalog(url)) as catalog, closing(Catalog(url)) as other:
            sweep = open_small_sweep(catalog, small_spec)
            scheduler = Scheduler(catalog, sweep)
            first = scheduler.next_work("w")
            with other.write() as session:
                other.sweep(session, sweep, lock=True)
                threading.Thread(target=interrupt_who_waits, daemon=True).start()
                with pytest.raises(Interrupted):
                    scheduler.next_work("w")
            second = scheduler.next_work("w")
            assert isinstance(first, Assignment)
            assert isinstance(second, Assignment)
            assert (first.trial, second.trial) == (0, 1)
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_an_error_while_an_interruption_is_handled_is_an_error(catalog: Catalog) -> None:
    try:
        raise Interrupted
    except Interrupted:
        with pytest.raises(DBAPIError), catalog.write() as session:
            list(together(session.connection(), [(text("SELECT nothing FROM nowhere"), {})]))


def test_a_missing_value_is_named(catalog: Catalog) -> None:
    with pytest.raises((TypeError, StatementError), match="lease_until"), catalog.write() as session:
        list(
            together(
                session.connection(), [(statements.CLAIM, {"of_sweep": "s", "of_trial": 0, "worker": "w"})]
            )
        )
