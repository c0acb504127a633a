"""Finds running trials whose streamed metrics have diverged, so that the sensors stop them.

The sensors do not run the trials themselves.
"""

from halving import Store
from halving.query.divergence_watch import DivergenceWatch
from halving.trial.bounds import Range, accepted_ranges
from resources.scheduling.assignment import Assignment
from resources.scheduling.scheduler import Scheduler
from resources.sweep_spec import SweepSpec


def ranges_of(spec: SweepSpec) -> dict[str, Range]:
    """Metric to the range of values that a trial of this spec may stream."""
    finite = [*(objective.metric for objective in spec.objectives), *spec.bounds]
    return accepted_ranges(
        finite, {metric: (bounds.min, bounds.max) for metric, bounds in spec.divergence.items()}
    )


def diverged_trials(
    store: Store, scheduler: Scheduler, turn: int, limit: int
) -> list[tuple[Assignment, str]]:
    """Running attempts that have diverged, each with the problem.

    Each check reads what an attempt has streamed, so at most ``limit`` attempts are checked.

    Args:
        turn: counts the calls; each call checks the attempts after those of the one before.
    """
    ranges = ranges_of(scheduler.spec)
    diverged = []
    running = scheduler.claimed_attempts()
    if len(running) > limit:
        begin = turn * limit % len(running)
        running = [*running, *running][begin : begin + limit]
    for assignment in running:
        watch = DivergenceWatch(store, scheduler.spec.project, assignment.key, assignment.attempt, ranges)
        if problem := watch.check():
            diverged.append((assignment, problem))
    return diverged
