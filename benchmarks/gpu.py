"""Training on one GPU: what tracking costs there, how busy it is, and what waits for it."""

from typing import Any

from benchmarks.machine import Setting, in_child
from benchmarks.results import Part, Table, Target, interval, number, spread, with_sign

LOOPS = ("transformer", "convolutions", "embeddings")
_TEXT = """
A transformer of 124 million parameters (12 layers, width 768, 1,024 tokens, a vocabulary of 32,768) in bf16
with AdamW, and convolutions on pictures, on one GPU, by one process.

*Cost*: blocks of the same steps in turn, in one process, each waited for to its end on the GPU: PyTorch's own
loop; the same with `run.log()` of ten scalars in each step, three of which are on the GPU; and with
`run.distribute`'s step in place of its own. The blocks with tracking have a run of their own, with system
metrics every second instead of every 30. What is more than PyTorch's loop is a block's time less that of
PyTorch's in the same round.
"""
_BUSY = """
Whole trainings from shards, with `run.distribute`, `run.log()` in each step, system metrics every second and
`run.save()` in each epoch. *Busy* is the mean of `system/gpu.0/utilization` between the first epoch and the
last, and *kernels* the share of 20 profiled steps in which a kernel or a copy ran. *Stall* is how long a call
of `run.save()` that wrote a checkpoint of so many *MB* kept the training, but for the first, which makes the
memory of the copy, and *the last*, which is waited for. The transformer's are written beside training; the
convolutions' are small, and are written before the call returns.
"""
_WAITS = """
Calls of CUDA on the training thread that wait for the GPU (`cudaStreamSynchronize`, `cudaEventSynchronize`,
`cudaDeviceSynchronize`, `cudaMemcpy`), counted by PyTorch's profiler while a run follows a training;
`loss.item()` is what a loop pays that logs numbers. Copies that are asynchronous by name and wait for
pageable memory are not among them.
"""
_DETERMINISM = """
As in the part `determinism`, by the time until the GPU has done a block's steps; both sides have cuBLAS'
workspace and no autotuning of cuDNN. *Equal* says whether two trainings of the same seed end in the same
weights' digest.
"""


def measure(setting: Setting) -> Part:
    """Measure costs, shares of the time and counts; a quick run without a GPU uses the CPU."""
    part = Part("gpu", "Training on a GPU", _TEXT)
    device = in_child("benchmarks.gpu_loops:find_device")
    if device["type"] == "cpu" and not setting.quick:
        part.missing.append("this machine has no GPU that PyTorch can use")
        return part
    where: dict[str, Any] = {"device": device["type"], "is_small": setting.quick}
    _measure_cost(part, setting, where)
    _measure_busy(part, setting, where)
    _measure_waits(part, setting, where)
    _measure_determinism(part, setting, where)
    part.tables[0].note = f"{device['name']}; driver {device['driver']}, PyTorch {device['torch']}"
    return part


def _measure_cost(part: Part, setting: Setting, where: dict[str, Any]) -> None:
    rounds = setting.choose(2, 8)
    seconds = setting.choose(0.2, 4.0)
    folder = str(setting.work / "cost")
    step_ms = in_child(
        "benchmarks.gpu_loops:compare_loops", folder=folder, rounds=rounds, seconds=seconds, **where
    )
    table = Table(
        ["loop", "rounds", "a step, ms", "more than PyTorch's loop, %", "mean and its 95 % interval, %"],
        [],
        "Cost",
    )
    baseline = step_ms["PyTorch"]
    for name, times in step_ms.items():
        shares = [100 * (time / base - 1) for time, base in zip(times, baseline, strict=True)]
        more = ["", ""]
        if times is not baseline:
            more = [spread(shares, with_sign), interval(shares, with_sign)]
        table.rows.append([name, str(rounds), spread(times), *more])
        if times is not baseline:
            part.targets.append(Target(f"overhead on a GPU, {name}", "%", shares, 0.5))
    part.tables.append(table)


def _measure_busy(part: Part, setting: Setting, where: dict[str, Any]) -> None:
    shares = ["busy, %", "kernels, %", "waits for data, %", "saves, %"]
    header = ["training", "seconds", *shares, "checkpoints", "MB", "stall, ms", "the last, s"]
    table = Table(header, [], "How busy the GPU is kept", _BUSY.strip())
    seconds = setting.choose(3, 60)
    for name, minimum in (("transformer", 95.0), ("convolutions", 95.0)):
        folder = str(setting.work / f"busy-{name}")
        result = in_child("benchmarks.gpu_loops:train", folder=folder, name=name, seconds=seconds, **where)
        percents = [_percent(result[share]) for share in ("busy", "kernels", "data_wait", "saves")]
        stalls = result["stall_ms"][1:-1] or result["stall_ms"]
        sizes = [str(len(result["stall_ms"])), number(result["megabytes"])]
        table.rows.append(
            [
                name,
                number(result["seconds"]),
                *percents,
                *sizes,
                spread(stalls),
                number(result["stall_ms"][-1] / 1e3),
            ]
        )
        if result["busy"] is not None:
            part.targets.append(Target(f"busy GPU, {name}", "%", [result["busy"]], minimum, at_most=False))
        part.targets.append(Target(f"stall of a save on a GPU, {name}", "ms", stalls, 100.0))
    part.tables.append(table)


def _measure_waits(part: Part, setting: Setting, where: dict[str, Any]) -> None:
    steps = setting.choose(3, 50)
    counts = in_child(
        "benchmarks.gpu_loops:count_waits", folder=str(setting.work / "waits"), steps=steps, **where
    )
    table = Table(
        ["loop", "steps", "calls that wait for the GPU"], [], "What waits for the GPU", _WAITS.strip()
    )
    for name, count in counts.items():
        table.rows.append([name, str(steps), str(count)])
    part.targets.append(
        Target(
            "waits for the GPU, run.log() of tensors on it",
            "",
            [float(counts["run.log() of tensors on the GPU"])],
            0.0,
        )
    )
    part.tables.append(table)


def _measure_determinism(part: Part, setting: Setting, where: dict[str, Any]) -> None:
    pairs = setting.choose(2, 8)
    seconds = setting.choose(0.1, 1.0)
    header = [
        "loop",
        "pairs",
        "a step without, ms",
        "ratio",
        "mean and its 95 % interval",
        "equal, with",
        "equal, without",
    ]
    table = Table(header, [], "What determinism costs on a GPU", _DETERMINISM.strip())
    for name in LOOPS:
        result = in_child(
            "benchmarks.gpu_loops:compare_determinism", name=name, pairs=pairs, seconds=seconds, **where
        )
        equal = ["yes" if result[key] else "no" for key in ("equal_with", "equal_without")]
        ratios = result["ratios"]
        table.rows.append(
            [
                name,
                str(pairs),
                number(result["step_ms"]),
                spread(ratios, _ratio),
                interval(ratios, _ratio),
                *equal,
            ]
        )
    part.tables.append(table)


def _percent(share: float | None) -> str:
    return "not measured" if share is None else number(share)


def _ratio(value: float) -> str:
    return f"{value:.3f}"
