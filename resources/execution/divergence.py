"""Running trials whose streamed metrics have diverged: the sensors stop those, because they do not run the
trials themselves.
"""

from halving import Store
from halving.query.divergence_watch import DivergenceWatch
from halving.trial.bounds import Range, accepted_ranges
from resources.scheduling.assignment import Assignment
from resources.scheduling.scheduler import Scheduler
from resources.sweep_spec import SweepSpec


def ranges_of(spec: SweepSpec) -> dict[str, Range]:
    """Metric to the values that a trial of this spec may stream."""
    finite = [*(objective.metric for objective in spec.objectives), *spec.bounds]
    return accepted_ranges(
        finite, {metric: (bounds.min, bounds.max) for metric, bounds in spec.divergence.items()}
    )


def diverged_trials(
    store: Store, scheduler: Scheduler, turn: int, limit: int
) -> list[tuple[Assignment, str]]:
    """Attempts that are running and have diverged, each with what was found.

    Each check reads what an attempt has streamed, so at most ``most`` attempts are checked; the next ``turn``
    checks those that follow.
    """
    ranges = ranges_of(scheduler.spec)
    diverged = []
    running = scheduler.claimed_attempts()
    begin = turn * limit % len(running) if len(running) > limit else 0
    for assignment in [*running, *running][begin : begin + min(limit, len(running))]:
        watch = DivergenceWatch(store, scheduler.spec.project, assignment.key, assignment.attempt, ranges)
        if problem := watch.check():
            diverged.append((assignment, problem))
    return diverged
