"""What a checkpoint costs a training: its stall, the writing beside it, and memory."""

import json
import math
import os
import shutil
import statistics
import tempfile
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.machine import Setting, in_child
from benchmarks.results import Part, Table, Target, number, spread

if TYPE_CHECKING:
    import torch

MEGABYTES = 524
_SAVES = 4
_TENSORS = 32
_MODES = {
    "torch.save": "run.save of one process without memory for a copy",
    "plain": "run.save of one process",
    "halving": "run.save of a gang",
    "dcp": "DCP's async_save, as it comes",
    "stager": "DCP's async_save, with its stager kept",
    "fabric": "Fabric's fabric.save",
    "accelerate": "Accelerate's save_state",
}
_OF_ONE_PROCESS = {"torch.save", "plain"}
_SYNCHRONOUS = {"torch.save", "fabric", "accelerate"}
_BY_RANK_0 = {"fabric", "accelerate"}  # which writes all of the state, and the others nothing
_TEXT = f"""
A model of {_TENSORS} equal tensors, {MEGABYTES} MB in all, and its optimizer (SGD, which keeps no tensors of
its own) are saved {_SAVES} times into a folder on this disk, each time with other values. Between two saves
all that was written reaches the disk, and then each process computes (matrix products on the CPU). In a gang
of 2 both have the whole state, as under DDP, and with `run.save` and DCP each writes half. *Stall* is how
long the call takes on the rank that it takes longest, *first* that of the first save, which makes the memory
for the copy. *Beside* is the time from there until the checkpoint is there. *Memory* is the most that was
added to a process while it saved, as a multiple of what it writes. *A step* is how much longer the computing
takes while a checkpoint is being written. A process has one thread.

`fabric.save` and Accelerate's `save_state` are synchronous: training stands still until the files are
written, and nothing goes on beside it. Both are called as their guides say, after
`fabric.setup(model, optimizer)` and `accelerator.prepare(model, optimizer)`, in an environment as torchrun
sets it; rank 0 writes the whole state. Fabric makes the file in memory with `torch.save`, writes it into the
folder for temporary files (here on the same disk) and renames it; the other ranks wait for that. Accelerate
writes the model with safetensors, the optimizer and each rank's random states with `torch.save`; the other
ranks do not wait for rank 0. Neither waits until its files are on the disk (fsync): what the disk still has
to do then is not in their figures. `run.save` and DCP wait for that before a checkpoint is there.
"""


def measure(setting: Setting) -> Part:
    """Measure each way to save, in one process and in a gang of two."""
    part = Part("saves", "What a checkpoint costs a training", _TEXT)
    table = Table(
        [
            "save",
            "processes",
            "stall, first, ms",
            "stall, ms",
            "beside, s",
            "memory",
            "a step beside it, times",
        ],
        [],
    )
    megabytes = setting.choose(16, MEGABYTES)
    saves = setting.choose(2, _SAVES)
    steps = setting.choose(2, 20)
    for mode, title in _MODES.items():
        counts = [1, 2]
        if mode in _OF_ONE_PROCESS:
            counts = [1]
        for ranks in counts:
            folder = setting.work / f"{mode}-{ranks}"
            sizes = {"megabytes": megabytes, "saves": saves, "steps": steps, "settles": not setting.quick}
            figures = in_child(
                "benchmarks.saves:run_saves", folder=str(folder), mode=mode, ranks=ranks, **sizes
            )
            shutil.rmtree(folder)
            later = figures["stalls"][1:]
            stalls = [number(1e3 * figures["stalls"][0]), spread([1e3 * stall for stall in later])]
            beside = ""
            slower = ""
            if mode not in _SYNCHRONOUS:
                beside = number(statistics.median(figures["beside"]))
                slower = number(figures["slower"])
            table.rows.append([title, str(ranks), *stalls, beside, number(figures["memory"]), slower])
            if mode == "plain":
                name = f"a save of {megabytes} MB stalls one process without run.distribute"
                part.targets.append(Target(name, "ms", [1e3 * stall for stall in later], 100.0))
            if mode == "halving":
                part.targets.append(
                    Target(
                        f"a save of {megabytes} MB stalls a gang of {ranks}",
                        "ms",
                        [1e3 * stall for stall in later],
                        100.0,
                    )
                )
                part.targets.append(
                    Target(
                        f"memory for a save of a gang of {ranks}, of what a rank writes",
                        "x",
                        [figures["memory"]],
                        1.1,
                    )
                )
    part.tables.append(table)
    return part


def run_saves(
    folder: str, mode: str, ranks: int, megabytes: int, saves: int, steps: int, settles: bool
) -> dict[str, Any]:
    """Measure what some saves cost, in forked processes; each figure is of the rank that paid most.

    Args:
        steps: computed before each save, with none beside them.
        settles: whether all that was written reaches the disk first, so that no save pays for the one before.

    Returns:
        ``stalls`` and ``beside`` in seconds, one for each save; ``memory`` as a multiple of what a rank
        writes; ``slower`` of a step.
    """
    import torch.distributed as dist

    Path(folder).mkdir(parents=True)
    store = dist.TCPStore("127.0.0.1", 0, ranks, is_master=True, wait_for_workers=False)
    children = []
    for rank in range(ranks):
        child = os.fork()
        if not child:
            try:
                _rank(Path(folder), mode, rank, ranks, store.port, megabytes, saves, steps, settles)
            except BaseException:  # noqa: BLE001
                # a forked process that ends as others do waits for threads that it has not
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        children.append(child)
    for child in children:
        if os.waitpid(child, 0)[1]:
            raise RuntimeError(f"a rank of {mode} has failed")
    figures = [json.loads((Path(folder) / f"rank-{rank}.json").read_text()) for rank in range(ranks)]
    paid: dict[str, Any] = {
        name: [max(each) for each in zip(*(of_rank[name] for of_rank in figures), strict=True)]
        for name in ("stalls", "beside")
    }
    return paid | {name: max(of_rank[name] for of_rank in figures) for name in ("memory", "slower")}


def _rank(
    folder: Path,
    mode: str,
    rank: int,
    ranks: int,
    port: int,
    megabytes: int,
    saves: int,
    steps: int,
    settles: bool,
) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    tempfile.tempdir = str(folder)  # what is written there first is on the same disk
    client = dist.TCPStore("127.0.0.1", port, ranks, is_master=False)
    dist.init_process_group("gloo", store=dist.PrefixStore("group", client), rank=rank, world_size=ranks)
    model = torch.nn.ParameterDict(
        {f"{place}": torch.full((megabytes * 250_000 // _TENSORS,), 0.5) for place in range(_TENSORS)}
    )
    parameters = list(model.values())
    save = _WAYS[mode](folder, rank, ranks, model, torch.optim.SGD(parameters, lr=0.01))
    left = torch.rand(256, 256)
    right = torch.rand(256, 256)

    def step() -> float:
        began = time.perf_counter()
        for _ in range(20):
            left @ right
        return time.perf_counter() - began

    stalls = list[float]()
    beside = list[float]()
    memory = list[int]()
    alone = list[float]()
    while_saving = list[float]()
    for turn in range(saves):
        with torch.no_grad():
            for place, parameter in enumerate(parameters):
                parameter.fill_(1_000 * turn + place)
        if settles:
            os.sync()
        alone += [step() for _ in range(steps)]
        dist.barrier()
        before = _reset_peak()
        began = time.perf_counter()
        ended, wait = save()
        stalls.append(time.perf_counter() - began)
        while not ended():
            while_saving.append(step())
        wait()
        beside.append(time.perf_counter() - began - stalls[-1])
        memory.append(_memory("VmHWM") - before)
        dist.barrier()
    slower = 1.0
    if while_saving:
        slower = statistics.median(while_saving) / statistics.median(alone)
    # The first save's is what is added; later ones find the memory of the copy there.
    written = megabytes * 1e6 / (1 if mode in _BY_RANK_0 else ranks)
    figures = {"stalls": stalls, "beside": beside, "memory": max(memory) / written, "slower": slower}
    (folder / f"rank-{rank}.json").write_text(json.dumps(figures))
    dist.destroy_process_group()


_Saving = Callable[[], tuple[Callable[[], bool], Callable[[], Any]]]


def _one_process(
    folder: Path, rank: int, ranks: int, model: "torch.nn.Module", optimizer: "torch.optim.Optimizer"
) -> _Saving:
    import halving

    run = halving.init("bench", root=folder / "store", id="run", system_metrics=None)
    return _synchronous(lambda turn: run._saver.write({"model": model, "optimizer": optimizer}))


def _async_of_one_process(
    folder: Path, rank: int, ranks: int, model: "torch.nn.Module", optimizer: "torch.optim.Optimizer"
) -> _Saving:
    import halving
    from halving.checkpoints import large_model
    from halving.checkpoints.sharded.saver import AsyncSaver

    large_model.MIN_BYTES = 0  # in a quick run the state is small

    run = halving.init("bench", root=folder / "store", id="run", system_metrics=None)

    def save() -> tuple[Callable[[], bool], Callable[[], Any]]:
        run.save(model=model, optimizer=optimizer)
        saver = run._saver
        assert isinstance(saver, AsyncSaver)
        flight = saver._flight
        assert flight is not None
        return lambda: flight.ended, lambda: saver.land(math.inf)

    return save


def _gang(
    folder: Path, rank: int, ranks: int, model: "torch.nn.Module", optimizer: "torch.optim.Optimizer"
) -> _Saving:
    from halving import Store
    from halving.checkpoints.sharded.save import Staging
    from halving.distributed.ranks import Gang
    from halving.store.deadline import Deadline

    staging = Staging(Store(folder / "store"), Gang(rank, ranks, rank, timeout=600.0))

    def save() -> tuple[Callable[[], bool], Callable[[], Any]]:
        flight = staging.begin({"model": model, "optimizer": optimizer}, Deadline.after(0))

        def wait() -> None:
            flight.join()
            if flight.error is not None:
                raise flight.error

        return lambda: flight.ended, wait

    return save


def _dcp(
    folder: Path,
    rank: int,
    ranks: int,
    model: "torch.nn.Module",
    optimizer: "torch.optim.Optimizer",
    *,
    kept: bool = False,
) -> _Saving:
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions

    stager = None
    if kept:
        stager = DefaultStager(StagingOptions(False, False, False, False))
    turns = iter(range(1_000))

    def save() -> tuple[Callable[[], bool], Callable[[], Any]]:
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        future = dcp.async_save(
            state, checkpoint_id=folder / f"checkpoint-{next(turns)}", async_stager=stager
        )
        upload = getattr(future, "upload_completion", future)
        return upload.done, upload.result

    return save


def _fabric(
    folder: Path, rank: int, ranks: int, model: "torch.nn.Module", optimizer: "torch.optim.Optimizer"
) -> _Saving:
    from lightning.fabric import Fabric

    _set_as_torchrun_does(rank, ranks)
    fabric = Fabric(accelerator="cpu", devices=ranks, strategy="ddp")
    fabric.launch()
    state = dict(zip(("model", "optimizer"), fabric.setup(model, optimizer), strict=True))
    return _synchronous(lambda turn: fabric.save(folder / f"checkpoint-{turn}.ckpt", state))


def _accelerate(
    folder: Path, rank: int, ranks: int, model: "torch.nn.Module", optimizer: "torch.optim.Optimizer"
) -> _Saving:
    from accelerate import Accelerator

    _set_as_torchrun_does(rank, ranks)
    accelerator = Accelerator(cpu=True)
    accelerator.prepare(model, optimizer)
    return _synchronous(lambda turn: accelerator.save_state(str(folder / f"checkpoint-{turn}")))


def _synchronous(write: Callable[[int], Any]) -> _Saving:
    """A save that is complete when ``write``, which gets its number, returns."""
    turns = iter(range(1_000))

    def save() -> tuple[Callable[[], bool], Callable[[], Any]]:
        write(next(turns))
        return lambda: True, lambda: None

    return save


def _set_as_torchrun_does(rank: int, ranks: int) -> None:
    """Tell Fabric and Accelerate that this process is a rank, or they would start ranks themselves."""
    os.environ.update(
        RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_WORLD_SIZE=str(ranks)
    )
    # the group is there already
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="1", TORCHELASTIC_RUN_ID="bench")


_WAYS: dict[str, Callable[[Path, int, int, "torch.nn.Module", "torch.optim.Optimizer"], _Saving]] = {
    "torch.save": _one_process,
    "plain": _async_of_one_process,
    "halving": _gang,
    "dcp": _dcp,
    "stager": partial(_dcp, kept=True),
    "fabric": _fabric,
    "accelerate": _accelerate,
}


def _reset_peak() -> int:
    """Reset the peak of this process's memory; return its present memory in bytes."""
    Path("/proc/self/clear_refs").write_text("5")
    return _memory("VmRSS")


def _memory(name: str) -> int:
    status = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in status if line.startswith(f"{name}:"))
