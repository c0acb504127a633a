"""Retention of points: how long full resolution and rollups of runs stay. Pure decisions, and a thin edge that carries them out.

Full resolution goes first, rollups stay for longer or for ever. A protected run keeps every point. Age counts from when points
were absorbed last, which is never before they were logged, so no clock of a training machine can make a run old. Runs with
segments that are not compacted are left alone: compact them first.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Literal, NamedTuple

from halving.machine.temporary_folders import scratch_folder
from halving.maintenance.compaction import clean, commit, contiguous, publish
from halving.maintenance.external_sort import Sorter
from halving.maintenance.rewrite import add_file, write_sorted
from halving.metrics.manifest import FAMILIES, Manifest, family_of, project_folder, run_files
from halving.store.json_files import now as this_moment
from halving.store.store import Store

What = Literal["full", "system", "rollup"]
Runs = Collection[tuple[str, str]]


class PointDays(NamedTuple):
    """How many days points are kept since the last of a run was logged; None is for ever.

    Attributes:
        full: full resolution.
        system: full resolution of ``system/`` metrics; at most ``full``.
        rollup: rollups of runs whose full resolution is gone; at least ``full``.
    """

    full: float | None = None
    system: float | None = None
    rollup: float | None = None


@dataclass(frozen=True)
class RunState:
    """What the decision depends on: a run's manifest, the bytes of its data files by name, and whether segments wait for compaction."""

    project: str
    run: str
    manifest: Manifest
    sizes: Mapping[str, int]
    live: bool


@dataclass(frozen=True)
class Drop:
    """One thing to delete.

    Attributes:
        what: ``full`` resolution, ``system`` metrics at full resolution, or ``rollup``.
        points: points dropped from full resolution; 0 for rollups.
        bytes: size on the disk; for ``system`` an estimate by the share of points.
    """

    project: str
    run: str
    what: What
    points: int
    bytes: int


def drop_points(store: Store, project: str, days: PointDays, *, protected: Runs, now: datetime, dry_run: bool = False) -> list[Drop]:
    """Drop a project's points that are older than the given days. May be killed anywhere and repeated.

    Args:
        protected: ``(project, run)`` of runs to leave as they are.
        now: the moment to count from.
        dry_run: only return what would be dropped.

    Raises:
        StoreError: the store cannot be written.
    """
    if days.full is None and days.system is None:
        return []
    states = read_states(store, project, with_rollups=days.rollup is not None)
    planned = plan_retention(states, days, protected, now)
    if not dry_run:
        _carry_out(store, project, states, planned)
    return planned


def read_states(store: Store, project: str, *, with_rollups: bool = True) -> list[RunState]:
    """The compacted runs of a project; without those whose full resolution is gone, unless rollups matter, too.

    One listing says which these are, so that a run is only looked at while it has something to drop.
    """
    folder, states = project_folder(project), []
    wanted = ("full-", "rollup-") if with_rollups else ("full-",)
    sizes = {name.removeprefix(f"{folder}/"): size for name, size, _ in store.files(folder)}
    runs = {name.partition("/")[0].removeprefix("run=") for name in sizes if name.partition("/")[2].startswith(wanted)}
    for run in sorted(runs):
        files = run_files(store, project, run)
        if files.manifest.generation:
            own = {name: sizes.get(name, 0) for name in files.manifest.files}
            states.append(RunState(project, run, files.manifest, own, bool(contiguous(files)[0])))
    return states


def plan_retention(states: Iterable[RunState], days: PointDays, protected: Runs, now: datetime) -> list[Drop]:
    """What is due. Pure."""

    def due(state: RunState, limit: float | None) -> bool:
        if limit is None or state.live or (state.project, state.run) in protected:
            return False
        return now - datetime.fromisoformat(state.manifest.active or state.manifest.written) > timedelta(days=limit)

    drops = []
    for state in states:
        manifest, full_is_due = state.manifest, due(state, days.full)
        held, system = sum(manifest.held.values()), manifest.held.get("system", 0)
        if manifest.full and (full_is_due or (system and due(state, days.system))):
            points = held if full_is_due else system
            size = state.sizes.get(manifest.full, 0) * points // max(1, held)
            drops.append(Drop(state.project, state.run, "full" if full_is_due else "system", points, size))
        if manifest.rollup and (full_is_due or not manifest.full) and due(state, days.rollup):
            drops.append(Drop(state.project, state.run, "rollup", 0, state.sizes.get(manifest.rollup, 0)))
    return drops


def _carry_out(store: Store, project: str, states: list[RunState], drops: list[Drop]) -> None:
    for state in states:
        what = {drop.what for drop in drops if drop.run == state.run}
        if "system" in what:
            _drop_system(store, state)
        elif what:
            commit(store, project, state.run, _without(state.manifest, what))
        if what:
            clean(store, project, state.run)


def _without(manifest: Manifest, what: Collection[str]) -> Manifest:
    """The next manifest, without full resolution and perhaps without the rollup."""
    gone = {family: manifest.rollup for family in FAMILIES if manifest.held.get(family) and manifest.rollup}
    following = replace(manifest, generation=manifest.generation + 1, written=this_moment(), full=None, held={})
    if "rollup" in what:
        return replace(following, rollup=None, history={})
    return replace(following, history={**manifest.history, **gone})


def _drop_system(store: Store, state: RunState) -> None:
    """Write a run's full file again without its system metrics."""
    project, run, manifest = state.project, state.run, state.manifest
    generation = manifest.generation + 1
    sorter = Sorter()
    try:
        add_file(sorter, store, f"{project_folder(project)}/{manifest.full}", lambda key: family_of(key) != "system")
    except FileNotFoundError:  # a compaction was first: the next retention does it
        return
    with scratch_folder("retention") as temporary:
        rewritten = write_sorted(sorter, run, temporary, {})
        full = publish(store, project, run, "full", generation, rewritten.full)
    history = {**manifest.history, **({"system": manifest.rollup} if manifest.rollup else {})}
    following = replace(manifest, generation=generation, written=this_moment(), full=full, held=rewritten.held, history=history)
    commit(store, project, run, following)
