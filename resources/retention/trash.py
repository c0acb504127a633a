"""The trash: runs that were deleted more than the policy's days ago are removed, with all that is theirs
alone.

A run's own files are its records, its points and its place in the catalog. The blobs that it names are shared
by content: those that no other record names are collected by retention afterwards, with its grace time. Who
is killed while a run is removed has left its mark (``removed``) and the rest for the next one; the run's
record and then the mark go last.
"""

import contextlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
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
    staged,
)
from halving.store.store import Store
from resources.analysis.run_index.write import delete_runs
from resources.catalog import Catalog, LoggedModelRow, RunRow, TrackedArtifactRow, TrackedRunRow
from resources.retention.gone import Gone
from resources.retention.lifecycle import locked
from resources.retention.policy import Policy
from resources.retention.reached import reached_by

_ACTOR = "retention"
Became = Literal["removed", "would be removed", "stays"]


@dataclass(frozen=True)
class Trashed:
    """A run in the trash whose days are over.

    Attributes:
        deleted_at: ISO 8601 in UTC.
        bytes: of its records and points; the blobs that it names are not among them.
        became: what was done with it.
        reason: why it stays.
    """

    project: str
    run: str
    deleted_at: str
    bytes: int
    became: Became
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
    """Remove the runs that were deleted longer ago than their project's policy says, and give what became of
    each, one after the other.

    It may be killed anywhere and repeated, and done by several at once. A run stays that a champion, a
    staging version, a report or an open sweep reaches by now, and one that runs.

    Args:
        project: only its runs (default: all).
        dry_run: only give what would be removed.
        now: the moment to count from.
        problems: takes what is wrong with runs of which a file is damaged, which stay; without it the first
            one is raised.

    Raises:
        StoreError: the store cannot be read or written.
    """
    moment = now or datetime.now(UTC)
    for name, run in _candidates(store, catalog, project):
        days = policy.of(name).trash.days
        names = store.names(_folder(name, run))
        if not dry_run and not any(file == "record.json" or file.startswith(PREFIX) for file in names):
            _delete_left_folder(store, _folder(name, run), moment)
            continue
        if days is None:
            continue
        try:
            trashed = _expired(store, name, run, names, moment - timedelta(days=days))
            if trashed is not None:
                trashed = _removed(store, catalog, trashed, dry_run=dry_run)
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
    """The runs that were, or would be, removed, by project; those that stay are left out."""
    sizes: dict[str, list[int]] = {}
    for run in runs:
        if run.became != "stays":
            sizes.setdefault(run.project, []).append(run.bytes)
    return [
        Gone(project, "deleted runs", len(removed), sum(removed))
        for project, removed in sorted(sizes.items())
    ]


def _candidates(store: Store, catalog: Catalog, project: str | None) -> Iterator[tuple[str, str]]:
    """Runs that may be in the trash: what the index has as such, and what it does not know; the run's own
    files decide.
    """
    with catalog.read() as session:
        known = {
            (row.project, row.run): row.lifecycle
            for row in session.execute(select(RunRow.project, RunRow.run, RunRow.lifecycle))
        }
    try:
        listed = list_names(store, project)
    except NotFound:  # the project has no runs any more
        return
    yield from (pair for pair in sorted(listed) if known.get(pair) not in (ACTIVE, ARCHIVED))


def _expired(store: Store, project: str, run: str, names: list[str], before: datetime) -> Trashed | None:
    """A run whose days in the trash are over, or that is half removed; None: it is neither.

    Args:
        names: of the files in the run's folder.
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


def _removed(store: Store, catalog: Catalog, trashed: Trashed, *, dry_run: bool) -> Trashed:
    project = trashed.project
    run = trashed.run
    if dry_run:
        with catalog.read() as session:
            reason = _needed(session, store, project, run)
        return _became(trashed, "stays" if reason else "would be removed", reason)
    with catalog.write() as session:
        tracked = locked(session, project, run)
        if reason := _needed(session, store, project, run):
            return _became(trashed, "stays", reason)
        after = amend(store, _folder(project, run), lambda newest: _marked(newest, trashed.deleted_at))
        if after.get("lifecycle") != REMOVED:
            return _became(trashed, "stays", "it has just been restored")
        if tracked is not None:
            for table, of in (
                (TrackedArtifactRow, TrackedArtifactRow.run),
                (LoggedModelRow, LoggedModelRow.run),
                (TrackedRunRow, TrackedRunRow.id),
            ):
                session.execute(delete(table).where(of == run))
    _delete_files(store, project, run)
    delete_runs(catalog, [(project, run)])
    return _became(trashed, "removed")


def _marked(newest: Amendment, deleted_at: str) -> Amendment:
    """Removed from now on, unless it was restored, or restored and deleted again, in this moment."""
    is_same = newest.get("lifecycle") == DELETED and newest.get("since") == deleted_at
    return staged(newest, REMOVED, _ACTOR) if is_same else newest


def _needed(session: Session, store: Store, project: str, run: str) -> str | None:
    """Why a run in the trash stays; a half removed one does not."""
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
    """All files of a run, the record that makes it one at the end, and behind it the mark that it is being
    removed.
    """
    folder = _folder(project, run)
    store.delete_below(run_folder(project, run))
    names = [name[len(folder) + 1 :] for name, _, _ in store.files(folder)]
    for inner in sorted({name.partition("/")[0] for name in names if "/" in name}):
        store.delete_below(f"{folder}/{inner}")
    own = [name for name in names if "/" not in name]
    last = max((name for name in own if name.startswith(PREFIX)), default="")
    in_threads(store.delete, [f"{folder}/{name}" for name in own if name not in ("record.json", last)])
    for name in filter(None, ("record.json", last)):  # none: another retention was faster
        store.delete(f"{folder}/{name}")
    _delete_empty_folder(store, folder)


def _delete_left_folder(store: Store, folder: str, now: datetime) -> None:
    """Delete the folders of a run whose removal was killed when it had no file any more; not one that a run
    has just made, to begin there.

    Without it the run would be listed for ever, as one of which nothing can be read.
    """
    if store.folder is not None:
        with contextlib.suppress(FileNotFoundError):
            if (store.folder / folder).stat().st_mtime > (now - UNFINISHED_AGE).timestamp():
                return
    _delete_empty_folder(store, folder)


def _delete_empty_folder(store: Store, folder: str) -> None:
    """Delete a folder if it has no file, with the folders in it: a run of the same id may have begun
    there.
    """
    if any(store.files(folder)):
        return
    if store.folder is None:
        store.delete_below(folder)
        return
    for inner, _, _ in os.walk(store.folder / folder, topdown=False):
        with contextlib.suppress(OSError):  # a run has just begun there
            Path(inner).rmdir()


def _files(store: Store, project: str, run: str) -> Iterator[tuple[str, int, float]]:
    yield from store.files(_folder(project, run))
    yield from store.files(run_folder(project, run))


def _folder(project: str, run: str) -> str:
    return f"runs/project={project}/{run}"


def _became(trashed: Trashed, became: Became, reason: str | None = None) -> Trashed:
    return Trashed(trashed.project, trashed.run, trashed.deleted_at, trashed.bytes, became, reason)
