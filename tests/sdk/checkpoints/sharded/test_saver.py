"""When a gang's checkpoint is begun, waited for and counted; with one rank, whose writing a test holds up."""

import math
import threading
import time
from typing import Any

import pytest
import torch

from halving import Store
from halving.checkpoints.restoring import saved_state
from halving.checkpoints.sharded.saver import AsyncSaver
from halving.distributed.ranks import ALONE
from halving.errors import StoreUnavailable
from halving.records.run_record import RunRecords
from tests.checkpoints import Gate
from tests.waiting import wait_for

pytestmark = pytest.mark.usefixtures("every_save")
AWAY = StoreUnavailable("curlCode: 28, Timeout was reached")


@pytest.fixture
def saver(store: Store) -> AsyncSaver:
    records = RunRecords(store, "p", "r")
    records.start({}, {}, 1, {})
    return AsyncSaver(store, records, lambda: True, lambda: math.inf, ALONE)


def state(value: float) -> dict[str, Any]:
    return {"w": torch.full((3,), value)}


def saved_values(saver: AsyncSaver) -> list[tuple[int, float]]:
    """The epochs and the weights of the checkpoints that count."""
    store = saver._store
    return [(each.epoch, saved_state(store, each.digest)["w"][0].item()) for each in saver._records.checkpoints()]


def blobs(saver: AsyncSaver) -> int:
    return sum(1 for _ in saver._store.files("artifacts"))


def wait_until_it_waits(saver: AsyncSaver) -> None:
    """Until the save in flight has found the store unavailable."""
    wait_for(lambda: saver._flight is not None and saver._flight.waits, 60, "the save waits for the store", every=0.01)


def wait_until_recalled(saver: AsyncSaver) -> None:
    wait_for(lambda: saver._flight is not None and saver._flight.is_recalled, 60, "the save in flight is recalled", every=0.01)


def epoch(saver: AsyncSaver, number: int, *, best: bool = False, needed: bool = False) -> str | None:
    """An epoch's save and end, as the loop over epochs calls them; the name of its checkpoint."""
    saver.forget()
    saver.write_if_available({"w": torch.full((3,), float(number))}, best=best)
    name = saver.settle(needed=needed, best=best)
    saver.count(number, 1, {"score": 0.5}, {"metrics": {}, "best_checkpoint": name if best else None}, needed=needed)
    return name


def test_a_checkpoint_counts_when_it_is_written_and_its_record_names_the_best_by_its_digest(saver: AsyncSaver, gate: Gate) -> None:
    name = epoch(saver, 1, best=True)
    assert (saver.newest, saver.known(name)) == (None, None)  # training goes on
    gate.open.set()
    saver.drain(60)
    assert saver.newest is not None
    assert saver.newest.tallies == {"metrics": {}, "best_checkpoint": saver.newest.digest}
    assert saver.known(name) == saver.newest.digest
    assert (saver.newest.epoch, saver.newest.sharded) == (1, True)


def test_while_one_is_written_none_is_begun_unless_it_is_the_best_or_needed(saver: AsyncSaver, gate: Gate) -> None:
    epoch(saver, 1)
    assert epoch(saver, 2) is None
    assert (saver.interval.saves, saver.interval.skipped) == (1, 1)
    third = threading.Thread(target=epoch, args=(saver, 3), kwargs={"best": True})
    third.start()
    assert saver.interval.saves == 1  # it waits
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
    assert [saved.missed for saved in saver._records.checkpoints()[1:]] == [None], "what is recorded is not told again"


def test_an_epoch_that_does_not_count_leaves_no_record(saver: AsyncSaver, gate: Gate) -> None:
    saver.write_if_available({"w": torch.ones(3)})
    saver.forget()  # it diverged
    gate.open.set()
    saver.drain(60)
    saver.count(1, 1, {}, None, needed=True)
    assert saver._records.checkpoints() == []


@pytest.mark.filterwarnings("ignore:halving. a checkpoint waits for the store:UserWarning")
def test_while_the_store_is_away_no_epoch_waits_and_the_newest_best_one_is_there_when_it_is_back(saver: AsyncSaver, gate: Gate) -> None:
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
    assert saver.known(second) == saver.newest.digest


@pytest.mark.filterwarnings("ignore:halving. a checkpoint:UserWarning")
def test_what_failed_beside_training_is_written_once_more_from_its_copy_where_it_is_needed(saver: AsyncSaver, gate: Gate) -> None:
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
def test_a_second_save_of_an_epoch_takes_the_place_of_the_first_which_is_given_up(saver: AsyncSaver, gate: Gate, is_best: bool) -> None:
    saver.write_if_available(state(1.0))
    second = threading.Thread(target=saver.write_if_available, args=(state(2.0),), kwargs={"best": is_best})
    second.start()
    wait_until_recalled(saver)
    gate.open.set()
    second.join()
    wait_for(lambda: saver._flight is None or saver._flight.ended or is_best, 60, "the first save has ended", every=0.01)
    saver.settle(needed=False, best=is_best)
    saver.count(1, 1, {}, None, needed=False)
    saver.drain(60)
    assert saved_values(saver) == [(1, 2.0)]
    assert blobs(saver) == 3  # the tensor, the random states and the manifest: nothing of the first
    assert saver.interval.saves == 1


def test_under_sigterm_the_older_checkpoint_is_given_up_for_the_newest(store: Store, gate: Gate) -> None:
    records, give_up_at = RunRecords(store, "p", "r"), [math.inf]
    records.start({}, {}, 1, {})
    saver = AsyncSaver(store, records, lambda: True, lambda: give_up_at[0], ALONE)
    epoch(saver, 1)
    give_up_at[0] = time.monotonic() + 500  # half of it is longer than this test waits
    second = threading.Thread(target=epoch, args=(saver, 2), kwargs={"needed": True})
    second.start()
    wait_until_recalled(saver)
    gate.open.set()
    second.join()
    assert saved_values(saver) == [(2, 2.0)]
    assert blobs(saver) == 3


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
