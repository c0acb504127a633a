"""Whose turn it is and whose places are taken, as plainly as it can be said: every step looks at everything
anew.
"""

from collections import Counter

from resources.tenancy.shares import Fleet, Limits, Project, Sweep


def turns(fleet: Fleet) -> list[str]:
    """The sweeps that get the free places, in their order."""
    projects = {sweep.project for sweep in fleet.sweeps}
    gained = {sweep.id: 0 for sweep in fleet.sweeps}
    out = {sweep.id for sweep in fleet.sweeps if sweep.wants <= 0}
    aged = {project: _aged(fleet, project) for project in projects}
    order = list[str]()
    kept = Sweep("", "")  # what it needs counts as taken
    due = 1 / sum(
        (fleet.project(name).weight for name in projects if _trials(fleet, name) or _asking(fleet, name)),
        start=1e-9,
    )
    first = max(
        (one for one in aged.values() if one and _is_due(fleet, one, due)),
        key=lambda one: (one.waited, one.id),
        default=None,
    )
    if first is not None:
        if _is_room(fleet, first, gained, kept):
            order.append(first.id)
            gained[first.id] += 1
        else:
            kept = first
    while asking := [one for one in fleet.sweeps if one.id not in out]:
        name = min({one.project for one in asking}, key=lambda each: (_share(fleet, each, gained), each))
        # The place that is given before all turns changes nothing in the order within its project.
        before = {first.id: 1} if first is not None and first is not kept else {}
        sweep = min(
            (one for one in asking if one.project == name),
            key=lambda one: (
                -one.priority,
                (-1 if one is aged[name] else one.trials) + gained[one.id] - before.get(one.id, 0),
                -one.waited,
                one.id,
            ),
        )
        if sweep is not kept and gained[sweep.id] < sweep.wants and _is_room(fleet, sweep, gained, kept):
            order.append(sweep.id)
            gained[sweep.id] += 1
        elif sweep is aged[name]:
            out |= {one.id for one in asking if one.project == name}
        else:
            out.add(sweep.id)
    return order


def preempt(fleet: Fleet, sweep: str) -> list[tuple[str, int]]:
    """Which sweeps give how many trials back for one that waits."""
    (asking,) = (one for one in fleet.sweeps if one.id == sweep)
    allowed = fleet.policy.at_once - sum(one.leaving for one in fleet.sweeps)
    quota = fleet.project(asking.project).quota
    if (
        asking.waited < fleet.policy.patience
        or allowed <= 0
        or not all(_fits(asking.needs, *limit.remaining(0, 0)) for limit in (fleet.capacity, quota))
    ):
        return []
    chosen = list[Sweep]()
    while not _fits_after(fleet, asking, chosen):
        victim = _victim(fleet, asking, chosen)
        if victim is None or (
            victim.project != asking.project
            and not _fits(asking.needs, *_rooms_after(fleet, asking, chosen)[1])
        ):
            return []
        if len([one for one in chosen if bool(one.smallest) == bool(victim.smallest)]) == allowed:
            return []
        chosen.append(victim)
    for place in reversed(range(len(chosen))):
        without = chosen[:place] + chosen[place + 1 :]
        if _fits_after(fleet, asking, without):
            chosen = without
    return sorted(Counter(one.id for one in chosen).items()) if len(chosen) <= allowed else []


def _victim(fleet: Fleet, asking: Sweep, chosen: list[Sweep]) -> Sweep | None:
    """Whose trial is taken next."""
    taken = Counter(one.id for one in chosen)
    left = [
        one
        for one in fleet.sweeps
        if one.trials - one.leaving - taken[one.id] > 0 and _helps(fleet, asking, chosen, one)
    ]
    if lower := [one for one in left if one.project == asking.project and one.priority < asking.priority]:
        return min(lower, key=lambda one: (one.priority, -one.trials, one.id))
    others = [one for one in left if one.project != asking.project]
    lost = {one.id: -count for one in fleet.sweeps if (count := taken[one.id])}
    if not others:
        return None
    by_gpus = {one.id: one.gpus // one.trials for one in fleet.sweeps if one.trials}
    name = max({one.project for one in others}, key=lambda each: (_share(fleet, each, lost, by_gpus), each))
    victim = min(
        (one for one in others if one.project == name),
        key=lambda one: (one.priority, -(one.trials - one.leaving - taken[one.id]), one.id),
    )
    after = {**lost, victim.id: lost.get(victim.id, 0) - 1}
    mine = _share(fleet, asking.project, {asking.id: 1})
    return victim if _share(fleet, name, after, by_gpus) >= mine else None


def _helps(fleet: Fleet, asking: Sweep, chosen: list[Sweep], victim: Sweep) -> bool:
    """Whether one more trial of a victim gives any of what is short."""
    before = _rooms_after(fleet, asking, chosen)
    after = _rooms_after(fleet, asking, [*chosen, victim])
    return any(
        (trials < 1 and more_trials > trials)
        or (gpus < asking.needs and more_gpus > gpus and asking.needs > 0)
        for (trials, gpus), (more_trials, more_gpus) in zip(before, after, strict=True)
    )


def _fits_after(fleet: Fleet, asking: Sweep, chosen: list[Sweep]) -> bool:
    return all(_fits(asking.needs, *room) for room in _rooms_after(fleet, asking, chosen))


def _rooms_after(fleet: Fleet, asking: Sweep, chosen: list[Sweep]) -> list[tuple[float, float]]:
    """What is free for all and of the project's quota, once what was asked back, and what is chosen, has
    ended.
    """
    taken = Counter(one.id for one in chosen)
    rooms = []
    for limits, sweeps in (
        (fleet.capacity, fleet.sweeps),
        (fleet.project(asking.project).quota, [one for one in fleet.sweeps if one.project == asking.project]),
    ):
        trials, gpus = limits.remaining(
            sum(one.trials - one.leaving for one in sweeps),
            sum(one.gpus - one.leaving_gpus for one in sweeps),
        )
        rooms.append(
            (
                trials + sum(taken[one.id] for one in sweeps),
                gpus + sum(taken[one.id] * one.smallest for one in sweeps),
            )
        )
    return rooms


def _asking(fleet: Fleet, project: str) -> list[Sweep]:
    return [one for one in fleet.sweeps if one.project == project and one.wants > 0]


def _trials(fleet: Fleet, project: str) -> int:
    return sum(one.trials for one in fleet.sweeps if one.project == project)


def _aged(fleet: Fleet, project: str) -> Sweep | None:
    """The sweep of a project that the others of it wait for."""
    longest = min(_asking(fleet, project), key=lambda one: (-one.priority, -one.waited, one.id), default=None)
    if longest is None or longest.waited < fleet.policy.reserve_after:
        return None
    limits = (fleet.capacity, fleet.project(project).quota)
    return longest if all(_fits(longest.needs, *limit.remaining(0, 0)) for limit in limits) else None


def _is_due(fleet: Fleet, sweep: Sweep, due: float) -> bool:
    """Whether room is kept for an aged sweep by all."""
    project: Project = fleet.project(sweep.project)
    gpus = sum(one.gpus for one in fleet.sweeps if one.project == sweep.project)
    fits = _fits(sweep.needs, *project.quota.remaining(_trials(fleet, sweep.project), gpus))
    return fits and _share(fleet, sweep.project, {}) <= due


def _is_room(fleet: Fleet, sweep: Sweep, gained: dict[str, int], kept: Sweep) -> bool:
    def left(limits: Limits, project: str | None) -> tuple[float, float]:
        sweeps = [one for one in fleet.sweeps if project in (None, one.project)]
        trials, gpus = limits.remaining(
            sum(one.trials + gained[one.id] for one in sweeps),
            sum(one.gpus + gained[one.id] * one.needs for one in sweeps),
        )
        keeps = kept.id and project in (None, kept.project)
        return (trials - 1, gpus - kept.needs) if keeps else (trials, gpus)

    return _fits(sweep.needs, *left(fleet.capacity, None)) and _fits(
        sweep.needs, *left(fleet.project(sweep.project).quota, sweep.project)
    )


def _share(
    fleet: Fleet, project: str, gained: dict[str, int], by_gpus: dict[str, int] | None = None
) -> float:
    """A project's weighted dominant share when its sweeps have so many more trials (less, where negative)."""
    sweeps = [one for one in fleet.sweeps if one.project == project]
    trials = sum(one.trials + gained.get(one.id, 0) for one in sweeps)
    gpus = sum(
        one.gpus + gained.get(one.id, 0) * (one.needs if by_gpus is None else by_gpus.get(one.id, 0))
        for one in sweeps
    )
    parts = [
        held / max(1, of)
        for held, of in ((trials, fleet.capacity.trials), (gpus, fleet.capacity.gpus))
        if of is not None
    ]
    return max(parts, default=float(trials)) / fleet.project(project).weight


def _fits(needs: int, trials: float, gpus: float) -> bool:
    return trials >= 1 and (needs == 0 or gpus >= needs)
