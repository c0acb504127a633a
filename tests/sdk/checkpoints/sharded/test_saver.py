"""When a gang's checkpoint is begun, waited for and counted; with one rank, whose writing a test holds up."""

import math
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch

from halving import Store
from halving.checkpoints.sharded.saver import AsyncSaver
from halving.distributed.ranks import ALONE
from halving.errors import StoreUnavailable
from halving.records.run_record import RunRecords
from halving.store.deadline import Deadline
from halving.store.retry import Reach
from tests.checkpoints import Gate
from tests.sdk.checkpoints.sharded.savers import (
    blobs,
    epoch,
    saved_values,
    state,
    wait_until_it_waits,
    wait_until_recalled,
)

pytestmark = pytest.mark.usefixtures("every_save")
AWAY = StoreUnavailable("curlCode: 28, Timeout was reached")


@pytest.fixture
def saver(store: Store) -> AsyncSaver:
    records = RunRecords(store, "p", "r")
    records.start({}, {}, 1, {})
    return AsyncSaver(store, records, lambda: True, Deadline(), ALONE)


def test_a_checkpoint_counts_once_written_and_its_record_names_the_bests_digest(
    saver: AsyncSaver, gate: Gate
) -> None:
    name = epoch(saver, 1, best=True)
    assert (saver.newest, saver.resolve_digest(name)) == (None, None)  # training goes on
    gate.open.set()
    saver.drain(60)
    assert saver.newest is not None
    assert saver.newest.tallies == {"metrics": {}, "best_checkpoint": saver.newest.digest}
    assert saver.resolve_digest(name) == saver.newest.digest
    assert (saver.newest.epoch, saver.newest.sharded) == (1, True)


def test_while_one_is_written_none_is_begun_unless_it_is_the_best_or_needed(
    saver: AsyncSaver, gate: Gate, wait_begun: threading.Event
) -> None:
    epoch(saver, 1)
    assert epoch(saver, 2) is None
    assert (saver.interval.saves, saver.interval.skipped) == (1, 1)
    third = threading.Thread(target=epoch, args=(saver, 3), kwargs={"best": True})
    third.start()
    wait_begun.wait(60)
    assert saver.interval.saves == 1
    gate.open.set()
    third.join()
    digest = epoch(saver, 4, needed=True)
    assert digest is not None
    assert digest.startswith("sha256:")
    assert [saved.epoch for saved in saver._records.checkpoints()] == [1, 3, 4]
    assert saver.newest == saver._records.latest_checkpoint()


def test_what_could_not_be_written_is_told_once_and_the_next_is_due(saver: AsyncSaver, gate: Gate) -> None:
    gate.fault = AWAY
    gate.open.set()
    epoch(saver, 1)
    saver.drain(60)
    gate.fault = None
    with pytest.warns(UserWarning, match="training continues, and.*curlCode: 28"):
        epoch(saver, 2)
    saver.drain(60)
    assert (saver.interval.saves, saver.missed) == (1, None)
    [saved] = saver._records.checkpoints()
    assert saved.epoch == 2
    assert saved.missed is not None
    assert (saved.missed["count"], saved.missed["why"]) == (1, "rank 0: curlCode: 28, Timeout was reached")
    epoch(saver, 3)
    saver.drain(60)
    assert [saved.missed for saved in saver._records.checkpoints()[1:]] == [None], (
        "what is recorded is not told again"
    )


@pytest.mark.filterwarnings("ignore:halving. a checkpoint:UserWarning")
def test_what_was_written_once_more_is_no_miss(saver: AsyncSaver, gate: Gate) -> None:
    gate.fault = AWAY
    gate.open.set()
    saver.write_if_available(state(1.0))  # in a loop of one's own, where it counts at once
    saver.count(0, 1, {}, None, needed=False)
    saver.land(math.inf)
    gate.fault = None
    assert saver.has_uncounted
    saver.settle(needed=True, best=False)
    saver.count(0, 1, {}, None, needed=True)
    assert [saved.missed for saved in saver._records.checkpoints()] == [None]


def test_a_store_that_is_away_is_not_asked_again_before_the_pause_is_over(
    saver: AsyncSaver, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate.open.set()
    saver.write_if_available(state(1.0), best=True)
    save = saver._flight
    slept = list[float]()
    assert save is not None
    save.join()

    class Clock:
        monotonic = staticmethod(lambda: sum(slept))
        sleep = staticmethod(slept.append)

    monkeypatch.setattr("halving.checkpoints.sharded.save.time", Clock)
    assert save._is_back(Reach(saver._store), 5.0)
    assert sum(slept) >= 5.0


def test_an_epoch_that_does_not_count_leaves_no_record(saver: AsyncSaver, gate: Gate) -> None:
    saver.write_if_available({"w": torch.ones(3)})
    saver.forget()  # it diverged
    gate.open.set()
    saver.drain(60)
    saver.count(1, 1, {}, None, needed=True)
    assert saver._records.checkpoints() == []


@pytest.mark.filterwarnings("ignore:halving. a checkpoint waits for the store:UserWarning")
def test_while_the_store_is_away_no_epoch_waits_and_the_best_one_is_stored_later(
    saver: AsyncSaver, gate: Gate
) -> None:
    gate.open.set()
    gate.fault = AWAY
    epoch(saver, 1, best=True)
    wait_until_it_waits(saver)
    epoch(saver, 2)
    second = epoch(saver, 3, best=True)  # nobody waits for the store, which is back only now
    gate.fault = None
    saver.drain(60)
    assert saved_values(saver) == [(3, 3.0)]
    assert saver.newest is not None
    assert saver.resolve_digest(second) == saver.newest.digest


@pytest.mark.filterwarnings("ignore:halving. a checkpoint:UserWarning")
def test_a_save_that_failed_beside_training_is_retried_from_its_copy_if_needed(
    saver: AsyncSaver, gate: Gate
) -> None:
    gate.open.set()
    gate.fault = AWAY
    weights = state(1.0)
    saver.write_if_available(weights)
    saver.drain(60)
    weights["w"].fill_(-1.0)  # training has gone on
    gate.fault = None
    assert str(saver.settle(needed=True, best=False)).startswith("sha256:")
    saver.count(1, 1, {}, None, needed=True)
    assert saved_values(saver) == [(1, 1.0)]
    assert saver.interval.saves == 1


@pytest.mark.parametrize("is_best", [False, True])
def test_a_second_save_of_an_epoch_takes_the_place_of_the_first_which_is_given_up(
    saver: AsyncSaver, gate: Gate, is_best: bool
) -> None:
    saver.write_if_available(state(1.0))
    second = threading.Thread(target=saver.write_if_available, args=(state(2.0),), kwargs={"best": is_best})
    second.start()
    wait_until_recalled(saver)
    gate.open.set()
    second.join()
    assert saver.interval.skipped == 0  # it has waited for the one blob that was being sent
    saver.settle(needed=False, best=is_best)
    saver.count(1, 1, {}, None, needed=False)
    saver.drain(60)
    assert saved_values(saver) == [(1, 2.0)]
    assert blobs(saver) == 3  # the tensor, the random states and the manifest: nothing of the first
    assert saver.interval.saves == 1


class Stopped:
    """A run that a SIGTERM may come to; its clock is the test's."""

    def __init__(
        self, store: Store, monkeypatch: pytest.MonkeyPatch, flush: Callable[[], bool] = lambda: True
    ) -> None:
        self.now = time.monotonic()
        self.deadline = Deadline()
        records = RunRecords(store, "p", "r")
        records.start({}, {}, 1, {})
        self.saver = AsyncSaver(store, records, flush, self.deadline, ALONE)
        clock = SimpleNamespace(monotonic=lambda: self.now)
        monkeypatch.setattr("halving.store.deadline.time", clock)

    def stop(self, grace: float) -> None:
        self.deadline.move_to(self.now + grace)


@pytest.fixture
def stopping(store: Store, monkeypatch: pytest.MonkeyPatch) -> Stopped:
    return Stopped(store, monkeypatch)


def test_under_sigterm_the_older_checkpoint_is_given_up_for_the_newest(stopping: Stopped, gate: Gate) -> None:
    saver = stopping.saver
    epoch(saver, 1)
    stopping.stop(grace=500.0)
    second = threading.Thread(target=epoch, args=(saver, 2), kwargs={"needed": True})
    second.start()
    wait_until_recalled(saver)
    gate.open.set()
    second.join()
    assert saved_values(saver) == [(2, 2.0)]
    assert blobs(saver) == 3


@pytest.mark.parametrize("is_known_at_once", [True, False], ids=["report, save", "save, report"])
@pytest.mark.parametrize("is_in_time", [True, False])
def test_under_sigterm_the_best_epochs_has_half_of_the_time(
    stopping: Stopped, gate: Gate, wait_begun: threading.Event, is_known_at_once: bool, is_in_time: bool
) -> None:
    saver = stopping.saver
    saver.write_if_available(state(1.0), best=is_known_at_once)
    saver.settle(needed=False, best=True)
    saver.count(1, 1, {}, None, needed=False)
    stopping.stop(grace=500.0)
    second = threading.Thread(target=epoch, args=(saver, 2), kwargs={"needed": True})
    second.start()
    wait_begun.wait(60)
    if not is_in_time:
        stopping.now += 251
        wait_until_recalled(saver)
    gate.open.set()
    second.join()
    assert saved_values(saver) == ([(1, 1.0), (2, 2.0)] if is_in_time else [(2, 2.0)])


def test_a_sigterm_ends_the_wait_of_the_best_epochs_save_for_the_one_in_flight(
    stopping: Stopped, gate: Gate, wait_begun: threading.Event
) -> None:
    saver = stopping.saver
    epoch(saver, 1)
    second = threading.Thread(target=epoch, args=(saver, 2), kwargs={"best": True})
    second.start()
    wait_begun.wait(60)
    stopping.stop(grace=500.0)
    wait_until_recalled(saver)
    gate.open.set()
    second.join()
    saver.drain(60)
    assert saved_values(saver) == [(2, 2.0)]


class HeldPoints:
    """The points of the run, which a record's thread does not bring to the store before it may."""

    def __init__(self) -> None:
        self.may = threading.Event()
        self.is_trying = threading.Event()

    def flush(self) -> bool:
        if threading.current_thread().name == "halving-checkpoint-record":
            self.is_trying.set()
            self.may.wait(60)
        return True


def test_a_needed_record_comes_after_the_earlier_ones(
    store: Store, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    points = HeldPoints()
    saver = Stopped(store, monkeypatch, points.flush).saver
    gate.open.set()
    epoch(saver, 1)
    points.is_trying.wait(60)
    publishing = saver._publishing
    published = list[int]()
    add = saver._records.add_checkpoint
    assert publishing is not None

    def join(seconds: float | None = None) -> None:
        points.may.set()
        threading.Thread.join(publishing, seconds)

    monkeypatch.setattr(publishing, "join", join)
    monkeypatch.setattr(
        saver._records, "add_checkpoint", lambda saved: (published.append(saved.epoch), add(saved))
    )
    epoch(saver, 2, best=True, needed=True)
    points.may.set()
    saver.drain(60)
    assert published == [1, 2]


def test_a_needed_record_that_cannot_wait_is_the_newest_and_knows_the_best_one(
    store: Store, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    points = HeldPoints()
    stopping = Stopped(store, monkeypatch, points.flush)
    saver = stopping.saver
    gate.open.set()
    epoch(saver, 1)
    points.is_trying.wait(60)
    best = epoch(saver, 2, best=True)
    saver.write_if_available(state(3.0), best=True)
    saver._flight.join()  # type: ignore[union-attr]
    stopping.stop(grace=0.0)
    saver.settle(needed=True, best=False)
    saver.count(3, 1, {}, {"metrics": {}, "best_checkpoint": best}, needed=True)
    newest = saver.newest
    assert newest is not None
    assert newest.tallies == {"metrics": {}, "best_checkpoint": saver.resolve_digest(best)}
    assert saver.resolve_digest(best) is not None
    points.may.set()
    saver.drain(60)
    assert saver.newest == newest
    assert saved_values(saver) == [(1, 1.0), (2, 2.0), (3, 3.0)]


@pytest.mark.filterwarnings("ignore:halving. a checkpoint:UserWarning")
@pytest.mark.parametrize("has_failed", [True, False], ids=["has failed", "in flight"])
def test_the_copy_of_an_epoch_that_turns_out_to_be_the_best_waits_for_the_store(
    saver: AsyncSaver, gate: Gate, has_failed: bool
) -> None:
    gate.fault = AWAY
    saver.write_if_available(state(1.0))
    if has_failed:
        gate.open.set()
        saver.drain(60)
    name = saver.settle(needed=False, best=True)
    gate.open.set()
    saver.count(1, 1, {}, {"metrics": {}, "best_checkpoint": name}, needed=False)
    wait_until_it_waits(saver)
    gate.fault = None
    saver.drain(60)
    assert saved_values(saver) == [(1, 1.0)]
    assert saver.newest is not None
    assert saver.resolve_digest(name) == saver.newest.digest
    assert saver.interval.saves == 1


@pytest.mark.filterwarnings("ignore:halving. a checkpoint:UserWarning")
def test_the_best_epochs_record_waits_until_its_points_are_in_the_store(
    store: Store, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter([False, False, True])
    saver = Stopped(store, monkeypatch, lambda: next(answers)).saver
    gate.open.set()
    epoch(saver, 1, best=True)
    saver.drain(60)
    assert saved_values(saver) == [(1, 1.0)]
    assert saver.missed is None


@pytest.mark.filterwarnings("ignore:halving. a checkpoint waits for the store:UserWarning")
def test_a_run_that_is_over_waits_no_longer(saver: AsyncSaver, gate: Gate) -> None:
    gate.open.set()
    gate.fault = AWAY
    epoch(saver, 1, best=True)
    wait_until_it_waits(saver)
    flight = saver._flight
    assert flight is not None
    saver.close()
    assert flight.join(60)
