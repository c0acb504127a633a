"""What tracking costs a real training loop."""

import time

from benchmarks.log import open_run
from benchmarks.machine import Setting, both_ways, in_child
from benchmarks.results import Part, Table, Target, interval, spread, with_sign

_TEXT = """
A PyTorch network (64 → width → width → 10, Adam) is trained on one core on random data of the digits' size;
the other core is free, as for a process that feeds a GPU. Blocks of steps with `run.log()` of ten scalars in
each step alternate with blocks of the same steps without it, in one process; a pair's two blocks change
places from pair to pair. A block is longer than the drain's delay of 5 s, so that it holds its share of the
drain; what is left is flushed between two blocks. The overhead of a pair is the time with over the time
without, less one; *CPU* is the same of the process's CPU time, the drain thread in it. *Inside* is the share
of a block that the calls take, with the making of their dicts.
"""
LOOPS = {"short steps": (256, 128), "longer steps": (512, 256)}  # width, batch


def measure(setting: Setting) -> Part:
    """Measure the ratio of blocks with and without tracking."""
    pairs = setting.choose(1, 10)
    seconds = setting.choose(0.1, 6.0)
    part = Part("training", "Overhead on a training loop", _TEXT)
    header = [
        "loop",
        "pairs",
        "a step without, ms",
        "overhead, %",
        "mean and its 95 % interval, %",
        "CPU, %",
        "inside, %",
    ]
    table = Table(header, [])
    for name, (width, batch) in LOOPS.items():
        folder = str(setting.work / name.replace(" ", "-"))
        result = in_child(
            "benchmarks.training:run_pairs",
            folder=folder,
            width=width,
            batch=batch,
            pairs=pairs,
            seconds=seconds,
        )
        overhead, cpu, inside = (
            [100 * share for share in result[what]] for what in ("overhead", "cpu", "inside")
        )
        part.targets.append(Target(f"overhead on a training loop, {name}", "%", overhead, 0.5))
        row = [
            name,
            str(pairs),
            spread(result["step_ms"]),
            spread(overhead, with_sign),
            interval(overhead, with_sign),
            spread(cpu, with_sign),
        ]
        table.rows.append([*row, spread(inside)])
    part.tables.append(table)
    return part


def run_pairs(folder: str, width: int, batch: int, pairs: int, seconds: float) -> dict[str, list[float]]:
    """Run all pairs of one loop, in one process.

    Returns:
        For each pair ``overhead`` and ``cpu`` as shares, ``inside``: the share of the tracked block inside
        ``log``, ``step_ms`` without.
    """
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    layers = [
        torch.nn.Linear(64, width),
        torch.nn.ReLU(),
        torch.nn.Linear(width, width),
        torch.nn.ReLU(),
        torch.nn.Linear(width, 10),
    ]
    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.Adam(model.parameters())
    criterion = torch.nn.CrossEntropyLoss()
    inputs = torch.randn(4096, 64)
    labels = torch.randint(0, 10, (4096,))
    run = open_run(folder)
    clock = time.perf_counter
    place = 0

    def block(steps: int, tracked: bool) -> tuple[float, float, float]:
        nonlocal place
        inside = 0.0
        busy = time.process_time()
        began = clock()
        for step in range(steps):
            at = step * batch % 4096
            loss = criterion(model(inputs[at : at + batch]), labels[at : at + batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            value = loss.item()
            if tracked:
                place += 1
                before = clock()
                run.log(ten_scalars(value, step), step=place)
                inside += clock() - before
        return clock() - began, time.process_time() - busy, inside

    block(20, True)
    steps = max(5, int(seconds / (block(20, False)[0] / 20)))
    shares: dict[str, list[float]] = {"overhead": [], "cpu": [], "inside": [], "step_ms": []}
    for turn in range(pairs):
        times = {}
        for tracked in both_ways(turn):
            run.flush()  # nothing of the block before drains in this one
            times[tracked] = block(steps, tracked)
        without, without_cpu, _ = times[False]
        tracked_s, tracked_cpu, inside = times[True]
        shares["overhead"].append(tracked_s / without - 1)
        shares["cpu"].append(tracked_cpu / without_cpu - 1)
        shares["inside"].append(inside / tracked_s)
        shares["step_ms"].append(1e3 * without / steps)
    run.finish()
    return shares


def ten_scalars(value: float, step: int) -> dict[str, float]:
    """Ten scalars as a loop would log them."""
    return {
        "train/loss": value,
        "train/perplexity": 2.0**value,
        "train/best": value - 0.1,
        "optimizer/lr": 1e-3,
        "optimizer/momentum": 0.9,
        "optimizer/weight_decay": 0.0,
        "gradient/norm": value * 3,
        "gradient/clipped": value * 2,
        "progress/epoch": step / 32,
        "progress/batch": step,
    }
