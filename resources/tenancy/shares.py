"""Fair shares: which sweep gets the next free place, as pure functions without a clock or a database.

Among projects it is weighted dominant-resource fairness (Ghodsi et al., "Dominant Resource Fairness", NSDI
2011, Algorithm 1 and section 5.2 for weights). A project's dominant share is the largest part that it holds
of any resource (places for trials, GPUs), divided by its weight. The next place goes to the project with the
smallest share. Within a project the sweeps of the highest priority come first, then those that hold the
fewest places.

A trial that fits is not held up by one that does not (backfill). But then many small trials would starve a
large one. So a sweep is waited for once it has waited for ``reserve_after`` seconds and has the highest
priority that asks in its project: no other sweep of the project gets a place before it. If the project then
holds no more than its due, the sweep gets a reservation: what it needs counts as taken for all projects, so
that it becomes free as running trials end. There is one reservation at a time, for the sweep that has waited
longest, as in EASY backfilling (Lifka, JSSPP 1995).

A sweep that has waited for ``patience`` seconds takes places from less important ones (:func:`preempt`).
These are the sweeps of lower priority in its own project, and those of projects whose share would not be
smaller than its own after the exchange. So two projects never take the same place from each other in turn.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import repeat, takewhile
from math import inf


@dataclass(frozen=True)
class Limits:
    """What may be held at a time; None is no limit."""

    trials: int | None = None
    gpus: int | None = None

    def remaining(self, trials: int, gpus: int) -> tuple[float, float]:
        """Places and GPUs that are free while so many are held."""
        free_trials = free_gpus = inf
        if self.trials is not None:
            free_trials = self.trials - trials
        if self.gpus is not None:
            free_gpus = self.gpus - gpus
        return free_trials, free_gpus


@dataclass(frozen=True)
class Project:
    """A project's weight and quota."""

    name: str
    weight: float = 1.0
    quota: Limits = Limits()


@dataclass(frozen=True)
class Sweep:
    """A sweep, what it holds and what it asks for.

    Attributes:
        trials, gpus: how many it holds.
        wants: how many more trials it would start now; 0 if it asks for nothing.
        needs: GPUs of each trial that it asks for, on all nodes together.
        waited: seconds since it was first held back; 0 if it is not.
        leaving: how many of its trials were asked back and have not ended; they hold ``leaving_gpus``.
        smallest: the fewest GPUs of any of its trials that was not asked back. Trials may have different
            numbers of GPUs, so only this many are sure to come free with one trial.
    """

    id: str
    project: str
    priority: int = 0
    trials: int = 0
    gpus: int = 0
    wants: int = 0
    needs: int = 0
    waited: float = 0.0
    leaving: int = 0
    leaving_gpus: int = 0
    smallest: int = 0


@dataclass(frozen=True)
class Policy:
    """How patient the fleet is.

    Attributes:
        reserve_after: seconds after which room is kept free for a trial that does not fit.
        patience: seconds that a sweep waits before it takes places from less important ones.
        at_once: how many trials of the whole fleet are asked back at a time.
    """

    reserve_after: float = 120.0
    patience: float = 30.0
    at_once: int = 4


@dataclass(frozen=True)
class Fleet:
    """The state for a decision: what all projects share, projects with limits or weights, and the sweeps."""

    capacity: Limits
    projects: Mapping[str, Project]
    sweeps: Sequence[Sweep]
    policy: Policy = Policy()

    def project(self, name: str) -> Project:
        return self.projects.get(name) or Project(name)

    def sweep(self, name: str) -> Sweep:
        return next(sweep for sweep in self.sweeps if sweep.id == name)


@dataclass
class _Holding:
    """What a project holds, and which of its sweeps ask.

    Attributes:
        asking: a heap of these sweeps; its first is the next one within the project.
        aged: the sweep that has waited so long that its room is to be kept.
    """

    project: Project
    trials: int = 0
    gpus: int = 0
    asking: list[tuple[int, int, float, str, Sweep]] = field(default_factory=list)
    aged: Sweep | None = None

    def remaining(self) -> list[float]:
        """Places and GPUs of its quota that are free."""
        return list(self.project.quota.remaining(self.trials, self.gpus))


def next_sweep(fleet: Fleet) -> str | None:
    """The sweep that gets the next free place; None if there is none for any sweep that asks."""
    return next(turns(fleet), None)


def has_turn(fleet: Fleet, sweep: str) -> bool:
    """Whether a sweep gets one of the free places if every sweep that asks takes what it is due.

    It takes O(log sweeps) for each place that is given before the sweep's turn.
    """
    asking = fleet.sweep(sweep)
    holdings = _holdings_of(fleet)
    if not asking.wants or not all(
        _fits(asking.needs, room) for room in (_free(fleet, holdings), holdings[asking.project].remaining())
    ):
        return False
    return any(winner == sweep for winner in _turns(fleet, holdings, asking))


def turns(fleet: Fleet) -> Iterator[str]:
    """The sweeps that get the free places, in order; a sweep comes once for each of its places."""
    return _turns(fleet, _holdings_of(fleet), None)


def _turns(fleet: Fleet, holdings: dict[str, _Holding], until: Sweep | None) -> Iterator[str]:
    """As :func:`turns`, but no longer than the sweep ``until`` may get a place."""
    _let_ask(fleet, holdings)
    free = _free(fleet, holdings)
    quotas = {name: holding.remaining() for name, holding in holdings.items()}
    awaited = []
    if until is not None:
        awaited = [(until.needs, room) for room in (free, quotas[until.project])]
    wants = {sweep.id: sweep.wants for sweep in fleet.sweeps}
    first = _find_reserved(fleet, holdings)
    if first is not None:
        quota = quotas[first.project]
        if _fits(first.needs, free) and _fits(first.needs, quota):
            yield first.id
            _add_trial(holdings[first.project], first)
            wants[first.id] -= 1
        else:
            wants[first.id] = 0  # Its room is kept instead.
        _take(free, first.needs)
        _take(quota, first.needs)
    queue = [(_share(fleet.capacity, holding), name) for name, holding in holdings.items() if holding.asking]
    heapify(queue)
    # What is free only becomes less: what does not fit now does not fit later.
    while queue and all(_fits(needs, room) for needs, room in awaited):
        _, name = heappop(queue)
        holding = holdings[name]
        quota = quotas[name]
        priority, trials, waited, _, sweep = heappop(holding.asking)
        if wants[sweep.id] and _fits(sweep.needs, free) and _fits(sweep.needs, quota):
            yield sweep.id
            for room in (free, quota):
                _take(room, sweep.needs)
            _add_trial(holding, sweep)
            wants[sweep.id] -= 1
            heappush(holding.asking, (priority, trials + 1, waited, sweep.id, sweep))
        elif holding.aged is sweep:
            holding.asking.clear()  # The other sweeps of the project wait for it.
        # A sweep that did not fit and is not aged stays out of the heap.
        if holding.asking:
            heappush(queue, (_share(fleet.capacity, holding), name))
        elif until is not None and until.project == name:
            return


def preempt(fleet: Fleet, sweep: str) -> list[tuple[str, int]]:
    """Decide which sweeps give how many trials back, at their next checkpoints, for a sweep that waits.

    No trial is asked back before the sweep has waited for the policy's ``patience``, or if the free places
    and those that were asked back already suffice. Never more than ``at_once`` trials of the fleet are on
    their way back. Each trial that is asked back is needed: without it the sweep would not fit.
    """
    asking = fleet.sweep(sweep)
    allowed = fleet.policy.at_once - sum(other_sweep.leaving for other_sweep in fleet.sweeps)
    if asking.waited < fleet.policy.patience or allowed <= 0:
        return []
    holdings = _holdings_of(fleet)
    mine = holdings[asking.project]
    if not _ever_fits(asking.needs, fleet.capacity, mine.project.quota):
        return []
    rooms = [_free(fleet, holdings), mine.remaining()]

    def rooms_of(other: Sweep) -> list[list[float]]:
        if other.project == asking.project:
            return rooms
        return rooms[:1]

    def helps(victim: Sweep) -> bool:
        """Whether a victim's next trial gives anything that is short; once it does not, it never will."""
        gives_gpus = victim.smallest > 0 and asking.needs > 0
        return any(room[0] < 1 or (gives_gpus and room[1] < asking.needs) for room in rooms_of(victim))

    def fits() -> bool:
        return all(_fits(asking.needs, room) for room in rooms)

    for other_sweep in fleet.sweeps:
        for room in rooms_of(other_sweep):
            _take(room, -other_sweep.leaving_gpus, -other_sweep.leaving)
    chosen = list[Sweep]()
    for victim in _victims(fleet, asking, holdings, helps):
        if victim.project != asking.project and not _fits(asking.needs, rooms[1]):
            return []  # It waits for the quota of its own project.
        # Trials without GPUs give places. They may turn out not to be needed beside those with GPUs, so the
        # two kinds are counted apart.
        if sum((other_sweep.smallest > 0) == (victim.smallest > 0) for other_sweep in chosen) == allowed:
            return []  # What it could take now would not be enough, so no trial is disturbed in vain.
        chosen.append(victim)
        for room in rooms_of(victim):
            _take(room, -victim.smallest, -1)
        if fits():
            break
    else:
        return []
    needed = Counter[str]()
    for victim in reversed(chosen):
        for room in rooms_of(victim):
            _take(room, victim.smallest)
        if fits():
            continue
        needed[victim.id] += 1
        for room in rooms_of(victim):
            _take(room, -victim.smallest, -1)
    if needed.total() > allowed:
        return []
    return sorted(needed.items())


def why_not(fleet: Fleet, sweep: str) -> str:
    """Why a sweep that asks gets no place now, and what would change that, in words for people."""
    asking = fleet.sweep(sweep)
    holdings = _holdings_of(fleet)
    holding = holdings[asking.project]
    name = asking.project
    quota = holding.project.quota
    capacity = fleet.capacity
    for whose, limits in ((f"project {name} has", quota), ("all projects together have", capacity)):
        if limits.gpus is not None and asking.needs > limits.gpus:
            return (
                f"its trials need {asking.needs} GPUs, and {whose} max_gpus = {limits.gpus}: raise it, or "
                "launch it with fewer GPUs"
            )
        if limits.trials == 0:
            return f"{whose} max_trials = 0: nothing is started until it is raised"
    trials, gpus = quota.remaining(holding.trials, holding.gpus)
    if trials < 1:
        return f"project {name} has {holding.trials} trials running, and max_trials = {quota.trials}"
    if gpus < asking.needs:
        return (
            f"project {name} holds {holding.gpus} GPUs, its next trial needs {asking.needs}, and max_gpus = "
            f"{quota.gpus}"
        )
    trials, gpus = _free(fleet, holdings)
    weight = holding.project.weight
    holds = f"project {name} holds {holding.trials} places and {holding.gpus} GPUs, weight {weight:g}"
    if trials < 1:
        return f"all {capacity.trials} places of the fleet are taken; {holds}"
    if gpus < asking.needs:
        return (
            f"its next trial needs {asking.needs} GPUs, and {max(0, int(gpus))} of the fleet's "
            f"{capacity.gpus} are free; {holds}"
        )
    return f"what is free goes to sweeps whose turn is before; {holds}"


def _holdings_of(fleet: Fleet) -> dict[str, _Holding]:
    """What each project holds, without the sweeps that ask."""
    holdings: dict[str, _Holding] = {}
    for sweep in fleet.sweeps:
        holding = holdings.get(sweep.project)
        if holding is None:
            holding = holdings[sweep.project] = _Holding(fleet.project(sweep.project))
        holding.trials += sweep.trials
        holding.gpus += sweep.gpus
    return holdings


def _free(fleet: Fleet, holdings: Mapping[str, _Holding]) -> list[float]:
    """Places and GPUs of all projects together that nobody holds."""
    return list(
        fleet.capacity.remaining(
            sum(holding.trials for holding in holdings.values()),
            sum(holding.gpus for holding in holdings.values()),
        )
    )


def _let_ask(fleet: Fleet, holdings: Mapping[str, _Holding]) -> None:
    """Put each sweep that asks into its project's heap."""
    for sweep in fleet.sweeps:
        if sweep.wants > 0:
            holdings[sweep.project].asking.append(
                (-sweep.priority, sweep.trials, -sweep.waited, sweep.id, sweep)
            )
    for holding in holdings.values():
        if holding.asking:
            *_, longest = min(holding.asking, key=lambda entry: (entry[0], entry[2], entry[3]))
            if longest.waited >= fleet.policy.reserve_after and _ever_fits(
                longest.needs, fleet.capacity, holding.project.quota
            ):
                holding.aged = longest
                holding.asking.remove(
                    (-longest.priority, longest.trials, -longest.waited, longest.id, longest)
                )
                # Its turn comes before those of the others.
                holding.asking.append((-longest.priority, -1, -longest.waited, longest.id, longest))
        heapify(holding.asking)


def _find_reserved(fleet: Fleet, holdings: Mapping[str, _Holding]) -> Sweep | None:
    """The sweep whose room all projects keep: the longest waiting one of a project within its due.

    A sweep that waits for the quota of its own project does not count, because no room that the others leave
    would start it.
    """
    due = 1 / sum(
        (holding.project.weight for holding in holdings.values() if holding.trials or holding.asking),
        start=1e-9,
    )
    aged = [
        holding.aged
        for holding in holdings.values()
        if holding.aged is not None
        and _share(fleet.capacity, holding) <= due
        and _fits(holding.aged.needs, holding.project.quota.remaining(holding.trials, holding.gpus))
    ]
    return max(aged, key=lambda sweep: (sweep.waited, sweep.id), default=None)


def _share(capacity: Limits, holding: _Holding) -> float:
    """The weighted dominant share; without a capacity the number of trials stands in for it."""
    parts = []
    if capacity.trials is not None:
        parts.append(holding.trials / max(1, capacity.trials))
    if capacity.gpus is not None:
        parts.append(holding.gpus / max(1, capacity.gpus))
    return max(parts, default=float(holding.trials)) / holding.project.weight


def _victims(
    fleet: Fleet, asking: Sweep, holdings: Mapping[str, _Holding], helps: Callable[[Sweep], bool]
) -> Iterator[Sweep]:
    """The sweeps whose trials may be taken, in order, once for each trial, while they ``help``.

    First come those of the own project with a lower priority, then those of the project with the largest
    share. It looks at each sweep once, and then takes O(log sweeps) for each trial and for each sweep that
    helps no more.
    """
    candidates: dict[str, list[Sweep]] = {}
    for sweep in fleet.sweeps:
        if sweep.trials > sweep.leaving and helps(sweep):
            candidates.setdefault(sweep.project, []).append(sweep)
    lower = [
        (sweep.priority, -sweep.trials, sweep.id, sweep)
        for sweep in candidates.pop(asking.project, [])
        if sweep.priority < asking.priority
    ]
    heapify(lower)
    while lower:
        *_, sweep = heappop(lower)
        yield from takewhile(helps, repeat(sweep, sweep.trials - sweep.leaving))
    own = holdings[asking.project]
    own_share = _share(fleet.capacity, _Holding(own.project, own.trials + 1, own.gpus + asking.needs))
    names = sorted(candidates, reverse=True)  # Of equal shares the last by name comes first.
    others = [
        (
            -_share(fleet.capacity, holdings[name]),
            index,
            _Holding(holdings[name].project, holdings[name].trials, holdings[name].gpus),
        )
        for index, name in enumerate(names)
    ]
    heapify(others)
    queues = dict[int, list[tuple[int, int, str, Sweep]]]()
    while others:
        negative_share, index, holding = heappop(others)
        if index not in queues:
            queues[index] = [
                (sweep.priority, sweep.leaving - sweep.trials, sweep.id, sweep)
                for sweep in candidates[names[index]]
            ]
            heapify(queues[index])
        priority, negative_count, _, sweep = heappop(queues[index])
        if helps(sweep):
            holding.trials -= 1
            holding.gpus -= sweep.gpus // sweep.trials
            share = _share(fleet.capacity, holding)
            if share < own_share:
                return  # It would have less than the taker, and all other projects have still less.
            negative_share = -share
            yield sweep
            if negative_count < -1:
                heappush(queues[index], (priority, negative_count + 1, sweep.id, sweep))
        if queues[index]:
            heappush(others, (negative_share, index, holding))


def _fits(needs: int, room: Sequence[float]) -> bool:
    return room[0] >= 1 and (needs == 0 or room[1] >= needs)


def _ever_fits(needs: int, *limits: Limits) -> bool:
    return all(_fits(needs, limit.remaining(0, 0)) for limit in limits)


def _take(room: list[float], gpus: int, trials: int = 1) -> None:
    room[0] -= trials
    room[1] -= gpus


def _add_trial(holding: _Holding, sweep: Sweep) -> None:
    holding.trials += 1
    holding.gpus += sweep.needs
