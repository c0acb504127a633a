"""Intents: what is asked for while Dagster is down, and what becomes of it, on every database."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from sqlalchemy import event
from sqlalchemy.orm import Session

from halving.errors import AlreadyExists, NotFound
from resources.backend import Backend
from resources.catalog import IntentRow, SweepRow
from resources.scheduling import intents, training_runs
from resources.scheduling.intents import Became, Launch, Launched
from resources.scheduling.sweeps import open_sweep
from resources.sweep_spec import SweepSpec, stored_spec
from tests.backends import snapshot_row

Spec = Callable[..., SweepSpec]

QUEUED = Launched("r1", True, "")
GONE = Launched("r1", False, "run r1 of Dagster ended as FAILURE: no such column")


@pytest.mark.parametrize(
    ("status", "known_run", "launched", "opened", "expected"),
    [
        ("waiting", None, None, False, Launch()),
        ("waiting", None, QUEUED, False, Became("launched", "r1")),
        ("launched", "r1", QUEUED, False, None),
        ("launched", "r1", Launched("r2", True, ""), False, Became("launched", "r2")),
        ("launched", "r1", None, False, Launch()),
        ("launched", "r1", GONE, False, Became("failed", "r1", GONE.reason)),
        ("waiting", None, GONE, False, Became("failed", "r1", GONE.reason)),
        ("launched", "r1", GONE, True, Became("done", "r1")),
        ("waiting", None, None, True, Became("done", None)),
        ("done", "r1", None, False, None),
        ("failed", "r1", None, False, None),
        ("canceled", None, None, False, None),
    ],
)
def test_an_intent_is_launched_until_it_has_a_run_and_follows_that_run(
    status: str, known_run: str | None, launched: Launched | None, opened: bool, expected: object
) -> None:
    assert intents.next_step(status, known_run, launched, opened=opened) == expected


@pytest.fixture
def backend(either_backend: Backend) -> Backend:
    with either_backend.catalog.write() as session:
        session.add(snapshot_row("sha256:s"))
    return either_backend


def add_intent(backend: Backend, spec: SweepSpec) -> IntentRow:
    with backend.catalog.write() as session:
        return intents.add(session, spec, kind="study", driver="sensors", actor="ada")


def test_an_intent_keeps_its_spec_and_names_the_sweep_that_it_becomes(
    backend: Backend, small_spec: Spec
) -> None:
    spec = small_spec()
    row = add_intent(backend, spec)
    assert stored_spec(row.payload["spec"]).digest == spec.digest
    opened = open_sweep(backend.catalog, spec, "sha256:s", driver="sensors", commit=None, sweep=row.sweep)
    assert opened.id == row.sweep
    assert [(intent.id, is_open) for intent, is_open in intents.list_unsettled(backend.catalog)] == [
        (row.id, True)
    ]


def test_two_intents_of_one_spec_are_two_sweeps_and_one_carried_out_twice_is_one(
    backend: Backend, small_spec: Spec
) -> None:
    spec = small_spec()
    rows = [add_intent(backend, spec), add_intent(backend, spec)]
    for row in [*rows, *rows]:
        open_sweep(backend.catalog, spec, "sha256:s", driver="sensors", commit=None, sweep=row.sweep)
    with backend.catalog.read() as session:
        assert {row.id for row in session.query(SweepRow)} == {row.sweep for row in rows}


def test_a_sweeps_id_that_another_spec_has_is_refused(backend: Backend, small_spec: Spec) -> None:
    opened = open_sweep(
        backend.catalog, small_spec(), "sha256:s", driver="sensors", commit=None, sweep="small-1"
    )
    with pytest.raises(AlreadyExists, match="another spec"):
        open_sweep(
            backend.catalog, small_spec(seed=1), "sha256:s", driver="sensors", commit=None, sweep=opened.id
        )


def test_a_canceled_intent_is_not_begun_and_one_that_is_done_is_not_canceled(
    backend: Backend, small_spec: Spec
) -> None:
    catalog = backend.catalog
    canceled = add_intent(backend, small_spec())
    done = add_intent(backend, small_spec())
    with catalog.write() as session:
        assert intents.cancel(catalog, canceled.id, "ada", session)
    with pytest.raises(intents.IntentCanceled, match="it was canceled by ada"):
        intents.begin(catalog, canceled.id, "r1")
    intents.begin(catalog, done.id, "r2")
    assert intents.become(catalog, done.id, Became(intents.DONE, "r2"))
    with catalog.write() as session:
        assert not intents.cancel(catalog, done.id, "ada", session)
    assert (intents.find(catalog, done.id).status, intents.find(catalog, done.id).run) == ("done", "r2")
    assert intents.list_unsettled(catalog) == []


def test_canceling_takes_no_other_connection_than_that_of_its_transaction(
    backend: Backend, small_spec: Spec
) -> None:
    study = add_intent(backend, small_spec())
    training = add_intent(backend, small_spec(max_trials=1))
    taken: list[object] = []
    with backend.catalog.write() as session:
        # as many of them as there are connections would wait for each other
        event.listen(backend.catalog.engine.pool, "checkout", lambda *arguments: taken.append(arguments))
        assert intents.withdraw(backend.catalog, study.sweep, "ada", session) is not None
        training_runs.cancel(
            backend.catalog, "small", training_runs.first_run(training.sweep), "ada", session
        )
    assert taken == []
    assert [intents.find(backend.catalog, row.id).status for row in (study, training)] == [
        "canceled",
        "canceled",
    ]


def test_a_cancel_after_an_intent_has_begun_leaves_no_sweep_and_no_done_intent(
    backend: Backend, small_spec: Spec
) -> None:
    catalog = backend.catalog
    spec = small_spec()
    row = add_intent(backend, small_spec())

    def opening(within: Session) -> SweepRow:
        return open_sweep(
            catalog, spec, "sha256:s", driver="sensors", commit=None, sweep=row.sweep, within=within
        )

    intents.begin(catalog, row.id, "r1")
    with catalog.write() as session:
        assert intents.cancel(catalog, row.id, "ada", session)
    for _ in range(2):  # a run that was killed is carried out again
        with pytest.raises(intents.IntentCanceled, match="it was canceled by ada"):
            intents.carry_out(catalog, row.id, "r1", opening)
    with catalog.read() as session:
        assert session.query(SweepRow).count() == 0
    assert intents.find(catalog, row.id).status == "canceled"


def test_a_sweep_is_not_opened_where_its_intent_cannot_be_settled(
    backend: Backend, small_spec: Spec, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = backend.catalog
    spec = small_spec()
    row = add_intent(backend, small_spec())

    def opening(within: Session) -> SweepRow:
        return open_sweep(
            catalog, spec, "sha256:s", driver="sensors", commit=None, sweep=row.sweep, within=within
        )

    def die(*_: object) -> bool:
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(intents, "become", die)
        with pytest.raises(SystemExit):
            intents.carry_out(catalog, row.id, "r1", opening)
    with catalog.read() as session:
        assert session.query(SweepRow).count() == 0
    assert intents.carry_out(catalog, row.id, "r1", opening).id == row.sweep
    assert (intents.find(catalog, row.id).status, intents.find(catalog, row.id).run) == ("done", "r1")


def test_an_intent_that_waits_for_long_asks_whether_dagster_runs(backend: Backend, small_spec: Spec) -> None:
    row = add_intent(backend, small_spec())
    assert "every few seconds" in str(intents.waits_for(row, row.created_at + timedelta(seconds=5)))
    assert "is its daemon running" in str(intents.waits_for(row, row.created_at + timedelta(minutes=5)))
    assert "run r1" in str(intents.waits_for(intents.begin(backend.catalog, row.id, "r1"), row.created_at))
    intents.become(backend.catalog, row.id, Became(intents.FAILED, "r1", "no"))
    assert intents.waits_for(intents.find(backend.catalog, row.id), row.created_at) is None


def test_an_unknown_intent_is_named(backend: Backend) -> None:
    with pytest.raises(NotFound, match="no intent '12'"):
        intents.find(backend.catalog, "12")
