"""How a gang of pods forms, trains, is asked to end, breaks and grows; its pods are processes."""

import math
import signal
from collections.abc import Callable

import psutil
import pytest
from sqlalchemy import select

from resources.catalog import AttemptRow
from resources.execution.kubernetes import gang_process, gang_rules
from resources.sweep_spec import SweepSpec
from tests.resources.execution.kubernetes.gang_sweeps import GangSweep, steps_of
from tests.resources.execution.worked_sweeps import count_epochs

Spec = Callable[..., SweepSpec]
pytestmark = pytest.mark.slow


def test_a_lost_node_shrinks_an_elastic_gang_which_grows_again_once_there_is_room(
    run: Callable[..., GangSweep], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gang_process, "BEAT_LOST_SECONDS", 6.0)
    monkeypatch.setattr(gang_process, "_PLACE_LOOK_SECONDS", 0.5)
    monkeypatch.setattr(gang_rules, "SETTLE_SECONDS", 1.0)
    monkeypatch.setattr(gang_rules, "GROW_AFTER_SECONDS", 0.0)
    ran = run(trainable="in_image:train_held", elastic={"min_nodes": 1})

    def lose_and_give() -> None:
        lost = ran.training(1)
        ran.cluster.gpus = 2
        ran.cluster.kill_node(lost)
        ran.wait_for(lambda: any(saved.attempt == 2 for saved in ran.records(0).checkpoints()))
        ran.cluster.gpus = 4

    ran.meanwhile(lose_and_give)
    ran.work()
    row = ran.rows()[0]
    assert (row.status, row.attempt, row.failures, row.preemptions) == ("completed", 3, 0, 1), row.error
    (lost, why), (grown, _), (_, _) = ran.attempts()
    assert (lost, grown) == ("preempted", "requeue")
    assert "node 1 of the gang (ranks 2 to 3): pod halving-" in str(why)
    assert "has not been heard of for" in str(why)
    assert ran.world_sizes() == [4, 2, 4]
    assert ran.nodes() == [2, 1, 2], "the ledger counts the nodes that each attempt had"
    steps = ran.state()["steps"]
    of_growth = [step for epoch, step in steps if epoch == 3]
    assert of_growth == list(range(len(of_growth))), "to grow cost no step"


def test_a_killed_rank_ends_its_attempt_and_is_named_and_the_next_gang_leaves_none(
    run: Callable[..., GangSweep],
) -> None:
    ran = run(trainable="in_image:train_slowly", max_retries=1)

    def kill() -> None:
        pod = psutil.Process(ran.cluster.processes[ran.training(1)].pid)
        pod.children()[-1].send_signal(signal.SIGKILL)

    ran.meanwhile(kill)
    ran.work()
    row = ran.rows()[0]
    assert (row.status, row.attempt, row.failures, row.preemptions) == ("completed", 2, 1, 0), row.error
    assert "node 1 of the gang (ranks 2 to 3): rank 3" in str(ran.attempts()[0][1])
    assert "was killed by SIGKILL" in str(ran.attempts()[0][1])
    assert ran.world_sizes() == [4, 4, 4]
    assert count_epochs(ran, 0) == [(epoch, 1) for epoch in (1, 2, 3)]
    assert len(ran.cluster.processes) == 4
    assert not ran.cluster.pods or ran.cluster.deleted >= set(ran.cluster.pods)


def test_a_gang_paused_at_a_rung_goes_on_as_another_one_and_repeats_no_step(
    run: Callable[..., GangSweep],
) -> None:
    asha = {"min_budget": 1, "max_budget": 3, "reduction_factor": 3}
    ran = run(
        trainable="in_image:train_at_once", max_trials=3, strategy={"asha": asha}, resources={"gpus": 1}
    )
    ran.work()
    best, *others = ran.rows()
    assert (best.status, best.attempt, best.failures, best.preemptions) == ("completed", 2, 0, 0), best.error
    assert [other.attempt for other in others] == [1, 1], "it had to wait for them at its first rung"
    with ran.backend.catalog.read() as session:
        attempts = session.scalars(
            select(AttemptRow).where(AttemptRow.trial == 0).order_by(AttemptRow.attempt)
        )
        assert [(attempt.outcome, attempt.nodes) for attempt in attempts] == [("pause", 2), ("complete", 2)]
    assert ran.state()["steps"] == [[epoch, step] for epoch in (1, 2, 3) for step in range(4)]
    assert steps_of(ran, 1) == [1, 2, 3, 4]
    assert steps_of(ran, 2) == list(range(5, 13))
    assert len([name for name in ran.cluster.processes if "-0000-" in name]) == 4, "two gangs of two pods"


def test_a_gang_with_a_pod_that_cannot_start_gives_its_place_back_and_says_why(
    run: Callable[..., GangSweep],
) -> None:
    ran = run(resources={"start_timeout_seconds": 4})
    noted = list[str]()
    ran.cluster.stuck = {"n1"}
    noting = ran.meanwhile(lambda: noted.append(ran.wait_for(lambda: ran.rows() and ran.rows()[0].waiting)))
    ran.work()
    noting.join(10)
    row = ran.rows()[0]
    assert (row.status, row.attempt) == ("failed", 1)
    assert (
        "node 1 of the gang: the trial's pod did not start within resources.start_timeout_seconds = 4: "
        "ImagePull"
    ) in str(row.error)
    assert noted == ["1 of the gang's 2 pods cannot start; node 1: ImagePullBackOff: no such image"]
    assert not ran.cluster.pods or ran.cluster.deleted >= set(ran.cluster.pods)


@pytest.mark.parametrize("processes", [1, 2])
def test_a_hang_ends_a_gang_at_once_with_the_stack_of_the_rank_that_did_not_come(
    run: Callable[..., GangSweep], monkeypatch: pytest.MonkeyPatch, processes: int
) -> None:
    monkeypatch.setattr(gang_process, "_VERDICT_SECONDS", math.inf)
    ran = run(
        trainable="in_image:train_until_stopped",
        resources={"gpus": processes, "collective_timeout_seconds": 4},
    )
    ran.work()
    ((outcome, error),) = ran.attempts()
    last = 2 * processes - 1
    assert outcome == "fail", error
    assert str(error).startswith(
        f"node 1 of the gang (rank{'s 2 to' if last > 1 else ''} {last}): Where each rank was"
    )
    short = (
        f"rank {last} did not come to all_reduce (collective 2 of the process group default_pg) within 4 s"
    )
    assert str(error).splitlines()[-1].startswith(short)
    stopped, *_ = str(error).partition("(waited):")
    assert (
        f"rank {last} (did not come):\n    its process was stopped by a signal (SIGSTOP), here:\n" in stopped
    )
    assert "in_image.py" in stopped


def test_a_gang_out_of_memory_goes_on_once_with_half_the_micro_batch(
    run: Callable[..., GangSweep],
) -> None:
    ran = run(trainable="in_image:train_with_little_memory", max_preemptions=0)
    ran.work()
    row = ran.rows()[0]
    assert (row.status, row.attempt, row.failures, row.preemptions) == ("completed", 2, 0, 0), row.error
    assert [outcome for outcome, _ in ran.attempts()] == ["halved", "complete"]
    error = str(ran.attempts()[0][1])
    assert "node 1 of the gang (ranks 2 to 3): rank 3: Traceback" in error
    assert (
        "rank 3 ran out of memory in step 2, with 1 micro-batches of 8 rows: the process had taken"
        in error.splitlines()[-1]
    )
    assert ran.state()["seen"] == [[1, 8], [2, 4], [3, 4]]


def test_a_gang_out_of_memory_fails_for_good_where_no_half_is_allowed(
    run: Callable[..., GangSweep],
) -> None:
    ran = run(trainable="in_image:train_as_it_is", max_retries=2)
    ran.work()
    ((outcome, error),) = ran.attempts()
    assert outcome == "fail"
    assert str(error).startswith("node 1 of the gang (ranks 2 to 3): rank 3: Traceback")
    assert (
        "rank 3 ran out of memory in step 2, with 1 micro-batches of 8 rows: the process had taken"
        in str(error).splitlines()[-1]
    )
