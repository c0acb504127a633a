"""Sweeps of gangs that one worker in this process works off, and what they train."""

import threading
from collections.abc import Callable
from typing import Any

from sqlalchemy import select

from halving.query import api as query
from resources.backend import Backend
from resources.catalog import AttemptRow
from resources.execution.worker import TrialRunner, work
from resources.scheduling import leases
from resources.scheduling.scheduler import Scheduler
from resources.sweep_spec import SweepSpec
from tests.resources.execution.kubernetes.process_cluster import ProcessCluster
from tests.resources.execution.worked_sweeps import WorkedSweep, state_of
from tests.waiting import wait_for

Spec = Callable[..., SweepSpec]

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
        begin = len([entry for entry in steps if entry[0] == epoch])
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


class GangSweep(WorkedSweep):
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


def steps_of(ran: WorkedSweep, attempt: int) -> list[int]:
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


def work_with_a_short_lease(root: str, catalog: str, sweep: str) -> None:
    """Work a sweep off with leases that end before a pod misses its worker."""
    leases.LEASE_SECONDS = 4.0
    backend = Backend(root=root, catalog_url=catalog)
    scheduler = Scheduler(backend.catalog, sweep)
    with backend.catalog.read() as session:
        digest = backend.catalog.sweep(session, sweep).snapshot
    runner = TrialRunner(scheduler, backend.store, dataset_name="small", dataset_digest=digest, labels={})
    work(scheduler, runner, lambda _: None)
