"""What a sweep would need at its largest, in words and numbers: of each trial, and of all that run at a
time.
"""

from dataclasses import dataclass

from resources.sweep_spec.requirements import AttemptResources, quantity_bytes
from resources.sweep_spec.sweep import SweepSpec


@dataclass(frozen=True)
class LargestNeed:
    """What is needed at once where every trial is at the rung that needs the most of it.

    Attributes:
        trials: how many run at a time; None: as many as there is room for, and all other numbers are one
            trial's.
        gpus, processes, nodes, cpus: of all these trials.
        memory: in bytes; None where the spec does not say.
    """

    trials: int | None
    gpus: int
    processes: int
    nodes: int
    cpus: float
    memory: int | None


def largest_need(spec: SweepSpec) -> LargestNeed:
    """What a sweep needs at its largest."""
    attempts = spec.resources.by_rung.values()
    trials = spec.concurrency or 1
    nodes = max(attempt.nodes for attempt in attempts)
    memory = spec.resources.memory
    return LargestNeed(
        trials=spec.concurrency or None,
        gpus=trials * max(attempt.all_gpus for attempt in attempts),
        processes=trials * max(attempt.world_size for attempt in attempts),
        nodes=trials * nodes,
        cpus=trials * nodes * spec.resources.cpus,
        memory=trials * nodes * quantity_bytes(memory) if memory else None,
    )


def needs_in_words(spec: SweepSpec) -> list[str]:
    """What each trial is given, by rung, and what the sweep needs at its largest: a line each."""
    lines = [
        f"{f'from the rung of {budget} epochs on ' if number else ''}{_of(attempt)}"
        for number, (budget, attempt) in enumerate(_changes(spec))
    ]
    if spec.elastic and not spec.resources.queue:  # a Kueue admits all pods of a gang, or none
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
    at_a_time = (
        f"{largest.trials} trial{_s(largest.trials)} at a time"
        if largest.trials
        else "each trial, of which as many run as there is room for"
    )
    return [f"a trial has {'; '.join(lines)}", f"at its largest: {', '.join(numbers)} for {at_a_time}"]


def _changes(spec: SweepSpec) -> list[tuple[int, AttemptResources]]:
    """The rungs from which on an attempt is given something else than before, from the first on."""
    changes: list[tuple[int, AttemptResources]] = []
    for budget, attempt in spec.resources.by_rung.items():
        if not changes or changes[-1][1] != attempt:
            changes.append((budget, attempt))
    return changes


def _of(attempt: AttemptResources) -> str:
    on_each = f"{attempt.processes} process{_s(attempt.processes, 'process')}"
    on_each += f" and {attempt.gpus} GPU{_s(attempt.gpus)}" if attempt.gpus else ""
    return f"{on_each} on each of {attempt.nodes} nodes" if attempt.nodes > 1 else on_each


def _s(count: float, noun: str = "") -> str:
    """The ending of a noun's plural; nothing where the count is one."""
    if count == 1:
        return ""
    return "es" if noun.endswith("s") else "s"
