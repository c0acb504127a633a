"""Simulates a whole search in virtual time: real decisions and suggestions, with simulated workers.

Workers may differ in speed, be lost and be replaced; trials may crash, fail or end early. It serves to replay
a finished sweep under another strategy, to compare strategies, and to run searches of ten thousand trials in
seconds.
"""

import heapq
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from resources.search.decide import (
    Continue,
    Crashed,
    Event,
    Failed,
    Finish,
    Idle,
    Preempted,
    Reached,
    Returned,
    StartFinal,
    Wait,
    decide,
)
from resources.search.rules import max_trials, rules_of
from resources.search.state import Result, SearchState
from resources.search.suggest import make_suggester
from resources.search.suggestions.suggester import Tried
from resources.sweep_spec import SweepSpec
from resources.sweep_spec.points import Params

Evaluate = Callable[[int, Params, int], Result | None]
"""From a trial's number, its params and an epoch to its result there; None if its curve ends before."""


@dataclass(frozen=True)
class SimulatedWorkers:
    """The workers of a simulation.

    Attributes:
        count: how many run at a time.
        speeds: each worker's speed is drawn evenly between these two; an epoch takes 1 / speed of its time.
        mean_life: virtual seconds until a worker is lost, on average (exponentially distributed); with None
            none is lost.
        replaced_after: virtual seconds until a lost worker is replaced.
        lease: virtual seconds until it is noticed that a worker is lost.
        crash, fail, early: probabilities that training up to a rung ends in a crash, in a final failure, or
            in an early return.
    """

    count: int
    speeds: tuple[float, float] = (1.0, 1.0)
    mean_life: float | None = None
    replaced_after: float = 120.0
    lease: float = 15.0
    crash: float = 0.0
    fail: float = 0.0
    early: float = 0.0


@dataclass
class Simulation:
    """The result of a simulated search.

    Attributes:
        state: at its end.
        params: of each trial, also of the final training.
        seconds: virtual seconds that it took.
        epochs: how many were trained, with the repeated ones.
        repeated_epochs: how many of them the trial had trained already.
        rungs: how often each (trial, rung) was trained to its end; more than once would be a fault.
        busy_seconds: virtual worker-seconds spent training.
        idle_seconds: virtual worker-seconds that workers waited while trials were still to be started.
        tail_seconds: virtual worker-seconds that workers waited after the last trial was started.
        lost_workers: how many workers were lost.
        starting: virtual second in which the last trial was started.
    """

    state: SearchState
    params: list[Params] = field(default_factory=list)
    seconds: float = 0.0
    epochs: int = 0
    repeated_epochs: int = 0
    rungs: Counter[tuple[int, int]] = field(default_factory=Counter)
    busy_seconds: float = 0.0
    idle_seconds: float = 0.0
    tail_seconds: float = 0.0
    lost_workers: int = 0
    starting: float = 0.0


def simulate(
    spec: SweepSpec,
    evaluate: Evaluate,
    workers: SimulatedWorkers,
    *,
    seed: int = 0,
    epoch_seconds: Callable[[Params], float] = lambda params: 1.0,
    max_epochs: int | None = None,
    suggest: Callable[[int], Params] | None = None,
) -> Simulation:
    """Run a sweep's search to its end in virtual time; the same arguments give the same search.

    Args:
        spec: the sweep.
        evaluate: what a trial reports after so many epochs.
        workers: the ones that train its trials.
        seed: for speeds, losses and failures; the sampler uses the spec's.
        epoch_seconds: virtual seconds of an epoch on a worker of speed 1.
        max_epochs: end the search after this many epochs.
        suggest: params by a trial's number, instead of the spec's sampler.
    """
    return _Run(spec, evaluate, workers, seed, epoch_seconds, max_epochs, suggest).run()


@dataclass
class _Leg:
    """A worker's training of a trial up to its next rung."""

    worker: int
    trial: int
    began: float
    from_epoch: int
    to_epoch: int
    epoch_seconds: float


class _Run:
    def __init__(
        self,
        spec: SweepSpec,
        evaluate: Evaluate,
        workers: SimulatedWorkers,
        seed: int,
        epoch_seconds: Callable[[Params], float],
        max_epochs: int | None,
        suggest: Callable[[int], Params] | None,
    ) -> None:
        self._evaluate = evaluate
        self._workers = workers
        self._epoch_seconds = epoch_seconds
        self._max_epochs = max_epochs
        self._rng = random.Random(seed)
        self._state = SearchState(rules_of(spec), max_trials(spec))
        self._suggester = make_suggester(spec)
        self._suggest = suggest or self._sample
        self._simulation = Simulation(self._state)
        self._now = 0.0
        self._serial = 0
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._waiting: dict[int, float] = {}  # idle worker to when it began to wait
        self._speed: dict[int, float] = {}
        self._legs: dict[int, _Leg] = {}  # by worker
        self._trained: dict[int, int] = {}  # trial to epochs with a checkpoint
        self._furthest: dict[int, int] = {}  # trial to epochs ever trained

    def run(self) -> Simulation:
        for worker in range(self._workers.count):
            self._join(worker)
        self._serve_waiting()
        while self._agenda and (self._max_epochs is None or self._simulation.epochs < self._max_epochs):
            self._now, _, happen = heapq.heappop(self._agenda)
            happen()
            if not self._serve_waiting() and not self._legs:
                break
        for worker in list(self._waiting):
            self._stop_waiting(worker)
        self._simulation.seconds = self._now
        return self._simulation

    def _serve_waiting(self) -> bool:
        """Hand out work to the waiting workers; return False when the search is over."""
        while self._waiting:
            worker = next(iter(self._waiting))
            decision = self._decide(Idle())
            if isinstance(decision, Wait):
                return True
            if isinstance(decision, Finish):
                return False
            self._stop_waiting(worker)
            self._begin_leg(worker, decision.trial)
        return True

    def _decide(self, event: Event) -> Any:
        decision, trial = decide(self._state, event)
        if trial is not None:
            self._state.put(trial)
            if isinstance(decision, StartFinal):
                self._simulation.params.append(self._simulation.params[decision.winner])
            elif trial.number == len(self._simulation.params):
                self._simulation.params.append(self._suggest(trial.number))
                self._simulation.starting = self._now
        return decision

    def _sample(self, number: int) -> Params:
        if self._suggester.needs_history:
            trials = zip(self._simulation.params, self._state.trials, strict=False)
            self._suggester.learn([Tried(params, trial) for params, trial in trials], {})
        return self._suggester.suggest(number).params

    def _begin_leg(self, worker: int, trial: int) -> None:
        rung = len(self._state.trial(trial).results)
        per_epoch = self._epoch_seconds(self._simulation.params[trial]) / self._speed[worker]
        leg = _Leg(
            worker, trial, self._now, self._trained.get(trial, 0), self._state.ladder(trial)[rung], per_epoch
        )
        self._legs[worker] = leg
        self._schedule(leg.began + (leg.to_epoch - leg.from_epoch) * per_epoch, lambda: self._end_leg(leg))

    def _end_leg(self, leg: _Leg) -> None:
        if self._legs.get(leg.worker) is not leg:
            return  # Its worker was lost meanwhile.
        del self._legs[leg.worker]
        self._account(leg, leg.to_epoch)
        event = self._outcome(leg)
        if isinstance(event, Reached | Returned):
            self._simulation.rungs[leg.trial, len(self._state.trial(leg.trial).results)] += 1
        if isinstance(self._decide(event), Continue):
            self._begin_leg(leg.worker, leg.trial)
        else:
            self._waiting[leg.worker] = self._now

    def _outcome(self, leg: _Leg) -> Event:
        chance = self._rng.random()
        workers = self._workers
        if chance < workers.crash:
            return Crashed(leg.trial)
        if chance < workers.crash + workers.fail:
            return Failed(leg.trial)
        results = (
            self._evaluate(leg.trial, self._simulation.params[leg.trial], epoch)
            for epoch in range(leg.to_epoch, -1, -1)
        )
        result = next(results)
        if result is None:  # The curve ends before the rung, so its last result counts there.
            last = next((earlier for earlier in results if earlier is not None), None)
            if last is None:
                return Failed(leg.trial)
            return Returned(leg.trial, last)
        if chance < workers.crash + workers.fail + workers.early:
            return Returned(leg.trial, result)
        return Reached(leg.trial, result)

    def _account(self, leg: _Leg, epoch: int) -> None:
        """Count a leg that was trained up to this epoch, at which it has a checkpoint."""
        self._simulation.busy_seconds += self._now - leg.began
        self._simulation.epochs += epoch - leg.from_epoch
        self._simulation.repeated_epochs += max(
            0, min(epoch, self._furthest.get(leg.trial, 0)) - leg.from_epoch
        )
        self._furthest[leg.trial] = max(epoch, self._furthest.get(leg.trial, 0))
        self._trained[leg.trial] = epoch

    def _join(self, worker: int) -> None:
        self._speed[worker] = self._rng.uniform(*self._workers.speeds)
        self._waiting[worker] = self._now
        if self._workers.mean_life is not None:
            self._schedule(
                self._now + self._rng.expovariate(1 / self._workers.mean_life), lambda: self._lose(worker)
            )

    def _lose(self, worker: int) -> None:
        """Let a worker vanish; that is noticed when its trial's lease runs out, and it is replaced later."""
        self._simulation.lost_workers += 1
        if (leg := self._legs.pop(worker, None)) is not None:
            self._account(
                leg, min(leg.from_epoch + int((self._now - leg.began) / leg.epoch_seconds), leg.to_epoch)
            )
            self._schedule(self._now + self._workers.lease, lambda: self._miss(leg))
            # The trial still counts as running, under a key that no worker has.
            self._legs[-1 - leg.trial] = leg
        self._stop_waiting(worker)
        self._schedule(self._now + self._workers.replaced_after, lambda: self._join(worker))

    def _miss(self, leg: _Leg) -> None:
        del self._legs[-1 - leg.trial]
        self._decide(Preempted(leg.trial))

    def _stop_waiting(self, worker: int) -> None:
        if (since := self._waiting.pop(worker, None)) is None:
            return
        all_started = len(self._state.trials) == self._state.max_trials
        idle = self._now - since
        if all_started:
            idle = max(0.0, self._simulation.starting - since)
        self._simulation.idle_seconds += idle
        self._simulation.tail_seconds += self._now - since - idle

    def _schedule(self, time: float, happen: Callable[[], None]) -> None:
        self._serial += 1
        heapq.heappush(self._agenda, (time, self._serial, happen))
