"""A tracked run's files in the store: its record, segments of points, and amendments.

An amendment (:mod:`halving.records.amendments`) has the changes since the run began. Only the newest counts;
the last few are kept for processes that are reading them. All functions need the run's row locked, because
numbers of files follow those in the store, which may be those of a server that was killed before its
transaction ended.
"""

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from halving.errors import AlreadyExists
from halving.imports.foreign_run import iso
from halving.metrics.manifest import Absorbed, run_files
from halving.metrics.position import segments_of
from halving.metrics.segments import encode, live_folder, points_table, segment_name
from halving.query.runs import read_json
from halving.records import amendments
from halving.records.run_record import RunRecords
from halving.store.store import Store

MAX_LIVE = 200
"""The segments of a run that may wait for compaction; with more a compaction is worth it."""

_KEPT = 8  # amendments
# MLflow's own tags that are kept, with their names here; an import of its runs uses the same names.
_OURS = {
    "mlflow.note.content": "notes",
    "mlflow.parentRunId": "parent_run",
    "mlflow.source.name": "source",
    "mlflow.user": "user",
}
_GIT = {
    "commit": "mlflow.source.git.commit",
    "branch": "mlflow.source.git.branch",
    "remote": "mlflow.source.git.repoURL",
}
_NOT_RECORDED = {"dirty": None, "error": "not recorded by mlflow"}


class TrackedPoint(NamedTuple):
    """One value of a metric; ``time`` is in ms since 1970."""

    key: str
    step: int
    time: int
    value: float


def begin(
    store: Store, project: str, run: str, experiment: int, started: int, facts: Mapping[str, Any]
) -> None:
    """Write the run's record.

    Args:
        started: the start in ms since 1970.
        facts: the run's facts; see :func:`amend`.
    """
    tags: dict[str, str] = facts["tags"]
    git = {ours: tags[theirs] for ours, theirs in _GIT.items() if tags.get(theirs)}
    provenance: dict[str, Any] = {
        "git": None,
        "lockfile": None,
        "python": {},
        "packages": {},
        "image": None,
        "hardware": {},
        "command": [],
    }
    if "commit" in git:
        provenance["git"] = {**_NOT_RECORDED, **git}
    began = {
        "provenance": provenance,
        "seed": None,
        "determinism": {},
        "started": iso(started),
    }
    parent = {
        "tracked": {"tool": "mlflow", "experiment": str(experiment), "facts": dict(facts)},
        "tags": _tags_of(facts),
    }
    parent |= _trial_of(tags)
    RunRecords(store, project, run).start({}, parent, 1, began)


def _trial_of(tags: Mapping[str, str]) -> dict[str, Any]:
    """The sweep and the trial that the client's tags name, so that these lead to this run."""
    sweep = tags.get("halving.sweep")
    if not sweep:
        return {}
    parent: dict[str, Any] = {"sweep": sweep}
    trial = tags.get("halving.trial", "")
    if trial.isdecimal() and len(trial) < 10:
        parent["trial"] = int(trial)
    return parent


def add_points(store: Store, project: str, run: str, attempt: int, points: Sequence[TrackedPoint]) -> int:
    """Write points as the attempt's next segment; return how many segments of the run are not compacted."""
    import numpy as np

    keys = sorted({point.key for point in points})
    places = {key: place for place, key in enumerate(keys)}
    codes = np.array([places[point.key] for point in points], np.int32)
    order = np.argsort(codes, kind="stable")
    columns = (
        np.array([point.step for point in points], np.int64),
        np.array([point.time for point in points], np.int64),
        np.array([point.value for point in points], np.float64),
    )
    segment = encode(points_table(run, attempt, keys, codes[order], *(column[order] for column in columns)))
    files = run_files(store, project, run)
    own = segments_of(files, attempt)
    sequence = files.manifest.absorbed.get(attempt, Absorbed(0)).segments
    if own:
        sequence = max(own) + 1
    store.create(f"{live_folder(project, run)}/{segment_name(attempt, sequence)}", segment)
    return len(files.segments) + 1


def amend(store: Store, project: str, run: str, facts: Mapping[str, Any], by: str = "") -> None:
    """Write an amendment with the present facts of the run.

    Args:
        facts: ``name``, ``params`` and ``tags`` (all of them, by key), ``stage`` (active, archived or
            deleted), ``status`` (null if it is that of the newest attempt), ``attempt`` (the newest one), and
            ``inputs``.
        by: who changed the stage.
    """
    folder = RunRecords(store, project, run).folder
    columns = {
        "params": facts["params"],
        "tags": _tags_of(facts),
        "status": facts["status"],
        "attempt": facts["attempt"],
    }

    def change(before: amendments.Amendment) -> amendments.Amendment:
        after = {**before, **columns, "facts": dict(facts)}
        if before.get("lifecycle", amendments.ACTIVE) == facts["stage"]:
            return after
        return amendments.with_lifecycle(after, facts["stage"], by)

    amendments.amend(store, folder, change)
    numbers = sorted(
        amendments.number_of(name) for name in store.names(folder) if name.startswith(amendments.PREFIX)
    )
    for old in numbers[:-_KEPT]:
        store.delete(f"{folder}/{amendments.PREFIX}{old:06d}.json")


def end_attempt(store: Store, project: str, run: str, attempt: int, status: str, ended: int) -> str:
    """Write the attempt's end; return its status in the store.

    That is another status if a server wrote one before, and was killed before its transaction ended.
    """
    records = RunRecords(store, project, run)
    try:
        records.end(attempt, {"status": status, "time": iso(ended)})
    except AlreadyExists:
        return str(read_json(store, f"{records.folder}/end-{attempt:04d}.json")["status"])
    return status


def begin_attempt(store: Store, project: str, run: str, attempt: int, started: int) -> None:
    """Write the begin of another attempt, of a run that goes on after its end."""
    records = RunRecords(store, project, run)
    record = records.read()
    with contextlib.suppress(AlreadyExists):  # a server wrote it and was killed before its transaction ended
        began = {"provenance": record["provenance"], "seed": None, "determinism": {}, "started": iso(started)}
        records.start(record["params"], {}, attempt, began)


def _tags_of(facts: Mapping[str, Any]) -> dict[str, str]:
    """The tags as pages show them, which are those of an import of the same run."""
    tags: dict[str, str] = {}
    for name, value in facts["tags"].items():
        if name in _OURS or not name.startswith("mlflow."):
            tags[_OURS.get(name, name)] = value
    if facts["name"]:
        tags["name"] = facts["name"]
    return tags
