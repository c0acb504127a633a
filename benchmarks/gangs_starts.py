"""How soon two ranks train, also after one was killed: a gang, and scripts under torchrun."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from benchmarks.machine import CHECKOUT
from halving import Run, Store
from halving.trial.context import ObjectiveRule, TrialContext
from halving.trial.messages import Granted
from halving.trial_process.gang import run_gang

EPOCHS = 3
KILLED_IN = 2
_PRELOADED = [
    "torch",
    "benchmarks.gangs_starts",
    "halving.trial_process.preload",
    "halving.trial_process.preload_gang",
]


def of_gangs(folder: str, rounds: int) -> dict[str, list[float]]:
    """Seconds of ``start`` and ``recovery``, one for each round."""
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload(_PRELOADED)
    first = server.Process(target=os.getpid)  # once this has run, the server has imported everything
    first.start()
    first.join()
    seconds: dict[str, list[float]] = {"start": [], "recovery": []}
    for number in range(rounds):
        notes = Path(folder, str(number))
        notes.mkdir(parents=True)
        began = time.time()
        for attempt in (1, 2):
            ours, theirs = server.Pipe()
            arguments = (_context(notes, attempt), f"{__name__}:train", EPOCHS, theirs, 1, 2)
            process = server.Process(target=run_gang, args=arguments)
            process.start()
            theirs.close()
            ours.send(Granted(EPOCHS, complete=True))
            process.join()
        _add(seconds, notes, began)
    return seconds


def of_torchrun(folder: str, rounds: int, library: str) -> dict[str, list[float]]:
    """The seconds of :func:`of_gangs` for this module as a script that trains with a library.

    The libraries are those of :data:`LIBRARIES`.
    """
    seconds: dict[str, list[float]] = {"start": [], "recovery": []}
    for number in range(rounds):
        notes = Path(folder, str(number))
        notes.mkdir(parents=True)
        began = time.time()
        command = [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--standalone",
            "--nproc-per-node",
            "2",
            "--max-restarts",
            "1",
        ]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
        done = subprocess.run(
            [*command, "-m", __name__, str(notes), library],
            cwd=CHECKOUT,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"torchrun, {library}: {done.stderr[-300:]}")
        _add(seconds, notes, began)
    return seconds


def train(run: Run) -> None:
    """A gang's trainable; rank 1 of the first attempt is killed in its second epoch."""
    notes = Path(run.params["notes"])
    model, optimizer = _built()
    run.restore(model=model, optimizer=optimizer)
    ddp = DistributedDataParallel(model)
    for epoch in run.epochs():
        _kill_rank_1(notes, run.rank, epoch, run.attempt)
        _step(ddp, optimizer)
        _note_first_step(notes, run.rank, run.attempt)
        run.report(score=float(epoch))
        run.save(model=model, optimizer=optimizer)


def main(folder: str, library: str) -> None:
    """Train in the same way as a script of torchrun's."""
    torch.set_num_threads(1)
    notes = Path(folder)
    attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"]) + 1
    training = LIBRARIES[library](notes)
    for epoch in range(training.trained + 1, EPOCHS + 1):
        _kill_rank_1(notes, dist.get_rank(), epoch, attempt)
        _step(training.model, training.optimizer, training.backward)
        _note_first_step(notes, dist.get_rank(), attempt)
        training.save(epoch)
        dist.barrier()


@dataclass
class _Training:
    """A script's training.

    Attributes:
        trained: the epochs that the checkpoint has, from which it goes on.
        save: of the epoch that has ended; called by all ranks.
    """

    model: Any
    optimizer: Any
    backward: Callable[[torch.Tensor], Any]
    trained: int
    save: Callable[[int], None]


def _with_ddp(notes: Path) -> _Training:
    dist.init_process_group("gloo")
    model, optimizer = _built()
    path = notes / "checkpoint.pt"
    trained = 0
    if path.exists():
        saved = torch.load(path)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        trained = saved["epoch"]

    def save(epoch: int) -> None:
        if dist.get_rank() == 0:
            torch.save(
                {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, path
            )

    return _Training(DistributedDataParallel(model), optimizer, torch.Tensor.backward, trained, save)


def _with_fabric(notes: Path) -> _Training:
    from lightning.fabric import Fabric

    fabric = Fabric(accelerator="cpu", devices=2, strategy="ddp")
    fabric.launch()
    model, optimizer = fabric.setup(*_built())
    path = notes / "checkpoint.ckpt"
    state = {"model": model, "optimizer": optimizer, "epoch": 0}
    if path.exists():
        fabric.load(path, state)

    def save(epoch: int) -> None:
        fabric.save(path, state | {"epoch": epoch})

    return _Training(model, optimizer, fabric.backward, int(state["epoch"]), save)


def _with_accelerate(notes: Path) -> _Training:
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    model, optimizer = accelerator.prepare(*_built())
    checkpoints = sorted(notes.glob("checkpoint-*"))
    if checkpoints:
        accelerator.load_state(str(checkpoints[-1]))

    def save(epoch: int) -> None:
        accelerator.save_state(str(notes / f"checkpoint-{epoch}"))

    return _Training(model, optimizer, accelerator.backward, len(checkpoints), save)


LIBRARIES = {"DDP": _with_ddp, "Fabric": _with_fabric, "Accelerate": _with_accelerate}


def _add(seconds: dict[str, list[float]], notes: Path, began: float) -> None:
    first, killed, again = (
        json.loads((notes / name).read_text()) for name in ("trained-1", "killed", "trained-2")
    )
    seconds["start"].append(first - began)
    seconds["recovery"].append(again - killed)


def _built() -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Linear(64, 10)
    return model, torch.optim.Adam(model.parameters())


def _step(ddp: Any, optimizer: Any, backward: Callable[[torch.Tensor], Any] = torch.Tensor.backward) -> None:
    optimizer.zero_grad()
    backward(ddp(torch.ones(8, 64)).mean())
    optimizer.step()


def _note_first_step(notes: Path, rank: int, attempt: int) -> None:
    """Write down when the first step of an attempt ended."""
    if rank == 0 and not (note := notes / f"trained-{attempt}").exists():
        note.write_text(json.dumps(time.time()))


def _kill_rank_1(notes: Path, rank: int, epoch: int, attempt: int) -> None:
    if (rank, epoch, attempt) == (1, KILLED_IN, 1):
        (notes / "killed").write_text(json.dumps(time.time()))
        os.kill(os.getpid(), signal.SIGKILL)


def _context(notes: Path, attempt: int) -> TrialContext:
    return TrialContext(
        root=Store(notes / "store").root,
        project="bench",
        run="sweep.0001",
        attempt=attempt,
        params={"notes": str(notes)},
        seed=1,
        objectives=(ObjectiveRule("score"),),
        max_epochs=EPOCHS,
        dataset_name="none",
        dataset_digest="sha256:" + "0" * 64,
        parent={"sweep": "sweep"},
        provenance={"git": None},
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
