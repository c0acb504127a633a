"""The trash: removal of runs that were deleted more than the policy's days ago.

A run's records, points and rows in the catalog are removed. The blobs that it names are shared by content:
those that no other record names are collected by retention afterwards, with its grace time. If the process is
killed while a run is removed, the mark ``removed`` stays and the next retention goes on; the run's record and
then the mark go last.
"""

import contextlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from halving.errors import Damaged, NotFound
from halving.maintenance.orphan_files import UNFINISHED_AGE
from halving.metrics.manifest import run_folder
from halving.query.runs import RUNNING, RunInfo, in_threads, list_names, read_run
from halving.records.amendments import (
    ACTIVE,
    ARCHIVED,
    DELETED,
    PREFIX,
    REMOVED,
    Amendment,
    amend,
    newest_amendment,
    with_lifecycle,
)
from halving.store.store import Store
from resources.analysis.run_index.write import delete_runs
from resources.catalog import Catalog, LoggedModelRow, RunRow, TrackedArtifactRow, TrackedRunRow
from resources.retention.gone import Gone
from resources.retention.lifecycle import lock_row
from resources.retention.policy import Policy
from resources.retention.reached import reached_by

_ACTOR = "retention"


@dataclass(frozen=True)
class Trashed:
    """A run in the trash whose days are over.

    Attributes:
        deleted_at: ISO 8601 in UTC.
        bytes: bytes of its records and points, without the blobs that it names.
        became: what retention did with it.
        reason: why it stays.
    """

    project: str
    run: str
    deleted_at: str
    bytes: int
    became: Literal["removed", "would be removed", "stays"]
    reason: str | None = None


def remove_deleted(
    store: Store,
    catalog: Catalog,
    policy: Policy,
    *,
    project: str | None = None,
    dry_run: bool = False,
    now: datetime | None = None,
    problems: list[str] | None = None,
) -> Iterator[Trashed]:
    """Remove the runs that were deleted longer ago than their project's policy says, and yield each.

    It may be killed anywhere and repeated, and several may do it at once. A run stays while it runs, or while
    a champion, a staging version, a report or an open sweep needs it.

    Args:
        project: only its runs (default: all).
        dry_run: only yield what would be removed.
        now: the time to count from.
        problems: takes a sentence for each run of which a file is damaged, which stays; without it the first
            damage is raised.

    Raises:
        StoreError: the store cannot be read or written.
    """
    now = now or datetime.now(UTC)
    for name, run in _candidates(store, catalog, project):
        days = policy.of(name).trash.days
        names = store.names(_folder(name, run))
        if not dry_run and not any(file == "record.json" or file.startswith(PREFIX) for file in names):
            _delete_left_folder(store, _folder(name, run), now)
            continue
        if days is None:
            continue
        try:
            trashed = _find_expired(store, name, run, names, now - timedelta(days=days))
            if trashed is not None:
                trashed = _remove(store, catalog, trashed, dry_run=dry_run)
        except Damaged as error:
            if problems is None:
                raise
            problems.append(
                f"{error}; if run {run} of project {name} is in the trash, it stays there until that file "
                "is mended or deleted"
            )
            continue
        if trashed is not None:
            yield trashed


def count_removed(runs: Iterable[Trashed]) -> list[Gone]:
    """Counts of the runs that were removed, or would be, by project; those that stay do not count."""
    sizes: dict[str, list[int]] = {}
    for run in runs:
        if run.became != "stays":
            sizes.setdefault(run.project, []).append(run.bytes)
    return [
        Gone(project, "deleted runs", len(removed), sum(removed))
        for project, removed in sorted(sizes.items())
    ]


def _candidates(store: Store, catalog: Catalog, project: str | None) -> Iterator[tuple[str, str]]:
    """Runs that may be in the trash, by the index; the run's own files decide later.

    Runs that the index does not have are among them.
    """
    with catalog.read() as session:
        lifecycles = {
            (row.project, row.run): row.lifecycle
            for row in session.execute(select(RunRow.project, RunRow.run, RunRow.lifecycle))
        }
    try:
        runs = list_names(store, project)
    except NotFound:  # The project has no runs any more.
        return
    yield from (run for run in sorted(runs) if lifecycles.get(run) not in (ACTIVE, ARCHIVED))


def _find_expired(store: Store, project: str, run: str, names: list[str], before: datetime) -> Trashed | None:
    """The run, if its days in the trash are over or it is half removed; else None.

    Args:
        names: names of the files in the run's folder.
    """
    amended = newest_amendment(store, _folder(project, run), names)
    if amended.get("lifecycle") not in (DELETED, REMOVED):
        return None
    since = str(amended["since"])
    if amended["lifecycle"] == DELETED and (
        "record.json" not in names or datetime.fromisoformat(since) > before
    ):
        return None
    return Trashed(project, run, since, sum(size for _, size, _ in _files(store, project, run)), "stays")


def _remove(store: Store, catalog: Catalog, trashed: Trashed, *, dry_run: bool) -> Trashed:
    """Remove a run from the trash, unless it is needed; returns what became of it."""
    project = trashed.project
    run = trashed.run
    if dry_run:
        with catalog.read() as session:
            reason = _why_needed(session, store, project, run)
        if reason:
            return replace(trashed, became="stays", reason=reason)
        return replace(trashed, became="would be removed")
    with catalog.write() as session:
        tracked = lock_row(session, project, run)
        if reason := _why_needed(session, store, project, run):
            return replace(trashed, became="stays", reason=reason)
        after = amend(store, _folder(project, run), lambda newest: _mark(newest, trashed.deleted_at))
        if after.get("lifecycle") != REMOVED:
            return replace(trashed, became="stays", reason="it has just been restored")
        if tracked is not None:
            session.execute(delete(TrackedArtifactRow).where(TrackedArtifactRow.run == run))
            session.execute(delete(LoggedModelRow).where(LoggedModelRow.run == run))
            session.execute(delete(TrackedRunRow).where(TrackedRunRow.id == run))
    _delete_files(store, project, run)
    delete_runs(catalog, [(project, run)])
    return replace(trashed, became="removed")


def _mark(newest: Amendment, deleted_at: str) -> Amendment:
    """Mark a run as removed, unless it was restored, or restored and deleted again, since it was read."""
    if newest.get("lifecycle") == DELETED and newest.get("since") == deleted_at:
        return with_lifecycle(newest, REMOVED, _ACTOR)
    return newest


def _why_needed(session: Session, store: Store, project: str, run: str) -> str | None:
    """Why a run in the trash must stay; None if it can be removed, or is half removed already."""
    try:
        info: RunInfo = read_run(store, project, run)
    except NotFound:
        return None
    if info.lifecycle == REMOVED:
        return None
    if info.lifecycle != DELETED:
        return "it has gone on since it was deleted"
    if info.status == RUNNING:
        return "it is running"
    return reached_by(session, store, project, run)


def _delete_files(store: Store, project: str, run: str) -> None:
    """Delete all files of a run; its record and then the mark ``removed`` go last."""
    folder = _folder(project, run)
    store.delete_below(run_folder(project, run))
    names = [name[len(folder) + 1 :] for name, _, _ in store.files(folder)]
    for inner in sorted({name.partition("/")[0] for name in names if "/" in name}):
        store.delete_below(f"{folder}/{inner}")
    own = [name for name in names if "/" not in name]
    last = max((name for name in own if name.startswith(PREFIX)), default="")
    in_threads(store.delete, [f"{folder}/{name}" for name in own if name not in ("record.json", last)])
    store.delete(f"{folder}/record.json")
    if last:  # Else another retention was faster.
        store.delete(f"{folder}/{last}")
    _delete_empty_folder(store, folder)


def _delete_left_folder(store: Store, folder: str, now: datetime) -> None:
    """Delete the empty folders of a run whose removal was killed, but not one that a run has just made.

    Otherwise the run would be listed for ever, although nothing of it can be read.
    """
    if store.folder is not None:
        with contextlib.suppress(FileNotFoundError):
            if (store.folder / folder).stat().st_mtime > (now - UNFINISHED_AGE).timestamp():
                return
    _delete_empty_folder(store, folder)


def _delete_empty_folder(store: Store, folder: str) -> None:
    """Delete a folder and its subfolders if they have no file: a run of the same id may have begun there."""
    if any(store.files(folder)):
        return
    if store.folder is None:
        store.delete_below(folder)
        return
    for inner, _, _ in os.walk(store.folder / folder, topdown=False):
        with contextlib.suppress(OSError):  # A run has just begun there.
            Path(inner).rmdir()


def _files(store: Store, project: str, run: str) -> Iterator[tuple[str, int, float]]:
    yield from store.files(_folder(project, run))
    yield from store.files(run_folder(project, run))


def _folder(project: str, run: str) -> str:
    return f"runs/project={project}/{run}"
