"""A gang of pods on a cluster whose pods are processes of this machine: how it forms, trains, is asked to
end, breaks and grows.
"""

import math
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from sqlalchemy import select

from halving.query import api as query
from resources.backend import Backend
from resources.catalog import AttemptRow
from resources.execution.kubernetes import api, gang_process, gang_rules, gang_store, watched_pod
from resources.sweep_spec import SweepSpec
from tests.resources.execution.kubernetes.process_cluster import ProcessCluster
from tests.resources.execution.test_worker import Ran, count_epochs, state_of
from tests.waiting import wait_for

Spec = Callable[..., SweepSpec]
pytestmark = pytest.mark.slow

TRAINABLE = """
import os, signal, time
import torch, torch.distributed as dist


def train(run):
    seen = list(run.restore(seen=[])["seen"])
    for epoch in run.epochs():
        total = torch.ones(1)
        dist.all_reduce(total)
        assert total.item() == run.world_size == int(os.environ["WORLD_SIZE"])
        seen.append([epoch, run.world_size])
        run.report(score=run.params["x"])
        run.save(seen=seen, weights=total)


def train_slowly(run, held=lambda run, epoch: run.attempt == 1 and epoch == 2):
    state = run.restore(seen=[], steps=[])
    seen, steps = list(state["seen"]), list(state["steps"])
    for epoch in run.epochs():
        # The first attempt stays in its second epoch until somebody ends it,
        # or each of two in an epoch of its own.
        begin = len([one for one in steps if one[0] == epoch])
        for step in range(begin, begin + (4000 if held(run, epoch) else 4)):
            dist.all_reduce(torch.ones(1))
            time.sleep(0.02)
            steps.append([epoch, step])
            run.log({"trained": float(step)}, step=len(steps))
            if run.stopping:
                run.save(seen=seen, steps=steps)
        seen.append([epoch, run.world_size])
        run.report(score=float(run.id.endswith("0000")))
        run.save(seen=seen, steps=steps)


def train_with_little_memory(run, out_of_memory="halve"):
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    training = run.distribute(model, optimizer, out_of_memory=out_of_memory)
    state = run.restore(model=model, optimizer=optimizer, training=training, seen=[])
    seen = list(state["seen"])

    def loss(model, x):
        if len(x) > 4 and run.rank == 3 and epoch > 1:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return model(x).square().mean()

    for epoch in run.epochs():
        training.step(loss, torch.ones(8, 4))
        seen.append([epoch, training.micro_batch])
        run.report(score=0.5)
        run.save(model=model, optimizer=optimizer, training=training, seen=seen)


def train_as_it_is(run):
    train_with_little_memory(run, "fail")


def train_held(run):
    train_slowly(run, lambda run, epoch: epoch == run.attempt + 1 and run.attempt < 3)


def train_at_once(run):
    train_slowly(run, lambda run, epoch: False)


def train_until_stopped(run):
    for epoch in run.epochs():
        if epoch == 2 and run.rank == run.world_size - 1:
            os.kill(os.getpid(), signal.SIGSTOP)
        dist.all_reduce(torch.ones(1))
        run.report(score=0.5)
        run.save(epoch=epoch)
"""


class RanAsGang(Ran):
    """A sweep of gangs that one worker in this process works off."""

    def __init__(self, cluster: ProcessCluster, backend: Backend, spec: SweepSpec) -> None:
        super().__init__(backend, spec)
        self.cluster = cluster
        self.pods: list[str] = []

    def attempts(self) -> list[tuple[str | None, str | None]]:
        with self.backend.catalog.read() as session:
            rows = session.scalars(
                select(AttemptRow).where(AttemptRow.sweep == self.sweep).order_by(AttemptRow.attempt)
            )
            return [(row.outcome, row.error) for row in rows]

    def nodes(self) -> list[int]:
        with self.backend.catalog.read() as session:
            return list(
                session.scalars(
                    select(AttemptRow.nodes)
                    .where(AttemptRow.sweep == self.sweep)
                    .order_by(AttemptRow.attempt)
                )
            )

    def meanwhile(self, act: Callable[[], object]) -> threading.Thread:
        thread = threading.Thread(target=act, daemon=True)
        thread.start()
        return thread

    def wait_for(self, condition: Callable[[], Any]) -> Any:
        return wait_for(condition, 120, "what the test waits for")

    def training(self, node: int, attempt: int = 1) -> str:
        """The pod of a node, once the trial has saved its first checkpoint in this attempt."""
        self.wait_for(self.records(0).checkpoints)
        return self.wait_for(
            lambda: [name for name in self.cluster.processes if f"-a{attempt}-n{node}-" in name]
        )[0]

    def world_sizes(self) -> list[int]:
        """With how many ranks each epoch was trained, as the last checkpoint has it."""
        return [size for _, size in self.state()["seen"]]

    def state(self) -> dict[str, Any]:
        return state_of(self)


def steps_of(ran: Ran, attempt: int) -> list[int]:
    """The steps of the first trial of which the store has a point of this attempt."""
    points = query.curves(
        [f"{ran.sweep}.0000"],
        "trained",
        project="small",
        root=ran.backend.store,
        max_points=None,
        attempts="raw",
    )
    return sorted(row["step"] for row in points.to_pylist() if row["attempt"] == attempt)


@pytest.fixture
def run(
    tmp_path: Path, backend: Backend, small_spec: Spec, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., RanAsGang]]:
    (tmp_path / "in_image.py").write_text(TRAINABLE)
    (tmp_path / "cluster.yaml").write_text(yaml.safe_dump({"trial_pods": {"env": {}}}))
    cluster = ProcessCluster(str(tmp_path))
    monkeypatch.setenv("HALVING_CLUSTER", str(tmp_path / "cluster.yaml"))
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.setattr(api, "core_api", lambda: cluster)
    monkeypatch.setattr(api, "namespace", lambda: "n")
    monkeypatch.setattr(api, "own_reference", lambda: None)
    monkeypatch.setattr(api, "create_policy", lambda _: None)
    monkeypatch.setattr(api, "delete_policy", lambda _: None)
    monkeypatch.setattr(gang_store, "own_address", lambda: "127.0.0.1")
    monkeypatch.setattr(watched_pod, "_STARTING_SECONDS", 0.2)
    monkeypatch.setattr(watched_pod, "_RUNNING_SECONDS", 0.5)

    def make(*, gpus: int = 4, **changes: Any) -> RanAsGang:
        cluster.gpus = gpus
        resources = {"cpus": 1, "gpus": 2, "nodes": 2, "grace_seconds": 30, **changes.pop("resources", {})}
        fields = {
            "image": "i",
            "trainable": "in_image:train",
            "max_trials": 1,
            "strategy": {"random": {"budget": 3}},
            "max_retries": 0,
        }
        return RanAsGang(cluster, backend, small_spec(resources=resources, **{**fields, **changes}))

    yield make
    cluster.close()


def test_a_lost_node_shrinks_an_elastic_gang_which_grows_again_once_there_is_room(
    run: Callable[..., RanAsGang], monkeypatch: pytest.MonkeyPatch
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
    run: Callable[..., RanAsGang],
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
    run: Callable[..., RanAsGang],
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
    run: Callable[..., RanAsGang],
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
    run: Callable[..., RanAsGang], monkeypatch: pytest.MonkeyPatch, processes: int
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
    run: Callable[..., RanAsGang],
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
    run: Callable[..., RanAsGang],
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
