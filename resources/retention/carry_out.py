"""A policy carried out on a store and its catalog: points, checkpoints, media, artifacts, blobs that nothing
names, journals, leftovers.

It may be killed anywhere and repeated, run beside trainings, promotions and another retention. First the
catalog is told which trials' checkpoints go (:mod:`resources.retention.ended_trials`), then what stays is
marked, and at last blobs without a mark are deleted (:mod:`halving.maintenance.blob_collection`). Datasets
are never deleted.
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
from resources.retention.expired import Fate, expired
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
    in_project,
    protected,
    trial_checkpoints,
)
from resources.retention.trash import count_removed, remove_deleted
from resources.tenancy.projects import names_of, renamed_projects


@dataclass(frozen=True)
class Outcome:
    """What a retention did, or would do (``dry_run``), by which policy, and which runs are protected from it,
    and why.

    Attributes:
        unknown: projects that the policy names and that neither the store nor the catalog has (yet), each
            with what was perhaps meant.
        problems: what was left as it is, because a file of the store is damaged.
    """

    gone: list[Gone]
    policy: PolicyFile
    protected: Mapping[Run, Reason]
    dry_run: bool
    unknown: Mapping[str, str | None] = field(default_factory=dict)
    problems: Sequence[str] = ()

    @property
    def bytes(self) -> int:
        """Those that are deleted, or would be."""
        return sum(gone.bytes for gone in self.gone if gone.kind != MOVED)

    @property
    def moved_bytes(self) -> int:
        """Those that have moved to the cold tier, or would."""
        return sum(gone.bytes for gone in self.gone if gone.kind == MOVED)

    def notes(self) -> list[str]:
        """What people are to be told: names in the policy that mean nothing, and what is damaged."""
        unknown = [
            f"{name}; did you mean {meant}?" if meant else name
            for name, meant in sorted(self.unknown.items())
        ]
        return [
            *(f"the policy names a project that there is not: {said}" for said in unknown),
            *self.problems,
        ]

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
    """Delete what the policy does not keep, and move to the cold tier what it wants there.

    Args:
        project: only what is this project's, by any name that it has or had (default: all, and what is
            nobody's).
        dry_run: only say what would go; nothing is written.
        now: the moment to count from (default: the earliest that the clocks say, of this machine, of the
            catalog and of the store, so that a clock that is fast deletes nothing too early).

    Raises:
        InvalidInput: the store has something of sweeps or versions that the catalog lacks, which may be
            another one's; or it is an object store, for which nobody has written a policy; or the policy has
            two names of one project.
        NotFound: a report's content is gone from the store; or there is no such project.
        StoreError: the store refused, or one of its colder places is not there or another store's.
    """
    if file.shipped and store.folder is None and not dry_run:
        raise InvalidInput(
            f"retention of {store.root} is not accepted: the store has no {NAME}, and the shipped default "
            "is for a laptop's disk; write "
            f"one into the store's root, name one by {VARIABLE}, or only look at what would go (--dry-run; "
            "dry_run: true of the job)"
        )
    policy = file.policy.with_names(renamed_projects(catalog))
    check_cold(store, policy.cold)
    unknown = {
        name: closest_project(store, catalog, name)
        for name in file.policy.projects
        if not is_known(store, catalog, name)
    }
    kept = protected(store, catalog)
    moment = now or _moment(store, catalog, dry_run=dry_run)
    gone: list[Gone] = []
    problems: list[str] = []
    for name in known_names(store, catalog, project) if project else [None]:
        gone += _carry_out(store, catalog, policy, kept, name, moment, problems, dry_run=dry_run)
    return Outcome(sorted(gone), file, kept.runs, dry_run, unknown, [*dict.fromkeys(problems)])


def _carry_out(
    store: Store,
    catalog: Catalog,
    policy: Policy,
    kept: Protected,
    project: str | None,
    moment: datetime,
    problems: list[str],
    *,
    dry_run: bool,
) -> list[Gone]:
    """What goes of the runs with one name of a project, or with any; what is damaged is added to the
    problems.
    """
    totals = _Totals()
    retention = _Retention(store, catalog, policy, kept, moment, dry_run)
    how: Any = {"project": project, "dry_run": dry_run, "now": moment}
    # First: what these runs named goes with the rest.
    removed = count_removed(remove_deleted(store, catalog, policy, **how, problems=problems))
    for each in [project] if project else projects_of(store):
        given: Any = {"protected": kept.runs, "now": moment, "dry_run": dry_run, "problems": problems}
        for drop in drop_points(store, each, _point_days(policy.of(each)), **given):
            totals.add(drop.project, _POINTS[drop.what], drop.bytes)
    for owner, size in retention.collect(project):
        totals.add(*owner, size)
    problems += retention.problems
    for orphan in find_orphan_files(store, kept.runs.keys(), moment, project):
        totals.add(orphan.project, "leftover files", orphan.bytes)
        if not dry_run:
            delete_orphan_file(store, orphan, moment)
    for name in [project] if project else projects(store):
        for size in recover_old_journals(store, name, policy.of(name).journals.days, moment, dry_run=dry_run):
            totals.add(name, "journals", size)
    moved = move_to_cold(store, catalog, policy, **how)  # at last: what has gone need not move
    return [*removed, *totals.gone(), *moved]


def explain(store: Store, catalog: Catalog, policy: Policy, project: str, run: str) -> dict[str, Any]:
    """What becomes of one run, and why: ``run``, ``project``, ``reason`` (null: nothing speaks for it), and
    its records that the policy is about, each with its ``name``, its ``kind`` and its ``state``: what it
    names ``stays`` or has ``expired``.

    Raises:
        InvalidInput, NotFound, StoreError: as :func:`carry_out`.
    """
    policy = policy.with_names(renamed_projects(catalog))
    kept = protected(store, catalog)
    moment = _moment(store, catalog, dry_run=True)
    retention = _Retention(store, catalog, policy, kept, moment, dry_run=True)
    runs = [*named_by_runs(store, project, remember=False)]
    gone = retention.expired_of(project, runs).get(run, {})
    protecting = kept.runs.get((project, run))
    given: Any = {"rerun": _trained_again(project, runs), "now": moment}
    reason = (
        protecting.sentence
        if protecting
        else why_it_stays(store, catalog, project, run, policy.of(project).checkpoints, **given)
    )
    records = [record for name, found in runs if name == run for record in found if "/" in record.name]
    rows = [
        {
            "name": record.name,
            "kind": record.name.partition("/")[0],
            "state": "expired" if record in gone else "stays",
        }
        for record in records
    ]
    return {"run": run, "project": project, "reason": reason, "records": rows}


def find_run_of(store: Store, catalog: Catalog, name: str) -> tuple[str, str]:
    """``(project, run)`` of the run that a person means, also where its project was renamed: by any of its
    names.

    Raises:
        NotFound, InvalidInput: as of :func:`halving.query.runs.find_run`.
    """
    project, slash, run = name.rpartition("/")
    with catalog.read() as session:
        names = names_of(session, project) if slash else []
    for other in names:
        with contextlib.suppress(NotFound):
            return find_run(store, f"{other}/{run}")
    return find_run(store, name)


def _moment(store: Store, catalog: Catalog, *, dry_run: bool) -> datetime:
    """Now, by the slowest of the clocks at hand; the store's is asked by writing a file, which a dry run does
    not.
    """
    clocks = [datetime.now(UTC).timestamp(), catalog.now()]
    if not dry_run:
        with contextlib.suppress(StoreError):  # what is deleted tells its fault
            clocks += [told] if (told := clock_of(store, _PROBE)) else []
    return datetime.fromtimestamp(min(clocks), UTC)


class _Retention:
    """One collection of blobs.

    Attributes:
        problems: which records are damaged, and what stays because of them.
    """

    def __init__(
        self, store: Store, catalog: Catalog, policy: Policy, kept: Protected, now: datetime, dry_run: bool
    ) -> None:
        self._store = store
        self._catalog = catalog
        self._policy = policy
        self._kept = kept
        self._now = now
        self._dry_run = dry_run
        self._marks = Marks()
        self.problems: list[str] = []
        # that expired records of sharded checkpoints name; the catalog may keep them
        self._manifests: set[bytes] = set()
        self._dropped: dict[tuple[str, int], str] = {}

    def collect(self, project: str | None) -> Iterator[tuple[tuple[str, str], int]]:
        """Project, kind and bytes of each blob that goes.

        Raises:
            StoreError: a colder place is not there, or another store's.
        """
        colder = self._store.colder_places
        damaged: list[Record] = []
        for each in projects(self._store):
            runs = list(named_by_runs(self._store, each, remember=not self._dry_run))
            damaged += [record for _, records in runs for record in records if record.problem]
            if project in (None, each):
                self._mark_expired(each, runs)
            else:
                for _, records in runs:
                    self._keep(records)
        self._keep_named_by_catalog()
        self._marks.keep_parts(self._store)
        before = (self._now - timedelta(days=self._policy.grace_days)).timestamp()
        spared = _spared_for(damaged)
        self.problems += [*(record.problem for record in damaged), *([spared] if spared else [])]
        if spared == _ALL_BLOBS:
            return
        for place in (self._store, *colder):
            blobs = [
                blob
                for blob in find_unmarked(place, self._marks, before)
                if project in (None, blob.owner.project)
            ]
            blobs = [blob for blob in blobs if not (spared and blob.owner == NOBODY)]
            for blob in blobs if self._dry_run else delete_unmarked(place, blobs, before):
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
        """By run, the records that have expired, with their kinds.

        What goes of trials' checkpoints is decided first, and written down.
        """
        policy = self._policy.of(project)
        rerun = _trained_again(project, runs)
        given: Any = {"rerun": rerun, "now": self._now, "dry_run": self._dry_run}
        self._dropped |= drop_checkpoints(self._store, self._catalog, project, policy.checkpoints, **given)
        fate = self._fates(project, rerun)
        sound = {run: records for run, records in runs if not any(record.problem for record in records)}
        gone = {
            run: expired(records, fate(run), policy, self._now.timestamp()) for run, records in sound.items()
        }
        return {run: gone.get(run, {}) for run, _ in runs}

    def _fates(self, project: str, rerun: Collection[str]) -> Callable[[str], Fate]:
        """What is known of a project's runs, by their ids; ``rerun`` are those that are being trained
        again.
        """
        columns = TrialRow.sweep, TrialRow.number, TrialRow.checkpoints_left, SweepRow.finished_at
        query = select(*columns).join(SweepRow, SweepRow.id == TrialRow.sweep).where(in_project(project))
        with self._catalog.read() as session:
            trials = {
                trial_key(sweep, number): (
                    self._dropped.get((sweep, number), left or ALL),
                    ended.timestamp() if ended else None,
                )
                for sweep, number, left, ended in session.execute(query)
            }

        def fate(run: str) -> Fate:
            left, ended = trials.get(run, (None, None))
            key = project, run
            whole = key in self._kept.sources or run in rerun
            return Fate(left, ended, whole, key in self._kept.runs, key in self._kept.registered)

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
        # Of these nobody knows whether they are manifests.
        self._marks.keep([_bytes_of(digest) for digest in self._kept.blobs], sharded=True)


@dataclass
class _Totals:
    _counts: dict[tuple[str, str], list[int]] = field(default_factory=lambda: defaultdict(lambda: [0, 0]))

    def add(self, project: str, kind: str, size: int) -> None:
        found = self._counts[project, kind]
        found[0] += 1
        found[1] += size

    def gone(self) -> list[Gone]:
        return [Gone(*key, *found) for key, found in sorted(self._counts.items())]


def _spared_for(damaged: Collection[Record]) -> str | None:
    """Which blobs stay beside those that damaged records name, as a sentence; None: no others.

    Of a run with one nothing expires.
    """
    lossy = [record for record in damaged if record.may_name_more]
    if any(not record.digests for record in lossy):
        return _ALL_BLOBS
    return _UNNAMED_BLOBS if lossy else None


def _bytes_of(digest: str) -> bytes:
    return bytes.fromhex(digest.removeprefix("sha256:"))


def _trained_again(project: str, runs: list[tuple[str, list[Record]]]) -> set[str]:
    """The runs of a project that others, which have not ended, are reruns of."""
    found = set()
    for _, records in runs:
        if not any(record.name.startswith("end-") for record in records):
            found |= {
                record.rerun_of.partition("/")[2]
                for record in records
                if record.rerun_of.partition("/")[0] == project
            }
    return found


def _point_days(policy: ProjectPolicy) -> PointDays:
    return PointDays(policy.points.full.days, policy.points.system.days, policy.points.rollup.days)
