"""What a run's records name: media in its history, artifacts, checkpoints, its code's patch. A record never changes: each is read once."""

from collections.abc import Collection, Iterator
from functools import lru_cache
from typing import Any
from urllib.parse import quote

from halving.errors import NotFound
from halving.query.runs import in_threads, read_json, read_run
from halving.store.store import Store, blob_name
from server.media.inert import OCTETS, inert_type

_KEPT = 50_000


def media_of(store: Store, project: str, run: str, keys: Collection[str]) -> list[dict[str, Any]]:
    """A run's media by key and step: ``run, key, kind, step, digest, name, url``, and what else is recorded.

    Args:
        keys: only these; empty is all.

    Raises:
        NotFound: no such run.
    """
    found = []
    for row in _records(store, project, run, "media"):
        if not keys or row["key"] in keys:
            url = f"/api/v1/blobs/{row['digest']}?run={quote(f'{project}/{run}', safe='')}"
            found.append({"run": f"{project}/{run}", **row, "name": _name(row), "url": url})
    if not found:
        _check_run(store, project, run)
    return sorted(found, key=lambda row: (row["key"], row["step"], row["attempt"]))


def named_blob(store: Store, project: str, run: str, digest: str) -> tuple[str, str]:
    """The media type and the file name of a blob that one of the run's records names.

    Raises:
        InvalidInput: it is no digest.
        NotFound: none of them does, whether or not the store has such a blob.
    """
    blob_name(digest)
    for folder in ("media", "artifacts", "checkpoints"):
        for row in _records(store, project, run, folder):
            if row.get("digest") == digest:
                if folder == "checkpoints":
                    return OCTETS, f"{run}-{row.get('epoch')}.ckpt"
                if folder == "artifacts":
                    return inert_type(None, row["name"]), row["name"]
                return inert_type(str(row.get("media_type")), ""), _name(row)
    if digest == (read_run(store, project, run).provenance.get("git") or {}).get("patch"):
        return "text/plain", f"{run}.patch.txt"
    raise NotFound(f"run {run!r} of project {project!r} has no media, artifact, checkpoint or patch {digest}")


_SUFFIXES = {
    "image/png": ".png",
    "image/jpeg": ".jpg",
    "application/json": ".json",
    "text/plain": ".txt",
    "text/markdown": ".md",
    "application/vnd.apache.parquet": ".parquet",
}


def _name(row: dict[str, Any]) -> str:
    return f"{row['key'].replace('/', '-')}-{row['step']}{_SUFFIXES.get(str(row.get('media_type')), '')}"


def _records(store: Store, project: str, run: str, folder: str) -> Iterator[dict[str, Any]]:
    path = f"runs/project={project}/{run}/{folder}"
    yield from in_threads(lambda name: _record(store, f"{path}/{name}"), [name for name in store.names(path) if name.endswith(".json")])


@lru_cache(maxsize=_KEPT)
def _record(store: Store, name: str) -> dict[str, Any]:
    return read_json(store, name)


def _check_run(store: Store, project: str, run: str) -> None:
    if not store.exists(f"runs/project={project}/{run}/record.json"):
        raise NotFound(f"no run {run!r} in project {project!r} of {store.root}")
