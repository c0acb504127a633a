"""S3 is away while checkpoints are written beside training; the server is real, behind a closed gate."""

import secrets
from collections.abc import Callable, Iterator

import pytest

from halving import Store
from halving.checkpoints.sharded.saver import AsyncSaver
from halving.distributed.ranks import ALONE
from halving.records.run_record import RunRecords
from halving.store.deadline import Deadline
from tests.s3 import S3, Gate
from tests.sdk.checkpoints.sharded.savers import epoch, saved_values, wait_until_it_waits

pytestmark = pytest.mark.usefixtures("every_save")


@pytest.fixture
def saver(s3: S3, s3_gate: Gate) -> Iterator[AsyncSaver]:
    store = Store(s3.root(secrets.token_hex(6), endpoint=s3_gate.endpoint))
    records = RunRecords(store, "p", "r")
    records.start({}, {}, 1, {})
    saver = AsyncSaver(store, records, lambda: True, Deadline(), ALONE)
    yield saver
    saver.close()


@pytest.mark.parametrize(
    "shut", [pytest.param(Gate.shut, id="refused"), pytest.param(Gate.swallow, id="silent")]
)
@pytest.mark.filterwarnings("ignore:halving. a checkpoint waits for the store:UserWarning")
def test_the_newest_best_epoch_is_stored_when_s3_is_back_and_none_waits_for_it(
    saver: AsyncSaver, s3_gate: Gate, shut: Callable[[Gate], None]
) -> None:
    epoch(saver, 1)
    saver.drain(60)
    shut(s3_gate)
    epoch(saver, 2, best=True)
    wait_until_it_waits(saver)
    epoch(saver, 3)
    epoch(saver, 4, best=True)
    epoch(saver, 5)  # nobody has waited for S3, which is back only now
    s3_gate.open()
    saver.drain(120)
    assert saved_values(saver) == [(1, 1.0), (4, 4.0)]
