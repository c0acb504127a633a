"""The state of a search: its rules, its trials, and the results at every rung in order.

:class:`SearchState` keeps sorted lists of the trials that are best at a rung, paused there, or queued, so
that a decision among ten thousand trials costs O(log n).
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Status(StrEnum):
    """The status of a trial."""

    SUGGESTED = "suggested"  # its params were chosen ahead of time; it has never run
    QUEUED = "queued"  # has run and waits for a worker again, because it crashed, was preempted or given back
    RUNNING = "running"
    PAUSED = "paused"  # has a checkpoint, holds no worker, may be promoted later
    COMPLETED = "completed"  # reached the last rung, or its trainable returned early
    STOPPED = "stopped"  # ended before its last rung, by the median rule or because its sweep was stopped
    FAILED = "failed"


class Control(StrEnum):
    """What a sweep's user wants it to do now."""

    RUN = "run"
    PAUSE = "pause"  # hand out no trials; running ones are given back with a checkpoint
    STOP = "stop"  # end the search with the results so far
    # For a single trial: it is given back at the end of its epoch, however long that takes, because a more
    # important sweep wants its place, or because its project's GPU-hours are used up.
    YIELD = "yield"


@dataclass(frozen=True)
class Halving:
    """Promotion of the top 1/η of a rung (ASHA: Li et al., MLSys 2020, Algorithm 2)."""

    reduction_factor: int


@dataclass(frozen=True)
class MedianStop:
    """The median rule: a trial that is worse than a quantile of the others at the same epoch stops.

    It follows Golovin et al., KDD 2017, section 3.2.2, with two differences. The paper compares a trial's
    best value so far with the running averages of completed trials. Here both are the objective's summary,
    and every trial with a result at the epoch counts.

    Attributes:
        min_trials: results at the epoch below which no trial is stopped.
        quantile: counted from the best; 0.5 is the median rule, with 0.25 only the best quarter goes on.
    """

    min_trials: int
    quantile: float


@dataclass(frozen=True)
class FinalTraining:
    """How the winner's params are trained again once the search is over.

    Attributes:
        seeds: how many trainings, each with another seed.
        epochs: of each.
    """

    seeds: int
    epochs: int


@dataclass(frozen=True)
class Rules:
    """The rules of a sweep's search.

    Attributes:
        ladders: for each bracket the epochs at its rungs, rising; the longest ladder first. All end at the
            same epoch.
        weights: the proportion in which new trials are distributed among the ladders.
        maximize: for each objective, whether larger is better; trials are ranked by the first.
        early_stopping: how trials are stopped before the last rung; None if there is only one rung.
        max_retries: how often a crashed trial is queued again.
        max_preemptions: how often a trial that has lost its worker is queued again.
        audit: share ε of the pruned trials that are trained to the end once the search is over, 0 to 1.
        final: the final training; None if the winner's own checkpoint is the result.
    """

    ladders: tuple[tuple[int, ...], ...]
    weights: tuple[int, ...] = (1,)
    maximize: tuple[bool, ...] = (False,)
    early_stopping: Halving | MedianStop | None = None
    max_retries: int = 0
    max_preemptions: int = 10
    audit: float = 0.0
    final: FinalTraining | None = None
    _cycle: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_cycle", _bracket_cycle(self.weights))

    def bracket(self, trial: int) -> int:
        """The bracket of a trial, which depends only on its number."""
        return self._cycle[trial % len(self._cycle)]

    def ladder(self, trial: int) -> tuple[int, ...]:
        """The epochs at the rungs of a trial of the search."""
        return self.ladders[self.bracket(trial)]


@dataclass(frozen=True)
class Result:
    """What a trial reported at a rung.

    Attributes:
        values: the objectives, in the spec's order.
        violation: by how much its metrics are out of bounds, summed; 0 is feasible.
    """

    values: tuple[float, ...]
    violation: float = 0.0

    @property
    def value(self) -> float:
        """The first objective, by which trials are ranked."""
        return self.values[0]


@dataclass(frozen=True)
class TrialState:
    """One trial.

    Attributes:
        results: what it reported at each rung; None where it failed.
        audited: None, or how many results the trial had when it was pruned. Later results belong to the audit
            and count in no decision.
        final: the number of the seed, from 0, if the trial belongs to the final training; else None.
    """

    number: int
    status: Status
    results: tuple[Result | None, ...] = ()
    failures: int = 0
    preemptions: int = 0
    audited: int | None = None
    final: int | None = None

    @property
    def counted(self) -> tuple[Result | None, ...]:
        """The results that count in decisions."""
        if self.audited is None:
            return self.results
        return self.results[: self.audited]


Place = tuple[int, float, int]
"""A sort key of a result at its rung: feasible results by objective, infeasible ones by violation, failures.

Ties are broken by the trial's number.
"""


@dataclass
class Rung:
    """The results at one rung of one bracket, and those of the trials that are paused there, best first."""

    results: list[Place] = field(default_factory=list)
    paused: list[Place] = field(default_factory=list)


class SearchState:
    """The state of a sweep between two events.

    Trials are numbered from 0 without a gap: first those of the search, then those of the final training,
    which begins when the search has no more to do. The latter are in ``finals`` alone, so that no ranking,
    rung or sampler sees them.

    Args:
        rules: of the search.
        max_trials: how many trials the search starts at most.
        trials: the trials so far, with those of the final training.
        control: what the sweep's user wants the sweep to do.
    """

    def __init__(
        self, rules: Rules, max_trials: int, trials: Iterable[TrialState] = (), control: Control = Control.RUN
    ) -> None:
        self.rules = rules
        self.max_trials = max_trials
        self.control = control
        self.trials: list[TrialState] = []
        self.finals: list[TrialState] = []
        # (minus its number of results, number): the trial with the most results comes first
        self.queued: list[tuple[int, int]] = []
        self.suggested: list[int] = []
        self.running = self.audits_running = 0
        # Pruned trials in the order in which they are audited; None until it is computed.
        self.audit_order: list[int] | None = None
        self.rungs = [[Rung() for _ in ladder] for ladder in rules.ladders]  # of every bracket
        # Every rung that trials can be paused at, those with the most epochs first.
        self.rungs_from_the_top = [
            self.rungs[bracket][rung]
            for _, bracket, rung in sorted(
                (-epochs, bracket, rung)
                for bracket, ladder in enumerate(rules.ladders)
                for rung, epochs in enumerate(ladder[:-1])
            )
        ]
        for trial in trials:
            self.put(trial)

    def trial(self, number: int) -> TrialState:
        """A trial by its number, of the search or of the final training."""
        searched = len(self.trials)
        if number < searched:
            return self.trials[number]
        return self.finals[number - searched]

    def ladder(self, number: int) -> tuple[int, ...]:
        """The epochs at a trial's rungs; a trial of the final training has one rung, at its end."""
        final = self.rules.final
        if final and number >= len(self.trials):
            return (final.epochs,)
        return self.rules.ladder(number)

    @property
    def searching(self) -> int:
        """Trials of the search that are running."""
        return self.running - sum(trial.status is Status.RUNNING for trial in self.finals)

    def rung(self, trial: int, rung: int) -> Rung:
        """A rung of the trial's bracket."""
        return self.rungs[self.rules.bracket(trial)][rung]

    def place(self, trial: int, result: Result | None) -> Place:
        """A result's place among others; smaller is better."""
        if result is None:
            return (2, 0.0, trial)
        if result.violation > 0:
            return (1, result.violation, trial)
        loss = -result.value if self.rules.maximize[0] else result.value
        return (0, loss, trial)

    def put(self, trial: TrialState) -> None:
        """Replace a trial by its new state, or append a new one."""
        among = self.trials
        index = trial.number
        if trial.final is not None:
            among = self.finals
            index -= len(self.trials)
        if index == len(among):
            among.append(trial)
        else:
            before = among[index]
            among[index] = trial
            for ordered, entry in self._entries(before):
                _remove(ordered, entry)
            self._count_running(before, -1)
        for ordered, entry in self._entries(trial):
            insort(ordered, entry)
        self._count_running(trial, 1)
        if trial.audited is None:
            self.audit_order = None

    def _entries(self, trial: TrialState) -> Iterator[tuple[list[Any], Any]]:
        """The sorted lists that contain a trial, with its entry in each."""
        if trial.final is None:
            for rung, result in enumerate(trial.counted):
                yield self.rung(trial.number, rung).results, self.place(trial.number, result)
        match trial.status:
            case Status.QUEUED:
                yield self.queued, (-len(trial.results), trial.number)
            case Status.SUGGESTED:
                yield self.suggested, trial.number
            case Status.PAUSED:
                yield (
                    self.rung(trial.number, len(trial.results) - 1).paused,
                    self.place(trial.number, trial.results[-1]),
                )

    def _count_running(self, trial: TrialState, change: int) -> None:
        if trial.status is Status.RUNNING:
            self.running += change
            if trial.audited is not None:
                self.audits_running += change


def _remove(ordered: list, item: object) -> None:
    index = bisect_left(ordered, item)
    if index == len(ordered) or ordered[index] != item:
        raise ValueError(f"{item} is not in the list")
    del ordered[index]


def _bracket_cycle(weights: tuple[int, ...]) -> tuple[int, ...]:
    """The order in which trials enter the brackets: always the one that lacks most of its share."""
    cycle: list[int] = []
    entered = [0] * len(weights)
    for turn in range(1, sum(weights) + 1):
        lacking = [
            weight * turn / sum(weights) - count for weight, count in zip(weights, entered, strict=True)
        ]
        bracket = lacking.index(max(lacking))
        entered[bracket] += 1
        cycle.append(bracket)
    return tuple(cycle)
