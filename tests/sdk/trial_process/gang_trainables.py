"""Trainables of a gang: they note what each rank has trained, and get into trouble as a test wants it."""

import ctypes
import math
import os
import signal
import time
from pathlib import Path
from typing import Any

from halving import Run
from halving.records.run_record import RunRecords
from tests.waiting import wait_for

STEPS = 4  # of an epoch


def train(run: Run) -> None:
    """Four steps an epoch; each rank notes every step that it trains, and what came of each epoch."""
    notes = Path(run.store.root, f"notes.{run.rank}")
    state = run.restore(step=0)
    step = state["step"]
    trouble = run.params.get("trouble")
    for epoch in run.epochs():
        while step < STEPS:
            step += 1
            with notes.open("a") as file:
                file.write(f"step {epoch} {step} {os.getpid()}\n")
            if trouble and run.attempt == 1 and (epoch, step) == (2, 2) and run.rank in run.params["ranks"]:
                records = RunRecords(run.store, run.project, run.id)
                wait_for(
                    records.latest_checkpoint, 60, "the first epoch's checkpoint, which is written meanwhile"
                )
                _TROUBLES[trouble](run)
            if run.stopping:
                run.save(step=step)
        step = 0
        run.report(score=float(epoch if run.rank == 0 else math.pi))
        run.save(step=step)
        with notes.open("a") as file:
            file.write(f"epoch {epoch} {run.reported['score']}\n")


def leave_early(run: Run) -> None:
    """Breaks out of the loop, on every rank, in the second epoch."""
    for epoch in run.epochs():
        run.report(score=float(epoch))
        run.save(epoch=epoch)
        if epoch == 2:
            break


def train_weights(run: Run) -> None:
    """Saves a model of which each rank writes a part.

    Before the second and the third epoch's save it waits for the test.
    """
    import torch

    torch.manual_seed(1)
    model = torch.nn.Linear(200, 200)
    run.restore(model=model)
    signs = Path(run.params["signs"])
    for epoch in run.epochs():
        if epoch > 1:
            (signs / f"{epoch}.{run.rank}").touch()
            while not (signs / f"{epoch}.go").exists():
                time.sleep(0.02)
        with torch.no_grad():
            model.weight += 1
        run.report(score=float(epoch))
        run.save(model=model)


def train_until_killed(run: Run) -> None:
    """Logs three points in each epoch.

    In the second epoch of the first attempt rank 1 is killed, when the test says so.
    """
    signs = Path(run.params["signs"])
    run.restore(epoch=0)
    for epoch in run.epochs():
        (signs / f"attempt {run.attempt}, epoch {epoch}, rank {run.rank}").touch()
        for step in range(3):
            run.log({"a": float(epoch)}, step=10 * epoch + step)
        if (run.attempt, epoch) == (1, 2):
            (signs / f"logged {run.rank}").touch()
            while not (signs / "go").exists():
                time.sleep(0.02)
            if run.rank:
                os.kill(os.getpid(), signal.SIGKILL)
        run.report(score=float(epoch))
        run.save(epoch=epoch)


def _raise(run: Run) -> None:
    raise ValueError(f"too much for {run.rank}")


_TROUBLES: dict[str, Any] = {
    "raise": _raise,
    "diverge": lambda run: run.report(score=math.nan),
    "report": lambda run: run.report(score=1.0),
    "kill": lambda run: os.kill(os.getpid(), signal.SIGKILL),
    "terminate": lambda run: os.kill(os.getpid(), signal.SIGTERM),
    "ask back": lambda run: run.ask_back(),
    "kill the agent": lambda run: os.kill(os.getppid(), signal.SIGKILL),
    "stop": lambda run: (Path(run.store.root, "hangs").touch(), os.kill(os.getpid(), signal.SIGSTOP)),
    "hold the interpreter": lambda run: (
        Path(run.store.root, "hangs").touch(),
        ctypes.PyDLL(None).sleep(3600),
    ),
    "wait": lambda run: time.sleep(3600),
    "exit": lambda run: os._exit(0),
}
