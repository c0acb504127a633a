"""Everything about one run as data, for a command, the API and a page."""

import contextlib
from typing import Any

from halving.errors import NotFound
from halving.journal.directory import attempt_folders
from halving.metrics.manifest import project_folder, run_files
from halving.query.curve_stats import read_extremes
from halving.query.runs import RunInfo, read_all, read_json
from halving.store.store import Store, blob_name
from halving.text import size


def as_dict(info: RunInfo) -> dict[str, Any]:
    """A run's fields in the JSON of every command."""
    newest = info.attempts[-1]
    return {
        "project": info.project,
        "run": info.run,
        "status": info.status,
        "lifecycle": info.lifecycle,
        "started": info.started,
        "ended": newest.ended,
        "seconds": info.seconds,
        "attempt": newest.number,
        "epoch": newest.epoch,
        "params": info.params,
        "parent": info.parent,
        "tags": info.tags,
    }


def details_of(store: Store, info: RunInfo) -> dict[str, Any]:
    """Read everything about a run, as ``halving show --json`` prints it.

    It has the fields of :func:`as_dict` and ``lifecycle_since, seed, defined_metrics, determinism,
    provenance, attempts, metrics, artifacts, media, checkpoints, files``. ``metrics`` is ``{key: {"last",
    "min", "max", "points"}}`` of the stitched curve; all but ``last`` are None where retention has dropped
    the points.

    Raises:
        StoreError: a file of the run cannot be read, or is damaged.
    """
    folder = f"runs/project={info.project}/{info.run}"
    metrics = read_extremes(store, info)
    newest = info.starts.get(info.attempts[-1].number, info.record)
    return {
        **as_dict(info),
        "lifecycle_since": info.lifecycle_since,
        "seed": info.seed,
        "defined_metrics": info.defined_metrics,
        "determinism": newest.get("determinism") or {},
        "provenance": info.provenance,
        "attempts": [vars(attempt) for attempt in info.attempts],
        "metrics": {key: value._asdict() for key, value in metrics.items()},
        **{
            kind: [{**row, "file": blob_name(row["digest"])} for row in read_all(store, f"{folder}/{kind}")]
            for kind in ("artifacts", "media", "checkpoints")
        },
        "files": _files(store, info, folder),
    }


def verdict_of(store: Store, info: RunInfo) -> dict[str, Any] | None:
    """Read the verdict of a rerun, as ``halving rerun --json`` printed it; None if the run has none.

    Raises:
        StoreError: it cannot be read, or is damaged.
    """
    if "rerun_of" not in info.parent:
        return None
    with contextlib.suppress(NotFound):
        return read_json(store, f"runs/project={info.project}/{info.run}/rerun.json")
    return None


def code_of(info: RunInfo) -> dict[str, Any]:
    """The newest attempt's code in a few lines."""
    git = info.provenance.get("git")
    lockfile = info.provenance.get("lockfile")
    pairs: dict[str, Any] = {}
    if git:
        unknown = f"unknown: git could not say ({git.get('error')})"
        changed = "changed files, all left out of the patch"
        if git.get("patch"):
            changed = "changed files: the patch has them"
        dirty = {True: changed, False: "clean", None: unknown}[git.get("dirty")]
        pairs = {
            "commit": git.get("commit"),
            "branch": git.get("branch"),
            "remote": git.get("remote"),
            "working tree": dirty,
        }
        pairs["patch"] = git.get("patch")
        left_out = [f"{file['path']} ({size(file['bytes'])})" for file in git.get("left_out") or []]
        more = git.get("left_out_count", 0) - len(left_out)
        if more > 0:
            left_out.append(f"{more} smaller files")
        pairs["left out of it"] = ", ".join(left_out) or None
    else:
        imported = info.parent.get("imported")
        pairs["commit"] = "not in a git checkout"
        if imported:
            pairs["commit"] = f"not recorded by {imported['tool']}"
    if lockfile:
        pairs["lockfile"] = f"{lockfile['name']} sha256:{lockfile['sha256'][:12]}"
    pairs["command"] = " ".join(info.provenance.get("command") or []) or None
    return {name: value for name, value in pairs.items() if value is not None}


def environment_of(info: RunInfo) -> dict[str, Any]:
    """The newest attempt's interpreter and machine, without its packages."""
    hardware = info.provenance.get("hardware") or {}
    python = info.provenance.get("python") or {}
    versions = [str(python[name]) for name in ("implementation", "version") if name in python]
    memory = None
    if hardware.get("memory_bytes"):
        memory = size(hardware["memory_bytes"])
    gpus = "; ".join(hardware.get("gpus") or [])
    if hardware and not gpus:
        gpus = "none"
    pairs = {
        "python": " ".join(versions) or None,
        "image": info.provenance.get("image"),
        **{name: hardware.get(name) for name in ("host", "platform", "cpus")},
        "memory": memory,
        "gpus": gpus or None,
    }
    return {name: value for name, value in pairs.items() if value is not None}


def _files(store: Store, info: RunInfo, folder: str) -> dict[str, Any]:
    """Where the run's files are: names in the store, and folders of this machine."""
    files = run_files(store, info.project, info.run)
    base = project_folder(info.project)
    compacted = {"full": files.manifest.full, "rollup": files.manifest.rollup}
    return {
        "store": store.root,
        "record": folder,
        "segments": list(files.segments),
        **{kind: name and f"{base}/{name}" for kind, name in compacted.items()},
        "journals": [str(path) for path in attempt_folders(store, info.project, info.run)],
    }
