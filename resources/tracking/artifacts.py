"""Artifacts of tracked runs: blobs of the store, by the paths of clients.

Records of artifacts are named by the paths. A path can be written again, but a file of the store cannot: the
next content has another record (``NAME@2.json``), and the old record is deleted when the catalog has the new
one.
"""

import re
from collections.abc import Sequence

from sqlalchemy import ColumnElement, and_, delete, or_, select
from sqlalchemy.orm import Session

from halving.errors import InvalidInput, NotFound
from halving.identifiers import MAX_PATH_BYTES, artifact_record
from halving.records.run_record import RunRecords
from halving.store.store import Store
from resources.catalog import TrackedArtifactRow
from resources.tracking.runs import Tracked

_AGAIN = re.compile(r"(.*)@(\d+)")


def check_path(path: str) -> str:
    """Check that a path below a run's artifacts is in its normal form, and return it.

    Raises:
        InvalidInput: it is not relative, has ``.`` or ``..``, or is another spelling of a path.
    """
    if not path or normal_path(path) != path:
        raise InvalidInput("Invalid path")
    return path


def normal_path(path: str) -> str:
    """The normal form of a path below a run's artifacts: ``a/b`` for ``deep/../a//b/.``, "" for the top.

    Raises:
        InvalidInput: it leads out of the run's artifacts, is too long, or has characters that may lead out of
            them on other systems.
    """
    if path.startswith("/") or "\\" in path or re.search(r"[\x00-\x1f\x7f\ud800-\udfff]|%2[ef]", path, re.I):
        raise InvalidInput("Invalid path")
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            if not parts:
                raise InvalidInput("Invalid path")
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    normal = "/".join(parts)
    if len(normal.encode()) > MAX_PATH_BYTES:
        raise InvalidInput("Invalid path")
    return normal


def put_artifact(
    session: Session, store: Store, tracked: Tracked, path: str, digest: str, size: int
) -> str | None:
    """Set the content of a path of a locked run; the content is a blob already.

    Returns:
        The name of the path's old record, to be deleted after the commit; None if it had none.

    Raises:
        InvalidInput: a folder has this path, or a file has that of one of its folders.
    """
    run = tracked.row.id
    above = [path.rsplit("/", count)[0] for count in range(1, path.count("/") + 1)]
    conflicting = select(TrackedArtifactRow.path).where(
        TrackedArtifactRow.run == run,
        or_(TrackedArtifactRow.path.in_(above), _below(path)),
    )
    if (other := session.scalar(conflicting.limit(1))) is not None:
        raise InvalidInput(
            f"artifact path {path!r} is not accepted: there is {other!r}, and a path is a file or a folder"
        )
    records = RunRecords(store, tracked.project, run)
    row = session.get(TrackedArtifactRow, (run, path))
    if row is None:
        name = artifact_record(path, as_is=not _AGAIN.fullmatch(path))  # a@2 would be the second record of a
        while store.exists(f"{records.folder}/artifacts/{name}.json"):
            # Left by a server that was killed, or by a deleted artifact.
            name = _next(name)
        records.add_artifact(path, digest, size, record=name)
        session.add(TrackedArtifactRow(run=run, path=path, name=name, digest=digest, bytes=size))
        return None
    if row.digest == digest:
        return None
    before = row.name
    name = _next(before)
    while store.exists(f"{records.folder}/artifacts/{name}.json"):
        name = _next(name)
    records.add_artifact(path, digest, size, record=name)
    row.name = name
    row.digest = digest
    row.bytes = size
    return before


def list_artifacts(session: Session, run: str, path: str = "") -> list[tuple[str, int | None]]:
    """List a folder of a run's artifacts by name, with the bytes of files and None for folders."""
    query = select(TrackedArtifactRow.path, TrackedArtifactRow.bytes).where(TrackedArtifactRow.run == run)
    prefix = ""
    if path:
        prefix = f"{path}/"
        query = query.where(_below(path))
    entries: dict[str, int | None] = {}
    for full, size in session.execute(query):
        name, is_folder, _ = full[len(prefix) :].partition("/")
        entries[name] = size
        if is_folder:
            entries[name] = None
    return sorted(entries.items())


def find_artifact(session: Session, run: str, path: str) -> TrackedArtifactRow:
    """Find the content at a path.

    Raises:
        NotFound: there is none.
    """
    row = session.get(TrackedArtifactRow, (run, path))
    if row is None:
        raise NotFound(f"No such artifact: {path!r}")
    return row


def delete_artifacts(session: Session, run: str, path: str) -> list[str]:
    """Delete the rows of a file or a folder of a run, or of all (``""``).

    Returns:
        The names of the records, to be deleted after the commit.
    """
    condition = TrackedArtifactRow.run == run
    if path:
        condition &= or_(TrackedArtifactRow.path == path, _below(path))
    names = list(session.scalars(select(TrackedArtifactRow.name).where(condition)))
    session.execute(delete(TrackedArtifactRow).where(condition))
    return names


def delete_records(store: Store, tracked: Tracked, names: Sequence[str]) -> None:
    """Delete records that nothing names any more; their blobs are deleted a week later."""
    folder = RunRecords(store, tracked.project, tracked.row.id).folder
    for name in names:
        store.delete(f"{folder}/artifacts/{name}.json")


def _below(path: str) -> ColumnElement[bool]:
    """SQL for paths in a folder, compared byte by byte, because SQLite's LIKE ignores case."""
    # The character after the slash is 0.
    return and_(TrackedArtifactRow.path > f"{path}/", TrackedArtifactRow.path < f"{path}0")


def _next(name: str) -> str:
    match = _AGAIN.fullmatch(name)
    if match is None:
        return f"{name}@2"
    return f"{match[1]}@{int(match[2]) + 1}"
