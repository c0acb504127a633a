"""A trial whose place is wanted ends its epoch, however long that takes, and goes on later."""

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from resources.execution import watches
from resources.scheduling import leases
from resources.scheduling.sweeps import pause_sweep, stop_sweep
from tests import gangs
from tests.resources.execution.kubernetes.api_server import serve_api
from tests.resources.execution.kubernetes.gang_sweeps import GangSweep, work_with_a_short_lease
from tests.resources.execution.worked_sweeps import Spec, state_of, taking_its_place

pytestmark = pytest.mark.slow
Make = Callable[..., GangSweep]
ENDLESS = """
import time


def train(run):
    for epoch in run.epochs():
        time.sleep(600.0 if epoch == 2 else 0.0)
        run.report(score=0.5)
        run.save(epoch=epoch)
"""
LONG = {"trainable": "tests.trainables:train_through_a_long_epoch"}


@pytest.fixture(autouse=True)
def _quick_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watches, "HEARTBEAT_SECONDS", 0.1)


@pytest.mark.parametrize(
    "resources",
    [{"nodes": 1, "gpus": 0}, {"nodes": 1, "gpus": 2}, {"nodes": 2, "gpus": 1}],
    ids=["one process", "a gang in one pod", "a gang of pods"],
)
def test_an_epoch_longer_than_the_grace_period_is_not_lost_to_an_important_sweep(
    run: Make,
    small_spec: Spec,
    resources: dict[str, int],
) -> None:
    ran = run(**LONG, resources={**resources, "grace_seconds": 0.1})
    take_its_place = taking_its_place(ran, small_spec)

    def once_it_trains() -> None:
        ran.wait_for(ran.records(0).checkpoints)
        take_its_place()

    ran.meanwhile(once_it_trains)
    ran.work()
    row = ran.rows()[0]
    assert (row.status, row.attempt, row.failures, row.preemptions) == ("completed", 2, 0, 0), row.error
    assert [outcome for outcome, _ in ran.attempts()] == ["requeue", "complete"]
    assert state_of(ran)["seen"] == [[1, 1], [2, 1], [3, 2]]
    assert [pod.exitcode for name, pod in ran.cluster.processes.items() if "-a1" in name] == [
        143
    ] * resources["nodes"]
    assert ran.backend.store.names(f"{ran.records(0).folder}/mail/0001") == []


def test_an_impatient_worker_gets_an_asked_back_trial_within_its_grace_period(
    run: Make,
    small_spec: Spec,
    tmp_path: Path,
) -> None:
    (tmp_path / "endless.py").write_text(ENDLESS)
    ran = run(trainable="endless:train", resources={"nodes": 1, "gpus": 0, "grace_seconds": 0.1})
    take_its_place = taking_its_place(ran, small_spec)

    def ask_and_pause() -> None:
        ran.wait_for(ran.records(0).checkpoints)
        take_its_place()
        ran.wait_for(
            lambda: "asked-back.json" in ran.backend.store.names(f"{ran.records(0).folder}/mail/0001")
        )
        pause_sweep(ran.backend.catalog, ran.sweep)
        ran.wait_for(lambda: ran.rows()[0].status == "queued")
        stop_sweep(ran.backend.catalog, ran.sweep)

    ran.meanwhile(ask_and_pause)
    ran.work()
    row = ran.rows()[0]
    assert (row.status, row.attempt, row.failures, row.preemptions) == ("stopped", 1, 0, 0), row.error
    assert [pod.exitcode for pod in ran.cluster.processes.values()] == [-signal.SIGKILL]


def test_a_trial_asked_back_by_a_lost_worker_ends_its_epoch_all_the_same(
    run: Make,
    small_spec: Spec,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kube.yaml"))
    monkeypatch.setattr(leases, "DOUBT_SECONDS", 0.5)
    ran = run(**LONG, resources={"nodes": 1, "gpus": 0})
    take_its_place = taking_its_place(ran, small_spec)
    with serve_api(ran.cluster, tmp_path / "kube.yaml"):
        worker = gangs.start(
            work_with_a_short_lease, ran.backend.store.root, ran.backend.catalog_url, ran.sweep
        )
        ran.wait_for(ran.records(0).checkpoints)
        take_its_place()
        ran.wait_for(
            lambda: "asked-back.json" in ran.backend.store.names(f"{ran.records(0).folder}/mail/0001")
        )
        worker.kill()
        worker.join()
    (pod,) = ran.cluster.processes.values()
    ran.wait_for(lambda: pod.exitcode is not None)
    assert pod.exitcode == 143
    ran.work()
    row = ran.rows()[0]
    assert (row.status, row.attempt, row.failures) == ("completed", 2, 0), row.error
    assert state_of(ran)["seen"] == [[1, 1], [2, 1], [3, 2]]
