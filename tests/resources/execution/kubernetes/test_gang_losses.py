"""A gang that loses a node, or its worker, loses no point, no checkpoint and not its place."""

from collections.abc import Callable
from pathlib import Path

import pytest

from resources.execution.kubernetes import gang_process
from resources.scheduling import leases
from tests import gangs
from tests.resources.execution.kubernetes.api_server import serve_api
from tests.resources.execution.kubernetes.gang_sweeps import GangSweep, steps_of, work_with_a_short_lease

pytestmark = pytest.mark.slow
Make = Callable[..., GangSweep]


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gang_process, "BEAT_LOST_SECONDS", 6.0)


def test_a_trial_that_loses_node_0_goes_on_from_its_checkpoint_and_keeps_its_points(
    run: Make,
) -> None:
    ran = run(trainable="in_image:train_slowly")
    stored = list[int]()

    def lose() -> None:
        lost = ran.training(0)
        stored.extend(ran.wait_for(lambda: len(steps := steps_of(ran, 1)) > 20 and steps))
        ran.cluster.kill_node(lost)

    losing = ran.meanwhile(lose)
    ran.work()
    losing.join(10)
    row = ran.rows()[0]
    assert (row.status, row.attempt, row.failures, row.preemptions) == ("completed", 2, 0, 1), row.error
    (outcome, why), _ = ran.attempts()
    assert outcome == "preempted"
    assert str(why).startswith("node 0 of the gang (ranks 0 to 1): pod halving-")
    assert "has not been heard of for" in str(why)
    kept = steps_of(ran, 1)
    assert kept[: len(stored)] == stored == list(range(1, len(stored) + 1)), (
        "rank 0's points were in the store"
    )
    assert steps_of(ran, 2) == list(range(5, 13)), "the first epoch's four steps were not trained again"
    assert ran.world_sizes() == [4, 4, 4]


def test_a_gang_that_is_not_elastic_waits_for_another_node_in_place_of_a_lost_one(run: Make) -> None:
    ran = run(trainable="in_image:train_slowly")
    waited = list[str]()

    def lose_and_give() -> None:
        lost = ran.training(1)
        ran.cluster.gpus = 2
        ran.cluster.kill_node(lost)
        waited.append(ran.wait_for(lambda: ran.rows()[0].waiting))
        ran.cluster.gpus = 4

    losing = ran.meanwhile(lose_and_give)
    ran.work()
    losing.join(10)
    row = ran.rows()[0]
    assert (row.status, row.attempt, row.failures, row.preemptions) == ("completed", 2, 0, 1), row.error
    assert waited == [
        "1 of the gang's 2 pods cannot start; node 1: Unschedulable: Insufficient nvidia.com/gpu"
    ]
    assert ran.nodes() == [2, 2]
    assert ran.world_sizes() == [4, 4, 4]


def test_a_gang_that_gets_no_other_node_gives_its_place_back_after_a_timeout(run: Make) -> None:
    ran = run(trainable="in_image:train_slowly", resources={"start_timeout_seconds": 5})

    def lose() -> None:
        lost = ran.training(1)
        ran.cluster.gpus = 2
        ran.cluster.kill_node(lost)

    losing = ran.meanwhile(lose)
    ran.work()
    losing.join(10)
    row = ran.rows()[0]
    assert (row.status, row.attempt, row.failures, row.preemptions) == ("failed", 2, 1, 1), row.error
    assert "resources.start_timeout_seconds = 5: Unschedulable: Insufficient nvidia.com/gpu" in str(row.error)
    assert ran.records(0).checkpoints(), "of what it has trained nothing is lost"
    smaller = run(gpus=2, resources={"gpus": 1}).work()
    assert smaller.rows()[0].status == "completed", (
        "the two GPUs that were left, and the turn to form, are free"
    )


def test_the_worker_after_a_lost_one_ends_its_pods_and_repeats_no_step(
    run: Make,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kube.yaml"))
    monkeypatch.setattr(leases, "DOUBT_SECONDS", 0.5)
    ran = run(trainable="in_image:train_slowly", resources={"gpus": 1})
    beside = list[str]()

    def note_older_pods(manifest: dict[str, dict[str, str]]) -> None:
        if "-a2-" in manifest["metadata"]["name"]:
            beside.extend(
                name for name, pod in ran.cluster.processes.items() if "-a1-" in name and pod.is_alive()
            )

    ran.cluster.created = note_older_pods
    with serve_api(ran.cluster, tmp_path / "kube.yaml"):
        worker = gangs.start(
            work_with_a_short_lease, ran.backend.store.root, ran.backend.catalog_url, ran.sweep
        )
        pods = [ran.training(node) for node in range(2)]
        ran.wait_for(lambda: len(steps_of(ran, 1)) > 20)
        worker.kill()
        worker.join()
    assert all(ran.cluster.processes[name].is_alive() for name in pods), "they train without their worker"
    ran.work()
    row = ran.rows()[0]
    assert (row.status, row.attempt, row.failures) == ("completed", 2, 0), row.error
    assert beside == [], "no pod of the lost worker trained beside the new ones"
    assert [ran.cluster.processes[name].exitcode for name in pods] == [143, 143], (
        "they saved a checkpoint and ended"
    )
    first = steps_of(ran, 1)
    second = steps_of(ran, 2)
    assert [*first, *second] == list(range(1, len(first) + len(second) + 1)), (
        "no step was lost or trained again"
    )
    assert ran.world_sizes() == [2, 2, 2]
