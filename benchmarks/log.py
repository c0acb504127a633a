"""What one ``run.log()`` of ten scalars costs on the training thread."""

import os
import threading
import time
from array import array
from pathlib import Path
from typing import Any

from benchmarks.machine import Setting, both_ways, in_child
from benchmarks.peers.harness import Opened, work
from benchmarks.results import Part, Table, Target, spread

BOUNDS = {"p50": 1.5, "p99": 10.0, "p99.9": 50.0}  # µs, promised while the drain thread is working
WANDB_BOUND = 4.0  # µs at p50, promised for calls by W&B's names
# seconds between flushes: a thread that asked without a pause would measure the interpreter's lock
_PAUSE = 0.005
_TEXT = f"""
A call is timed with `perf_counter_ns`, and the median cost of reading that clock is subtracted. *Tight* calls
`log` again at once; *paced* computes for about 1 ms (SHA-256, which lets other threads run) before each call,
as a training step does. *Idle*: the drain thread follows its own delay. *Busy*: a second thread calls
`run.flush()` all the time, with {_PAUSE * 1000:.0f} ms between two, so that segments are encoded, written and
synced without end. The ten values are new float objects in each call. The targets hold for the busy drain.
The second table has the same calls through `halving.wandb`, whose rounds take turns with plain ones; each
call gives a `step`, as the plain ones do.
"""


def measure(setting: Setting) -> Part:
    """Measure percentiles of the latency, tight and paced, with an idle and a busy drain."""
    part = Part("log", "Latency of `run.log()`, ten scalars", _TEXT)
    table = Table(["loop", "drain", "calls", "p50, µs", "p99, µs", "p99.9, µs", "max, µs"], [])
    rounds = setting.choose(1, 5)
    for loop, calls, work_ms in (
        ("tight", setting.choose(2_000, 300_000), 0.0),
        ("paced", setting.choose(50, 5_000), 1.0),
    ):
        by_drain: dict[bool, list[dict[str, float]]] = {False: [], True: []}
        for turn in range(rounds):
            for busy in both_ways(turn):
                setting.settle()
                folder = str(setting.work / f"{loop}-{busy}-{turn}")
                by_drain[busy].append(
                    in_child(
                        "benchmarks.log:run_round", folder=folder, calls=calls, work_ms=work_ms, busy=busy
                    )["latency_us"]
                )
        for busy, results in by_drain.items():
            values = {name: [result[name] for result in results] for name in results[0]}
            table.rows.append(
                [loop, "busy" if busy else "idle", f"{calls:,}", *(spread(each) for each in values.values())]
            )
            if busy:
                part.targets += [
                    Target(f"`log()` {name}, {loop} loop, busy drain", "µs", values[name], bound)
                    for name, bound in BOUNDS.items()
                ]
    part.tables.append(table)
    part.tables.append(_compare_with_wandb_names(setting, part))
    return part


def _compare_with_wandb_names(setting: Setting, part: Part) -> Table:
    """The same calls by W&B's names, beside plain ones in the same rounds."""
    table = Table(["names", "drain", "calls", "p50, µs", "p99, µs", "of plain p50"], [])
    calls = setting.choose(2_000, 300_000)
    results: dict[str, list[dict[str, float]]] = {"halving": [], "wandb": []}
    for turn in range(setting.choose(1, 5)):
        names = list(results)
        if turn % 2:
            names.reverse()
        for name in names:
            setting.settle()
            arguments = {"calls": calls, "work_ms": 0.0, "busy": True, "names": name}
            folder = str(setting.work / f"{name}-{turn}")
            round_ = in_child("benchmarks.log:run_round", folder=folder, **arguments)
            results[name].append(round_["latency_us"])
    for name, rounds in results.items():
        p50 = [each["p50"] for each in rounds]
        p99 = [each["p99"] for each in rounds]
        ratios = [own / other["p50"] for own, other in zip(p50, results["halving"], strict=True)]
        table.rows.append([f"`{name}`", "busy", f"{calls:,}", spread(p50), spread(p99), spread(ratios)])
    by_wandb_names = [each["p50"] for each in results["wandb"]]
    part.targets.append(
        Target("`wandb.log()` of ten scalars, p50, busy drain", "µs", by_wandb_names, WANDB_BOUND)
    )
    return table


def run_round(folder: str, calls: int, work_ms: float, busy: bool, names: str = "halving") -> dict[str, Any]:
    """Run one round, in a process of its own: see :func:`benchmarks.peers.harness.work`.

    Args:
        names: ``wandb`` to log by W&B's names.
    """
    log: Any
    if names == "wandb":
        run, log = open_run_by_wandb_names(folder)
    else:
        run = open_run(folder)
        log = run.log
    done = threading.Event()
    flusher = threading.Thread(target=_flush_until, args=(run, done), daemon=True)

    def close() -> None:
        done.set()
        if busy:
            flusher.join()
        run.finish()

    if busy:
        flusher.start()
    return work(Opened(log, close, int), calls, work_ms)


def open_run(folder: str | Path) -> Any:
    """A run without system metrics, so that only what is logged is measured."""
    import halving

    return halving.init("bench", {"lr": 0.1}, root=folder, system_metrics=None)


def open_run_by_wandb_names(folder: str | Path) -> tuple[Any, Any]:
    """The same by W&B's names: the run, and the function that logs."""
    import halving.wandb as wandb

    os.environ["HALVING_ROOT"] = str(folder)
    run = wandb.init(project="bench", config={"lr": 0.1}, settings={"x_disable_stats": True})
    return run._run, wandb.log


def rows(data: "array[float]", names: list[str]) -> list[dict[str, float]]:
    """One dict for each call, made beforehand."""
    width = len(names)
    return [dict(zip(names, data[at : at + width], strict=True)) for at in range(0, len(data), width)]


def _flush_until(run: Any, done: threading.Event) -> None:
    while not done.is_set():
        run.flush()
        time.sleep(_PAUSE)
