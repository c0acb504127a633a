"""Compaction: a run's segments become one sorted file and its rollup.

Each run keeps files of its own. One file for all runs of a sweep was tried and dropped: on S3 with 20 ms a
request the curves of 100 runs took twice as long from it, and 17 times as long for five metrics.

Compaction may be killed at any moment and repeated. Data files are written first, then the manifest, which
alone decides which files count. What it replaces is deleted last, or by a later compaction if this one is
killed before. Compactions at the same time do no harm: one of them publishes the next manifest, the others
delete their own files.

Memory is bounded (:data:`halving.maintenance.external_sort.LIMIT`) whatever the length of a run. Longer runs
are sorted in the system's temporary folder (``TMPDIR``), which then needs 32 bytes a point.

On an object store most of the time is spent waiting for answers. So segments are fetched, and files deleted,
several at once; ``resources.upkeep.compaction`` compacts many runs at once for the same reason.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType

from halving.errors import AlreadyExists, NotFound
from halving.identifiers import check_name
from halving.machine.temporary_folders import scratch_folder
from halving.maintenance.external_sort import Sorter
from halving.maintenance.rewrite import THREADS, add_file, add_files, add_history, write_sorted
from halving.metrics.manifest import (
    Absorbed,
    Manifest,
    RunFiles,
    find_superseded,
    new_name,
    project_folder,
    publish_manifest,
    run_files,
)
from halving.store.json_files import now
from halving.store.store import Store

_TRIES = 10
# An object store may accept two manifests of one generation that are put at the same moment. Files are
# deleted only long after such a moment, so that those of either manifest are still there while readers may
# meet it.
GRACE_SECONDS = 600.0
Delete = Callable[[Store, Sequence[str]], None]
"""Deletes files of a store; files that are gone already are no error."""


@dataclass(frozen=True)
class Compacted:
    """The result of a compaction.

    Attributes:
        points: points absorbed now; 0 when there was nothing new, or another compaction was first
            (``superseded``).
        segments: segments absorbed now.
        total: points that the run's full file now holds.
        bytes_before: size of the segments and of the full file that were read.
        bytes_after: size of the new full file.
        rollup_bytes: size of the new rollup.
        gaps: segments that were left as they are, because one before them is missing.
        deleted: files deleted.
        left: files that were replaced, and that a compaction after :data:`GRACE_SECONDS` deletes; on an
            object store.
    """

    project: str
    run: str
    points: int = 0
    segments: int = 0
    total: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    rollup_bytes: int = 0
    gaps: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    left: int = 0
    superseded: bool = False


def delete_each(store: Store, names: Sequence[str]) -> None:
    """Delete files by one request each; on an object store several at once."""
    if store.folder is not None or len(names) < 2:
        for name in names:
            store.delete(name)
        return
    with ThreadPoolExecutor(min(THREADS, len(names))) as pool:
        for _ in pool.map(store.delete, names):
            pass


def compact(
    store: Store,
    project: str,
    run: str,
    delete: Delete = delete_each,
    *,
    written: Mapping[str, float] = MappingProxyType({}),
) -> Compacted:
    """Absorb a run's segments into its full file and rollup.

    With nothing new it only deletes files that are not needed any more.

    A run that is still logging may be compacted; its later segments stay beside the result. Where an
    attempt's segments have a gap, those after the gap stay as they are.

    If retention has dropped the full file, the new one holds the new points only, and the rollup keeps the
    old buckets.

    Args:
        delete: how the files that are replaced are deleted.
        written: when segments were put, by their names, in seconds since 1970 by the store's clock. Where all
            that are absorbed are among them, the age of the run's points counts from the newest, else from
            now.

    Raises:
        InvalidInput: a name is not accepted.
        StoreError: the store cannot be written.
        NotFound: a file that the manifest names is missing.
    """
    check_name("project", project)
    check_name("run id", run)
    for tries_left in reversed(range(_TRIES)):
        files = run_files(store, project, run)
        fresh, gaps = contiguous(files)
        if not fresh:
            total = sum(files.manifest.held.values())
            if _in_grace(store, files.manifest.generation, files.manifest.written):
                return Compacted(project, run, total=total, gaps=gaps, left=len(files.stale))
            return Compacted(
                project, run, total=total, gaps=gaps, deleted=_clean(store, project, run, files, delete)
            )
        try:
            done = _absorb(store, project, run, files, fresh, written)
        except (FileNotFoundError, NotFound) as error:  # compacted meanwhile: look again
            if not tries_left:
                raise NotFound(f"run {run} of project {project} cannot be compacted: {error}") from error
            continue
        if _in_grace(store, 1, now()):  # what was replaced just now stays for a while
            return replace(done, gaps=gaps, left=len(fresh) + len(files.stale))
        return replace(done, gaps=gaps, deleted=clean(store, project, run, delete))
    raise RuntimeError("no try was made")


def contiguous(files: RunFiles) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The live segments that follow the absorbed ones without a gap, and those after a gap.

    They are sorted by attempt and sequence.
    """
    expected = {attempt: part.segments for attempt, part in files.manifest.absorbed.items()}
    fresh = []
    gaps = []
    for name, (attempt, sequence) in sorted(files.segments.items(), key=lambda segment: segment[1]):
        if sequence == expected.get(attempt, 0):
            fresh.append(name)
            expected[attempt] = sequence + 1
        else:
            gaps.append(name)
    return tuple(fresh), tuple(gaps)


def clean(store: Store, project: str, run: str, delete: Delete = delete_each) -> tuple[str, ...]:
    """Delete the files that the newest manifest replaced, and return their names.

    On an object store this happens only after :data:`GRACE_SECONDS`.
    """
    files = run_files(store, project, run)
    if _in_grace(store, files.manifest.generation, files.manifest.written):
        return ()
    return _clean(store, project, run, files, delete)


def _in_grace(store: Store, generation: int, written: str) -> bool:
    """Whether a manifest is so young that readers may still need the files that it replaced."""
    if store.folder is not None or not generation:
        return False
    return (datetime.now(UTC) - datetime.fromisoformat(written)).total_seconds() < GRACE_SECONDS


def _clean(store: Store, project: str, run: str, files: RunFiles, delete: Delete) -> tuple[str, ...]:
    if not files.manifest.generation:
        return ()
    names = (*files.stale, *find_superseded(store, project, run, files.manifest))
    delete(store, names)
    store.clear_abandoned(f"{project_folder(project)}/run={run}")
    return names


def publish(
    store: Store, project: str, run: str, kind: str, generation: int, file: Path | None
) -> str | None:
    """Publish a generation's ``full`` file or ``rollup``, if there is one, and return its name.

    The name is relative to the project's folder.
    """
    if file is None:
        return None
    name = new_name(run, kind, generation)
    store.create(f"{project_folder(project)}/{name}", file, sole=True)  # its name is of this process alone
    return name


def commit(store: Store, project: str, run: str, manifest: Manifest) -> bool:
    """Publish a manifest; False when its generation is published already.

    Meanwhile other compactions may have published several generations and deleted all but the newest. Then
    this manifest is published below the newest and never read, which does no harm: readers and :func:`clean`
    go by the newest alone.
    """
    try:
        publish_manifest(store, project, run, manifest)
    except AlreadyExists:
        return False
    return True


def _put_last(before: Manifest, fresh: Sequence[str], written: Mapping[str, float]) -> str | None:
    """When the newest points were put, compacted or in segments; None where it is not known."""
    if not all(written.get(name) for name in fresh):
        return None
    put = datetime.fromtimestamp(max(written[name] for name in fresh), UTC)
    if earlier := before.active or before.written:
        put = max(put, datetime.fromisoformat(earlier))
    return put.isoformat(timespec="milliseconds")


def _size_of(file: Path | None) -> int:
    if file is None:
        return 0
    return file.stat().st_size


def _absorb(
    store: Store,
    project: str,
    run: str,
    files: RunFiles,
    fresh: tuple[str, ...],
    written: Mapping[str, float],
) -> Compacted:
    folder = project_folder(project)
    before = files.manifest
    generation = before.generation + 1
    absorbed = dict(before.absorbed)
    sorter = Sorter()
    read = 0
    if before.full:
        read += add_file(sorter, store, f"{folder}/{before.full}").bytes
    for name, added in zip(fresh, add_files(sorter, store, fresh), strict=True):
        attempt, sequence = files.segments[name]
        absorbed[attempt] = absorbed.get(attempt, Absorbed(0)).and_segment(sequence, added.metadata)
        read += added.bytes
    history = add_history(sorter, store, project, before)
    with scratch_folder("compaction") as temporary, ThreadPoolExecutor(1) as beside:
        rewritten = write_sorted(sorter, run, temporary, history)
        full_bytes = _size_of(rewritten.full)
        rollup_bytes = _size_of(rewritten.rollup)
        publishing = beside.submit(publish, store, project, run, "rollup", generation, rewritten.rollup)
        full = publish(store, project, run, "full", generation, rewritten.full)
        rollup = publishing.result()
    points = rewritten.points - sum(before.held.values())
    written_at = now()
    manifest = replace(
        before,
        generation=generation,
        full=full,
        rollup=rollup,
        absorbed=absorbed,
        points=before.points + points,
        written=written_at,
        active=_put_last(before, fresh, written) or written_at,
        held=rewritten.held,
    )
    if not commit(store, project, run, manifest):
        # The other manifest does not name these files, so clean() deletes them.
        return Compacted(project, run, superseded=True)
    return Compacted(
        project,
        run,
        points=points,
        segments=len(fresh),
        total=rewritten.points,
        bytes_before=read,
        bytes_after=full_bytes,
        rollup_bytes=rollup_bytes,
    )
