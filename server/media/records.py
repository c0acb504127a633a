"""What a run's records name: media, artifacts, checkpoints, and the patch of its code."""

from collections.abc import Collection, Iterable
from itertools import islice
from urllib.parse import quote

from halving.errors import NotFound
from halving.query.runs import read_run
from halving.store.store import Store, blob_name
from server.media.inert import OCTETS, inert_type
from server.media.record_cache import RecordCache, Row

_FOLDERS = ("media", "artifacts", "checkpoints")


def media_of(
    store: Store, records: RecordCache, project: str, run: str, keys: Collection[str], limit: int
) -> list[Row]:
    """A run's media by key and step: ``run, key, kind, step, digest, name, url`` and other recorded fields.

    Args:
        keys: only these; empty is all.
        limit: where there are more, those that were logged first; records after them are not read.

    Raises:
        NotFound: no such run.
    """
    rows = (row for row in records.rows(_folder(project, run, "media")) if not keys or row["key"] in keys)
    media = [
        {"run": f"{project}/{run}", **row, "name": _name(row), "url": _url(project, run, row)}
        for row in islice(rows, limit)
    ]
    if not media:
        _check_run(store, project, run)
    return sorted(media, key=lambda row: (row["key"], row["step"], row["attempt"]))


def named_blob(
    store: Store, records: RecordCache, project: str, run: str, digest: str, artifact: str = ""
) -> tuple[str, str]:
    """The media type and file name of a blob that a run's records name.

    A record may name the blob itself, or a sharded checkpoint that it is a part of.

    Args:
        artifact: the name of the one that is meant, where several have this content.

    Raises:
        InvalidInput: it is no digest.
        NotFound: none of them does, whether or not the store has such a blob.
    """
    blob_name(digest)
    folders = {folder: _folder(project, run, folder) for folder in _FOLDERS}
    if artifact:
        of_name = (
            row
            for row in records.rows(folders["artifacts"])
            if (row.get("name"), row.get("digest")) == (artifact, digest)
        )
        if row := next(of_name, None):
            return _type_and_name("artifacts", run, row)
    for folder, path in folders.items():
        if row := records.find_read(path, digest):
            return _type_and_name(folder, run, row)
    for folder, path in folders.items():
        if row := next((row for row in records.rows(path) if row.get("digest") == digest), None):
            return _type_and_name(folder, run, row)
    if records.is_part(sharded_of(records.rows(folders["checkpoints"])), digest):
        return OCTETS, digest[7:23]
    if digest == (read_run(store, project, run).provenance.get("git") or {}).get("patch"):
        return "text/plain", f"{run}.patch.txt"
    raise NotFound(f"run {run!r} of project {project!r} has no media, artifact, checkpoint or patch {digest}")


_SUFFIXES = {
    "image/png": ".png",
    "image/jpeg": ".jpg",
    "image/gif": ".gif",
    "audio/wav": ".wav",
    "audio/mpeg": ".mp3",
    "audio/flac": ".flac",
    "audio/ogg": ".ogg",
    "video/mp4": ".mp4",
    "video/webm": ".webm",
    "video/ogg": ".ogv",
    "text/html": ".html",
    "application/json": ".json",
    "text/plain": ".txt",
    "text/markdown": ".md",
    "application/vnd.apache.parquet": ".parquet",
}


def sharded_of(rows: Iterable[Row]) -> list[str]:
    """The manifests among a run's checkpoints, newest first.

    A run that goes on asks for the parts of the newest.
    """
    return [str(row["digest"]) for row in rows if row.get("sharded")][::-1]


def _type_and_name(folder: str, run: str, row: Row) -> tuple[str, str]:
    if folder == "checkpoints":
        return OCTETS, f"{run}-{row.get('epoch')}.ckpt"
    if folder == "artifacts":
        name = row["name"].rpartition("/")[2]
        return inert_type(None, name), name
    return inert_type(str(row.get("media_type")), ""), _name(row)


def _folder(project: str, run: str, folder: str) -> str:
    return f"runs/project={project}/{run}/{folder}"


def _name(row: Row) -> str:
    return f"{row['key'].replace('/', '-')}-{row['step']}{_SUFFIXES.get(str(row.get('media_type')), '')}"


def _url(project: str, run: str, row: Row) -> str:
    return f"/api/v1/blobs/{row['digest']}?run={quote(f'{project}/{run}', safe='')}"


def _check_run(store: Store, project: str, run: str) -> None:
    if not store.exists(f"runs/project={project}/{run}/record.json"):
        raise NotFound(f"no run {run!r} in project {project!r} of {store.root}")
