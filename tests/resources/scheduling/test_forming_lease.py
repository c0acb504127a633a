"""The lease to form a gang on real databases: one gang has it at a time, and it outlives nobody."""

import threading

import pytest

from resources.backend import Backend
from resources.catalog import Catalog
from resources.scheduling import forming_lease
from resources.scheduling.forming_lease import FormingLease
from resources.scheduling.forming_line import LEASE_SECONDS
from tests.clock import Clock


@pytest.fixture(autouse=True)
def _look_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forming_lease, "_LOOK_SECONDS", 0.0)


def test_of_many_that_ask_at_once_one_forms_and_each_gets_its_turn(either_backend: Backend) -> None:
    forming = [0]
    peak = [0]
    formed = []
    lock = threading.Lock()
    start = threading.Barrier(4)

    def form(gang: str) -> None:
        lease = FormingLease(either_backend.catalog, gang)
        start.wait()
        while not lease.take():
            pass
        with lock:
            forming[0] += 1
            peak[0] = max(peak[0], forming[0])
        assert lease.take(), "it keeps the turn"
        with lock:
            forming[0] -= 1
            formed.append(gang)
        lease.give()

    threads = [threading.Thread(target=form, args=(f"s.000{number}/a1",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert peak == [1]
    assert len(formed) == 4


def test_a_gang_that_cannot_form_gives_its_turn_on_when_others_wait(either_backend: Backend) -> None:
    first, second = (FormingLease(either_backend.catalog, gang, patience=0.0) for gang in ("a/1", "b/1"))
    assert first.take()
    assert first.take(), "nobody waits"
    assert not first.is_wanted()
    assert not second.take()
    assert first.is_wanted()
    assert not first.take(), "its patience is over, and it is last now"
    assert second.take()
    second.give()
    assert first.take()


def test_the_turn_of_a_worker_that_is_lost_ends_though_the_clock_is_set_back(
    either_backend: Backend, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    monkeypatch.setattr(either_backend.catalog, "now", clock)
    dead = FormingLease(either_backend.catalog, "a/1")
    living = FormingLease(either_backend.catalog, "b/1")
    assert dead.take()
    assert not living.take()
    clock.set_back()
    assert not living.is_wanted()
    assert living.take()
    assert not dead.take(), "if it was only asleep it hears of it"


def test_a_process_whose_clock_lags_takes_no_turn_from_a_gang_that_lives(
    either_backend: Backend, lagging: Catalog
) -> None:
    forming = FormingLease(either_backend.catalog, "a/1")
    late = FormingLease(lagging, "b/1")
    assert forming.take()
    assert not late.take()
    assert forming.take()


def test_the_turn_of_a_worker_that_is_lost_ends(
    either_backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = FormingLease(either_backend.catalog, "a/1")
    living = FormingLease(either_backend.catalog, "b/1")
    assert dead.take()
    assert not living.take()
    now = either_backend.catalog.now
    monkeypatch.setattr(either_backend.catalog, "now", lambda: now() + LEASE_SECONDS + 1)
    assert living.take()
    assert not dead.take(), "if it was only asleep it hears of it"
