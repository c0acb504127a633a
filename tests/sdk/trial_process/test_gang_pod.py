"""A pod of a gang as a process that knows the store, its mailbox, and the rendezvous store of its trial's
worker.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from torch.distributed import TCPStore

from halving import Store
from halving.records.run_record import RunRecords
from halving.trial import gang
from halving.trial.mailbox import VARIABLE, mail_folder, post_task
from halving.trial_process.pod import Task
from tests.sdk.trial_process.attempts import context, status
from tests.waiting import wait_for

pytestmark = pytest.mark.slow
FOLDER = mail_folder("p", "s.0001", 1)
TRAINABLE = """
import time


def train(run):
    step = run.restore(step=0)["step"]
    for epoch in run.epochs():
        while epoch < 2 or not run.stopping:
            time.sleep(0.02)
            step += 1
            if epoch < 2:
                break
        run.report(score=epoch / 10)
        run.save(step=step)
"""


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture
def pod(tmp_path: Path, store: Store) -> Iterator[tuple[subprocess.Popen[bytes], list[TCPStore]]]:
    """A pod of two ranks that is all of its gang and trains, and the rendezvous store of its worker."""
    (tmp_path / "in_image.py").write_text(TRAINABLE)
    post_task(
        store, FOLDER, Task(context(store), "in_image:train", granted=9, threads=1, processes=2).to_bytes()
    )
    # its server ends with the last reference
    stores = [TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)]
    place = gang.GangPlace("127.0.0.1", stores[0].port, "pod-0")
    env = {
        **os.environ,
        "HALVING_ROOT": store.root,
        VARIABLE: FOLDER,
        gang.VARIABLE: place.to_variable(),
        "HOME": str(tmp_path),
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "halving.trial_process.pod"], env=env, cwd=tmp_path, start_new_session=True
    )
    wait_for(lambda: stores[0].check([gang.here_key("pod-0")]), 120, "the pod")
    stores[0].set(gang.FORMATION, json.dumps(["pod-0"]))
    wait_for(RunRecords(store, "p", "s.0001").checkpoints, 120, "a checkpoint")
    yield process, stores
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def test_a_sigterm_has_all_ranks_save_and_the_worker_hears_of_it(
    store: Store, pod: tuple[subprocess.Popen[bytes], list[TCPStore]]
) -> None:
    process, (worker,) = pod
    process.terminate()
    wait_for(lambda: worker.check([gang.ended_key("pod-0")]), 60, "its end")
    assert gang.end_from_bytes(worker.get(gang.ended_key("pod-0"))) is None
    assert worker.check([gang.signalled_key("pod-0")])
    assert worker.add(gang.beat_key("pod-0"), 0) > 0
    assert process.wait(60) == 143
    assert status(store) == "terminated"


def test_where_the_worker_is_lost_the_ranks_save_and_end(
    store: Store, pod: tuple[subprocess.Popen[bytes], list[TCPStore]]
) -> None:
    process, worker = pod
    worker.clear()
    assert process.wait(120) == 143
    assert status(store) == "terminated"
    assert [saved.epoch for saved in RunRecords(store, "p", "s.0001").checkpoints()][-1] >= 1
