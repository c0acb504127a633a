"""What a page says of one run: its record without what tells of machines and places."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from halving.query.run_details import details_of
from halving.query.runs import read_run
from halving.store.store import Store
from resources.analysis.run_index.outcomes import with_stopped_runs
from resources.catalog import Catalog
from server.sharing.media import read_media
from server.sharing.places import without_folders
from server.sharing.secret_values import without_secrets

_KEPT = (
    "project",
    "run",
    "status",
    "lifecycle",
    "started",
    "ended",
    "seconds",
    "attempt",
    "epoch",
    "params",
    "parent",
    "tags",
    "seed",
    "metrics",
)
_ATTEMPT = (
    "number",
    "status",
    "started",
    "ended",
    "seconds",
    "epoch",
    "points",
    "dropped_points",
    "rejected_values",
)
_GIT = ("commit", "branch", "remote", "dirty")
_HARDWARE = ("platform", "cpus", "memory_bytes", "gpus")
_PARENT = ("sweep", "trial", "dataset", "snapshot")


class RunRecord(NamedTuple):
    """What a page says of a run, and what of it is not on the page, in sentences."""

    record: dict[str, Any]
    left_out: list[str]


def read_record(store: Store, catalog: Catalog, project: str, run: str) -> RunRecord:
    """What the API says of a run, without hosts, folders and addresses of its machine and its store.

    Secrets that it recorded are hidden.

    Raises:
        NotFound: no such run.
        StoreError: its files cannot be read.
    """
    [info] = with_stopped_runs(catalog, [read_run(store, project, run)])
    details = details_of(store, info)
    record = {name: details[name] for name in _KEPT}
    record["parent"] = _some(details["parent"], _PARENT)
    record["attempts"] = [_some(attempt, _ATTEMPT) for attempt in details["attempts"]]
    record["provenance"] = _provenance(details["provenance"])
    record["checkpoints"] = [
        _some(checkpoint, ("epoch", "attempt", "digest", "bytes")) for checkpoint in details["checkpoints"]
    ]
    record["artifacts"] = [
        _some(artifact, ("name", "version", "bytes", "digest")) for artifact in details["artifacts"]
    ]
    media = read_media(store, details["media"])
    record["media"] = media.media
    return RunRecord(without_secrets(record), media.left_out)


def row_of(record: Mapping[str, Any]) -> dict[str, Any]:
    """A run's line in the table where the index does not have it yet."""
    parent = record["parent"]
    return {
        "id": f"{record['project']}/{record['run']}",
        **{
            name: record[name]
            for name in ("project", "run", "status", "started", "ended", "seconds", "epoch")
        },
        "sweep": parent.get("sweep"),
        "trial": parent.get("trial"),
        "seed": record["seed"],
        "params": flat(record["params"]),
        "metrics": {
            name: {part: values[part] for part in ("last", "min", "max")}
            for name, values in record["metrics"].items()
        },
        "tags": record["tags"],
        "columns": {},
    }


def flat(params: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested params by their paths, ``optimizer/lr``."""
    values: dict[str, Any] = {}
    for name, value in params.items():
        if isinstance(value, Mapping) and value:
            values |= flat(value, f"{prefix}{name}/")
        else:
            values[f"{prefix}{name}"] = value
    return values


def _provenance(provenance: Mapping[str, Any]) -> dict[str, Any]:
    git = provenance.get("git")
    if git:
        git = {**_some(git, _GIT), "error": "git's words are not on this page"}
    return {
        "git": git,
        "lockfile": provenance.get("lockfile"),
        "python": provenance.get("python") or {},
        "packages": provenance.get("packages") or {},
        "cuda": provenance.get("cuda"),
        "image": provenance.get("image"),
        "hardware": _some(provenance.get("hardware") or {}, _HARDWARE),
        "command": without_folders(provenance.get("command") or []),
    }


def _some(values: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: values[name] for name in names if name in values}
