"""No two attempts hold one GPU at a time, whoever is killed; the devices are only names here."""

import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import chain

import pytest
from sqlalchemy import select, update
from sqlalchemy.exc import OperationalError

from resources.backend import Backend
from resources.catalog import Catalog, HeldGpuRow, TrialRow
from resources.execution.held_gpus import HeldGpus, is_alive, process_id
from resources.scheduling.assignment import Assignment
from resources.scheduling.leases import DOUBT_SECONDS
from resources.scheduling.scheduler import Scheduler
from resources.scheduling.sweeps import open_sweep
from resources.sweep_spec import SweepSpec
from tests.backends import snapshot_row
from tests.waiting import wait_for

Spec = Callable[..., SweepSpec]
DEVICES = ["GPU-8f1c", "MIG-77aa", "2", "3"]


@pytest.fixture
def other() -> Iterator["subprocess.Popen[bytes]"]:
    """Another worker's process."""
    process = subprocess.Popen(["sleep", "600"])
    yield process
    process.kill()
    process.wait()


def open_scheduler(catalog: Catalog, spec: SweepSpec) -> Scheduler:
    with catalog.write() as session:
        session.merge(snapshot_row("sha256:s"))
    return Scheduler(catalog, open_sweep(catalog, spec, "sha256:s", driver="sensors", commit=None).id)


def hand_out(scheduler: Scheduler) -> Assignment:
    assignment = scheduler.next_work(None)
    assert isinstance(assignment, Assignment)
    return assignment


def hand_to(scheduler: Scheduler, worker: str) -> Assignment:
    assignment = scheduler.next_work(worker)
    assert isinstance(assignment, Assignment)
    return assignment


def lease_ended(catalog: Catalog, of: Assignment, seconds_ago: float) -> None:
    with catalog.write() as session:
        ended = catalog.now() - seconds_ago
        session.execute(
            update(TrialRow)
            .where(TrialRow.sweep == of.sweep, TrialRow.number == of.trial)
            .values(lease_until=ended)
        )


def holders(catalog: Catalog) -> dict[str, int]:
    with catalog.read() as session:
        return {row.device: row.trial for row in session.scalars(select(HeldGpuRow))}


def test_two_that_ask_at_once_get_all_gpus_they_need_or_none_and_share_none(
    any_catalog: str, small_spec: Spec
) -> None:
    with closing(Catalog(any_catalog)) as catalog:
        scheduler = open_scheduler(catalog, small_spec(resources={"gpus": 3}, max_trials=16, concurrency=16))
        attempts = [hand_out(scheduler) for _ in range(8)]
        for pair in zip(attempts[::2], attempts[1::2], strict=True):
            got: dict[int, list[str] | None] = {}
            both = threading.Barrier(2)

            def ask(
                own: Assignment, got: dict[int, list[str] | None] = got, both: threading.Barrier = both
            ) -> None:
                with closing(Catalog(any_catalog)) as theirs:
                    both.wait(60)
                    got[own.trial] = HeldGpus(theirs, DEVICES).take(own, 3)

            threads = [threading.Thread(target=ask, args=(holder,)) for holder in pair]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert sorted(map(str, got.values())) == sorted(["None", str(DEVICES[:3])])
            assert len(holders(catalog)) == 3
            for holder in pair:
                HeldGpus(catalog, DEVICES).give(holder)
            assert holders(catalog) == {}


@pytest.mark.slow
def test_a_killed_workers_gpus_are_free_after_its_lease_whoever_looks_at_its_sweep(
    backend: Backend, small_spec: Spec, other: "subprocess.Popen[bytes]"
) -> None:
    scheduler = open_scheduler(backend.catalog, small_spec(resources={"gpus": 4}))
    killed = hand_to(scheduler, "w")
    next_one = hand_to(scheduler, "another")
    theirs = HeldGpus(backend.catalog, DEVICES, process=process_id(other.pid))
    ours = HeldGpus(backend.catalog, DEVICES)
    assert theirs.take(killed, 4) == DEVICES
    lease_ended(backend.catalog, killed, DOUBT_SECONDS + 1)
    assert ours.take(next_one, 4) is None, "its worker lives, and may only be away from the database"
    lease_ended(backend.catalog, killed, 0.0)
    other.kill()
    wait_for(
        lambda: not is_alive(process_id(other.pid)), 60, "the end of a process that nobody has waited for"
    )
    assert ours.take(next_one, 4) is None, "its trial may still be ending"
    lease_ended(backend.catalog, killed, DOUBT_SECONDS + 1)
    assert ours.take(next_one, 4) == DEVICES


@pytest.mark.slow
def test_gpus_of_an_attempt_that_a_sensor_ended_are_held_until_its_process_is_gone(
    backend: Backend, small_spec: Spec, other: "subprocess.Popen[bytes]"
) -> None:
    scheduler = open_scheduler(backend.catalog, small_spec(resources={"gpus": 4}))
    ended = hand_out(scheduler)
    next_one = hand_out(scheduler)
    assert HeldGpus(backend.catalog, DEVICES, process=process_id(other.pid)).take(ended, 4)
    scheduler.report_failure(ended, "it diverged", None, None)
    ours = HeldGpus(backend.catalog, DEVICES)
    assert ours.take(next_one, 1) is None
    assert HeldGpus(backend.catalog, DEVICES, machine="another").take(next_one, 1) == DEVICES[:1]
    other.kill()
    other.wait()
    assert ours.take(next_one, 1) == DEVICES[:1]


def test_a_number_of_a_process_that_another_has_now_holds_nothing() -> None:
    pid, _, began = process_id(1).partition("/")
    assert is_alive(f"{pid}/{began}")
    assert not is_alive(f"{pid}/{int(began) + 1}")


def test_a_gang_of_one_machine_gets_no_gpu_where_it_cannot_get_all(
    backend: Backend, small_spec: Spec
) -> None:
    scheduler = open_scheduler(
        backend.catalog, small_spec(resources={"gpus": 4, "processes": 2}, concurrency=4)
    )
    small = hand_out(scheduler)
    gang = hand_out(scheduler)
    held = HeldGpus(backend.catalog, [*DEVICES, DEVICES[0]])
    assert held.take(small, 1) == DEVICES[:1]
    assert held.take(gang, 4) is None, "a device that is named twice is one"
    assert set(chain(holders(backend.catalog))) == {DEVICES[0]}


def test_devices_that_could_not_be_given_back_are_before_the_next_ones_are_taken(
    catalog: Catalog, small_spec: Spec, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler = open_scheduler(catalog, small_spec(resources={"gpus": 4}, max_trials=4, concurrency=4))
    first = hand_out(scheduler)
    second = hand_out(scheduler)
    held = HeldGpus(catalog, DEVICES)
    assert held.take(first, 4) == DEVICES

    def unavailable(*_: object) -> None:
        raise OperationalError("DELETE", {}, Exception("no connection"))

    with monkeypatch.context() as away:
        away.setattr("resources.execution.held_gpus.retry_transient", unavailable)
        held.give(first)
    assert set(holders(catalog).values()) == {first.trial}
    assert held.take(second, 4) == DEVICES
    assert set(holders(catalog).values()) == {second.trial}
