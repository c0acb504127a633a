"""What ``deterministic=True`` costs a training loop, and what the weights' digest costs a checkpoint."""

import tempfile
import time
from collections.abc import Callable
from typing import Any

from benchmarks.machine import Setting, both_ways, in_child
from benchmarks.results import Part, Table, interval, number, spread
from halving.run.determinism import make_deterministic

_TEXT = """
PyTorch loops on one core on random data: the digits' network (64 → 256 → 256 → 10), two convolutions on 28x28
images, and embeddings of a vocabulary of 20,000, whose gradient is a scattered sum. Blocks of steps with
deterministic algorithms (`halving.init(deterministic=True)`) alternate with blocks of the same steps without,
in one process; a pair's two blocks change places from pair to pair. The ratio is the CPU time with over the
CPU time without, and its interval Student's, of the mean over the pairs: a cost that lies within it cannot be
told from none by these pairs, and what scatters them is mostly what else the machine does. *Equal* says
whether two trainings of the same seed end in the same weights' digest. On a GPU it may cost more, by what the
chosen kernels cost: measure it there with your own loop.
"""
_DIGEST = """
`run.save` of one tensor of so many MiB on the CPU, to a store on this machine's disk: saves with the digest
of the weights, which a rerun is compared by, alternate with saves without it, in one process, each of new
content. The digest is made in a thread while the checkpoint is stored, so that wall time shows what it costs
where a core is free, and CPU time what it costs where none is. *Packing* is the part of a save without it
that writes the archive.
"""
LOOPS = ("digits' network", "convolutions", "embeddings")


def measure(setting: Setting) -> Part:
    """Measure the ratio of blocks with and without deterministic algorithms."""
    pairs = setting.choose(1, 10)
    seconds = setting.choose(0.1, 1.0)
    part = Part("determinism", "What determinism costs", _TEXT)
    table = Table(
        [
            "loop",
            "pairs",
            "CPU of a step without, ms",
            "ratio",
            "mean and its 95 % interval",
            "equal, with",
            "equal, without",
        ],
        [],
    )
    for name in LOOPS:
        figures = in_child("benchmarks.determinism:run_pairs", name=name, pairs=pairs, seconds=seconds)
        equal = ["yes" if figures[what] else "no" for what in ("equal_with", "equal_without")]
        ratios = figures["ratios"]
        table.rows.append(
            [
                name,
                str(pairs),
                number(figures["step_ms"]),
                spread(ratios, _ratio),
                interval(ratios, _ratio),
                *equal,
            ]
        )
    part.tables += [table, _digests(setting)]
    return part


def _ratio(value: float) -> str:
    return f"{value:.3f}"


def _digests(setting: Setting) -> Table:
    """What the digest adds to a save."""
    header = [
        "MiB",
        "pairs",
        "a save without, s",
        "packing, s",
        "a save with, s",
        "wall time added, s",
        "CPU added, s",
    ]
    table = Table(header, [], "A checkpoint with and without the weights' digest", _DIGEST.strip())
    for mebibytes in setting.choose((1,), (16, 256)):
        pairs = setting.choose(1, 5)
        folder = str(setting.work / f"digest-{mebibytes}")
        figures = in_child("benchmarks.determinism:saves", folder=folder, mebibytes=mebibytes, pairs=pairs)
        columns = [spread(figures[what]) for what in ("without", "packing", "with", "added", "cpu_added")]
        table.rows.append([str(mebibytes), str(pairs), *columns])
    return table


def saves(folder: str, mebibytes: int, pairs: int) -> dict[str, list[float]]:
    """Save in pairs, with and without the digest, in one process.

    Returns:
        Of each pair ``without`` and ``with``: seconds of the save; ``packing``: of packing alone; ``added``
        and ``cpu_added``.
    """
    import torch

    import halving
    from halving.checkpoints import serialization, weights_digest

    made = weights_digest.weights_digest
    weights = torch.rand(mebibytes * 2**18)
    run = halving.init("bench", root=folder, id="saves", system_metrics=None)

    def save(on: bool) -> tuple[float, float]:
        weights.add_(1.0)
        weights_digest.weights_digest = made
        if not on:
            weights_digest.weights_digest = lambda *_: None
        began = time.perf_counter()
        busy = time.process_time()
        run.save(weights=weights)
        return time.perf_counter() - began, time.process_time() - busy

    save(True)
    seconds: dict[str, list[float]] = {"without": [], "packing": [], "with": [], "added": [], "cpu_added": []}
    for turn in range(pairs):
        times = {on: save(on) for on in both_ways(turn)}
        began = time.perf_counter()
        with tempfile.TemporaryFile() as file:
            serialization.pack({"weights": weights}, file)
        seconds["packing"].append(time.perf_counter() - began)
        seconds["without"].append(times[False][0])
        seconds["with"].append(times[True][0])
        seconds["added"].append(times[True][0] - times[False][0])
        seconds["cpu_added"].append(times[True][1] - times[False][1])
    run.finish()
    return seconds


def run_pairs(name: str, pairs: int, seconds: float) -> dict[str, Any]:
    """Run all pairs of one loop, in one process: see :func:`compare`."""
    import torch

    torch.set_num_threads(1)
    make_deterministic()
    _, step = _loop(name)
    _block(step, 5)
    steps = max(3, int(seconds / (_block(step, 5) / 5)))
    return compare(pairs, lambda: _train(name), lambda: _block(step, steps) / steps)


def compare(pairs: int, train: Callable[[], str | None], time_step: Callable[[], float]) -> dict[str, Any]:
    """Compare training with and without deterministic algorithms, in turn.

    :func:`make_deterministic` must have made the process deterministic in all other respects.

    Args:
        train: trains from the beginning, and gives the weights' digest.
        time_step: seconds of a step, the mean of a block.

    Returns:
        ``ratios``, one for each pair; ``step_ms`` without; ``equal_with`` and ``equal_without``: whether two
        trainings gave equal weights.
    """
    import torch

    def switch(*, is_on: bool) -> None:
        torch.use_deterministic_algorithms(is_on)
        torch.backends.cudnn.deterministic = is_on

    is_equal = {}
    for is_on in (True, False):
        switch(is_on=is_on)
        is_equal[is_on] = train() == train()
    ratios = []
    without = []
    for turn in range(pairs):
        times = {}
        for is_on in both_ways(turn):
            switch(is_on=is_on)
            times[is_on] = time_step()
        ratios.append(times[True] / times[False])
        without.append(times[False])
    return {
        "ratios": ratios,
        "step_ms": 1e3 * min(without),
        "equal_with": is_equal[True],
        "equal_without": is_equal[False],
    }


def _train(name: str, steps: int = 5) -> str | None:
    from halving.checkpoints.weights_digest import weights_digest

    model, step = _loop(name)
    _block(step, steps)
    return weights_digest({"model": model})


def _block(step: Callable[[], None], steps: int) -> float:
    """CPU seconds of so many steps."""
    began = time.process_time()
    for _ in range(steps):
        step()
    return time.process_time() - began


def _loop(name: str) -> tuple[Any, Callable[[], None]]:
    """A model, seeded, and one step of its training."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    labels = torch.randint(0, 10, (128,))
    if name == "convolutions":
        inputs = torch.randn(128, 1, 28, 28)
        model = nn.Sequential(
            nn.Conv2d(1, 16, 3),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3),
            nn.ReLU(),
            nn.Flatten(),
            nn.LazyLinear(10),
        )
        model(inputs)
    elif name == "embeddings":
        inputs = torch.randint(0, 20_000, (128, 64))
        model = nn.Sequential(nn.EmbeddingBag(20_000, 64), nn.Linear(64, 10))
    else:
        inputs = torch.randn(128, 64)
        model = nn.Sequential(
            nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Dropout(0.2), nn.Linear(256, 10)
        )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def step() -> None:
        loss = nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return model, step
