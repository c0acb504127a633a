"""What a training pays while its store on S3 is unreachable."""

import contextlib
import os
import statistics
import time
import warnings
from pathlib import Path
from typing import Any

from benchmarks.machine import Setting, in_child
from benchmarks.results import Part, Table, Target, number, spread
from benchmarks.training import ten_scalars
from tests.s3 import CREDENTIALS, S3, Gate

# seconds of a block
UP = 20
DOWN = 60
_TEXT = f"""
A PyTorch network (64 → 256 → 256 → 10, Adam) is trained on one core in epochs of 100 steps; each step logs
ten scalars, each epoch reports and saves a checkpoint where one is due. Its store is on S3 (moto's server in
a process of its own) behind a TCP proxy. Blocks of {UP} s with S3 alternate with blocks of {DOWN} s in which
it is unreachable: connections are *refused*, or accepted and *silent*. At the end S3 is back, and every point
is counted in the store. *Longest epoch* is how long training stood still at most, once in an outage: a store
that is known to be unreachable costs nothing, but a checkpoint that is on its way when S3 falls silent waits
for the request under way, as long as the last table says, and for its points, 5 s at most.
"""
_STEPS = 100


def measure(setting: Setting) -> Part:
    """Measure blocks with and without S3."""
    seconds = (setting.choose(1, UP), setting.choose(1, DOWN))
    pairs = setting.choose(1, 5)
    part = Part("outage", "Training while S3 is unreachable", _TEXT)
    header = [
        "S3",
        "blocks",
        "epochs/s with it",
        "epochs/s without",
        "longest epoch with it, s",
        "longest epoch without, s",
    ]
    table = Table(
        [*header, "log() p99, µs, with / without", "longest save(), s", "lost points"], [], "Training"
    )
    for kind in ("refused", "silent"):
        figures = in_child(
            "benchmarks.outage:train",
            folder=str(setting.work / kind),
            kind=kind,
            seconds=seconds,
            pairs=pairs,
        )
        slower = [100 * (up / down - 1) for up, down in zip(figures["up"], figures["down"], strict=True)]
        part.targets.append(Target(f"a training slowed down by an unreachable S3, {kind}", "%", slower, 5.0))
        part.targets.append(
            Target(f"points lost by an unreachable S3, {kind}", "points", [figures["lost"]], 0.0)
        )
        row = [
            kind,
            str(pairs),
            *(spread(figures[name]) for name in ("up", "down", "longest_up", "longest_down")),
        ]
        p99 = " / ".join(number(statistics.median(figures[name])) for name in ("log_up", "log_down"))
        table.rows.append([*row, p99, number(max(figures["save"])), str(figures["lost"])])
    part.tables += [table, _requests(setting)]
    return part


def _requests(setting: Setting) -> Table:
    table = Table(
        ["S3", "a HEAD, s", "a PUT, s"], [], "One request, with all its tries, until it is given up"
    )
    for kind in ("refused", "silent"):
        seconds = in_child("benchmarks.outage:requests", kind=kind, times=setting.choose(1, 3))
        table.rows.append([kind, *(spread(seconds[name]) for name in ("exists", "replace"))])
    return table


def requests(kind: str, times: int) -> dict[str, list[float]]:
    """Seconds until a request to an unreachable S3 is given up, in a process of its own."""
    from halving import Store
    from halving.errors import StoreUnavailable

    os.environ |= CREDENTIALS
    server = S3()
    seconds = {"exists": [], "replace": []}
    with contextlib.ExitStack() as ending:
        ending.callback(server.stop)
        gate = Gate((server.host, server.port))
        store = Store(server.root("requests", endpoint=gate.endpoint))
        store.replace("there", b"1")  # connected
        if kind == "refused":
            gate.shut()
        else:
            gate.swallow()
        for _ in range(times):
            for name, ask in (
                ("exists", lambda: store.exists("there")),
                ("replace", lambda: store.replace("there", bytes(100_000))),
            ):
                began = time.perf_counter()
                with contextlib.suppress(StoreUnavailable):
                    ask()
                seconds[name].append(time.perf_counter() - began)
    return seconds


def train(folder: str, kind: str, seconds: tuple[float, float], pairs: int) -> dict[str, Any]:
    """Train through blocks of so many seconds with S3 and without.

    Returns:
        For each pair ``up`` and ``down``: epochs per second; ``longest_up``, ``longest_down``: seconds of an
        epoch with what lies between it and the one before; ``log_up``, ``log_down``: µs; ``save``: each
        call's seconds while S3 was unreachable;
        ``lost``: points that are not in the store in the end.
    """
    import torch

    import halving
    from halving.query.api import sql

    os.environ |= {**CREDENTIALS, "HALVING_JOURNAL": str(Path(folder) / "journal")}
    torch.set_num_threads(1)
    # after 30,000 steps the batch is known by heart, and a step on denormals takes five times as long
    torch.set_flush_denormal(True)
    layers = [
        torch.nn.Linear(64, 256),
        torch.nn.ReLU(),
        torch.nn.Linear(256, 256),
        torch.nn.ReLU(),
        torch.nn.Linear(256, 10),
    ]
    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.Adam(model.parameters())
    criterion = torch.nn.CrossEntropyLoss()
    inputs = torch.randn(128, 64)
    labels = torch.randint(0, 10, (128,))
    figures: dict[str, Any] = {
        name: [] for name in ("up", "down", "longest_up", "longest_down", "log_up", "log_down", "save")
    }
    server = S3()
    gate = Gate((server.host, server.port))
    root = server.root("outage", endpoint=gate.endpoint)
    warnings.simplefilter("ignore")
    clock = time.perf_counter
    with contextlib.ExitStack() as ending, halving.init("p", id="r", root=root, system_metrics=None) as run:
        ending.callback(server.stop)
        epochs = run.epochs(10**9)
        step = 0

        def block(name: str, length: float) -> None:
            nonlocal step
            logs = []
            count = 0
            longest = 0.0
            began = clock()
            while (last := clock()) - began < length:
                epoch = next(epochs)
                for _ in range(_STEPS):
                    loss = criterion(model(inputs), labels)
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
                    value = loss.item()
                    step = step + 1
                    before = clock()
                    run.log(ten_scalars(value, step), step=step)
                    logs.append(clock() - before)
                run.report(loss=value)
                before = clock()
                run.save(model=model, optimizer=optimizer, epoch=epoch)
                if name == "down":
                    figures["save"].append(clock() - before)
                count = count + 1
                longest = max(longest, clock() - last)
            figures[f"longest_{name}"].append(longest)
            figures[name].append(count / (clock() - began))
            figures[f"log_{name}"].append(1e6 * statistics.quantiles(logs, n=100)[98])

        for _ in range(pairs):
            gate.open()
            run.flush(60)
            block("up", seconds[0])
            if kind == "refused":
                gate.shut()
            else:
                gate.swallow()
            block("down", seconds[1])
        gate.open()
        epochs.close()
        run.finish()
        (counted,) = sql(
            "SELECT count(*) AS points FROM points WHERE key = 'train/loss'", root=root
        ).to_pylist()
        figures["lost"] = step - counted["points"]
    return figures
