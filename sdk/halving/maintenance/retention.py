"""Retention: what of finished runs is kept for how long. Pure decisions, and a thin edge that carries them out.

Full resolution goes first, rollups stay for longer or for ever. A protected run keeps every point; where it shares a merged file
with runs that go, the file is written again without those. Age counts from when points were absorbed last, which is never
before they were logged, and no clock of a training machine can make a run old. Runs with segments that are not compacted are
left alone: compact them first.

Checkpoints: a run's newest one always stays, and so does every blob that another record names. The entries in the history stay
too; only the bytes of superseded checkpoints go.

What killed processes have left, and blobs that no record names, go with each retention; see :mod:`halving.maintenance.orphan_files`.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Literal

from halving.errors import InvalidInput, NotFound
from halving.maintenance.compaction import clean, commit, contiguous, publish
from halving.maintenance.external_sort import Sorter
from halving.maintenance.merging import clean_merged, merged_sources, point_to, write_merged
from halving.maintenance.orphan_files import UNRECORDED_AGE, delete_orphan_file, find_orphan_files
from halving.maintenance.rewrite import add_file, write_sorted
from halving.metrics.manifest import FAMILIES, Manifest, family_of, new_name, project_folder, run_files, runs_of
from halving.store.json_files import now as this_moment
from halving.store.store import Store, blob_name

What = Literal["full", "system", "rollup", "checkpoint", "orphan files"]
Runs = Collection[tuple[str, str]]


@dataclass(frozen=True)
class Policy:
    """How many days what is kept; None is for ever.

    Attributes:
        days: full resolution.
        system_days: full resolution of ``system/`` metrics; at most ``days``.
        rollup_days: rollups of runs whose full resolution is gone; at least ``days``.
        checkpoint_days: superseded checkpoints.

    Raises:
        InvalidInput: a number of days is negative, or they are not in this order.
    """

    days: float | None = None
    system_days: float | None = None
    rollup_days: float | None = None
    checkpoint_days: float | None = None

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value is not None and not value >= 0:
                raise InvalidInput(f"{name} = {value} is not accepted: give a number of days from 0 on, or nothing to keep for ever")
        if self.days is not None and self.system_days is not None and self.system_days > self.days:
            raise InvalidInput(f"system_days = {self.system_days} is not accepted: give at most days, which is {self.days}")
        if self.rollup_days is not None and (self.days is None or self.rollup_days < self.days):
            raise InvalidInput(f"rollup_days = {self.rollup_days} is not accepted: rollups stay as long as days = {self.days} at least")


@dataclass(frozen=True)
class RunState:
    """What the decision looks at of one run: its manifest, the bytes of its data files by name, and whether it has live segments."""

    project: str
    run: str
    manifest: Manifest
    sizes: Mapping[str, int]
    live: bool


@dataclass(frozen=True)
class Drop:
    """One thing to take away. ``bytes`` is an estimate where a file is shared or written again.

    Attributes:
        what: ``full`` resolution, ``system`` metrics at full resolution, ``rollup``, ``checkpoint``, or ``orphan files``
            of killed processes.
        points: points or buckets' points that go from full resolution; 0 for the others.
        digest: of a checkpoint.
    """

    project: str
    run: str
    what: What
    points: int
    bytes: int
    digest: str | None = None


@dataclass(frozen=True)
class Retained:
    """What was dropped, or would be (``dry_run``)."""

    drops: tuple[Drop, ...]
    dry_run: bool

    @property
    def bytes(self) -> int:
        return sum(drop.bytes for drop in self.drops)


def apply_retention(
    store: Store,
    *,
    protected: Runs,
    days: float | None = None,
    system_days: float | None = None,
    rollup_days: float | None = None,
    checkpoint_days: float | None = None,
    keep_blobs: Collection[str] | None = None,
    project: str | None = None,
    dry_run: bool = False,
    now: datetime | None = None,
) -> Retained:
    """Drop what is older than it has to be. May be killed anywhere and done again.

    Args:
        protected: ``(project, run)`` of runs to leave as they are.
        days, system_days, rollup_days, checkpoint_days: see :class:`Policy`.
        keep_blobs: all digests that the catalog names; these blobs stay. None: unknown, so that unrecorded blobs stay, too.
        project: only this one (default: all).
        dry_run: only say what would be done.
        now: the moment to count from.

    Raises:
        InvalidInput: the numbers of days contradict each other.
        StoreError: the store cannot be written.
    """
    policy = Policy(days, system_days, rollup_days, checkpoint_days)
    moment, kept_runs = now or datetime.now(UTC), set(protected)
    projects = [project] if project else [name[len("project=") :] for name in store.names("metrics") if name.startswith("project=")]
    drops: list[Drop] = []
    for name in projects:
        states = read_states(store, name)
        planned = plan_retention(states, policy, kept_runs, moment)
        drops += planned
        if not dry_run:
            _carry_out(store, name, states, planned)
            clean_merged(store, name)
    blobs = plan_checkpoints(store, policy, kept_runs, keep_blobs, moment, project)
    if not dry_run:
        for drop in blobs:
            store.collect_blob(drop.digest or "", (moment - min(UNRECORDED_AGE, timedelta(days=checkpoint_days or 0))).timestamp())
    left: dict[tuple[str, str], int] = {}
    for orphan in find_orphan_files(store, kept_runs, moment, project, keep_blobs):
        owner = orphan.project, orphan.run
        left[owner] = left.get(owner, 0) + orphan.bytes
        if not dry_run:
            delete_orphan_file(store, orphan, moment)
    drops += [Drop(*owner, "orphan files", 0, size) for owner, size in left.items()]
    return Retained((*drops, *blobs), dry_run)


def read_states(store: Store, project: str) -> list[RunState]:
    """The compacted runs of a project."""
    states = []
    for run in runs_of(store, project):
        files = run_files(store, project, run)
        if files.manifest is not None:
            folder = project_folder(project)
            sizes = store.sizes(f"{folder}/{name}" for name in files.manifest.files)
            own = {name.removeprefix(f"{folder}/"): size for name, size in sizes.items()}
            states.append(RunState(project, run, files.manifest, own, bool(contiguous(files)[0])))
    return states


def plan_retention(states: Iterable[RunState], policy: Policy, protected: Runs, now: datetime) -> list[Drop]:
    """What is due. Pure.

    A merged file is only touched when all of its runs are due or protected, so that it is not written again for each of them.
    """
    known = list(states)
    shared: dict[str, list[RunState]] = {}
    for state in known:
        for name in filter(None, (state.manifest.full, state.manifest.rollup)):
            shared.setdefault(name, []).append(state)

    def points_in(name: str) -> int:
        return max(1, sum(sum(state.manifest.held.values()) or state.manifest.points for state in shared[name]))

    def due(state: RunState, limit: float | None) -> bool:
        if limit is None or state.live or (state.project, state.run) in protected:
            return False
        return now - datetime.fromisoformat(state.manifest.active or state.manifest.written) > timedelta(days=limit)

    def all_due(name: str | None, limit: float | None) -> bool:
        return name is not None and all(due(other, limit) or (other.project, other.run) in protected for other in shared[name])

    drops = []
    for state in known:
        manifest, held = state.manifest, state.manifest.held
        full_goes = due(state, policy.days) and all_due(manifest.full, policy.days)
        system = held.get("system", 0)
        if manifest.full and (full_goes or (system and due(state, policy.system_days) and all_due(manifest.full, policy.system_days))):
            points = sum(held.values()) if full_goes else system
            size = state.sizes.get(manifest.full, 0) * points // points_in(manifest.full)
            drops.append(Drop(state.project, state.run, "full" if full_goes else "system", points, size))
        if manifest.rollup and (full_goes or not manifest.full) and due(state, policy.rollup_days):
            size = state.sizes.get(manifest.rollup, 0) // len(shared[manifest.rollup])
            drops.append(Drop(state.project, state.run, "rollup", 0, size))
    return drops


def plan_checkpoints(
    store: Store, policy: Policy, protected: Runs, keep_blobs: Collection[str] | None, now: datetime, project: str | None = None
) -> list[Drop]:
    """Superseded checkpoints that are old, and whose blobs no record that stays names."""
    if policy.checkpoint_days is None:
        return []
    limit = now - timedelta(days=policy.checkpoint_days)
    candidates: dict[str, tuple[str, str]] = {}
    kept = set(keep_blobs or ())
    for entry in store.names("runs"):
        for run in store.names(f"runs/{entry}"):
            folder, owner = f"runs/{entry}/{run}", (entry.removeprefix("project="), run)
            for kind in ("artifacts", "media"):
                kept.update(json.loads(store.read(f"{folder}/{kind}/{name}"))["digest"] for name in store.names(f"{folder}/{kind}"))
            history = [json.loads(store.read(f"{folder}/checkpoints/{name}")) for name in store.names(f"{folder}/checkpoints")]
            foreign = owner in protected or (project is not None and owner[0] != project)
            for place, saved in enumerate(history, 1):
                if foreign or place == len(history) or datetime.fromisoformat(saved["time"]) >= limit:
                    kept.add(saved["digest"])
                else:
                    candidates.setdefault(saved["digest"], owner)
    names = {digest: blob_name(digest) for digest in candidates if digest not in kept}
    sizes = store.sizes(names.values())
    return [Drop(*candidates[digest], "checkpoint", 0, sizes[name], digest) for digest, name in names.items() if name in sizes]


def _carry_out(store: Store, project: str, states: list[RunState], drops: list[Drop]) -> None:
    of_run: dict[str, set[str]] = {}
    for drop in drops:
        of_run.setdefault(drop.run, set()).add(drop.what)
    groups: dict[str, list[RunState]] = {}
    for state in states:
        what = of_run.get(state.run, set())
        if (state.manifest.full or "").startswith("merged/"):
            groups.setdefault(state.manifest.full or "", []).append(state)
        elif "system" in what:
            _rewrite_own(store, state)
        elif what:
            commit(store, project, state.run, _without(state.manifest, what))
    for name, group in groups.items():
        if any(state.run in of_run for state in group):
            _rewrite_merged(store, project, name, group, of_run)
    for run in of_run:
        clean(store, project, run)


def _without(manifest: Manifest, what: Collection[str]) -> Manifest:
    """The next manifest, without full resolution and perhaps without the rollup."""
    gone = {family: manifest.rollup for family in FAMILIES if manifest.held.get(family) and manifest.rollup}
    following = replace(manifest, generation=manifest.generation + 1, written=this_moment(), full=None, held={})
    if "rollup" in what:
        return replace(following, rollup=None, history={})
    return replace(following, history={**manifest.history, **gone})


def _rewrite_own(store: Store, state: RunState) -> None:
    """Write a run's own full file again without its system metrics."""
    project, run, manifest = state.project, state.run, state.manifest
    generation = manifest.generation + 1
    with Sorter() as sorter:
        try:
            add_file(sorter, store, f"{project_folder(project)}/{manifest.full}", run, _not_system)
        except FileNotFoundError:  # a compaction was first: the next time
            return
        rewritten = replace(write_sorted(sorter), rollup=None)
        full, _ = publish(store, project, (new_name(project, run, "full", generation), ""), rewritten)
    commit(store, project, run, _without_system(manifest, full))


def _rewrite_merged(store: Store, project: str, name: str, group: list[RunState], of_run: Mapping[str, set[str]]) -> None:
    """Write a merged file again with what stays, then point the runs that stay there and take the others' full files away."""
    staying = {state.run: state.manifest for state in group if "full" not in of_run.get(state.run, ())}
    keep = {run: _not_system if "system" in of_run.get(run, ()) else _anything for run in staying}
    target = None
    if staying:
        # The name says what is in it, so that who is killed and begins again goes on with the same file.
        content = json.dumps([[run, manifest.generation, keep[run] is _anything] for run, manifest in sorted(staying.items())])
        stem = name.removeprefix("merged/").removesuffix(".parquet").partition("~")[0]
        try:
            target = write_merged(store, project, staying, f"{stem}~{sha256(content.encode()).hexdigest()[:8]}", keep)
            sources = merged_sources(store, project, target) if target else {}
        except (FileNotFoundError, NotFound):  # a compaction was first: the next time
            return
    # Who stays moves first: once the others are gone, nothing would tell that the file is to be written again.
    for state in sorted(group, key=lambda state: state.run not in staying):
        run, manifest = state.run, state.manifest
        if run not in staying:
            commit(store, project, run, _without(manifest, of_run[run]))
        elif target is None:
            commit(store, project, run, _without_system(manifest, None))
        else:
            dropped = {"system": manifest.rollup} if "system" in of_run.get(run, ()) and manifest.rollup else {}
            point_to(store, project, run, target, sources, dropped)
        clean(store, project, run)


def _without_system(manifest: Manifest, full: str | None) -> Manifest:
    held = {family: count for family, count in manifest.held.items() if family != "system"}
    history = {**manifest.history, **({"system": manifest.rollup} if manifest.rollup else {})}
    return replace(manifest, generation=manifest.generation + 1, written=this_moment(), full=full, held=held, history=history)


def _not_system(key: str) -> bool:
    return family_of(key) != "system"


def _anything(key: str) -> bool:
    return True
