"""Retention: how long points, rollups and checkpoints of finished runs are kept. Pure decisions, and a thin edge that carries them out.

Full resolution goes first, rollups stay for longer or for ever. A protected run keeps every point. Age counts from when points
were absorbed last, which is never before they were logged, so no clock of a training machine can make a run old. Runs with
segments that are not compacted are left alone: compact them first.

Checkpoints: a run's newest one always stays, and so does every blob that another record names. Of a superseded checkpoint only the
bytes are deleted; its entry in the run's history stays.

Each retention also deletes orphan files of killed processes, and blobs that no record names; see
:mod:`halving.maintenance.orphan_files`.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from halving.errors import InvalidInput
from halving.maintenance.compaction import clean, commit, contiguous, publish
from halving.maintenance.external_sort import Sorter
from halving.maintenance.orphan_files import UNRECORDED_AGE, delete_orphan_file, find_orphan_files
from halving.maintenance.rewrite import add_file, write_sorted
from halving.metrics.manifest import FAMILIES, Manifest, family_of, project_folder, projects_of, run_files, runs_of
from halving.store.json_files import now as this_moment
from halving.store.store import REFRESH_SECONDS, Store, blob_name

# Another run may have put the same bytes and not recorded them yet; that put left alone what was younger than a day.
SHARED_AGE = timedelta(seconds=2 * REFRESH_SECONDS)
What = Literal["full", "system", "rollup", "checkpoint", "orphan files"]
Runs = Collection[tuple[str, str]]


@dataclass(frozen=True)
class Policy:
    """How many days each kind of data is kept; None is for ever.

    Attributes:
        days: full resolution.
        system_days: full resolution of ``system/`` metrics; at most ``days``.
        rollup_days: rollups of runs whose full resolution is gone; at least ``days``.
        checkpoint_days: superseded checkpoints. One that was saved less than two days ago stays in any case.

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
        what: ``full`` resolution, ``system`` metrics at full resolution, ``rollup``, ``checkpoint``, or ``orphan files``
            of killed processes.
        points: points dropped from full resolution; 0 for the others.
        bytes: size on the disk; for ``system`` an estimate by the share of points.
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
    """Drop what is older than the given days. May be killed anywhere and repeated.

    Args:
        protected: ``(project, run)`` of runs to leave as they are.
        days, system_days, rollup_days, checkpoint_days: see :class:`Policy`.
        keep_blobs: all digests that the catalog names; these blobs stay. None: unknown, so that unrecorded blobs stay, too.
        project: only this one (default: all).
        dry_run: only return what would be dropped.
        now: the moment to count from.

    Raises:
        InvalidInput: the numbers of days contradict each other.
        StoreError: the store cannot be written.
    """
    policy = Policy(days, system_days, rollup_days, checkpoint_days)
    moment, kept_runs = now or datetime.now(UTC), set(protected)
    projects = [project] if project else projects_of(store)
    drops: list[Drop] = []
    for name in projects:
        states = read_states(store, name)
        planned = plan_retention(states, policy, kept_runs, moment)
        drops += planned
        if not dry_run:
            _carry_out(store, name, states, planned)
    blobs = plan_checkpoints(store, policy, kept_runs, keep_blobs, moment, project)
    if not dry_run:
        before = moment - min(UNRECORDED_AGE, _checkpoint_age(policy))
        blobs = [drop for drop in blobs if store.collect(blob_name(drop.digest or ""), before.timestamp())]
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
        if files.manifest.generation:
            folder = project_folder(project)
            sizes = store.sizes(f"{folder}/{name}" for name in files.manifest.files)
            own = {name.removeprefix(f"{folder}/"): size for name, size in sizes.items()}
            states.append(RunState(project, run, files.manifest, own, bool(contiguous(files)[0])))
    return states


def plan_retention(states: Iterable[RunState], policy: Policy, protected: Runs, now: datetime) -> list[Drop]:
    """What is due. Pure."""

    def due(state: RunState, limit: float | None) -> bool:
        if limit is None or state.live or (state.project, state.run) in protected:
            return False
        return now - datetime.fromisoformat(state.manifest.active or state.manifest.written) > timedelta(days=limit)

    drops = []
    for state in states:
        manifest, full_is_due = state.manifest, due(state, policy.days)
        held, system = sum(manifest.held.values()), manifest.held.get("system", 0)
        if manifest.full and (full_is_due or (system and due(state, policy.system_days))):
            points = held if full_is_due else system
            size = state.sizes.get(manifest.full, 0) * points // max(1, held)
            drops.append(Drop(state.project, state.run, "full" if full_is_due else "system", points, size))
        if manifest.rollup and (full_is_due or not manifest.full) and due(state, policy.rollup_days):
            drops.append(Drop(state.project, state.run, "rollup", 0, state.sizes.get(manifest.rollup, 0)))
    return drops


def plan_checkpoints(
    store: Store, policy: Policy, protected: Runs, keep_blobs: Collection[str] | None, now: datetime, project: str | None = None
) -> list[Drop]:
    """Superseded checkpoints that are old, and whose blobs no record that stays names."""
    if policy.checkpoint_days is None:
        return []
    limit = now - _checkpoint_age(policy)
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


def _checkpoint_age(policy: Policy) -> timedelta:
    return max(SHARED_AGE, timedelta(days=policy.checkpoint_days or 0))


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
    with TemporaryDirectory(prefix="halving-") as temporary:
        rewritten = write_sorted(sorter, run, Path(temporary), {})
        full = publish(store, project, run, "full", generation, rewritten.full)
    history = {**manifest.history, **({"system": manifest.rollup} if manifest.rollup else {})}
    following = replace(manifest, generation=generation, written=this_moment(), full=full, held=rewritten.held, history=history)
    commit(store, project, run, following)
