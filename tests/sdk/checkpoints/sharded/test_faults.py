"""What a save of a gang survives: each fault is caused in real processes, with a real store."""

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from halving import InvalidInput, Run, Store, StoreError
from halving.checkpoints.restoring import restore
from halving.checkpoints.sharded.save import Staging
from halving.checkpoints.sharded.writer import StoreWriter
from halving.distributed.ranks import Ranks
from halving.errors import StoreUnavailable
from halving.records.run_record import RunRecords
from tests.gangs import run_gang
from tests.sdk.conftest import save_always
from tests.sdk.run.test_run import Grants, trial

pytestmark = pytest.mark.slow
FOREVER = float("inf")


def opened(root: Path, ranks: Ranks, attempt: int, granted: int = 9) -> Run:
    return trial(Store(root), Grants(granted), attempt, ranks=ranks)


def landed(run: Run) -> None:
    """Wait for what is written beside training."""
    if not run.rank:
        run._saver.drain(60)


class Big(nn.Module):
    """Each of its two tensors is written by another rank, where there are two."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Parameter(torch.zeros(50_000)), nn.Parameter(torch.zeros(50_000))

    def at(self, epoch: int) -> "Big":
        with torch.no_grad():
            self.left.fill_(epoch)
            self.right.fill_(-epoch)
        return self


@contextmanager
def each_save(before_own_part: Callable[[int], None] = lambda save: None) -> Iterator[None]:
    """Every ``run.save`` saves; ``before_own_part`` is called with its number, in its thread, before it writes this rank's part."""
    write, saves = StoreWriter.write_data, iter(range(1, 100))

    def write_data(writer: StoreWriter, plan: Any, planner: Any) -> Any:
        before_own_part(next(saves))
        return write(writer, plan, planner)

    with pytest.MonkeyPatch.context() as patch:
        save_always(patch)
        patch.setattr(StoreWriter, "write_data", write_data)
        yield


def killed_in_the_third_save(ranks: Ranks, root: Path) -> int | None:
    """Rank 1 is; the epoch of rank 0's newest checkpoint."""

    def kill(save: int) -> None:
        if save == 3 and ranks.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)

    with each_save(kill):
        run, model = opened(root, ranks, 1), Big()
        for epoch in run.epochs():
            landed(run)
            run.report(score=float(epoch))
            with suppress(RuntimeError) if epoch == 3 else nullcontext():  # rank 0 notices that the other is gone, or not yet
                run.save(model=model.at(epoch), epoch=epoch)
            if epoch == 3:
                threading.Event().wait() if ranks.rank else landed(run)
                return run.checkpoint and run.checkpoint.epoch
    return None


def resumed(ranks: Ranks, root: Path) -> Any:
    run, model = opened(root, ranks, 2), Big()
    found = run.restore(model=model, epoch=None)
    return run.epoch, found["epoch"], model.left.unique().tolist(), model.right.unique().tolist()


def test_a_rank_that_is_killed_in_the_middle_of_a_save_leaves_the_checkpoint_before_it_whole(tmp_path: Path) -> None:
    root = tmp_path / "store"
    assert run_gang(2, killed_in_the_third_save, root, killed=1) == [2, None]
    assert run_gang(2, resumed, root) == [(2, 2, [2.0], [-2.0])] * 2


def without_the_store_in_the_second_save(ranks: Ranks, root: Path) -> int:
    def away(save: int) -> None:
        if save == 2 and ranks.rank == 1:  # rank 0 reaches it
            raise StoreUnavailable("curlCode: 28, Timeout was reached")

    with each_save(away), pytest.warns(UserWarning, match="rank 1: curlCode: 28") if not ranks.rank else nullcontext():
        run, model = opened(root, ranks, 1, granted=4), Big()
        for epoch in run.epochs():
            landed(run)
            run.report(score=float(epoch))
            run.save(model=model.at(epoch))
        run.finish()
    return run.epoch


def test_where_the_store_is_away_during_a_save_all_ranks_skip_it_and_go_on(tmp_path: Path) -> None:
    root = tmp_path / "store"
    assert run_gang(2, without_the_store_in_the_second_save, root) == [4, 4]
    history = RunRecords(Store(root), "p", "s.0001").checkpoints()
    assert [saved.epoch for saved in history] == [1, 3, 4]
    model = Big()
    restore(Store(root), history[-1].digest, {"model": model})
    assert model.right.unique().tolist() == [-4.0]


def with_an_odd_value_on_rank_1(ranks: Ranks, root: Path) -> tuple[str, bool]:
    staging = Staging(Store(root), ranks)
    with pytest.raises(InvalidInput) as raised:
        staging.begin({"odd": object() if ranks.rank else 1}, lambda: FOREVER)
    save = staging.begin({"even": 2}, lambda: FOREVER)
    save.join()
    return str(raised.value), save.error is None


def test_a_value_that_one_rank_cannot_save_is_one_error_on_all(tmp_path: Path) -> None:
    message = (
        "checkpoint entry 'odd' of type object is not accepted: give an object with state_dict() and load_state_dict(), or numbers, "
        "strings, bytes, lists, dicts, numpy arrays or tensors"
    )
    assert run_gang(2, with_an_odd_value_on_rank_1, tmp_path / "store") == [(f"rank 1: {message}", True), (message, True)]


def saved(ranks: Ranks, root: Path) -> str | None:
    save = Staging(Store(root), ranks).begin({"model": Big().at(3)}, lambda: FOREVER)
    save.join()
    return save.digest


def refused(ranks: Ranks, root: Path, digest: str) -> tuple[str, list[float], list[float]]:
    """What restoring raises, and the model behind it."""
    model = Big().at(1)
    with pytest.raises(StoreError) as raised:
        restore(Store(root), digest, {"model": model}, ranks=ranks)
    return str(raised.value), model.left.unique().tolist(), model.right.unique().tolist()


@pytest.mark.parametrize("harm", ["absent", "torn"])
def test_a_checkpoint_with_a_part_gone_or_torn_is_one_error_on_all_ranks_and_changes_nothing(tmp_path: Path, harm: str) -> None:
    root = tmp_path / "store"
    digest, _ = run_gang(2, saved, root)
    content = json.loads(Store(root).get_blob(digest))
    blob = content["tensors"]["model.left"]["chunks"][0][2].removeprefix("sha256:")
    path = root / "artifacts" / "sha256" / blob[:2] / blob
    path.unlink() if harm == "absent" else path.write_bytes(path.read_bytes()[:1000])

    (own, *left), (told, *right) = run_gang(2, refused, root, digest)
    assert (left, right) == ([[1.0], [-1.0]],) * 2
    assert blob in own
    assert ("is not complete" if harm == "absent" else "is damaged") in own
    assert own in told or told == own
