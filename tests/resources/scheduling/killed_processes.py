"""The processes that ``test_chaos`` kills. Their fork server imports this and nothing of the tests."""

import gc
import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import optuna  # noqa: F401
from sqlalchemy import event
from sqlalchemy.orm import configure_mappers

from halving.trial.messages import ReachedRung
from resources.catalog import Catalog
from resources.catalog.pipelined import Statement, together
from resources.scheduling import transaction as sweep_transaction
from resources.scheduling.assignment import Assignment
from resources.scheduling.scheduler import Scheduler
from resources.search.decide import Continue, Decision

NEVER = 1_000_000


def score(params: dict[str, Any], epochs: int) -> float:
    """What a trial reports: a function of its params and its epochs alone, with curves that cross."""
    return params["x"] * (1 - 0.5**epochs) + 0.3 * ((params["x"] * 7919 * epochs) % 1.0)


def opened_catalog(url: str) -> Catalog:
    """Without waiting for the disk: what a process has written outlives its death, if not the machine's."""
    catalog = Catalog(url)
    if catalog.engine.dialect.name == "sqlite":
        event.listen(
            catalog.engine,
            "connect",
            lambda connection, _record: connection.execute("PRAGMA synchronous=OFF"),
        )
        catalog.engine.dispose()
    return catalog


class Trainer:
    """Trains trials epoch by epoch; a log and checkpoint files outlive the process."""

    def __init__(self, folder: Path, scheduler: Scheduler, tick: Callable[..., None]) -> None:
        self._folder = folder
        self._scheduler = scheduler
        self._tick = tick

    def train(self, assignment: Assignment) -> None:
        """Go on from the checkpoint to the next rung, and in place as long as the trial may."""
        checkpoint = self._folder / f"{assignment.key}.json"
        epoch = json.loads(checkpoint.read_text()) if checkpoint.exists() else 0
        if assignment.trial == 0:
            self._scheduler.heartbeat(assignment)
        for rung_epochs in assignment.ladder[assignment.rung :]:
            while epoch < rung_epochs:
                epoch += 1
                with (self._folder / "epochs.log").open("a") as log:
                    log.write(f"{assignment.key} {epoch}\n")
                self._tick()
                new = checkpoint.with_suffix(".new")
                new.write_text(json.dumps(epoch))
                new.rename(checkpoint)
            if not isinstance(self._report(assignment, epoch), Continue):
                return

    def _report(self, assignment: Assignment, epoch: int) -> Decision:
        """Trial 2 diverges, and the fourth one's process dies once."""
        if assignment.trial == 2:
            return self._scheduler.report_failure(assignment, "NaN", 1.0, None)
        if assignment.trial == 3 and self._scheduler.state().trials[3].failures == 0:
            return self._scheduler.report_crash(assignment, "boom", 1.0)
        reported = ReachedRung(
            epoch, {"score": score(assignment.params, epoch)}, f"sha256:{assignment.trial}-{epoch}"
        )
        return self._scheduler.report_rung(assignment, reported, 1.0)


def serve(orders: Connection, url: str, folder: Path) -> None:
    """A process of a sweep: follows its orders, and kills itself at the event that they name."""
    left = NEVER

    def tick(*_: Any) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def writing(connection: Any, writes: list[Statement], **options: Any) -> Any:
        tick()
        return together(connection, writes, **options)

    transaction = Catalog.transaction

    @contextmanager
    def commit(catalog: Catalog) -> Iterator[Any]:
        with transaction(catalog) as connection:
            yield connection
        tick()

    sweep_transaction.together = writing
    Catalog.transaction = commit
    with closing(opened_catalog(url)) as catalog:
        clock = [0.0]
        scheduler = None
        while True:
            order, sweep, clock[0], kill_at = orders.recv()
            left = kill_at or left
            if scheduler is None or scheduler.id != sweep:
                scheduler = Scheduler(catalog, sweep, lambda: clock[0])
            orders.send(ORDERS[order](scheduler, Trainer(folder, scheduler, tick)))


def pull(scheduler: Scheduler, trainer: Trainer) -> str:
    """What a worker of the one job does: take work and train it."""
    work = scheduler.next_work("worker")
    if isinstance(work, Assignment):
        trainer.train(work)
    return type(work).__name__


def launch(scheduler: Scheduler, trainer: Trainer) -> str:
    """What a sensor does in a tick, for two runs at a time."""
    scheduler.requeue_lost()
    while scheduler.running() < 2:
        if not isinstance(work := scheduler.next_work(None), Assignment):
            return type(work).__name__
    return "launched"


def claim(scheduler: Scheduler, trainer: Trainer) -> str:
    """What a run does that a sensor has launched."""
    waiting = scheduler.unclaimed_attempts()
    if waiting:
        trainer.train(scheduler.claim(waiting[0].trial, "run"))
    return "ran"


def look(scheduler: Scheduler, trainer: Trainer) -> str:
    """What anybody does now and then: doubt the leases that have run out."""
    scheduler.requeue_lost()
    return "looked"


ORDERS = {"pull": pull, "launch": launch, "claim": claim, "look": look}


# What is the same in all of them, a fork need neither make anew nor look through for garbage, which would
# copy every page of it.
configure_mappers()
gc.freeze()
