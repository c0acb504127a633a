"""The measurements of the part ``gpu``, in processes of its own.

They use the SDK, PyTorch and nothing else, as a training does.
"""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor, nn
from torch.nn import functional

import halving
from benchmarks import determinism
from benchmarks.peers.load_halving import write_shards
from examples.characters import Block
from halving.checkpoints.weights_digest import weights_digest
from halving.query.api import curves
from halving.run.determinism import make_deterministic
from halving.store.store import Store

Step = Callable[[Any], Tensor]
"""Makes a step with a batch and gives its loss."""
WAITING_CALLS = ("cudaStreamSynchronize", "cudaEventSynchronize", "cudaDeviceSynchronize", "cudaMemcpy")
_PROFILED = 20  # steps
_PICTURE = (3, 64, 64)
_CLASSES = 10


def find_device() -> dict[str, str]:
    """The GPU, or that there is none: its ``type``, ``name``, ``driver``, and the version of PyTorch."""
    if not torch.cuda.is_available():
        return {"type": "cpu", "name": "no GPU", "driver": "none", "torch": torch.__version__}
    import pynvml

    pynvml.nvmlInit()
    return {
        "type": "cuda",
        "name": torch.cuda.get_device_name(),
        "driver": pynvml.nvmlSystemGetDriverVersion(),
        "torch": torch.__version__,
    }


class Transformer(nn.Module):
    """From tokens, shape (rows, length), to scores of each next one, shape (rows * length, vocabulary)."""

    def __init__(self, width: int, layers: int, heads: int, length: int, vocabulary: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.places = nn.Embedding(length, width)
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        self.scores = nn.Linear(width, vocabulary, bias=False)
        self.scores.weight = self.tokens.weight  # Press and Wolf, 2017
        nn.init.normal_(self.tokens.weight, std=0.02)
        nn.init.normal_(self.places.weight, std=0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            hidden = block(hidden)
        scores: Tensor = self.scores(self.norm(hidden).flatten(0, 1))
        return scores


class Loop:
    """A network, its optimizer, and random rows of its kind.

    Args:
        name: ``transformer``, ``convolutions`` or ``embeddings``.
        is_small: of a size for a smoke run on a CPU.

    Attributes:
        rows: of a batch.
    """

    def __init__(self, name: str, device: str, *, is_small: bool) -> None:
        torch.manual_seed(0)
        self.name = name
        self.device = device
        self.model, self.rows, self._columns = _LOOPS[name](is_small)
        self.model.to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-4, fused=True)

    def make_batch(self, rows: int, seed: int) -> dict[str, "np.ndarray[Any, Any]"]:
        """Random rows by column."""
        random = np.random.default_rng(seed)
        return {
            column: random.integers(0, high, (rows, *shape), dtype)
            for column, (high, shape, dtype) in self._columns.items()
        }

    def loss_of(self, model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        """The mean loss over a batch's rows."""
        if self.name == "transformer":
            tokens = batch["tokens"].long()
            return functional.cross_entropy(model(tokens[:, :-1]), tokens[:, 1:].flatten())
        inputs = batch["inputs"].float() / 255 if self.name == "convolutions" else batch["inputs"].long()
        return functional.cross_entropy(model(inputs), batch["label"].long())

    def step(self, batch: dict[str, Tensor]) -> Tensor:
        """One step as PyTorch's own documentation makes it, in bf16, with clipped gradients."""
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast(self.device, torch.bfloat16):
            loss = self.loss_of(
                self.model,
                {name: tensor.to(self.device, non_blocking=True) for name, tensor in batch.items()},
            )
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return loss.detach()

    def on_device(self, count: int) -> Iterator[dict[str, Tensor]]:
        """Batches that are on the device already, without end."""
        batches = [
            {
                name: torch.from_numpy(array).to(self.device)
                for name, array in self.make_batch(self.rows, seed).items()
            }
            for seed in range(count)
        ]
        while True:
            yield from batches


def compare_loops(
    folder: str, rounds: int, seconds: float, device: str, is_small: bool
) -> dict[str, list[float]]:
    """Milliseconds of a step by the name of the loop, one for each round."""
    untracked, distributed = (Loop("transformer", device, is_small=is_small) for _ in range(2))
    with halving.init("bench", root=folder, seed=0, system_metrics=None) as run:
        training = run.distribute(distributed.model, distributed.optimizer, precision="bf16", clip=1.0)
        batches = untracked.on_device(4)
        loops: dict[str, Step] = {
            "PyTorch": untracked.step,
            "PyTorch and run.log()": untracked.step,
            "run.distribute and run.log()": lambda batch: training.step(distributed.loss_of, batch),
        }
        for step in loops.values():
            _time_block(step, batches, 5, device)
        steps = max(2, int(seconds / _time_block(untracked.step, batches, 5, device)))
        step_ms: dict[str, list[float]] = {name: [] for name in loops}
        names = list(loops)
        for turn in range(rounds):
            for name in (*names[turn % len(names) :], *names[: turn % len(names)]):
                with _tracking(folder, is_tracked=name != "PyTorch") as track:
                    step_ms[name].append(1e3 * _time_block(loops[name], batches, steps, device, track))
    return step_ms


@contextmanager
def _tracking(folder: str, *, is_tracked: bool) -> Iterator[Callable[[Tensor, int], None] | None]:
    """A run with system metrics, as a function that logs ten scalars of a step; None without tracking."""
    if not is_tracked:
        yield None
        return
    with halving.init("bench", root=folder, system_metrics=1.0) as run:
        yield lambda loss, step: run.log(_ten_scalars(loss, step), step=step)


def _ten_scalars(loss: Tensor, step: int) -> dict[str, Any]:
    """As a loop would log them: three are on its device."""
    return {
        "train/loss": loss,
        "train/perplexity": loss.exp(),
        "train/bits": loss * 1.4427,
        "optimizer/lr": 3e-4,
        "optimizer/weight_decay": 0.01,
        "gradient/clip": 1.0,
        "progress/epoch": step / 32,
        "progress/batch": step,
        "progress/rows": 32 * step,
        "progress/tokens": 32_768 * step,
    }


def _time_block(
    step: Step,
    batches: Iterator[Any],
    steps: int,
    device: str,
    track: Callable[[Tensor, int], None] | None = None,
) -> float:
    """Seconds of a step, until the device has done the block."""
    _synchronize(device)
    began = time.perf_counter()
    for number in range(steps):
        loss = step(next(batches))
        if track is not None:
            track(loss, number)
    _synchronize(device)
    return (time.perf_counter() - began) / steps


def train(folder: str, name: str, seconds: float, device: str, is_small: bool) -> dict[str, Any]:
    """Train from shards for so many seconds and more, with all of Halving's tracking on.

    An epoch takes a sixth of that time.

    Returns:
        Shares of the time, 0-100, between the first epoch and the last: ``busy`` and ``kernels`` (None
        without a GPU), ``data_wait`` and ``saves``; ``stall_ms`` of each save that wrote; ``megabytes`` of a
        checkpoint; ``seconds`` between those epochs.
    """
    loop = Loop(name, device, is_small=is_small)
    store = Store(Path(folder))
    dataset = _write_dataset(loop, store, rows=loop.rows * (4 if is_small else 64))
    with halving.init("bench", root=folder, seed=0, system_metrics=0.5 if is_small else 1.0) as run:
        training = run.distribute(loop.model, loop.optimizer, precision="bf16", clip=1.0)
        batches = _without_end(dataset.loader("train", batch_size=loop.rows, seed=0).torch())
        state = {"model": loop.model, "optimizer": loop.optimizer, "training": training}
        stall_ms: list[float] = []
        number = 0
        began = 0.0
        ended = 0.0
        kernels = None
        for epoch in run.epochs(8):
            if epoch == 2:
                kernels = _profile(lambda: training.step(loop.loss_of, next(batches)), device)
                began = time.time()
            until = time.monotonic() + seconds / 6
            while time.monotonic() < until:
                loss = training.step(loop.loss_of, next(batches))
                run.log(_ten_scalars(loss, number), step=number)
                number += 1
            run.report(loss=float(loss))
            if epoch == 8:
                ended = time.time()
            stall_ms += _timed_save(run, state)
    busy = None
    if device == "cuda":
        busy = _mean_of(run.id, "system/gpu.0/utilization", folder, began, ended)
    return {
        "busy": busy,
        "kernels": kernels,
        "data_wait": _mean_of(run.id, "system/data_wait", folder, began, ended),
        "saves": _mean_of(run.id, "system/saves", folder, began, ended),
        "stall_ms": stall_ms,
        "megabytes": sum(tensor.nbytes for tensor in _tensors_of(loop)) / 1e6,
        "seconds": ended - began,
    }


def _timed_save(run: halving.Run, state: dict[str, Any]) -> list[float]:
    """Milliseconds of a save that wrote a checkpoint or began to; empty for one that was skipped."""
    before = run._saver.interval.saves
    began = time.perf_counter()
    run.save(**state)
    milliseconds = 1e3 * (time.perf_counter() - began)
    if run._saver.interval.saves > before:
        return [milliseconds]
    return []


def count_waits(folder: str, steps: int, device: str, is_small: bool) -> dict[str, int]:
    """Calls of CUDA that waited for the device on the training thread, by the use of the loss."""
    loop = Loop("convolutions", device, is_small=is_small)
    batches = loop.on_device(2)
    with halving.init("bench", root=folder, system_metrics=1.0) as run:
        uses: dict[str, Callable[[Tensor, int], object]] = {
            "nothing logged": lambda *_: None,
            "run.log() of tensors on the GPU": lambda loss, number: run.log(
                _ten_scalars(loss, number), step=number
            ),
            "loss.item()": lambda loss, _: loss.item(),
        }
        return {name: _count_waits_of(loop, batches, steps, use, Path(folder)) for name, use in uses.items()}


def _count_waits_of(
    loop: Loop, batches: Iterator[Any], steps: int, use: Callable[[Tensor, int], object], folder: Path
) -> int:
    from torch.profiler import ProfilerActivity, profile, record_function

    def block() -> None:
        for number in range(steps):
            use(loop.step(next(batches)), number)

    block()
    _synchronize(loop.device)
    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if loop.device == "cuda" else [])
    with profile(activities=activities) as profiler:
        with record_function("the block"):
            block()
        _synchronize(loop.device)
    profiler.export_chrome_trace(str(trace := folder / "trace.json"))
    events = [event for event in json.loads(trace.read_text())["traceEvents"] if "dur" in event]
    marked = next(
        event for event in events if event["name"] == "the block" and event.get("cat") == "user_annotation"
    )
    ended = marked["ts"] + marked["dur"]
    within = [
        event for event in events if event["tid"] == marked["tid"] and marked["ts"] <= event["ts"] < ended
    ]
    return sum(event["name"] in WAITING_CALLS for event in within)


def compare_determinism(name: str, pairs: int, seconds: float, device: str, is_small: bool) -> dict[str, Any]:
    """Run all pairs of one loop: see :func:`benchmarks.determinism.compare`."""
    make_deterministic()  # first: cuBLAS reads its workspace when it begins
    loop = Loop(name, device, is_small=is_small)
    batches = loop.on_device(2)
    _time_block(loop.step, batches, 5, device)
    steps = max(3, int(seconds / _time_block(loop.step, batches, 5, device)))

    def time_step() -> float:
        _time_block(loop.step, batches, 1, device)  # a kernel that was not used before is loaded
        return _time_block(loop.step, batches, steps, device)

    return determinism.compare(pairs, lambda: _digest_after(name, device, is_small), time_step)


def _digest_after(name: str, device: str, is_small: bool, steps: int = 10) -> str | None:
    loop = Loop(name, device, is_small=is_small)
    _time_block(loop.step, loop.on_device(2), steps, device)
    return weights_digest({"model": loop.model})


def _profile(step: Callable[[], object], device: str) -> float | None:
    """The share of the time, 0-100, in which a kernel ran; None without a GPU."""
    from torch.profiler import ProfilerActivity, profile

    if device == "cpu":
        return None
    for _ in range(5):
        step()
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        for _ in range(_PROFILED):
            step()
        torch.cuda.synchronize()
    spans = sorted(
        (event.time_range.start, event.time_range.end)
        for event in profiler.events()
        if event.device_type.name == "CUDA"
    )
    return 100 * _total_length(spans) / (spans[-1][1] - spans[0][0])


def _total_length(spans: list[tuple[float, float]]) -> float:
    """How much of the time the spans cover; they are in order of their starts."""
    total = 0.0
    reached = spans[0][0]
    for start, end in spans:
        if end > reached:
            total += end - max(start, reached)
            reached = end
    return total


def _mean_of(run: str, key: str, folder: str, began: float, ended: float) -> float | None:
    """The mean of a metric's samples between two times."""
    table = curves([run], [key], root=folder, max_points=None)
    values = [
        value
        for step, value in zip(table["step"].to_pylist(), table["value"].to_pylist(), strict=True)
        if began < step <= ended
    ]
    return float(np.mean(values)) if values else None


def _write_dataset(loop: Loop, store: Store, rows: int) -> halving.Dataset:
    """Rows of the loop's kind as shards of a snapshot."""
    arrays = loop.make_batch(rows, seed=1)
    table = pa.table({name: _as_column(array) for name, array in arrays.items()})
    return write_shards(store, loop.name, table)


def _as_column(array: "np.ndarray[Any, Any]") -> pa.Array:
    column = pa.array(array.ravel())
    for size in reversed(array.shape[1:]):
        column = pa.FixedSizeListArray.from_arrays(column, size)
    return column


def _without_end(loader: Any) -> Iterator[Any]:
    while True:
        yield from loader


def _tensors_of(loop: Loop) -> Iterator[Tensor]:
    yield from loop.model.parameters()
    for state in loop.optimizer.state.values():
        yield from (value for value in state.values() if isinstance(value, Tensor))


def _synchronize(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def _transformer(is_small: bool) -> tuple[nn.Module, int, dict[str, Any]]:
    width, layers, heads, length, vocabulary, rows = (
        (32, 2, 4, 16, 64, 4) if is_small else (768, 12, 12, 1024, 32_768, 16)
    )
    model = Transformer(width, layers, heads, length, vocabulary)
    return model, rows, {"tokens": (vocabulary, (length + 1,), np.int32)}


def _convolutions(is_small: bool) -> tuple[nn.Module, int, dict[str, Any]]:
    """Convolutions one after the other, on pictures of a few KB."""
    width, depth, rows = (8, 1, 8) if is_small else (128, 8, 512)
    layers: list[nn.Module] = [nn.Conv2d(_PICTURE[0], width, 3, stride=2, padding=1)]
    for _ in range(depth):
        layers += [nn.Conv2d(width, width, 3, padding=1), nn.ReLU()]
    layers += [nn.AvgPool2d(8), nn.Flatten(), nn.Linear(16 * width, _CLASSES)]
    return (
        nn.Sequential(*layers),
        rows,
        {"inputs": (256, _PICTURE, np.uint8), "label": (_CLASSES, (), np.int64)},
    )


def _embeddings(is_small: bool) -> tuple[nn.Module, int, dict[str, Any]]:
    words, width, rows = (100, 8, 8) if is_small else (20_000, 256, 4_096)
    model = nn.Sequential(nn.EmbeddingBag(words, width), nn.Linear(width, _CLASSES))
    return model, rows, {"inputs": (words, (64,), np.int64), "label": (_CLASSES, (), np.int64)}


_LOOPS: dict[str, Callable[[bool], tuple[nn.Module, int, dict[str, Any]]]] = {
    "transformer": _transformer,
    "convolutions": _convolutions,
    "embeddings": _embeddings,
}
