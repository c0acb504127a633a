"""Whose turn it is and whose places are taken, as simply as possible: every step begins anew."""

from collections import Counter

from resources.tenancy.shares import Fleet, Limits, Project, Sweep


def turns(fleet: Fleet) -> list[str]:
    """The sweeps that get the free places, in their order."""
    projects = {sweep.project for sweep in fleet.sweeps}
    gained = {sweep.id: 0 for sweep in fleet.sweeps}
    out = {sweep.id for sweep in fleet.sweeps if sweep.wants <= 0}
    aged = {project: _find_aged(fleet, project) for project in projects}
    order = list[str]()
    kept = Sweep("", "")  # what it needs counts as taken
    due = 1 / sum(
        (fleet.project(name).weight for name in projects if _trials(fleet, name) or _asking(fleet, name)),
        start=1e-9,
    )
    first = max(
        (candidate for candidate in aged.values() if candidate and _is_due(fleet, candidate, due)),
        key=lambda candidate: (candidate.waited, candidate.id),
        default=None,
    )
    if first is not None:
        if _is_room(fleet, first, gained, kept):
            order.append(first.id)
            gained[first.id] += 1
        else:
            kept = first
    while asking := [candidate for candidate in fleet.sweeps if candidate.id not in out]:
        name = min(
            {candidate.project for candidate in asking}, key=lambda each: (_share(fleet, each, gained), each)
        )
        # The place that is given before all turns changes nothing in the order within its project.
        before = {}
        if first is not None and first is not kept:
            before = {first.id: 1}
        sweep = min(
            (candidate for candidate in asking if candidate.project == name),
            key=lambda candidate: (
                -candidate.priority,
                (-1 if candidate is aged[name] else candidate.trials)
                + gained[candidate.id]
                - before.get(candidate.id, 0),
                -candidate.waited,
                candidate.id,
            ),
        )
        if sweep is not kept and gained[sweep.id] < sweep.wants and _is_room(fleet, sweep, gained, kept):
            order.append(sweep.id)
            gained[sweep.id] += 1
        elif sweep is aged[name]:
            out |= {candidate.id for candidate in asking if candidate.project == name}
        else:
            out.add(sweep.id)
    return order


def preempt(fleet: Fleet, sweep: str) -> list[tuple[str, int]]:
    """Which sweeps give how many trials back for one that waits."""
    (asking,) = (candidate for candidate in fleet.sweeps if candidate.id == sweep)
    allowed = fleet.policy.at_once - sum(candidate.leaving for candidate in fleet.sweeps)
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
        if (
            len([candidate for candidate in chosen if bool(candidate.smallest) == bool(victim.smallest)])
            == allowed
        ):
            return []
        chosen.append(victim)
    for place in reversed(range(len(chosen))):
        without = chosen[:place] + chosen[place + 1 :]
        if _fits_after(fleet, asking, without):
            chosen = without
    if len(chosen) > allowed:
        return []
    return sorted(Counter(candidate.id for candidate in chosen).items())


def _victim(fleet: Fleet, asking: Sweep, chosen: list[Sweep]) -> Sweep | None:
    """Whose trial is taken next."""
    taken = Counter(sweep.id for sweep in chosen)
    left = [
        sweep
        for sweep in fleet.sweeps
        if sweep.trials - sweep.leaving - taken[sweep.id] > 0 and _helps(fleet, asking, chosen, sweep)
    ]
    if lower := [
        sweep for sweep in left if sweep.project == asking.project and sweep.priority < asking.priority
    ]:
        return min(lower, key=lambda candidate: (candidate.priority, -candidate.trials, candidate.id))
    others = [sweep for sweep in left if sweep.project != asking.project]
    lost = {sweep.id: -count for sweep in fleet.sweeps if (count := taken[sweep.id])}
    if not others:
        return None
    by_gpus = {sweep.id: sweep.gpus // sweep.trials for sweep in fleet.sweeps if sweep.trials}
    name = max(
        {sweep.project for sweep in others}, key=lambda each: (_share(fleet, each, lost, by_gpus), each)
    )
    victim = min(
        (sweep for sweep in others if sweep.project == name),
        key=lambda candidate: (
            candidate.priority,
            -(candidate.trials - candidate.leaving - taken[candidate.id]),
            candidate.id,
        ),
    )
    after = {**lost, victim.id: lost.get(victim.id, 0) - 1}
    mine = _share(fleet, asking.project, {asking.id: 1})
    if _share(fleet, name, after, by_gpus) >= mine:
        return victim
    return None


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
    """What is free for all and of the project's quota once all that was asked back or chosen has ended."""
    taken = Counter(sweep.id for sweep in chosen)
    rooms = []
    for limits, sweeps in (
        (fleet.capacity, fleet.sweeps),
        (
            fleet.project(asking.project).quota,
            [sweep for sweep in fleet.sweeps if sweep.project == asking.project],
        ),
    ):
        trials, gpus = limits.remaining(
            sum(sweep.trials - sweep.leaving for sweep in sweeps),
            sum(sweep.gpus - sweep.leaving_gpus for sweep in sweeps),
        )
        rooms.append(
            (
                trials + sum(taken[sweep.id] for sweep in sweeps),
                gpus + sum(taken[sweep.id] * sweep.smallest for sweep in sweeps),
            )
        )
    return rooms


def _asking(fleet: Fleet, project: str) -> list[Sweep]:
    return [sweep for sweep in fleet.sweeps if sweep.project == project and sweep.wants > 0]


def _trials(fleet: Fleet, project: str) -> int:
    return sum(sweep.trials for sweep in fleet.sweeps if sweep.project == project)


def _find_aged(fleet: Fleet, project: str) -> Sweep | None:
    """The sweep of a project that the others of it wait for."""
    longest = min(
        _asking(fleet, project),
        key=lambda candidate: (-candidate.priority, -candidate.waited, candidate.id),
        default=None,
    )
    if longest is None or longest.waited < fleet.policy.reserve_after:
        return None
    limits = (fleet.capacity, fleet.project(project).quota)
    if all(_fits(longest.needs, *limit.remaining(0, 0)) for limit in limits):
        return longest
    return None


def _is_due(fleet: Fleet, sweep: Sweep, due: float) -> bool:
    """Whether room is kept for an aged sweep by all."""
    project: Project = fleet.project(sweep.project)
    gpus = sum(other.gpus for other in fleet.sweeps if other.project == sweep.project)
    fits = _fits(sweep.needs, *project.quota.remaining(_trials(fleet, sweep.project), gpus))
    return fits and _share(fleet, sweep.project, {}) <= due


def _is_room(fleet: Fleet, sweep: Sweep, gained: dict[str, int], kept: Sweep) -> bool:
    def remaining(limits: Limits, project: str | None) -> tuple[float, float]:
        sweeps = [sweep for sweep in fleet.sweeps if project in (None, sweep.project)]
        trials, gpus = limits.remaining(
            sum(sweep.trials + gained[sweep.id] for sweep in sweeps),
            sum(sweep.gpus + gained[sweep.id] * sweep.needs for sweep in sweeps),
        )
        keeps = kept.id and project in (None, kept.project)
        if keeps:
            return (trials - 1, gpus - kept.needs)
        return (trials, gpus)

    return _fits(sweep.needs, *remaining(fleet.capacity, None)) and _fits(
        sweep.needs, *remaining(fleet.project(sweep.project).quota, sweep.project)
    )


def _share(
    fleet: Fleet, project: str, gained: dict[str, int], by_gpus: dict[str, int] | None = None
) -> float:
    """A project's weighted dominant share when its sweeps have so many more trials (less, where negative)."""
    sweeps = [sweep for sweep in fleet.sweeps if sweep.project == project]
    trials = sum(sweep.trials + gained.get(sweep.id, 0) for sweep in sweeps)
    gpus = sum(
        sweep.gpus + gained.get(sweep.id, 0) * (sweep.needs if by_gpus is None else by_gpus.get(sweep.id, 0))
        for sweep in sweeps
    )
    parts = [
        held / max(1, of)
        for held, of in ((trials, fleet.capacity.trials), (gpus, fleet.capacity.gpus))
        if of is not None
    ]
    return max(parts, default=float(trials)) / fleet.project(project).weight


def _fits(needs: int, trials: float, gpus: float) -> bool:
    return trials >= 1 and (needs == 0 or gpus >= needs)
