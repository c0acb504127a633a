"""Training in many processes: how it scales, what agreement costs, and how soon a gang trains."""

import json
import os
import statistics
import sys
from typing import Any

from benchmarks.machine import CHECKOUT, Setting, in_child, run_json
from benchmarks.results import Part, Table, Target, number, spread

_TEXT = """
A PyTorch network (64 → width → width → 10, SGD) on CPUs, by gloo, one thread to a rank; all in one run, on
one machine.

*Steps*: blocks of the same steps in turn, in one process group of two ranks that `torchrun` has started:
plain DDP, the same with `run.stopping` and with a `run.save()` of which nothing is due in each step,
`run.distribute`'s step, Fabric, Accelerate. What is more than DDP is a block's time for each step less that
of DDP in the same round.

*Scaling*: rows in a second on 1, 2 and 4 ranks, as a multiple of one rank's with the same library; every rank
has as many rows in a step as one has alone. More ranks than cores cannot compute more, so no ratio can be
above the number of cores. On one rank `run.distribute` does without DDP; Fabric (`strategy="ddp"`) and
Accelerate do not.

*Start*: from the order to start to the end of the first step, of a gang that is forked from the preloaded
process as a worker starts it, and of `torchrun` with scripts that do the same: with DDP and `torch.save`,
with Fabric and `fabric.save`, with Accelerate and its `save_state`. *Recovery*: from a SIGKILL of rank 1 to
the end of the next step: by a gang's next attempt, without the worker's own notes of it, and by
`torchrun --max-restarts 1` (with TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1, without which it does not restart in
place). Fabric and Accelerate restart nothing themselves: what their own commands start ranks by is torchrun's
agent.
"""
_START_SECONDS = 2.0
_RECOVERY_SECONDS = 15.0
_UNDER_TORCHRUN = ("DDP", "Fabric", "Accelerate")
_SCALED = ("DDP", "run.distribute", "Fabric", "Accelerate")


def measure(setting: Setting) -> Part:
    """Measure costs, ratios and seconds."""
    part = Part("gangs", "Training in many processes", _TEXT)
    rounds = setting.choose(2, 20)
    count = setting.choose(5, 100)
    width = setting.choose(32, 512)
    _measure_steps(part, setting, rounds, count, width)
    _measure_starts(part, setting)
    return part


def _measure_steps(part: Part, setting: Setting, rounds: int, count: int, width: int) -> None:
    worlds = setting.choose((1, 2), (1, 2, 4))
    of_worlds = {}
    for world in worlds:
        arguments = {
            "folder": str(setting.work / f"steps-{world}"),
            "rounds": rounds,
            "count": count,
            "width": width,
        }
        of_worlds[world] = torchrun(world, "benchmarks.gangs_steps", arguments)
    of_two = of_worlds[2]
    baseline = of_two["DDP"]
    costs = Table(["step of two ranks", "rounds", "a step, ms", "more than DDP, µs"], [], title="Steps")
    for name, seconds in of_two.items():
        more = ""
        if name != "DDP":
            more = spread([1e6 * (time - alone) for time, alone in zip(seconds, baseline, strict=True)])
        costs.rows.append([name, str(rounds), spread([1e3 * time for time in seconds]), more])
    part.tables.append(costs)
    cores = os.cpu_count() or 1
    scaling = Table(["ranks", "the most that is possible", *_SCALED], [], title=f"Scaling on {cores} cores")
    for world, by_name in of_worlds.items():
        ratios = [
            spread(
                [world * alone / time for time, alone in zip(by_name[name], of_worlds[1][name], strict=True)]
            )
            for name in _SCALED
        ]
        scaling.rows.append([str(world), str(min(world, cores)), *ratios])
    steps_alone = [f"{number(1e3 * statistics.median(of_worlds[1][name]))} ms ({name})" for name in _SCALED]
    scaling.note = f"A step of one rank takes {', '.join(steps_alone)}."
    part.tables.append(scaling)


def _measure_starts(part: Part, setting: Setting) -> None:
    rounds = setting.choose(1, 5)
    ours = in_child("benchmarks.gangs_starts:of_gangs", folder=str(setting.work / "gangs"), rounds=rounds)
    table = Table(
        ["two ranks", "rounds", "start to the first step, s", "killed rank to the next step, s"],
        [],
        title="Start and recovery",
    )
    table.rows.append(["a gang", str(rounds), spread(ours["start"]), spread(ours["recovery"])])
    part.targets.append(Target("start of a gang of two", "s", ours["start"], _START_SECONDS))
    part.targets.append(
        Target("a gang: a killed rank to the next step", "s", ours["recovery"], _RECOVERY_SECONDS)
    )
    if setting.quick:
        part.tables.append(table)
        return
    times = []
    for library in _UNDER_TORCHRUN:
        folder = str(setting.work / f"torchrun-{library}")
        agents = in_child(
            "benchmarks.gangs_starts:of_torchrun", folder=folder, rounds=rounds, library=library
        )
        table.rows.append(
            [f"torchrun, {library}", str(rounds), spread(agents["start"]), spread(agents["recovery"])]
        )
        ratios = [theirs / own for theirs, own in zip(agents["recovery"], ours["recovery"], strict=True)]
        times.append(f"{spread(ratios)} times ({library})")
    table.note = f"Recovery under torchrun takes {', '.join(times)} as long as a gang's."
    part.tables.append(table)


def torchrun(processes: int, module: str, arguments: dict[str, Any]) -> Any:
    """Run a module's ranks, and return what rank 0 printed last."""
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        str(processes),
        "-m",
        module,
    ]
    return run_json(
        [*command, json.dumps(arguments)], cwd=CHECKOUT, environment={**os.environ, "OMP_NUM_THREADS": "1"}
    )
