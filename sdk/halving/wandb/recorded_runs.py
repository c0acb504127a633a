"""Runs as ``wandb.Api`` reads them: from a store, or over a server's API."""

import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote

import numpy as np

from halving.errors import NotFound
from halving.records.amendments import ACTIVE
from halving.store.server_store import ServerStore
from halving.store.store import Store, blob_name

if TYPE_CHECKING:
    from halving.query.runs import RunInfo

_PAGE = 1_000
_CHUNK = 64
_MAX_POINTS = 5_000
_LOWEST = -(2**63)
_HIGHEST = 2**63 - 1


@dataclass(frozen=True)
class RecordedRun:
    """What the records say of a run.

    Attributes:
        status: as Halving names it.
        started, ended: ISO 8601 in UTC; ``ended`` is None while it runs, or where it was killed.
        params: nested, as they were given.
        summary: last values, by names that are joined by ``/``.
        artifacts: its files: ``name``, ``digest`` and ``bytes``.
    """

    project: str
    id: str
    status: str
    started: str
    ended: str | None
    seconds: float | None
    params: dict[str, Any]
    tags: dict[str, str]
    parent: dict[str, Any]
    summary: dict[str, float]
    provenance: dict[str, Any] = field(default_factory=dict)
    artifacts: tuple[dict[str, Any], ...] | None = None


@dataclass(frozen=True)
class Curve:
    """Points of a metric by rising step.

    Attributes:
        step: int64.
        value: float64.
        time: int64, in ms since 1970; None where it is not told.
    """

    step: "np.ndarray[Any, Any]"
    value: "np.ndarray[Any, Any]"
    time: "np.ndarray[Any, Any] | None"


class RecordedRuns(Protocol):
    """Where runs are read."""

    store: Store

    def projects(self) -> list[str]:
        """All projects that have runs."""

    def runs(self, project: str) -> Iterator[RecordedRun]:
        """The active runs of a project."""

    def run(self, project: str, run: str) -> RecordedRun:
        """One run, with its files."""

    def keys(self, project: str, run: str) -> list[str]:
        """The metrics that it has points of."""

    def curve(self, project: str, run: str, key: str, low: int, high: int) -> Curve:
        """The points of a metric at steps from ``low`` to ``high``, both included."""

    def blobs(self, project: str, run: str) -> Store:
        """The store that gives the run's files."""


def recorded_runs(store: Store) -> RecordedRuns:
    """The runs of a store, or of the server that stands for it, which is closed when nothing uses them."""
    runs: RecordedRuns = _OfStore(store)
    if isinstance(store, ServerStore):
        runs = _OfServer(store)
    weakref.finalize(runs, store.close)
    return runs


class _OfStore:
    def __init__(self, store: Store) -> None:
        self.store = store

    def projects(self) -> list[str]:
        from halving.query.runs import projects

        return sorted(projects(self.store))

    def runs(self, project: str) -> Iterator[RecordedRun]:
        from halving.query.curve_stats import fill_last
        from halving.query.runs import list_runs

        infos = [info for info in list_runs(self.store, project, []) if info.lifecycle == ACTIVE]
        yield from map(_of_info, fill_last(self.store, infos))

    def run(self, project: str, run: str) -> RecordedRun:
        from halving.query.curve_stats import fill_last
        from halving.query.runs import read_all, read_run

        [info] = fill_last(self.store, [read_run(self.store, project, run)])
        artifacts = tuple(read_all(self.store, f"runs/project={project}/{run}/artifacts"))
        return _of_info(info, artifacts)

    def keys(self, project: str, run: str) -> list[str]:
        from halving.query.curve_stats import keys_of

        return keys_of(self.store, project, run)

    def curve(self, project: str, run: str, key: str, low: int, high: int) -> Curve:
        from halving.query.curve_stats import read_curve

        points = read_curve(self.store, project, run, key)
        points = points.take((points.step >= low) & (points.step <= high))
        return Curve(points.step, points.value, points.time)

    def blobs(self, project: str, run: str) -> Store:
        return self.store


class _OfServer:
    def __init__(self, store: ServerStore) -> None:
        self.store: Store = store
        self._server = store

    def projects(self) -> list[str]:
        return sorted({row["project"] for row in self._rows({})})

    def runs(self, project: str) -> Iterator[RecordedRun]:
        from halving.query.runs import in_threads

        names = [row["run"] for row in self._rows({"project": project})]
        for first in range(0, len(names), _CHUNK):
            yield from in_threads(lambda name: self.run(project, name), names[first : first + _CHUNK])

    def run(self, project: str, run: str) -> RecordedRun:
        path = f"/runs/{quote(project, safe='')}/{quote(run, safe='')}"
        facts = self._server.get(path)
        numbers = {key: _number(metric["last"]) for key, metric in (facts.get("metrics") or {}).items()}
        return RecordedRun(
            project=project,
            id=run,
            status=facts["status"],
            started=facts["started"],
            ended=facts["ended"],
            seconds=facts["seconds"],
            params=facts["params"],
            tags=facts["tags"],
            parent=facts["parent"],
            summary={key: number for key, number in numbers.items() if number is not None},
            provenance=facts.get("provenance") or {},
            artifacts=tuple(facts.get("artifacts") or ()),
        )

    def keys(self, project: str, run: str) -> list[str]:
        return sorted(self.run(project, run).summary)

    def curve(self, project: str, run: str, key: str, low: int, high: int) -> Curve:
        parts = list(self._parts(f"{project}/{run}", key, low, high))
        steps = [step for part in parts for step in part["x"]]
        values = [_number(value) for part in parts for value in part["value"]]
        numbers = [np.nan if value is None else value for value in values]
        return Curve(np.array(steps, np.int64), np.array(numbers, np.float64), None)

    def blobs(self, project: str, run: str) -> Store:
        return self._server.of_run(f"{project}/{run}")

    def _rows(self, query: dict[str, Any]) -> Iterator[dict[str, Any]]:
        place = 0
        while True:
            page = self._server.get("/runs", {**query, "limit": _PAGE, "offset": place})
            yield from page["runs"]
            place += len(page["runs"])
            if not page["runs"] or place >= page["total"]:
                return

    def _parts(self, run: str, key: str, low: int, high: int) -> Iterator[dict[str, Any]]:
        """The curve in parts of single points: a window that comes in buckets is halved."""
        query: dict[str, Any] = {"run": run, "key": key, "max_points": _MAX_POINTS, "edges": "exact"}
        # A float of the API does not hold the ends of int64.
        if low > _LOWEST:
            query["low"] = low
        if high < _HIGHEST:
            query["high"] = high
        try:
            curves = self._server.get("/curves", query)["curves"]
        except NotFound:
            return
        for curve in curves:
            if not curve["bucketed"]:
                yield curve
                continue
            first = max(low, int(min(curve["x"])))
            middle = first + (max(int(max(curve["x"])), first + 1) - first) // 2
            yield from self._parts(run, key, low, middle)
            yield from self._parts(run, key, middle + 1, high)


def read_blob(store: Store, digest: str) -> Iterator[bytes]:
    """The content of a file of a run, in parts."""
    yield from store.parts(blob_name(digest))


def _of_info(info: "RunInfo", artifacts: tuple[dict[str, Any], ...] | None = None) -> RecordedRun:
    return RecordedRun(
        project=info.project,
        id=info.run,
        status=info.status,
        started=info.started,
        ended=info.attempts[-1].ended,
        seconds=info.seconds,
        params=info.params,
        tags=info.tags,
        parent=info.parent,
        summary=info.summary,
        provenance=info.provenance,
        artifacts=artifacts,
    )


def _number(value: Any) -> float | None:
    """A number of JSON, where NaN and the infinities are texts."""
    if value is None:
        return None
    return float(value)
