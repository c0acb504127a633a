"""Carrying out a retention policy on a store and its catalog.

It may be killed at any time and repeated, and may run beside trainings, promotions and another retention.
First the catalog records which trials lose checkpoints (:mod:`resources.retention.ended_trials`). Then the
blobs that stay are marked, and those without a mark are deleted (:mod:`halving.maintenance.blob_collection`).
Datasets are never deleted.
"""

import contextlib
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import select

from halving import InvalidInput, NotFound, Store, StoreError
from halving.maintenance.blob_collection import NOBODY, Marks, Owner, clock_of, delete_unmarked, find_unmarked
from halving.maintenance.named_blobs import Record, named_by_runs
from halving.maintenance.orphan_files import delete_orphan_file, find_orphan_files
from halving.maintenance.retention import PointDays, drop_points
from halving.metrics.manifest import projects_of
from halving.query.runs import find_run, projects
from resources.catalog import Catalog, SweepRow, TrialRow
from resources.catalog.trial_key import trial_key
from resources.retention.cold import KIND as MOVED
from resources.retention.cold import check_cold, move_to_cold
from resources.retention.ended_trials import ALL, drop_checkpoints, why_it_stays
from resources.retention.expired import Fate, expired_records
from resources.retention.gone import Gone
from resources.retention.journals import recover_old_journals
from resources.retention.policy import Policy, ProjectPolicy
from resources.retention.policy_file import NAME, VARIABLE, PolicyFile
from resources.retention.project_names import closest_project, is_known, known_names
from resources.retention.protection import (
    NONE,
    Protected,
    Reason,
    Run,
    find_protected,
    in_project,
    trial_checkpoints,
)
from resources.retention.trash import count_removed, remove_deleted
from resources.tenancy.projects import names_of, renamed_projects


@dataclass(frozen=True)
class Outcome:
    """The result of a retention, or of its dry run.

    Attributes:
        gone: what was deleted and moved, or would be.
        protected: runs that are protected from it, and why.
        unknown: projects in the policy that neither the store nor the catalog has, each with the most similar
            name, or None.
        problems: sentences on damaged files, and on what stays because of them.
    """

    gone: list[Gone]
    policy: PolicyFile
    protected: Mapping[Run, Reason]
    dry_run: bool
    unknown: Mapping[str, str | None] = field(default_factory=dict)
    problems: Sequence[str] = ()

    @property
    def bytes(self) -> int:
        """Bytes that were deleted, or would be."""
        return sum(gone.bytes for gone in self.gone if gone.kind != MOVED)

    @property
    def moved_bytes(self) -> int:
        """Bytes that moved to the cold tier, or would."""
        return sum(gone.bytes for gone in self.gone if gone.kind == MOVED)

    def notes(self) -> list[str]:
        """Notes for people: unknown projects in the policy, and damaged files."""
        notes = []
        for name, closest in sorted(self.unknown.items()):
            note = f"the policy names a project that there is not: {name}"
            if closest:
                note += f"; did you mean {closest}?"
            notes.append(note)
        return [*notes, *self.problems]

    def protected_by_reason(self) -> Counter[str]:
        """How many runs are protected for each kind of reason."""
        return Counter(reason.kind for reason in self.protected.values())


_PROBE = "retention/clock"
_ALL_BLOBS = (
    "no checkpoint, artifact, media or other blob is deleted until these files are mended or deleted: they "
    "may have named any"
)
_UNNAMED_BLOBS = (
    "blobs that nothing names stay until these files are mended or deleted, which may have named some"
)
_POINTS = {"full": "points", "system": "system points", "rollup": "rollups"}


def carry_out(
    store: Store,
    catalog: Catalog,
    file: PolicyFile,
    *,
    project: str | None = None,
    dry_run: bool = False,
    now: datetime | None = None,
) -> Outcome:
    """Delete the data that the policy does not keep, and move data to the cold tier as it says.

    Args:
        project: only what belongs to this project, by any name that it has or had (default: all, also what
            belongs to none).
        dry_run: only say what would go; nothing is written.
        now: the time to count from (default: the earliest time of the clocks of this machine, the catalog
            and the store, so that a clock that is fast deletes nothing too early).

    Raises:
        InvalidInput: the store has sweeps or versions that the catalog lacks, so it may be another store's
            catalog; or it is an object store without a policy of its own; or the policy names one project
            twice.
        NotFound: a report's content is gone from the store; or there is no such project.
        StoreError: the store refused, or one of its colder places is not there or another store's.
    """
    if file.shipped and store.folder is None and not dry_run:
        raise InvalidInput(
            f"retention of {store.root} is not accepted: the store has no {NAME}, and the shipped default "
            f"is for a laptop's disk; write one into the store's root, name one by {VARIABLE}, or only look "
            "at what would go (--dry-run; dry_run: true of the job)"
        )
    policy = file.policy.with_names(renamed_projects(catalog))
    check_cold(store, policy.cold)
    unknown = {
        name: closest_project(store, catalog, name)
        for name in file.policy.projects
        if not is_known(store, catalog, name)
    }
    protected = find_protected(store, catalog)
    now = now or _earliest_time(store, catalog, dry_run=dry_run)
    gone: list[Gone] = []
    problems: list[str] = []
    names: Sequence[str | None] = [None]
    if project:
        names = known_names(store, catalog, project)
    for name in names:
        gone += _carry_out(store, catalog, policy, protected, name, now, problems, dry_run=dry_run)
    return Outcome(sorted(gone), file, protected.runs, dry_run, unknown, [*dict.fromkeys(problems)])


def _carry_out(
    store: Store,
    catalog: Catalog,
    policy: Policy,
    protected: Protected,
    project: str | None,
    now: datetime,
    problems: list[str],
    *,
    dry_run: bool,
) -> list[Gone]:
    """Carry out the policy for one name of a project, or for all; adds what is damaged to ``problems``."""
    totals = _Totals()
    retention = _Retention(store, catalog, policy, protected, now, dry_run)
    scope: Any = {"project": project, "dry_run": dry_run, "now": now}
    # Deleted runs are removed first, so that the blobs that they named go as well.
    removed = count_removed(remove_deleted(store, catalog, policy, **scope, problems=problems))
    options: Any = {"protected": protected.runs, "now": now, "dry_run": dry_run, "problems": problems}
    with_points = [project] if project else projects_of(store)
    for name in with_points:
        for drop in drop_points(store, name, _point_days(policy.of(name)), **options):
            totals.add(drop.project, _POINTS[drop.kind], drop.bytes)
    for owner, size in retention.collect(project):
        totals.add(*owner, size)
    problems += retention.problems
    for orphan in find_orphan_files(store, protected.runs.keys(), now, project):
        totals.add(orphan.project, "leftover files", orphan.bytes)
        if not dry_run:
            delete_orphan_file(store, orphan, now)
    with_runs = [project] if project else projects(store)
    for name in with_runs:
        for size in recover_old_journals(store, name, policy.of(name).journals.days, now, dry_run=dry_run):
            totals.add(name, "journals", size)
    # Blobs move last, because those that were deleted need not move.
    moved = move_to_cold(store, catalog, policy, **scope)
    return [*removed, *totals.rows(), *moved]


def explain(store: Store, catalog: Catalog, policy: Policy, project: str, run: str) -> dict[str, Any]:
    """Explain as JSON what retention does with one run, and why.

    The keys are ``run``, ``project``, ``reason`` (null where nothing protects it) and ``records``: those that
    the policy is about, each with its ``name``, its ``kind``, and a ``state`` that says whether what it names
    ``stays`` or has ``expired``.

    Raises:
        InvalidInput, NotFound, StoreError: as :func:`carry_out`.
    """
    policy = policy.with_names(renamed_projects(catalog))
    protected = find_protected(store, catalog)
    now = _earliest_time(store, catalog, dry_run=True)
    retention = _Retention(store, catalog, policy, protected, now, dry_run=True)
    runs = [*named_by_runs(store, project, remember=False)]
    gone = retention.expired_of(project, runs).get(run, {})
    if protection := protected.runs.get((project, run)):
        reason: str | None = protection.sentence
    else:
        rerun = _runs_in_rerun(project, runs)
        checkpoints = policy.of(project).checkpoints
        reason = why_it_stays(store, catalog, project, run, checkpoints, rerun=rerun, now=now)
    rows = []
    for record in dict(runs).get(run, ()):
        kind, slash, _ = record.name.partition("/")
        if slash:
            state = "expired" if record in gone else "stays"
            rows.append({"name": record.name, "kind": kind, "state": state})
    return {"run": run, "project": project, "reason": reason, "records": rows}


def find_run_of(store: Store, catalog: Catalog, name: str) -> tuple[str, str]:
    """``(project, run)`` of the run that a person names, by any name that its project has or had.

    Raises:
        NotFound, InvalidInput: as :func:`halving.query.runs.find_run`.
    """
    project, slash, run = name.rpartition("/")
    if slash:
        with catalog.read() as session:
            names = names_of(session, project)
        for other in names:
            with contextlib.suppress(NotFound):
                return find_run(store, f"{other}/{run}")
    return find_run(store, name)


def _earliest_time(store: Store, catalog: Catalog, *, dry_run: bool) -> datetime:
    """The current time by the slowest of three clocks: of this machine, of the catalog and of the store.

    The store's clock is read by writing a file, which a dry run does not.
    """
    times = [datetime.now(UTC).timestamp(), catalog.now()]
    if not dry_run:
        with contextlib.suppress(StoreError):  # A store that is down is reported by the deletions.
            if time_of_store := clock_of(store, _PROBE):
                times.append(time_of_store)
    return datetime.fromtimestamp(min(times), UTC)


class _Retention:
    """One collection of blobs.

    Attributes:
        problems: sentences on damaged records, and on what stays because of them.
    """

    def __init__(
        self,
        store: Store,
        catalog: Catalog,
        policy: Policy,
        protected: Protected,
        now: datetime,
        dry_run: bool,
    ) -> None:
        self._store = store
        self._catalog = catalog
        self._policy = policy
        self._protected = protected
        self._now = now
        self._dry_run = dry_run
        self._marks = Marks()
        self.problems: list[str] = []
        # Manifests of sharded checkpoints whose records have expired; the catalog may keep them.
        self._manifests: set[bytes] = set()
        self._dropped: dict[tuple[str, int], str] = {}

    def collect(self, project: str | None) -> Iterator[tuple[tuple[str, str], int]]:
        """Project, kind and bytes of each blob that goes.

        Raises:
            StoreError: a colder place is not there, or another store's.
        """
        colder = self._store.colder_places
        damaged: list[Record] = []
        for name in projects(self._store):
            runs = list(named_by_runs(self._store, name, remember=not self._dry_run))
            damaged += [record for _, records in runs for record in records if record.problem]
            if project in (None, name):
                self._mark_expired(name, runs)
            else:
                for _, records in runs:
                    self._keep(records)
        self._keep_named_by_catalog()
        self._marks.keep_parts(self._store)
        before = (self._now - timedelta(days=self._policy.grace_days)).timestamp()
        self.problems += [record.problem for record in damaged]
        spared = _blobs_to_spare(damaged)
        if spared:
            self.problems.append(spared)
        if spared == _ALL_BLOBS:
            return
        for place in (self._store, *colder):
            blobs = [
                blob
                for blob in find_unmarked(place, self._marks, before)
                if project in (None, blob.owner.project)
            ]
            blobs = [blob for blob in blobs if not (spared and blob.owner == NOBODY)]
            if not self._dry_run:
                blobs = delete_unmarked(place, blobs, before)
            for blob in blobs:
                yield (blob.owner.project, blob.owner.kind), blob.bytes

    def _mark_expired(self, project: str, runs: list[tuple[str, list[Record]]]) -> None:
        expired_records = self.expired_of(project, runs)
        for run, records in runs:
            gone = expired_records[run]
            self._keep(record for record in records if record not in gone)
            for record, kind in gone.items():
                self._marks.expire(record.digests, Owner(project, kind, record.sharded))
                if record.sharded:
                    self._manifests.update(record.digests)

    def expired_of(self, project: str, runs: list[tuple[str, list[Record]]]) -> dict[str, dict[Record, str]]:
        """The records that have expired, with their kinds, by run.

        Before that, the catalog records which trials' checkpoints go.
        """
        policy = self._policy.of(project)
        rerun = _runs_in_rerun(project, runs)
        self._dropped |= drop_checkpoints(
            self._store,
            self._catalog,
            project,
            policy.checkpoints,
            rerun=rerun,
            now=self._now,
            dry_run=self._dry_run,
        )
        fate_of = self._fates(project, rerun)
        gone: dict[str, dict[Record, str]] = {}
        for run, records in runs:
            gone[run] = {}
            if not any(record.problem for record in records):
                gone[run] = expired_records(records, fate_of(run), policy, self._now.timestamp())
        return gone

    def _fates(self, project: str, rerun: Collection[str]) -> Callable[[str], Fate]:
        """Return a function from a run's id to its fate.

        Args:
            rerun: runs that are being trained again.
        """
        columns = TrialRow.sweep, TrialRow.number, TrialRow.checkpoints_left, SweepRow.finished_at
        query = select(*columns).join(SweepRow, SweepRow.id == TrialRow.sweep).where(in_project(project))
        with self._catalog.read() as session:
            trials = {
                trial_key(sweep, number): (self._dropped.get((sweep, number), left or ALL), ended)
                for sweep, number, left, ended in session.execute(query)
            }

        def fate(run: str) -> Fate:
            left, finished_at = trials.get(run, (None, None))
            ended = None
            if finished_at is not None:
                ended = finished_at.timestamp()
            key = project, run
            return Fate(
                left,
                ended,
                whole=key in self._protected.sources or run in rerun,
                protected=key in self._protected.runs,
                registered=key in self._protected.registered,
            )

        return fate

    def _keep(self, records: Iterable[Record]) -> None:
        for record in records:
            self._marks.keep(record.digests, sharded=record.sharded)

    def _keep_named_by_catalog(self) -> None:
        going = {trial for trial, left in self._dropped.items() if left == NONE}
        with self._catalog.read() as session:
            for digest in trial_checkpoints(session, going):
                value = _bytes_of(digest)
                self._marks.keep([value], sharded=value in self._manifests)
        # Each of these may be a manifest.
        self._marks.keep([_bytes_of(digest) for digest in self._protected.blobs], sharded=True)


@dataclass
class _Totals:
    _counts: dict[tuple[str, str], list[int]] = field(default_factory=lambda: defaultdict(lambda: [0, 0]))

    def add(self, project: str, kind: str, size: int) -> None:
        counts = self._counts[project, kind]
        counts[0] += 1
        counts[1] += size

    def rows(self) -> list[Gone]:
        return [Gone(*key, *counts) for key, counts in sorted(self._counts.items())]


def _blobs_to_spare(damaged: Collection[Record]) -> str | None:
    """A sentence on the blobs that stay because damaged records may have named them; None where none do.

    Blobs that the records still name stay in any case: nothing of a run with a damaged record expires.
    """
    lossy = [record for record in damaged if record.may_name_more]
    if not lossy:
        return None
    if all(record.digests for record in lossy):
        return _UNNAMED_BLOBS
    return _ALL_BLOBS


def _bytes_of(digest: str) -> bytes:
    return bytes.fromhex(digest.removeprefix("sha256:"))


def _runs_in_rerun(project: str, runs: list[tuple[str, list[Record]]]) -> set[str]:
    """The runs of a project that are being trained again, by reruns that have not ended."""
    originals = set()
    for _, records in runs:
        if any(record.name.startswith("end-") for record in records):
            continue
        for record in records:
            project_of_original, _, original = record.rerun_of.partition("/")
            if project_of_original == project:
                originals.add(original)
    return originals


def _point_days(policy: ProjectPolicy) -> PointDays:
    return PointDays(policy.points.full.days, policy.points.system.days, policy.points.rollup.days)
