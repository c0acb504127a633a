"""Retention of points: how long full resolution and rollups of runs stay.

Pure decisions, and a thin edge that carries them out.

Full resolution goes first; rollups stay for longer or for ever. A protected run keeps every point. Age counts
from when points were put or absorbed last, which is never before they were logged, so no clock of a training
machine can make a run old. Where nobody has compacted a run's segments and they are too old, the run is
compacted first, so that its rollup stays.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, NamedTuple

from halving.errors import Damaged, NotFound
from halving.machine.temporary_folders import scratch_folder
from halving.maintenance.compaction import clean, commit, compact, contiguous, publish
from halving.maintenance.external_sort import Sorter
from halving.maintenance.rewrite import add_file, write_sorted
from halving.metrics.manifest import FAMILIES, Manifest, family_of, project_folder, run_files
from halving.store.json_files import now as this_moment
from halving.store.store import Store

Kind = Literal["full", "system", "rollup"]
Runs = Collection[tuple[str, str]]


class PointDays(NamedTuple):
    """How many days points are kept since a run's last one was logged; None is for ever.

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
    """The state of a run on which the decision depends.

    Attributes:
        sizes: the bytes of its data files, by name.
        live: whether segments wait for compaction.
        written: of these when each was put, by its whole name, in seconds since 1970; empty: the store does
            not say of all.
        waiting: their bytes.
    """

    project: str
    run: str
    manifest: Manifest
    sizes: Mapping[str, int]
    live: bool
    written: Mapping[str, float] = field(default_factory=dict)
    waiting: int = 0

    @property
    def active(self) -> datetime | None:
        """When points were put or absorbed last; None where it is not known."""
        if self.live and not self.written:
            return None
        times = [datetime.fromtimestamp(put, UTC) for put in self.written.values()]
        if absorbed := self.manifest.active or self.manifest.written:
            times.append(datetime.fromisoformat(absorbed))
        return max(times, default=None)


@dataclass(frozen=True)
class Drop:
    """One thing to delete.

    Attributes:
        kind: ``full`` resolution, ``system`` metrics at full resolution, or ``rollup``.
        points: points dropped from full resolution; 0 for rollups, and where nobody has compacted the run
            yet.
        bytes: size on the disk; for ``system`` an estimate by the share of points, and 0 where nobody has
            compacted the run yet.
        waits: whether the run's segments are to be compacted before; whether it has such points is known
            then.
    """

    project: str
    run: str
    kind: Kind
    points: int
    bytes: int
    waits: bool = False


def drop_points(
    store: Store,
    project: str,
    days: PointDays,
    *,
    protected: Runs,
    now: datetime,
    dry_run: bool = False,
    problems: list[str] | None = None,
) -> list[Drop]:
    """Drop a project's points that are older than the given days; may be killed anywhere and repeated.

    Args:
        protected: ``(project, run)`` of runs to leave as they are.
        now: the moment to count from.
        dry_run: only return what would be dropped.
        problems: takes what is wrong with runs whose files are damaged, which are left alone; without it the
            first one is raised.

    Raises:
        StoreError: the store cannot be written.
    """
    if days.full is None and days.system is None:
        return []
    shortest = min(limit for limit in (days.full, days.system) if limit is not None)
    selection: Any = {
        "with_rollups": days.rollup is not None,
        "before": (now - timedelta(days=shortest)).timestamp(),
    }
    states = read_states(store, project, **selection, problems=problems)
    planned = plan_retention(states, days, protected, now)
    if dry_run:
        # It is not known whether such a run has system metrics.
        return [drop for drop in planned if not (drop.waits and drop.kind == "system")]
    if waiting := {drop.run for drop in planned if drop.waits}:
        for state in states:
            if state.run in waiting:
                _compact(store, state, problems)
        if problems is not None:
            problems = []  # The problems of this second reading are reported already.
        states = read_states(store, project, **selection, problems=problems)
        planned = [drop for drop in plan_retention(states, days, protected, now) if not drop.waits]
    _carry_out(store, project, states, planned)
    return planned


def _compact(store: Store, state: RunState, problems: list[str] | None) -> None:
    try:
        compact(store, state.project, state.run, written=state.written)
    except (Damaged, NotFound, ValueError) as error:  # a damaged file is a ValueError of Arrow's
        if problems is None:
            raise
        problems.append(
            f"run {state.run} of project {state.project} cannot be compacted, and its points stay: {error}"
        )


def read_states(
    store: Store, project: str, *, before: float, with_rollups: bool = True, problems: list[str] | None = None
) -> list[RunState]:
    """The states of a project's runs that have points to drop.

    Runs whose full resolution is gone are left out unless rollups matter, too. One listing tells which these
    are, so that a run is only looked at while it has something to drop.

    Args:
        before: runs are left out that have segments put after that time, in seconds since 1970.
        problems: takes what is wrong with runs whose files are damaged, which are left out; without it the
            first one is raised.
    """
    folder = project_folder(project)
    states = []
    wanted: tuple[str, ...] = ("full-", "live/")
    if with_rollups:
        wanted = (*wanted, "rollup-")
    listed = {name.removeprefix(f"{folder}/"): (size, written) for name, size, written in store.files(folder)}
    runs = {
        name.partition("/")[0].removeprefix("run=")
        for name in listed
        if name.partition("/")[2].startswith(wanted)
    }
    runs -= {
        name.partition("/")[0].removeprefix("run=")
        for name, (_, put) in listed.items()
        if "/live/" in name and put > before
    }
    for run in sorted(runs):
        try:
            files = run_files(store, project, run)
        except Damaged as error:
            if problems is None:
                raise
            problems.append(f"{error}; points of this run stay")
            continue
        sizes = {name: listed.get(name, (0, 0.0))[0] for name in files.manifest.files}
        fresh, gaps = contiguous(files)
        segments = {name: listed.get(name.removeprefix(f"{folder}/"), (0, 0.0)) for name in (*fresh, *gaps)}
        written = {name: put for name, (_, put) in segments.items()}
        if not all(written.values()):
            written = {}
        waiting = sum(segments[name][0] for name in fresh)
        states.append(RunState(project, run, files.manifest, sizes, bool(fresh), written, waiting))
    return states


def plan_retention(states: Iterable[RunState], days: PointDays, protected: Runs, now: datetime) -> list[Drop]:
    """The drops that are due. Pure."""

    def due(state: RunState, limit: float | None) -> bool:
        if limit is None or state.active is None or (state.project, state.run) in protected:
            return False
        return now - state.active > timedelta(days=limit)

    drops = []
    for state in states:
        manifest = state.manifest
        full_is_due = due(state, days.full)
        kind: Kind = "full" if full_is_due else "system"
        if state.live:
            if full_is_due or due(state, days.system):
                size = 0
                if full_is_due:
                    size = state.sizes.get(manifest.full or "", 0) + state.waiting
                drops.append(Drop(state.project, state.run, kind, 0, size, waits=True))
            continue
        points_held = sum(manifest.held.values())
        system = manifest.held.get("system", 0)
        if manifest.full and (full_is_due or (system and due(state, days.system))):
            points = points_held if full_is_due else system
            size = state.sizes.get(manifest.full, 0) * points // max(1, points_held)
            drops.append(Drop(state.project, state.run, kind, points, size))
        if manifest.rollup and (full_is_due or not manifest.full) and due(state, days.rollup):
            drops.append(Drop(state.project, state.run, "rollup", 0, state.sizes.get(manifest.rollup, 0)))
    return drops


def _carry_out(store: Store, project: str, states: list[RunState], drops: list[Drop]) -> None:
    for state in states:
        kinds = {drop.kind for drop in drops if drop.run == state.run}
        if "system" in kinds:
            _drop_system(store, state)
        elif kinds:
            commit(store, project, state.run, _without(state.manifest, kinds))
        if kinds:
            clean(store, project, state.run)


def _without(manifest: Manifest, kinds: Collection[str]) -> Manifest:
    """The next manifest, without full resolution and perhaps without the rollup."""
    gone = {family: manifest.rollup for family in FAMILIES if manifest.held.get(family) and manifest.rollup}
    following = replace(
        manifest, generation=manifest.generation + 1, written=this_moment(), full=None, held={}
    )
    if "rollup" in kinds:
        return replace(following, rollup=None, history={})
    return replace(following, history={**manifest.history, **gone})


def _drop_system(store: Store, state: RunState) -> None:
    """Rewrite a run's full file without its system metrics."""
    project = state.project
    run = state.run
    manifest = state.manifest
    generation = manifest.generation + 1
    sorter = Sorter()
    try:
        add_file(
            sorter,
            store,
            f"{project_folder(project)}/{manifest.full}",
            lambda key: family_of(key) != "system",
        )
    except FileNotFoundError:  # a compaction was first: the next retention does it
        return
    with scratch_folder("retention") as temporary:
        rewritten = write_sorted(sorter, run, temporary, {})
        full = publish(store, project, run, "full", generation, rewritten.full)
    history = dict(manifest.history)
    if manifest.rollup:
        history["system"] = manifest.rollup
    following = replace(
        manifest,
        generation=generation,
        written=this_moment(),
        full=full,
        held=rewritten.held,
        history=history,
    )
    commit(store, project, run, following)
