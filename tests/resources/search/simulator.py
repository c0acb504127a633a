"""The third driver of the brain: workers in virtual time, with crashes, to see whole searches in milliseconds."""

import heapq
import random
from dataclasses import dataclass, field

from resources.search import (
    Continue,
    Crashed,
    Decision,
    Event,
    Failed,
    Finish,
    Idle,
    Reached,
    Returned,
    Rules,
    SearchState,
    Wait,
    decide,
)


@dataclass
class Simulation:
    """One search: its end state, and every event with the state before it and the decision on it."""

    state: SearchState
    history: list[tuple[SearchState, Event, Decision]] = field(default_factory=list)

    def apply(self, event: Event) -> Decision:
        before = self.state
        self.state, decision = decide(before, event)
        self.history.append((before, event, decision))
        return decision


def simulate(rules: Rules, *, workers: int, seed: int, crash: float = 0.0, fail: float = 0.0, early: float = 0.0) -> Simulation:
    """Run a search to its end on workers of different speed.

    Args:
        rules: the search.
        workers: how many run at a time.
        seed: of results, durations and faults.
        crash, fail, early: chance that a leg ends in a crash, a final failure, or an early return.
    """
    rng = random.Random(seed)
    quality = [rng.gauss(0, 1) for _ in range(rules.max_trials)]
    simulation = Simulation(SearchState(rules))
    busy: list[tuple[float, int, int]] = []  # (end of the leg, worker, trial)
    idle = list(range(workers))
    now = 0.0
    while True:
        waiting = []
        for worker in idle:
            decision = simulation.apply(Idle())
            if isinstance(decision, Finish):
                assert not busy
                return simulation
            if isinstance(decision, Wait):
                waiting.append(worker)
                continue
            heapq.heappush(busy, (now + _leg(rng, simulation.state, decision.trial), worker, decision.trial))
        idle = waiting
        now, worker, trial = heapq.heappop(busy)
        value = quality[trial] + rng.gauss(0, 0.3)
        chance = rng.random()
        event: Event = Reached(trial, value)
        if chance < crash:
            event = Crashed(trial)
        elif chance < crash + fail:
            event = Failed(trial)
        elif chance < crash + fail + early:
            event = Returned(trial, value)
        if isinstance(simulation.apply(event), Continue):
            heapq.heappush(busy, (now + _leg(rng, simulation.state, trial), worker, trial))
        else:
            idle.append(worker)


def _leg(rng: random.Random, state: SearchState, trial: int) -> float:
    """Virtual seconds to the trial's next rung."""
    done = len(state.trials[trial].results)
    budgets = (0, *state.rules.budgets)
    return (budgets[done + 1] - budgets[done]) * rng.uniform(0.5, 2.0)
