"""A trial's process: what it tells the platform over its pipe, however the trainable behaves."""

import multiprocessing
import os
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from halving import Store
from halving.records.run_record import RunRecords
from halving.trial.messages import Granted, Raised, ReachedRung, ReturnedEarly, Stopped
from halving.trial_process.main import run_trial
from tests.sdk.trial_process.attempts import CHECKOUT, TRAINABLES, checkpoints, context, execute, status


@pytest.mark.usefixtures("every_save")
def test_a_trial_asks_at_each_rung_and_stops_when_nothing_more_is_granted(store: Store) -> None:
    heard = execute(store, "train", 1, Granted(3, complete=False), Granted(3, complete=False))
    digests = checkpoints(store)
    assert heard == [
        ReachedRung(1, {"score": 0.1}, digests[0]),
        ReachedRung(3, {"score": 0.3}, digests[2]),
        Stopped(),
    ]
    assert status(store) == "paused"


def test_a_complete_trial_is_finished_and_not_paused(store: Store) -> None:
    heard = execute(store, "train", 2, Granted(2, complete=True))
    assert heard[1:] == [Stopped()]
    assert status(store) == "finished"


@pytest.mark.usefixtures("every_save")
def test_a_paused_trial_goes_on_in_a_later_process(store: Store) -> None:
    execute(store, "train", 2, Granted(2, complete=False))
    heard = execute(store, "train", 4, Granted(4, complete=True), attempt=2)
    assert heard == [ReachedRung(4, {"score": 0.4}, checkpoints(store)[-1]), Stopped()]
    assert [saved.epoch for saved in RunRecords(store, "p", "s.0001").checkpoints()] == [1, 2, 3, 4]
    assert (status(store, 1), status(store, 2)) == ("paused", "finished")


@pytest.mark.parametrize(
    "trainable", ["return_after_two", "return_at_the_start_of_three", "return_after_reporting_three"]
)
@pytest.mark.usefixtures("every_save")
def test_an_early_return_gives_the_last_complete_epoch_with_its_own_value(
    store: Store, trainable: str
) -> None:
    heard = execute(store, trainable, 9)
    assert heard == [ReturnedEarly(2, {"score": 0.2}, checkpoints(store)[1])]
    assert status(store) == "finished"


@pytest.mark.parametrize("trainable", ["return_at_once", "return_without_saving"])
def test_an_early_return_without_a_complete_epoch_is_final_and_says_what_to_call(
    store: Store, trainable: str
) -> None:
    (raised,) = execute(store, trainable, 4)
    assert isinstance(raised, Raised)
    assert (raised.final, raised.checkpoint) == (True, None)
    assert "returned at epoch 0 of 4 without run.report(score=…) and run.save(…)" in raised.error
    assert status(store) == "failed"


@pytest.mark.usefixtures("every_save")
def test_an_exception_is_reported_with_the_users_line_and_the_last_good_checkpoint(store: Store) -> None:
    (raised,) = execute(store, "fail_in_three", 9)
    assert isinstance(raised, Raised)
    assert (raised.final, raised.checkpoint) == (False, checkpoints(store)[1])
    assert 'raise ValueError("a shape that nobody expected")  # the user\'s line' in raised.error
    assert "in fail_in_three" in raised.error
    assert raised.error.endswith("ValueError: a shape that nobody expected")
    assert "run_trial" not in raised.error
    assert status(store) == "failed"


def test_the_last_line_of_an_error_of_a_callback_says_what_happened_and_not_where(store: Store) -> None:
    (raised,) = execute(store, "lose_another_rank", 2)
    assert isinstance(raised, Raised)
    assert "in lose_another_rank" in raised.error
    assert raised.error.endswith("\nRuntimeError: Got the following error: Connection closed by peer")


@pytest.mark.parametrize(
    ("trainable", "error"),
    [
        ("diverge_in_two", "Diverged: objective 'score' became nan at epoch 2"),
        (
            "report_something_else",
            "ObjectiveMissing: objective 'score' was not reported in epoch 2: it reported ['loss']",
        ),
        ("never_save", "CheckpointMissing: epoch 2 ends a rung and has no checkpoint"),
        ("save_a_lock", "InvalidInput: checkpoint entry 'lock' of type object is not accepted"),
        (
            "there.is.no:module",
            "InvalidInput: trainable = 'there.is.no:module' is not accepted: there is no module 'there'",
        ),
        (
            "halving.trial_process.main:nothing",
            (
                "InvalidInput: trainable = 'halving.trial_process.main:nothing' is not accepted: "
                "halving.trial_process.main has no function"
            ),
        ),
    ],
)
def test_what_would_only_happen_again_is_final(store: Store, trainable: str, error: str) -> None:
    (raised,) = execute(store, trainable, 2)
    assert isinstance(raised, Raised)
    assert raised.final
    assert error in raised.error


@pytest.mark.parametrize(
    ("trainable", "error"),
    [
        ("evaluate_more_than_fits_numpy", "MemoryError: Unable to allocate"),
        ("evaluate_more_than_fits_torch", "DefaultCPUAllocator: "),
        ("evaluate_more_than_fits_a_gpu", "OutOfMemoryError: CUDA out of memory"),
    ],
)
def test_a_trainable_out_of_memory_is_not_tried_again_and_its_rank_is_named(
    store: Store, trainable: str, error: str
) -> None:
    (raised,) = execute(store, trainable, 2)
    assert isinstance(raised, Raised)
    assert raised.final
    assert error in raised.error
    assert "rank 0 ran out of memory: the process had taken" in raised.error.splitlines()[-1]


def test_an_error_whose_message_cannot_be_had_is_told_by_its_class(store: Store) -> None:
    (raised,) = execute(store, "raise_what_cannot_be_said", 2)
    assert isinstance(raised, Raised)
    assert not raised.final
    assert raised.error.splitlines()[-1].endswith("Unsayable: <exception str() failed>")


def test_a_checkpoint_that_lacks_a_name_is_final(store: Store) -> None:
    execute(store, "train", 1, Granted(1, complete=False))
    (raised,) = execute(store, "restore_too_much", 2, attempt=2)
    assert isinstance(raised, Raised)
    assert raised.final
    assert "CheckpointMismatch: the checkpoint has no ['momentum']; it holds ['epoch']" in raised.error


def test_a_diverged_trial_names_its_last_good_checkpoint(store: Store) -> None:
    (raised,) = execute(store, "diverge_in_two", 4)
    assert isinstance(raised, Raised)
    assert raised.checkpoint == checkpoints(store)[0]
    assert len(checkpoints(store)) == 1


def test_an_attempt_that_somebody_else_has_may_be_tried_again(store: Store) -> None:
    execute(store, "train", 1, Granted(1, complete=False))
    (raised,) = execute(store, "train", 1)
    assert isinstance(raised, Raised)
    assert not raised.final
    assert "attempt 1 of run 's.0001' was taken by another process" in raised.error


def test_the_platform_hears_of_an_unavailable_store(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    # without points the end is not waited for
    monkeypatch.setattr("halving.run.system_metrics._FIRST", 3600.0)
    with pytest.warns(UserWarning, match="did not take the end of s.0001"):
        (raised,) = execute(store, "lose_the_store", 2)
    assert isinstance(raised, Raised)
    assert not raised.final
    assert "StoreError: cannot write the blob" in raised.error


@pytest.mark.slow
def test_a_trial_in_a_process_of_its_own_speaks_over_a_real_pipe(store: Store) -> None:
    spawn = multiprocessing.get_context("spawn")
    platform, theirs = spawn.Pipe()
    process = spawn.Process(target=run_trial, args=(context(store), f"{TRAINABLES}:train", 1, theirs, 1))
    process.start()
    theirs.close()
    assert platform.poll(60)
    assert platform.recv().epoch == 1
    platform.send(Granted(2, complete=False))
    assert platform.recv().epoch == 2
    platform.send(Granted(2, complete=True))
    assert platform.recv() == Stopped()
    process.join(60)
    assert process.exitcode == 0
    assert status(store) == "finished"


WORKER = """
import multiprocessing, os, signal, sys
from halving.trial_process.main import run_trial
from halving.trial.messages import Granted
from halving import Store
from tests.sdk.trial_process.attempts import context
if __name__ == "__main__":
    spawn = multiprocessing.get_context("spawn")
    platform, theirs = spawn.Pipe()
    trainable = f"tests.sdk.trial_process.trainables:{sys.argv[2]}"
    arguments = (context(Store(sys.argv[1])), trainable, 3, theirs, 1)
    process = spawn.Process(target=run_trial, args=arguments, daemon=True)
    process.start()
    assert platform.recv().epoch == 3
    platform.send(Granted(9, complete=False))
    print(process.pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
@pytest.mark.parametrize("trainable", ["train_three_and_wait", "train_three_and_raise_with_the_worker"])
def test_a_trial_whose_worker_was_killed_ends_too_and_leaves_its_points(
    store: Store, tmp_path: Path, trainable: str
) -> None:
    (tmp_path / "worker.py").write_text(WORKER)
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    command = [sys.executable, str(tmp_path / "worker.py"), store.root, trainable]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        trial = int(worker.stdout.readline())
    until = time.monotonic() + 60
    while _is_running(trial) and time.monotonic() < until:
        time.sleep(0.02)
    assert not _is_running(trial)
    assert steps(store) == [1, 2, 3]
    assert not store.exists("runs/project=p/s.0001/end-0001.json")


@pytest.mark.slow
@pytest.mark.parametrize("has_answer", [True, False], ids=["waiting for its answer", "before it asks"])
def test_a_trial_whose_worker_hung_up_has_not_failed(store: Store, has_answer: bool) -> None:
    spawn = multiprocessing.get_context("spawn")
    platform, theirs = spawn.Pipe()
    process = spawn.Process(
        target=run_trial, args=(context(store), f"{TRAINABLES}:train_and_handle_all_errors", 3, theirs, 1)
    )
    process.start()
    theirs.close()
    if has_answer:
        assert platform.recv().epoch == 3
    platform.close()
    process.join(60)
    assert process.exitcode == 1
    assert steps(store) == [1, 2, 3]
    assert not store.exists("runs/project=p/s.0001/end-0001.json")


def steps(store: Store) -> list[int]:
    folder = "metrics/project=p/run=s.0001/live"
    rows = [
        row
        for name in store.names(folder)
        for row in pq.ParquetFile(store.path(f"{folder}/{name}")).read().to_pylist()
    ]
    return sorted(row["step"] for row in rows if row["key"] == "step")


def _is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
