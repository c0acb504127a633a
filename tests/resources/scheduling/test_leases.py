"""Leases that run out: who is lost, who is only late, and why; a repeated report is recorded once."""

import secrets
import time
from collections.abc import Callable
from contextlib import closing

import pytest
from sqlalchemy import select

from halving.trial.messages import ReachedRung
from resources.backend import Backend
from resources.catalog import AttemptRow, Catalog, RungResultRow, SnapshotRow, TrialRow
from resources.scheduling.assignment import Assignment, Superseded
from resources.scheduling.leases import DOUBT_SECONDS, LEASE_SECONDS
from resources.scheduling.loop_scheduler import MAX_LEASE_SECONDS, LoopScheduler
from resources.scheduling.scheduler import Scheduler
from resources.scheduling.sweeps import open_sweep
from resources.scheduling.termination import Termination
from resources.search.decide import Continue, Pause, Requeue, Retry
from resources.sweep_spec import SweepSpec
from tests.backends import snapshot_row
from tests.clock import Clock
from tests.postgres import Postgres

Spec = Callable[..., SweepSpec]


@pytest.fixture
def backend(either_backend: Backend) -> Backend:
    with either_backend.catalog.write() as session:
        session.add(snapshot_row("sha256:s"))
    return either_backend


def open_scheduler(backend: Backend, spec: SweepSpec, clock: Clock, **options: object) -> Scheduler:
    with backend.catalog.read() as session:
        assert session.get(SnapshotRow, "sha256:s")
    return Scheduler(
        backend.catalog,
        open_sweep(backend.catalog, spec, "sha256:s", driver="job", commit=None).id,
        clock,
        **options,
    )  # type: ignore[arg-type]


def work(scheduler: Scheduler, worker: str | None = "pod:1") -> Assignment:
    assignment = scheduler.next_work(worker)
    assert isinstance(assignment, Assignment)
    return assignment


def row_of(backend: Backend, assignment: Assignment) -> TrialRow:
    with backend.catalog.read() as session:
        return session.get_one(TrialRow, (assignment.sweep, assignment.trial))


def attempts(backend: Backend) -> list[tuple[int, int, str | None, str | None]]:
    with backend.catalog.read() as session:
        rows = session.scalars(select(AttemptRow).order_by(AttemptRow.trial, AttemptRow.attempt))
        return [(row.trial, row.attempt, row.outcome, row.error) for row in rows]


def test_after_a_time_without_the_catalog_only_who_is_dead_is_lost(
    backend: Backend, small_spec: Spec, clock: Clock
) -> None:
    scheduler = open_scheduler(backend, small_spec(), clock)
    living = work(scheduler)
    dead = work(scheduler)
    clock.now += 20 * LEASE_SECONDS
    assert scheduler.requeue_lost() == []
    clock.now += DOUBT_SECONDS / 2
    scheduler.heartbeat(living)
    assert scheduler.requeue_lost() == []
    clock.now += DOUBT_SECONDS / 2
    assert [lost.trial for lost in scheduler.requeue_lost()] == [dead.trial]
    scheduler.heartbeat(living)
    with pytest.raises(Superseded):
        scheduler.heartbeat(dead)


def test_a_worker_whose_clock_is_slow_keeps_what_it_renews(
    backend: Backend, small_spec: Spec, clock: Clock
) -> None:
    scheduler = open_scheduler(backend, small_spec(), clock)
    slow = Clock()
    slow.now -= 10 * LEASE_SECONDS
    late = Scheduler(backend.catalog, scheduler.id, slow)
    assignment = work(late)
    for _ in range(10):
        assert scheduler.requeue_lost() == []
        clock.now = clock.now + 3
        slow.now = slow.now + 3
        late.heartbeat(assignment)


def test_a_process_whose_clock_lags_doubts_no_lease_that_holds(
    backend: Backend, lagging: Catalog, small_spec: Spec
) -> None:
    row = open_sweep(backend.catalog, small_spec(), "sha256:s", driver="job", commit=None)
    holds = work(Scheduler(backend.catalog, row.id))
    assert Scheduler(lagging, row.id).requeue_lost() == []
    assert row_of(backend, holds).doubted_until is None


def test_after_the_clock_was_set_back_only_who_is_dead_is_lost_and_as_soon_as_ever(
    backend: Backend, small_spec: Spec, clock: Clock
) -> None:
    scheduler = open_scheduler(backend, small_spec(), clock)
    living = work(scheduler)
    dead = work(scheduler)
    clock.set_back()
    assert scheduler.requeue_lost() == []
    scheduler.heartbeat(living)
    assert row_of(backend, dead).doubted_until == clock.now + DOUBT_SECONDS
    clock.now += DOUBT_SECONDS
    assert [lost.trial for lost in scheduler.requeue_lost()] == [dead.trial]
    scheduler.heartbeat(living)


def test_a_doubt_from_before_the_clock_was_set_back_begins_again(
    backend: Backend, small_spec: Spec, clock: Clock
) -> None:
    scheduler = open_scheduler(backend, small_spec(), clock)
    dead = work(scheduler)
    clock.now += LEASE_SECONDS + 1
    scheduler.requeue_lost()
    clock.set_back()
    assert scheduler.requeue_lost() == []
    assert row_of(backend, dead).doubted_until == clock.now + DOUBT_SECONDS
    clock.now += DOUBT_SECONDS
    again = scheduler.next_work("pod:2")
    assert isinstance(again, Assignment)
    assert (again.trial, again.attempt) == (dead.trial, 2)


def test_who_asks_for_work_looks_at_leases_though_the_clock_was_set_back(
    backend: Backend, small_spec: Spec, clock: Clock
) -> None:
    scheduler = open_scheduler(backend, small_spec(), clock)
    dead = work(scheduler)
    clock.set_back()
    work(scheduler)
    assert row_of(backend, dead).doubted_until == clock.now + DOUBT_SECONDS


def test_a_loops_lease_may_be_as_long_as_the_longest(
    backend: Backend, small_spec: Spec, clock: Clock
) -> None:
    sweep = open_sweep(backend.catalog, small_spec(), "sha256:s", driver="api", commit=None).id
    scheduler = LoopScheduler(backend.catalog, sweep, clock)
    assignment = scheduler.ask("loop", MAX_LEASE_SECONDS, again=False)
    assert isinstance(assignment, Assignment)
    clock.now += DOUBT_SECONDS
    assert scheduler.requeue_lost() == []
    assert row_of(backend, assignment).doubted_until is None
    clock.set_back(3 * MAX_LEASE_SECONDS)
    scheduler.requeue_lost()
    assert row_of(backend, assignment).doubted_until == clock.now + DOUBT_SECONDS


@pytest.mark.parametrize("how", [Scheduler.report_rung, Scheduler.heartbeat], ids=["a report", "a heartbeat"])
def test_a_sign_of_life_ends_the_doubt(
    backend: Backend, small_spec: Spec, clock: Clock, how: Callable[..., object]
) -> None:
    scheduler = open_scheduler(backend, small_spec(max_trials=3), clock)
    for value in (0.1, 0.2):
        scheduler.report_rung(work(scheduler), ReachedRung(1, {"score": value}, "sha256:c"), 1.0)
    assignment = work(scheduler)
    clock.now += LEASE_SECONDS + 1
    scheduler.requeue_lost()
    assert row_of(backend, assignment).doubted_until == clock.now + DOUBT_SECONDS
    if how is Scheduler.report_rung:
        assert isinstance(
            scheduler.report_rung(assignment, ReachedRung(1, {"score": 0.9}, "sha256:c"), 1.0), Continue
        )
    else:
        scheduler.heartbeat(assignment)
    assert row_of(backend, assignment).doubted_until is None


def test_a_lost_attempt_was_preempted_for_the_reason_that_the_lookup_gives(
    backend: Backend, small_spec: Spec, clock: Clock
) -> None:
    workers = []

    def termination_lookup(worker: str) -> Termination | None:
        workers.append(worker)
        return Termination("pod/pod was deleted: spot reclaim", own_fault=False)

    scheduler = open_scheduler(
        backend, small_spec(max_retries=0), clock, termination_lookup=termination_lookup
    )
    assignment = work(scheduler, "pod:1")
    scheduler.requeue_lost()
    assert workers == []
    clock.lose_all(scheduler)
    assert [lost.attempt for lost in scheduler.requeue_lost()] == [1]
    assert workers == ["pod:1"]
    row = row_of(backend, assignment)
    error = "attempt 1 was lost: worker pod:1 stopped sending heartbeats; pod/pod was deleted: spot reclaim"
    assert (row.status, row.failures, row.preemptions, row.error) == ("queued", 0, 1, error)
    assert attempts(backend) == [(0, 1, "preempted", error)]


def test_a_worker_that_ran_out_of_memory_has_crashed(
    backend: Backend, small_spec: Spec, clock: Clock
) -> None:
    scheduler = open_scheduler(
        backend,
        small_spec(max_retries=1),
        clock,
        termination_lookup=lambda _: Termination("OOMKilled: over 2Gi", own_fault=True),
    )
    for outcome in ("retry", "fail"):
        assignment = work(scheduler)
        clock.lose_all(scheduler)
        scheduler.requeue_lost()
        assert attempts(backend)[-1][2] == outcome
    row = row_of(backend, assignment)
    assert (row.status, row.failures, row.preemptions) == ("failed", 2, 0)
    assert str(row.error).endswith("; OOMKilled: over 2Gi")


def test_a_trial_whose_death_nobody_can_tell_goes_on_all_the_same(
    backend: Backend, small_spec: Spec, clock: Clock
) -> None:
    def termination_lookup(worker: str) -> Termination | None:
        raise ConnectionError("the cluster does not answer")

    scheduler = open_scheduler(backend, small_spec(), clock, termination_lookup=termination_lookup)
    assignment = work(scheduler)
    clock.lose_all(scheduler)
    assert [lost.key for lost in scheduler.requeue_lost()] == [assignment.key]


def test_a_reclaimed_worker_gives_its_trial_back_as_preempted(
    backend: Backend, small_spec: Spec, clock: Clock
) -> None:
    scheduler = open_scheduler(backend, small_spec(max_retries=0), clock)
    first = work(scheduler)
    assert isinstance(
        scheduler.report_preemption(first, "the worker's pod was ended by SIGTERM", 2.0), Requeue
    )
    second = work(scheduler)
    scheduler.release(second, 1.0)
    assert [outcome for _, _, outcome, _ in attempts(backend)] == ["preempted", "requeue"]
    assert row_of(backend, second).failures == 0


def test_whatever_a_trial_or_a_cluster_says_can_be_kept(
    backend: Backend, small_spec: Spec, clock: Clock
) -> None:
    said = "\N{BULLET} a name \udcff and NUL \0 in " + "a long trace " * 2000 + "ValueError: \0 boom \udcff"
    termination_lookup = Termination(said, own_fault=False)
    scheduler = open_scheduler(
        backend, small_spec(max_retries=5), clock, termination_lookup=lambda _: termination_lookup
    )
    assignment = work(scheduler)
    scheduler.note_waiting(assignment, said)
    assert str(row_of(backend, assignment).waiting).endswith("ValueError:  boom ?")
    assert [type(scheduler.report_crash(assignment, said, 1.0)) for _ in range(2)] == [Retry, Retry]
    work(scheduler)
    clock.lose_all(scheduler)
    assert len(scheduler.requeue_lost()) == 1
    assert [str(error).endswith("ValueError:  boom ?") for *_, error in attempts(backend)] == [True, True]
    assert [len(str(error)) < 21_000 for *_, error in attempts(backend)] == [True, True]
    assert row_of(backend, assignment).failures == 1


def test_leases_are_by_the_databases_clock(
    postgres: Postgres, small_spec: Spec, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = postgres.database(f"t{secrets.token_hex(6)}")
    with closing(Catalog(url)) as catalog:
        with catalog.write() as session:
            session.add(snapshot_row("sha256:s"))
        sweep = open_sweep(catalog, small_spec(), "sha256:s", driver="job", commit=None).id
        right = time.time
        with monkeypatch.context() as ahead:
            ahead.setattr(time, "time", lambda: right() + 3600)
            with closing(Catalog(url)) as elsewhere:
                assignment = Scheduler(elsewhere, sweep).next_work("pod:1")
        assert isinstance(assignment, Assignment)
        with catalog.read() as session:
            lease = session.get_one(TrialRow, (sweep, assignment.trial)).lease_until
        assert lease is not None
        assert abs(lease - LEASE_SECONDS - right()) < 30


def test_why_a_pod_has_not_started_is_kept_until_its_attempt_is_claimed_or_ends(
    backend: Backend, small_spec: Spec, clock: Clock
) -> None:
    scheduler = open_scheduler(backend, small_spec(), clock)
    assignment = work(scheduler, None)
    scheduler.note_waiting(
        assignment, "0/1 nodes are available: 1 Insufficient nvidia.com/gpu.", unclaimed=True
    )
    assert row_of(backend, assignment).waiting == "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."
    claimed = scheduler.claim(assignment.trial, "pod:1")
    assert row_of(backend, assignment).waiting is None
    scheduler.note_waiting(assignment, "what was seen before the claim", unclaimed=True)
    assert row_of(backend, assignment).waiting is None
    scheduler.note_waiting(claimed, "its image is pulled")
    scheduler.heartbeat(claimed)
    assert row_of(backend, assignment).waiting == "its image is pulled"
    scheduler.release(claimed, 1.0)
    assert row_of(backend, assignment).waiting is None
    scheduler.note_waiting(claimed, "too late")
    work(scheduler)
    scheduler.note_waiting(claimed, "of an earlier attempt")
    assert row_of(backend, assignment).waiting is None


def test_what_an_attempt_says_twice_is_recorded_once_and_answered_the_same(
    backend: Backend, small_spec: Spec, clock: Clock
) -> None:
    scheduler = open_scheduler(backend, small_spec(max_trials=3), clock)
    for value in (0.1, 0.2):
        assignment = work(scheduler)
        report = ReachedRung(1, {"score": value}, "sha256:c")
        assert [type(scheduler.report_rung(assignment, report, 1.0)) for _ in range(2)] == [Pause, Pause]
    best = work(scheduler)
    report = ReachedRung(1, {"score": 0.9}, "sha256:c")
    assert [type(scheduler.report_rung(best, report, 1.0)) for _ in range(2)] == [Continue, Continue]
    assert [type(scheduler.report_crash(best, "boom", 1.0)) for _ in range(2)] == [Retry, Retry]
    assert [type(scheduler.report_preemption(work(scheduler), "SIGTERM", 1.0)) for _ in range(1)] == [Requeue]
    with backend.catalog.read() as session:
        assert sorted(
            tuple(row) for row in session.execute(select(RungResultRow.trial, RungResultRow.rung))
        ) == [(0, 0), (1, 0), (2, 0)]
    row = row_of(backend, best)
    assert (row.failures, row.preemptions, row.seconds) == (1, 1, 3.0)
    with pytest.raises(Superseded):
        scheduler.report_crash(best, "another word", 1.0)
