"""Running trials whose streamed metrics have left the spec's bounds: what a sensor stops that does not run them itself."""

from halving import Store
from halving.query.divergence_watch import DivergenceWatch
from resources.scheduling.assignment import Assignment
from resources.scheduling.scheduler import Scheduler
from resources.sweep_spec import SweepSpec

Bounds = dict[str, tuple[float | None, float | None]]


def bounds_of(spec: SweepSpec) -> Bounds:
    """Metric to the (smallest, largest) value that a trial may stream, None where any will do.

    Objectives and metrics that must stay in bounds at the rungs have to be finite all the time.
    """
    finite = [*(objective.metric for objective in spec.objectives), *spec.bounds]
    return {**dict.fromkeys(finite, (None, None)), **{metric: (bounds.min, bounds.max) for metric, bounds in spec.divergence.items()}}


def diverged_trials(store: Store, scheduler: Scheduler, turn: int, most: int) -> list[tuple[Assignment, str]]:
    """Attempts that are running and have diverged, each with what was seen.

    A look reads what the attempt has streamed, so no more than ``most`` are looked at; the next ``turn`` goes on behind them.
    """
    bounds, found, running = bounds_of(scheduler.spec), [], scheduler.claimed()
    begin = turn * most % len(running) if len(running) > most else 0
    for assignment in [*running, *running][begin : begin + min(most, len(running))]:
        watch = DivergenceWatch(store, scheduler.spec.name, assignment.key, assignment.attempt, bounds)
        if told := watch.check():
            found.append((assignment, told))
    return found
