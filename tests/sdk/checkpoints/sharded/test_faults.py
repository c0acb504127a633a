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
from halving.store.deadline import Deadline
from halving.trial.context import ObjectiveRule
from tests.gangs import run_gang
from tests.sdk.conftest import save_always
from tests.sdk.run.runs import Grants, trial
from tests.waiting import wait_for

pytestmark = pytest.mark.slow


def open_run(root: Path, ranks: Ranks, attempt: int, granted: int = 9) -> Run:
    return trial(Store(root), Grants(granted), attempt, ranks=ranks)


def land(run: Run) -> None:
    """Wait for what is written beside training."""
    if not run.rank:
        run._saver.drain(60)


class Big(nn.Module):
    """Each of its two tensors is written by another rank, where there are two."""

    def __init__(self) -> None:
        super().__init__()
        self.left = nn.Parameter(torch.zeros(50_000))
        self.right = nn.Parameter(torch.zeros(50_000))

    def at(self, epoch: int) -> "Big":
        with torch.no_grad():
            self.left.fill_(epoch)
            self.right.fill_(-epoch)
        return self


@contextmanager
def each_save(before_own_part: Callable[[int], None] = lambda save: None) -> Iterator[None]:
    """Let every ``run.save`` write a checkpoint, and call ``before_own_part`` before this rank's part.

    It is called with the number of the save, in its thread.
    """
    write = StoreWriter.write_data
    saves = iter(range(1, 100))

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
        run = open_run(root, ranks, 1)
        model = Big()
        for epoch in run.epochs():
            land(run)
            run.report(score=float(epoch))
            with suppress(RuntimeError) if epoch == 3 else nullcontext():
                # rank 0 notices that the other is gone, or not yet
                run.save(model=model.at(epoch), epoch=epoch)
            if epoch == 3:
                threading.Event().wait() if ranks.rank else land(run)
                return run.checkpoint and run.checkpoint.epoch
    return None


def resume(ranks: Ranks, root: Path) -> Any:
    run = open_run(root, ranks, 2)
    model = Big()
    restored = run.restore(model=model, epoch=None)
    return run.epoch, restored["epoch"], model.left.unique().tolist(), model.right.unique().tolist()


def test_a_rank_killed_during_a_save_leaves_the_checkpoint_before_it_whole(
    tmp_path: Path,
) -> None:
    root = tmp_path / "store"
    assert run_gang(2, killed_in_the_third_save, root, killed=1) == [2, None]
    assert run_gang(2, resume, root) == [(2, 2, [2.0], [-2.0])] * 2


def without_the_store_in_the_second_save(ranks: Ranks, root: Path) -> int:
    def away(save: int) -> None:
        if save == 2 and ranks.rank == 1:  # rank 0 reaches it
            raise StoreUnavailable("curlCode: 28, Timeout was reached")

    with (
        each_save(away),
        pytest.warns(UserWarning, match="rank 1: curlCode: 28") if not ranks.rank else nullcontext(),
    ):
        run = open_run(root, ranks, 1, granted=4)
        model = Big()
        for epoch in run.epochs():
            land(run)
            run.report(score=float(epoch))
            run.save(model=model.at(epoch))
        run.finish()
    return run.epoch


def test_where_the_store_is_away_during_a_save_all_ranks_skip_it_and_go_on(tmp_path: Path) -> None:
    root = tmp_path / "store"
    assert run_gang(2, without_the_store_in_the_second_save, root) == [4, 4]
    history = RunRecords(Store(root), "p", "s.0001").checkpoints()
    assert [save_model.epoch for save_model in history] == [1, 3, 4]
    model = Big()
    restore(Store(root), history[-1].digest, {"model": model})
    assert model.right.unique().tolist() == [-4.0]


class Away:
    """The store as rank 1 sees it: away, for as long as is said."""

    def __init__(self) -> None:
        self.lasts: Callable[[], bool] = lambda: False

    def check(self, _: int) -> None:
        if self.lasts():
            raise StoreUnavailable("curlCode: 28, Timeout was reached")

    def begin(self, run: Run, lasts: Callable[[], bool]) -> None:
        """On rank 1 alone."""
        if run.rank:
            self.lasts = lasts

    def wait_until_noticed(self, run: Run) -> None:
        if run.rank:
            wait_for(
                lambda: run._part._flight is not None and run._part._flight.waits,
                60,
                "rank 1 waits for the store",
                every=0.01,
            )


BEST = {"objectives": (ObjectiveRule("score", maximize=True, summary="best"),)}


def with_two_best_epochs_while_the_store_is_away(ranks: Ranks, root: Path) -> int:
    away = Away()
    scores = {1: 0.1, 2: 0.2, 3: 0.3, 4: 0.0}
    with each_save(away.check):
        run = trial(Store(root), Grants(4), 1, ranks=ranks, **BEST)
        model = Big()
        for epoch in run.epochs():
            if epoch in (2, 4):
                land(run)
            run.report(score=scores[epoch])  # all ranks have landed
            if epoch == 2:
                away.begin(run, lambda: True)
            run.save(model=model.at(epoch))
            if epoch in (2, 3):
                away.wait_until_noticed(run)  # the better epoch's save does not wait for the store
            if epoch == 3:
                away.begin(run, lambda: False)
        run.finish()
    return run.epoch


@pytest.mark.filterwarnings("ignore:halving. a checkpoint waits for the store:UserWarning")
def test_the_newest_best_epoch_is_stored_when_the_store_is_back_for_all_ranks(tmp_path: Path) -> None:
    root = tmp_path / "store"
    assert run_gang(2, with_two_best_epochs_while_the_store_is_away, root) == [4, 4]
    history = RunRecords(Store(root), "p", "s.0001").checkpoints()
    assert [save_model.epoch for save_model in history] == [1, 3, 4]
    assert history[-1].tallies is not None
    assert history[-1].tallies["best_checkpoint"] == history[1].digest
    model = Big()
    restore(Store(root), history[1].digest, {"model": model})
    assert (model.left.unique().tolist(), model.right.unique().tolist()) == ([3.0], [-3.0])


def with_a_best_epoch_known_after_its_save_failed(ranks: Ranks, root: Path) -> int:
    away = Away()
    scores = {1: 0.1, 2: 0.2, 3: 0.0}

    def give_up(run: Run) -> None:
        if run.rank:
            wait_for(
                lambda: run._part._flight is not None and run._part._flight._has_given_up,
                60,
                "rank 1 gives up",
                every=0.01,
            )

    with each_save(away.check):
        run = trial(Store(root), Grants(3), 1, ranks=ranks, **BEST)
        model = Big()
        for epoch in run.epochs():
            if epoch == 2:
                land(run)
                ranks.barrier("all have landed")
                away.begin(run, lambda: True)
            if epoch == 3:
                away.wait_until_noticed(run)
                away.begin(run, lambda: False)
            run.save(model=model.at(epoch))
            if epoch == 2:
                give_up(run)
            run.report(score=scores[epoch])
        run.finish()
    return run.epoch


@pytest.mark.filterwarnings("ignore:halving. a checkpoint:UserWarning")
def test_an_epoch_that_proves_best_after_its_save_failed_is_written_again(
    tmp_path: Path,
) -> None:
    root = tmp_path / "store"
    assert run_gang(2, with_a_best_epoch_known_after_its_save_failed, root) == [3, 3]
    history = RunRecords(Store(root), "p", "s.0001").checkpoints()
    assert [save_model.epoch for save_model in history] == [1, 2, 3]
    assert history[-1].tallies is not None
    assert history[-1].tallies["best_checkpoint"] == history[1].digest


def stopped_on_rank_1_while_the_best_epoch_waits(ranks: Ranks, root: Path) -> int | str | None:
    """Its save waits for the one in flight; the exit status."""
    ends = threading.Event()
    model = Big()

    def stop(run: Run) -> None:
        flight = run._part._flight
        ask = run._part.orders
        assert flight is not None
        is_asked = threading.Event()
        run._part.orders = {
            name: (lambda argument, act=act: (is_asked.set(), act(argument))) for name, act in ask.items()
        }

        def act() -> None:
            is_asked.wait(60)
            run.terminate()
            wait_for(lambda: flight.is_recalled, 60, "the older save is given up", every=0.01)

        threading.Thread(target=act, daemon=True).start()

    def train() -> None:
        run = trial(Store(root), Grants(9), 1, ranks=ranks, grace_seconds=600.0, **BEST)
        for epoch in run.epochs():
            run.report(score=float(epoch))
            if epoch == 2 and run.rank:
                stop(run)
            flight = run._part._flight if run.rank else run._saver._flight
            if flight is not None:
                threading.Thread(
                    target=lambda flight=flight: (
                        wait_for(lambda: flight.is_recalled, 60, "recall"),
                        ends.set(),
                    )
                ).start()
            run.save(model=model.at(epoch))

    with each_save(lambda save: ends.wait(60) if save == 1 else None), pytest.raises(SystemExit) as ended:
        train()
    return ended.value.code


def test_a_sigterm_to_one_rank_is_heard_while_the_best_epochs_save_waits(
    tmp_path: Path,
) -> None:
    root = tmp_path / "store"
    assert run_gang(2, stopped_on_rank_1_while_the_best_epoch_waits, root) == [143, 143]
    assert [save_model.epoch for save_model in RunRecords(Store(root), "p", "s.0001").checkpoints()] == [2]


def stopped_while_the_store_is_away(ranks: Ranks, root: Path) -> Any:
    """The exit status after a SIGTERM while rank 1 waits for the store with the best epoch's checkpoint.

    It waits for as long as it may.
    """
    away = Away()
    model = Big()

    def train() -> None:
        run = trial(Store(root), Grants(9), 1, ranks=ranks, grace_seconds=5.0, **BEST)
        for epoch in run.epochs():
            if epoch == 1:
                away.begin(run, lambda: True)
            else:
                run.terminate()
            run.report(score=float(2 - epoch))
            run.save(model=model.at(epoch))
            if epoch == 1:
                away.wait_until_noticed(run)
                waiting = run._part._flight if run.rank else None
                away.begin(run, lambda waiting=waiting: not waiting.is_recalled)

    with each_save(away.check), pytest.raises(SystemExit) as ended:
        train()
    return ended.value.code


@pytest.mark.filterwarnings("ignore:halving. a checkpoint waits for the store:UserWarning")
def test_sigterm_gives_up_a_checkpoint_that_waits_for_the_store_for_the_newest(
    tmp_path: Path,
) -> None:
    root = tmp_path / "store"
    assert run_gang(2, stopped_while_the_store_is_away, root) == [143, 143]
    history = RunRecords(Store(root), "p", "s.0001").checkpoints()
    assert [save_model.epoch for save_model in history] == [2]
    model = Big()
    restore(Store(root), history[-1].digest, {"model": model})
    assert (model.left.unique().tolist(), model.right.unique().tolist()) == ([2.0], [-2.0])


def with_an_odd_value_on_rank_1(ranks: Ranks, root: Path) -> tuple[str, bool]:
    staging = Staging(Store(root), ranks)
    with pytest.raises(InvalidInput) as raised:
        staging.begin({"odd": object() if ranks.rank else 1}, Deadline())
    save = staging.begin({"even": 2}, Deadline())
    save.join()
    return str(raised.value), save.error is None


def test_a_value_that_one_rank_cannot_save_is_one_error_on_all(tmp_path: Path) -> None:
    message = (
        "checkpoint entry 'odd' of type object is not accepted: give an object with state_dict() and "
        "load_state_dict(), or numbers, "
        "strings, bytes, lists, dicts, numpy arrays or tensors"
    )
    assert run_gang(2, with_an_odd_value_on_rank_1, tmp_path / "store") == [
        (f"rank 1: {message}", True),
        (message, True),
    ]


def odd(kind: str) -> torch.Tensor:
    """A tensor that is none of dense numbers."""
    if kind == "quantised":
        return torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8)
    return torch.eye(3).to_sparse() if kind == "sparse" else torch.empty(3, device="meta")


def with_an_odd_tensor(ranks: Ranks, root: Path, kind: str, where: list[int]) -> tuple[str, list[float]]:
    """What saving a model raises that has an odd buffer on some ranks, and what is saved after that."""
    run = open_run(root, ranks, 1)
    model = Big()
    model.register_buffer("mask", odd(kind) if ranks.rank in where else torch.ones(3))
    next(run.epochs())
    with pytest.raises(InvalidInput) as raised:
        run.save(model=model)
    model.mask = torch.ones(3)
    run.report(score=1.0)
    run.save(model=model.at(1))
    run.finish()
    store = Store(root)
    history = run.records.checkpoints() if not ranks.rank else []
    return str(raised.value), [
        restore(store, each.digest, {"model": model})["model"].left[0].item() for each in history
    ]


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor:UserWarning")
@pytest.mark.parametrize("kind", ["sparse", "quantised", "meta"])
def test_a_tensor_that_is_not_dense_is_one_error_on_all_ranks_that_names_it(
    tmp_path: Path, kind: str
) -> None:
    for where in ([1], [0, 1]):
        (own, saved_values), (other, _) = run_gang(
            2, with_an_odd_tensor, tmp_path / f"store-{len(where)}", kind, where
        )
        assert own.removeprefix("rank 1: ") == other.removeprefix("rank 1: ")
        assert (
            f"checkpoint entry 'model.mask' is a tensor of class Tensor, dtype {odd(kind).dtype}, layout "
            f"{odd(kind).layout}"
        ) in own
        assert saved_values == [1.0]


def save_model(ranks: Ranks, root: Path) -> str | None:
    save = Staging(Store(root), ranks).begin({"model": Big().at(3)}, Deadline())
    save.join()
    return save.digest


def restore_refused(ranks: Ranks, root: Path, digest: str) -> tuple[str, list[float], list[float]]:
    """What restoring raises, and the model behind it."""
    model = Big().at(1)
    with pytest.raises(StoreError) as raised:
        restore(Store(root), digest, {"model": model}, ranks=ranks)
    return str(raised.value), model.left.unique().tolist(), model.right.unique().tolist()


@pytest.mark.parametrize("harm", ["absent", "torn"])
def test_a_gone_or_torn_part_is_one_error_on_all_ranks_and_changes_nothing(tmp_path: Path, harm: str) -> None:
    root = tmp_path / "store"
    digest, _ = run_gang(2, save_model, root)
    content = json.loads(Store(root).get_blob(digest))
    blob = content["tensors"]["model.left"]["chunks"][0][2].removeprefix("sha256:")
    path = root / "artifacts" / "sha256" / blob[:2] / blob
    path.unlink() if harm == "absent" else path.write_bytes(path.read_bytes()[:1000])

    (own, *left), (message, *right) = run_gang(2, restore_refused, root, digest)
    assert (left, right) == ([[1.0], [-1.0]],) * 2
    assert blob in own
    assert ("is not complete" if harm == "absent" else "is damaged") in own
    assert own in message or message == own
