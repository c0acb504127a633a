"""What a sweep needs at its largest, in words and numbers: for each trial, and for all at a time."""

from dataclasses import dataclass

from resources.sweep_spec.requirements import AttemptResources, quantity_bytes
from resources.sweep_spec.sweep import SweepSpec


@dataclass(frozen=True)
class LargestNeed:
    """What is needed at once if every trial is at the rung that needs most.

    Attributes:
        trials: trials that run at a time; None is as many as there is room for, and then all other numbers
            are for one trial.
        gpus, processes, nodes, cpus: totals of these trials.
        memory: total bytes of memory; None if the spec does not say.
    """

    trials: int | None
    gpus: int
    processes: int
    nodes: int
    cpus: float
    memory: int | None


def largest_need(spec: SweepSpec) -> LargestNeed:
    """Compute what a sweep needs at its largest."""
    attempts = spec.resources.by_rung.values()
    trials = spec.concurrency or 1
    nodes = max(attempt.nodes for attempt in attempts)
    memory = None
    if spec.resources.memory:
        memory = trials * nodes * quantity_bytes(spec.resources.memory)
    return LargestNeed(
        trials=spec.concurrency or None,
        gpus=trials * max(attempt.all_gpus for attempt in attempts),
        processes=trials * max(attempt.world_size for attempt in attempts),
        nodes=trials * nodes,
        cpus=trials * nodes * spec.resources.cpus,
        memory=memory,
    )


def needs_in_words(spec: SweepSpec) -> list[str]:
    """Two lines: what each trial is given, by rung, and what the sweep needs at its largest."""
    (_, first), *others = _changes(spec)
    lines = [_attempt_in_words(first)]
    lines += [
        f"from the rung of {budget} epochs on {_attempt_in_words(attempt)}" for budget, attempt in others
    ]
    if spec.elastic and not spec.resources.queue:  # A Kueue admits all pods of a gang, or none.
        lines[-1] += f", {spec.elastic.min_nodes} of which suffice to go on"
    largest = largest_need(spec)
    counts = [(largest.gpus, "GPU"), (largest.processes, "process"), (largest.nodes, "node")]
    numbers = [
        f"{count} {name}{_s(count, name)}"
        for count, name in counts
        if count and (name != "node" or spec.image)
    ]
    numbers.append(f"{largest.cpus:g} core{_s(largest.cpus)}")
    if largest.memory is not None:
        numbers.append(f"{largest.memory / 2**30:.4g}Gi of memory")
    at_a_time = "each trial, of which as many run as there is room for"
    if largest.trials:
        at_a_time = f"{largest.trials} trial{_s(largest.trials)} at a time"
    return [f"a trial has {'; '.join(lines)}", f"at its largest: {', '.join(numbers)} for {at_a_time}"]


def _changes(spec: SweepSpec) -> list[tuple[int, AttemptResources]]:
    """The rungs from which on an attempt is given something else than before, with what it is given."""
    changes: list[tuple[int, AttemptResources]] = []
    for budget, attempt in spec.resources.by_rung.items():
        if not changes or changes[-1][1] != attempt:
            changes.append((budget, attempt))
    return changes


def _attempt_in_words(attempt: AttemptResources) -> str:
    on_each = f"{attempt.processes} process{_s(attempt.processes, 'process')}"
    if attempt.gpus:
        on_each += f" and {attempt.gpus} GPU{_s(attempt.gpus)}"
    if attempt.nodes == 1:
        return on_each
    return f"{on_each} on each of {attempt.nodes} nodes"


def _s(count: float, noun: str = "") -> str:
    """The ending of a noun's plural; nothing where the count is one."""
    if count == 1:
        return ""
    if noun.endswith("s"):
        return "es"
    return "s"
