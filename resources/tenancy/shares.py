"""Who gets the next free place: state in, decision out. Nothing here knows a clock, randomness or a database.

Over projects it is weighted dominant-resource fairness (Ghodsi et al., "Dominant Resource Fairness", NSDI 2011, Algorithm 1 and
section 5.2 for weights): a project's dominant share is the largest part that it holds of any resource (places for trials, GPUs), divided by
its weight, and the next place is that of the project with the smallest. Within a project the sweeps of the highest priority come first,
then those that hold the fewest places.

A trial that fits is not held up by one that does not (backfill). But many small trials would starve a large one for ever, so a sweep that
has waited for ``reserve_after`` seconds, and is of the highest priority that asks in its project, is waited for: no other sweep of its
project gets a place before it. If its project then holds no more than its due, the sweep gets a reservation, one at a time as in EASY
backfilling (Lifka, JSSPP 1995), the longest waiting one: what it needs counts as taken for all projects, so that it is free once enough
running trials have ended.

A sweep that has waited for ``patience`` seconds takes places from less important ones (:func:`preempt`), which are those of lower
priority in its own project, and those of projects whose share would not be smaller than its own after the exchange: so two projects
never take the same place from each other in turn.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from math import inf


@dataclass(frozen=True)
class Limits:
    """What may be held at a time; None is no limit."""

    trials: int | None = None
    gpus: int | None = None

    def left(self, trials: int, gpus: int) -> tuple[float, float]:
        """Places and GPUs that are free when so many are held."""
        return (inf if self.trials is None else self.trials - trials), (inf if self.gpus is None else self.gpus - gpus)


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
        trials, gpus: that it holds.
        wants: how many more trials it would start now; 0 where it asks for nothing.
        needs: GPUs of each trial that it asks for, on all nodes together.
        waited: seconds since it was first held back; 0 where it is not.
        leaving: how many of its trials were asked back and have not ended yet, and ``leaving_gpus`` of them.
        smallest: the fewest GPUs of any trial that it holds and that was not asked back: where trials have as many as their rungs need, no
            more than that is sure to come free with one.
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
        reserve_after: seconds after which a trial that does not fit has its room kept free.
        patience: seconds that a sweep waits before it takes places from less important ones.
        at_once: how many trials of the whole fleet are asked back at a time.
    """

    reserve_after: float = 120.0
    patience: float = 30.0
    at_once: int = 4


@dataclass(frozen=True)
class Fleet:
    """The state that is decided on: what all projects share, the projects that have limits or weights, and the sweeps."""

    capacity: Limits
    projects: Mapping[str, Project]
    sweeps: Sequence[Sweep]
    policy: Policy = Policy()

    def project(self, name: str) -> Project:
        return self.projects.get(name) or Project(name)


@dataclass
class _Held:
    """What a project holds, and a heap of its sweeps that ask: first the one whose turn it is within the project.

    ``aged`` is the one of them that has waited so long that its room is to be kept.
    """

    project: Project
    trials: int = 0
    gpus: int = 0
    asking: list[tuple[int, int, float, str, Sweep]] = field(default_factory=list)
    aged: Sweep | None = None


def next_sweep(fleet: Fleet) -> str | None:
    """The sweep that gets the next free place; None if no place is free for any that asks."""
    return next(turns(fleet), None)


def has_turn(fleet: Fleet, sweep: str) -> bool:
    """Whether a sweep gets one of the places that are free now, when every sweep that asks takes what it is due."""
    return any(given == sweep for given in turns(fleet))


def turns(fleet: Fleet) -> Iterator[str]:
    """The sweeps that get the free places, in the order in which these are given: as often each as it gets one.

    It takes O(log sweeps) for each place, and looks at each sweep that asks once more.
    """
    held = _held(fleet)
    free = list(fleet.capacity.left(sum(one.trials for one in held.values()), sum(one.gpus for one in held.values())))
    quotas = {name: list(one.project.quota.left(one.trials, one.gpus)) for name, one in held.items()}
    wants = {sweep.id: sweep.wants for sweep in fleet.sweeps}
    first = _reserved(fleet, held)
    if first is not None:
        quota = quotas[first.project]
        if _fits(first.needs, free) and _fits(first.needs, quota):
            yield first.id
            _hold(held[first.project], first)
            wants[first.id] -= 1
        else:
            wants[first.id] = 0  # its room is kept instead
        _take(free, first.needs)
        _take(quota, first.needs)
    queue = [(_share(fleet.capacity, one), name) for name, one in held.items() if one.asking]
    heapify(queue)
    while queue:
        _, name = heappop(queue)
        one, quota = held[name], quotas[name]
        priority, trials, waited, _, sweep = heappop(one.asking)
        if wants[sweep.id] and _fits(sweep.needs, free) and _fits(sweep.needs, quota):
            yield sweep.id
            for room in (free, quota):
                _take(room, sweep.needs)
            _hold(one, sweep)
            wants[sweep.id] -= 1
            heappush(one.asking, (priority, trials + 1, waited, sweep.id, sweep))
        elif one.aged is sweep:
            one.asking.clear()  # the others of its project wait for it
        # Else it stays out: what is free only becomes less.
        if one.asking:
            heappush(queue, (_share(fleet.capacity, one), name))


def preempt(fleet: Fleet, sweep: str) -> list[tuple[str, int]]:
    """Which sweeps give how many trials back for one that waits; they do so at their next checkpoint.

    Nothing before the sweep has waited for the policy's ``patience``, nothing if what is free and what was asked back already will do,
    and never so much that more than ``at_once`` trials of the fleet are on their way.
    """
    asking = next(one for one in fleet.sweeps if one.id == sweep)
    held = _held(fleet)
    mine = held[asking.project]
    allowed = fleet.policy.at_once - sum(one.leaving for one in fleet.sweeps)
    if asking.waited < fleet.policy.patience or allowed <= 0 or not _ever_fits(asking.needs, fleet.capacity, mine.project.quota):
        return []
    free = fleet.capacity.left(
        sum(one.trials - one.leaving for one in fleet.sweeps), sum(one.gpus - one.leaving_gpus for one in fleet.sweeps)
    )
    own = [one for one in fleet.sweeps if one.project == asking.project]
    quota = mine.project.quota.left(sum(one.trials - one.leaving for one in own), sum(one.gpus - one.leaving_gpus for one in own))
    rooms, chosen = [list(free), list(quota)], dict[str, int]()
    for victim in _victims(fleet, asking, held):
        if all(_fits(asking.needs, room) for room in rooms):
            break
        if sum(chosen.values()) == allowed:
            return []  # what it could take now would not be enough: nobody is disturbed in vain
        outside = victim.project != asking.project
        if outside and not _fits(asking.needs, rooms[1]):
            return []  # its own project's quota is what it waits for
        chosen[victim.id] = chosen.get(victim.id, 0) + 1
        for room in rooms[:1] if outside else rooms:
            _give(room, victim.smallest)
    return sorted(chosen.items()) if all(_fits(asking.needs, room) for room in rooms) else []


def why_not(fleet: Fleet, sweep: str) -> str:
    """Why a sweep that asks gets no place now, for people: what it waits for, and what would change that."""
    asking = next(one for one in fleet.sweeps if one.id == sweep)
    one = _held(fleet)[asking.project]
    name, quota, capacity = asking.project, one.project.quota, fleet.capacity
    for whose, limits in ((f"project {name} has", quota), ("all projects together have", capacity)):
        if limits.gpus is not None and asking.needs > limits.gpus:
            return f"its trials need {asking.needs} GPUs, and {whose} max_gpus = {limits.gpus}: raise it, or launch it with fewer GPUs"
        if limits.trials == 0:
            return f"{whose} max_trials = 0: nothing is started until it is raised"
    trials, gpus = quota.left(one.trials, one.gpus)
    if trials < 1:
        return f"project {name} has {one.trials} trials running, and max_trials = {quota.trials}"
    if gpus < asking.needs:
        return f"project {name} holds {one.gpus} GPUs, its next trial needs {asking.needs}, and max_gpus = {quota.gpus}"
    trials, gpus = capacity.left(sum(each.trials for each in fleet.sweeps), sum(each.gpus for each in fleet.sweeps))
    held = f"project {name} holds {one.trials} places and {one.gpus} GPUs, weight {one.project.weight:g}"
    if trials < 1:
        return f"all {capacity.trials} places of the fleet are taken; {held}"
    if gpus < asking.needs:
        return f"its next trial needs {asking.needs} GPUs, and {max(0, int(gpus))} of the fleet's {capacity.gpus} are free; {held}"
    return f"what is free goes to sweeps whose turn is before; {held}"


def _held(fleet: Fleet) -> dict[str, _Held]:
    held: dict[str, _Held] = {}
    for sweep in fleet.sweeps:
        one = held.setdefault(sweep.project, _Held(fleet.project(sweep.project)))
        one.trials, one.gpus = one.trials + sweep.trials, one.gpus + sweep.gpus
        if sweep.wants > 0:
            one.asking.append((-sweep.priority, sweep.trials, -sweep.waited, sweep.id, sweep))
    for one in held.values():
        if one.asking:
            *_, longest = min(one.asking, key=lambda entry: (entry[0], entry[2], entry[3]))
            if longest.waited >= fleet.policy.reserve_after and _ever_fits(longest.needs, fleet.capacity, one.project.quota):
                one.aged = longest
                one.asking.remove((-longest.priority, longest.trials, -longest.waited, longest.id, longest))
                one.asking.append((-longest.priority, -1, -longest.waited, longest.id, longest))  # its turn is before the others'
        heapify(one.asking)
    return held


def _reserved(fleet: Fleet, held: Mapping[str, _Held]) -> Sweep | None:
    """The sweep whose room is kept by all projects: the longest waiting one whose project holds no more than its due.

    One that waits for its own project's quota is none: no room that the others leave would start it.
    """
    due = 1 / sum((one.project.weight for one in held.values() if one.trials or one.asking), start=1e-9)
    aged = [
        one.aged
        for one in held.values()
        if one.aged is not None
        and _share(fleet.capacity, one) <= due
        and _fits(one.aged.needs, one.project.quota.left(one.trials, one.gpus))
    ]
    return max(aged, key=lambda sweep: (sweep.waited, sweep.id), default=None)


def _share(capacity: Limits, one: _Held) -> float:
    """The weighted dominant share; without a capacity there is nothing to have a share of, and the number of trials stands in for it."""
    parts = [one.trials / max(1, capacity.trials)] if capacity.trials is not None else []
    parts += [one.gpus / max(1, capacity.gpus)] if capacity.gpus is not None else []
    return max(parts, default=float(one.trials)) / one.project.weight


def _victims(fleet: Fleet, asking: Sweep, held: dict[str, _Held]) -> Iterable[Sweep]:
    """Whose trials may be taken, one trial after another: first of the project that has most beyond its share."""
    remaining = {one.id: one.trials - one.leaving for one in fleet.sweeps}
    after = _Held(held[asking.project].project, held[asking.project].trials + 1, held[asking.project].gpus + asking.needs)
    mine = _share(fleet.capacity, after)
    for sweep in sorted(
        (one for one in fleet.sweeps if one.project == asking.project), key=lambda one: (one.priority, -one.trials, one.id)
    ):
        if sweep.priority < asking.priority:
            yield from [sweep] * remaining[sweep.id]
    others = {name: _Held(one.project, one.trials, one.gpus) for name, one in held.items() if name != asking.project}
    while others:
        name = max(others, key=lambda each: (_share(fleet.capacity, others[each]), each))
        candidates = [one for one in fleet.sweeps if one.project == name and remaining[one.id] > 0]
        if not candidates:
            del others[name]
            continue
        sweep = min(candidates, key=lambda one: (one.priority, -remaining[one.id], one.id))
        one = others[name]
        one.trials, one.gpus = one.trials - 1, one.gpus - sweep.gpus // sweep.trials
        if _share(fleet.capacity, one) < mine:
            return  # it would have less than who takes: all others have still less than it
        remaining[sweep.id] -= 1
        yield sweep


def _fits(needs: int, room: Sequence[float]) -> bool:
    return room[0] >= 1 and (needs == 0 or room[1] >= needs)


def _ever_fits(needs: int, *limits: Limits) -> bool:
    return all(_fits(needs, each.left(0, 0)) for each in limits)


def _take(room: list[float], needs: int) -> None:
    room[0] -= 1
    room[1] -= needs


def _hold(one: _Held, sweep: Sweep) -> None:
    one.trials, one.gpus = one.trials + 1, one.gpus + sweep.needs


def _give(room: list[float], gpus: int) -> None:
    room[0] += 1
    room[1] += gpus
