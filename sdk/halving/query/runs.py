"""The store's runs by their records: listing them, how each attempt ended, and which run a person means.

Only record files are read, never points. Many threads read them, because on an object store each file costs a
round trip.
"""

import difflib
import json
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, TypeVar

from halving.errors import Damaged, InvalidInput, NotFound
from halving.query.liveness import is_running, last_written
from halving.query.param_names import dot_params, flatten_params
from halving.records.amendments import ACTIVE, DELETED, REMOVED, newest_amendment, number_of
from halving.records.typed_text import typed_params
from halving.store.store import Store

RUNNING = "running"
UNFINISHED = "unfinished"
_THREADS = 16
_MAX_NAMED = 8  # candidates named in a message
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class RunAttempt:
    """One attempt at a run.

    Attributes:
        status: that of its end record (``finished``, ``failed``, ``paused``, ``crashed``, or what the script
            chose); without one ``running`` while a process trains it, else ``unfinished``: it was killed and
            is not recovered yet.
        started, ended: ISO 8601 in UTC. ``ended`` is None without an end record.
        seconds: from the start to the end, to now while it is running, or to its last metric file; None when
            there is none.
        epoch: epochs completed by this and earlier attempts, or None.
        points, dropped_points, rejected_values: as the attempt counted them, or None.
        checkpoints: how many ``saves`` were written, how many ``skipped`` because none was due, the
            ``seconds`` that it took, and those that were ``missed`` since the last, because the store did not
            take them; or None.
    """

    number: int
    status: str
    started: str
    ended: str | None
    seconds: float | None
    epoch: int | None = None
    points: int | None = None
    dropped_points: int | None = None
    rejected_values: int | None = None
    checkpoints: dict[str, Any] | None = None


@dataclass(frozen=True)
class RunInfo:
    """A run as its record files describe it, with the params and tags of the newest amendment.

    Attributes:
        parent: what it belongs to (``sweep``, ``trial``, ``dataset``…).
        attempts: oldest first; never empty.
        summary: key to last value, of the attempts that recorded them; see ``summarized``.
        summarized: whether ``summary`` covers the newest attempt, and so the whole run.
        lifecycle: active, archived or deleted (removed: its files are being deleted). A run that goes on is
            active again.
        lifecycle_since: since when, ISO 8601 in UTC; None for an active run.
        record: ``record.json``; ``image_digest`` in its provenance is the digest that the cluster reported
            for the image of the first attempt.
        starts: the ``start-ATTEMPT.json`` of each later attempt, by attempt; with ``image_digest`` as well.
        all_summarized: whether every attempt recorded a summary, so that ``summary`` has every key; one that
            was killed did not.
        defined_metrics: what a script said of its metrics by ``wandb.define_metric``, by name, or with ``*``
            at its end by the beginning of names: ``step_metric`` (the metric that is their x axis),
            ``summary`` (``["min", "max"]``), ``hidden`` and ``goal``, as far as it said so.
    """

    project: str
    run: str
    params: dict[str, Any]
    parent: dict[str, Any]
    tags: dict[str, str]
    seed: int | None
    attempts: tuple[RunAttempt, ...]
    summary: dict[str, float]
    summarized: bool
    record: dict[str, Any] = field(repr=False)
    starts: dict[int, dict[str, Any]] = field(repr=False, default_factory=dict)
    lifecycle: str = ACTIVE
    lifecycle_since: str | None = None
    all_summarized: bool = False
    defined_metrics: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def status(self) -> str:
        """The status of the newest attempt."""
        return self.attempts[-1].status

    @property
    def started(self) -> str:
        """When the first attempt began, ISO 8601 in UTC."""
        return self.attempts[0].started

    @property
    def seconds(self) -> float | None:
        """Time of all attempts together, without the waits between them."""
        seconds = [attempt.seconds for attempt in self.attempts if attempt.seconds is not None]
        if not seconds:
            return None
        return sum(seconds)

    @property
    def flat_params(self) -> dict[str, Any]:
        """Params with nested names as ``optimizer/lr``, like the names of metrics; lists are unchanged."""
        return flatten_params(self.params)

    @property
    def dotted_params(self) -> dict[str, Any]:
        """Params with nested names as ``optimizer.lr``; where names would collide, they stay nested."""
        return dot_params(self.params)

    @property
    def provenance(self) -> dict[str, Any]:
        """Code, environment and machine of the newest attempt."""
        began = self.starts.get(self.attempts[-1].number, self.record)
        provenance: dict[str, Any] = began.get("provenance") or {}
        return provenance


def projects(store: Store) -> list[str]:
    """The projects that have runs."""
    return [name.removeprefix("project=") for name in store.names("runs") if name.startswith("project=")]


def list_names(store: Store, project: str | None = None) -> list[tuple[str, str]]:
    """``(project, run)`` of every run, without opening any.

    Raises:
        NotFound: no such project; the message names the existing ones.
    """
    existing = projects(store)
    if project is not None and project not in existing:
        choices = describe_choices("projects", project, existing)
        raise NotFound(f"no project {project!r} in {store.root}; {choices}")
    if project is not None:
        existing = [project]
    names = in_threads(lambda name: [(name, run) for run in store.names(f"runs/project={name}")], existing)
    return [pair for part in names for pair in part]


def list_runs(store: Store, project: str | None = None, problems: list[str] | None = None) -> list[RunInfo]:
    """Every run of the store or of a project, newest first.

    Args:
        problems: a list for the problems of runs whose records are damaged, which are left out; without it
            the first problem is raised.

    Raises:
        NotFound: no such project.
        Damaged: a record is.
    """
    infos = in_threads(lambda pair: _read_or_none(store, *pair, problems), list_names(store, project))
    return sorted(
        (info for info in infos if info),
        key=lambda info: (info.started, info.project, info.run),
        reverse=True,
    )


def find_run(store: Store, name: str) -> tuple[str, str]:
    """``(project, run)`` of the run that a person names by its id or its beginning, or by ``project/run``.

    Raises:
        NotFound: there is none; the message names close ones.
        InvalidInput: there are several.
    """
    project, _, wanted = name.rpartition("/")
    pairs = list_names(store, project or None)
    if not pairs:
        raise NotFound(f"no run {name!r}: there are no runs in {store.root} yet")
    exact = [pair for pair in pairs if pair[1] == wanted]
    matches = exact or [pair for pair in pairs if wanted and pair[1].startswith(wanted)]
    if len(matches) == 1:
        return matches[0]
    if not matches:
        choices = describe_choices("runs", wanted, sorted({run for _, run in pairs}))
        raise NotFound(f"no run {name!r} in {store.root}; {choices}")
    listed = _shorten([f"{project}/{run}" for project, run in matches])
    advice = "give more of the id"
    if exact:
        advice = "give project/run"
    raise InvalidInput(
        f"run {name!r} is ambiguous: it could be any of {len(matches)} runs ({listed}); {advice}"
    )


def read_run(store: Store, project: str, run: str) -> RunInfo:
    """Read one run.

    Raises:
        NotFound: no such run.
        Damaged: a record is.
        StoreError: a record cannot be read.
    """
    try:
        return _read_run(store, project, run)
    except (AttributeError, KeyError, TypeError) as error:
        # The file is JSON, but it lacks what a record has.
        raise Damaged(
            f"a record in {store.address(f'runs/project={project}/{run}')} is damaged: {error!r}"
        ) from error


def _read_run(store: Store, project: str, run: str) -> RunInfo:
    folder = f"runs/project={project}/{run}"
    names = store.names(folder)
    if "record.json" not in names:
        raise NotFound(f"no run {run!r} in project {project!r} of {store.root}")
    record = read_json(store, f"{folder}/record.json")
    amended = newest_amendment(store, folder, names)
    begun = {int(record["attempt"]): record}
    begun |= {
        number_of(name): read_json(store, f"{folder}/{name}") for name in names if name.startswith("start-")
    }
    ended = {
        number_of(name): read_json(store, f"{folder}/{name}") for name in names if name.startswith("end-")
    }
    for name in (name for name in names if name.startswith("image-")):
        start = begun.get(number_of(name))
        if start and start.get("provenance"):
            start["provenance"]["image_digest"] = read_json(store, f"{folder}/{name}")["digest"]
    numbers = sorted(begun)
    attempts = tuple(
        _attempt(
            store,
            project,
            run,
            number,
            begun[number]["started"],
            ended.get(number),
            newest=number == numbers[-1],
        )
        for number in numbers
    )
    if amended.get("status") and amended["attempt"] == numbers[-1]:
        attempts = (*attempts[:-1], replace(attempts[-1], status=str(amended["status"])))
    summary: dict[str, float] = {}
    for number in sorted(ended):
        summary |= ended[number].get("summary") or {}
    assigned = amended.get("summary") or {}
    if "summary" not in ended.get(assigned.get("attempt", 0), {}):
        # An attempt that was killed, or that has not ended, has what it assigned so far.
        summary |= assigned.get("values") or {}
    parent = dict(record["parent"])
    tags: dict[str, str] = parent.pop("tags", {})
    del begun[int(record["attempt"])]
    return RunInfo(
        project=project,
        run=run,
        params=typed_params(amended.get("params", record["params"]), parent),
        parent=parent,
        tags=amended.get("tags", tags),
        seed=record.get("seed"),
        attempts=attempts,
        summary=summary,
        summarized="summary" in ended.get(numbers[-1], {}),
        all_summarized=all("summary" in ended.get(number, {}) for number in numbers),
        record=record,
        starts=begun,
        defined_metrics=amended.get("defined_metrics") or {},
        **_lifecycle(amended, attempts[-1].started),
    )


def read_all(store: Store, folder: str) -> list[dict[str, Any]]:
    """Read every JSON file of a folder, in the order of their names."""
    return in_threads(lambda name: read_json(store, f"{folder}/{name}"), store.names(folder))


def read_json(store: Store, name: str) -> dict[str, Any]:
    """Read a record file.

    Raises:
        NotFound: no such file.
        StoreError: it cannot be read, or is not JSON.
    """
    try:
        record: dict[str, Any] = json.loads(store.read(name))
    except ValueError as error:
        raise Damaged(f"{store.address(name)} is damaged: {error}") from None
    return record


def in_threads(
    function: Callable[[_Item], _Result], items: Iterable[_Item], threads: int = _THREADS
) -> list[_Result]:
    """Apply ``function`` to every item, several at once; the results are in order."""
    items = list(items)
    if len(items) < 2:
        return [function(item) for item in items]
    with ThreadPoolExecutor(min(threads, len(items))) as pool:
        return list(pool.map(function, items))


def seconds_of(time: str) -> float:
    """Seconds since 1970 of an ISO 8601 time."""
    return datetime.fromisoformat(time).timestamp()


def _read_or_none(store: Store, project: str, run: str, problems: list[str] | None) -> RunInfo | None:
    """Read a run; None if it is damaged or has no record, because it was killed while it started."""
    try:
        return read_run(store, project, run)
    except NotFound:
        return None
    except Damaged as error:
        if problems is None:
            raise
        problems.append(str(error))
        return None


def _attempt(
    store: Store,
    project: str,
    run: str,
    number: int,
    started: str,
    end: dict[str, Any] | None,
    *,
    newest: bool,
) -> RunAttempt:
    began = seconds_of(started)
    if end is not None:
        counts = {
            name: end.get(name)
            for name in ("epoch", "points", "dropped_points", "rejected_values", "checkpoints")
        }
        return RunAttempt(
            number,
            str(end["status"]),
            started,
            end["time"],
            max(0.0, seconds_of(end["time"]) - began),
            **counts,
        )
    if not newest:
        return RunAttempt(number, UNFINISHED, started, None, None)
    if is_running(store, project, run, number, began):
        return RunAttempt(number, RUNNING, started, None, max(0.0, datetime.now(UTC).timestamp() - began))
    written = last_written(store, project, run)
    seconds = None
    if written and written > began:
        seconds = written - began
    return RunAttempt(number, UNFINISHED, started, None, seconds)


def _lifecycle(amended: dict[str, Any], last_began: str) -> dict[str, Any]:
    """The fields of a run that is archived or deleted; an attempt that began later has made it active again.

    A tracked run that was deleted before amendments had a ``lifecycle`` has its stage in ``facts`` alone.
    """
    lifecycle = amended.get("lifecycle")
    since = amended.get("since")
    if lifecycle is None:
        lifecycle = ACTIVE
        if amended.get("facts", {}).get("stage") == DELETED:
            lifecycle = DELETED
    if lifecycle == ACTIVE or (lifecycle != REMOVED and since and seconds_of(last_began) > seconds_of(since)):
        return {}
    return {"lifecycle": str(lifecycle), "lifecycle_since": since}


def describe_choices(kind: str, wanted: str, names: list[str]) -> str:
    """The names that are close to the wanted one, else the first of all names, for a message."""
    close = difflib.get_close_matches(wanted, names, n=_MAX_NAMED, cutoff=0.6)
    if close:
        return f"close to it: {', '.join(close)}"
    if not names:
        return f"there are no {kind} yet"
    return f"there are {len(names)} {kind}: {_shorten(names)}"


def _shorten(names: list[str]) -> str:
    if len(names) > _MAX_NAMED:
        names = [*names[:_MAX_NAMED], "…"]
    return ", ".join(names)
