"""When a gang's checkpoint is begun, waited for and counted; with one rank, whose writing a test holds up."""

import math
import threading

import pytest
import torch

from halving import Store
from halving.checkpoints.sharded.saver import AsyncSaver
from halving.distributed.ranks import ALONE
from halving.errors import StoreUnavailable
from halving.records.run_record import RunRecords
from tests.checkpoints import Gate

pytestmark = pytest.mark.usefixtures("every_save")


@pytest.fixture
def saver(store: Store) -> AsyncSaver:
    records = RunRecords(store, "p", "r")
    records.start({}, {}, 1, {})
    return AsyncSaver(store, records, lambda: True, lambda: math.inf, ALONE)


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
    gate.fault = StoreUnavailable("curlCode: 28, Timeout was reached")
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
