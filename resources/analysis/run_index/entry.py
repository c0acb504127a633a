"""Reading a run's entry of the index from the store."""

import contextlib
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from halving.errors import Damaged, InvalidInput, NotFound
from halving.metrics.last_point import last_point
from halving.metrics.segments import parse_segment_name
from halving.query.curve_stats import Extremes, read_extremes
from halving.query.curve_table import as_text
from halving.query.run_filter import known_text
from halving.query.runs import RUNNING, UNFINISHED, RunInfo, read_json, read_run, seconds_of
from halving.store.store import Store
from resources.analysis.run_index.attempt_rows import AttemptColumns, attempt_rows
from resources.analysis.run_index.exact_numbers import MAX_DIGITS, key_of, nearest
from resources.analysis.run_index.listed_run import ListedRun
from resources.catalog.index_tables import BOOL, NUMBER, TEXT

OPEN_SECONDS = 4.0
"""How often a run that is training is looked at."""
# A run that began less than ten seconds ago is looked at sooner, at first more often than the two seconds
# between a server's refreshes.
_YOUNG_SHARE = 0.4
_YOUNG_SECONDS = 1.0
# A run that ended is looked at when a tenth of the time since then has passed.
_SHARE = 0.1
_MIN_PAUSE = 10.0
_MAX_PAUSE = 86_400.0
_MAX_NAME = 500  # characters: at four bytes each they fit into an index of Postgres
_INTEGERS = 2**63  # integers of a database are below it
ALERT_PREFIX = "alert-"
"""Of the names of files in which runs record their alerts (:mod:`halving.run.alerts`)."""
_MAX_ALERTS = 100  # of a run that are told at a time
_OF_MACHINE = "system/"  # metrics of the machine, which go on while the training hangs


class Value(NamedTuple):
    """A row of :class:`resources.catalog.RunValueRow`; ``best`` is set later, from the sweep's objectives."""

    type: int
    number: float | None
    text: str | None = None
    min: float | None = None
    max: float | None = None
    best: float | None = None


@dataclass(frozen=True)
class Entry:
    """A run as it was read from the store.

    Attributes:
        row: the columns of its row in ``runs``, without id, revision and ``look_again``.
        values: by kind (params, metrics, tags) and name.
        attempts: the rows of its attempts in ``run_attempts``, without the run's id.
        alerts: those that it has raised since its row was written, by the names of their files.
    """

    row: dict[str, Any]
    values: dict[tuple[str, str], Value]
    attempts: list[AttemptColumns]
    alerts: dict[str, dict[str, Any]] = field(default_factory=dict)


def next_look(row: dict[str, Any], now: float) -> float:
    """When to look at a run again, by its row.

    A run that ended lately may be resumed and is looked at soon, an old one rarely. A run that has just begun
    is looked at by every refresh, because clients of MLflow send its params after it began.
    """
    if row["status"] == RUNNING:
        return now + min(max((now - row["started"]) * _YOUNG_SHARE, _YOUNG_SECONDS), OPEN_SECONDS)
    ended = row["ended"]
    if ended is None:
        ended = row["started"] + (row["seconds"] or 0.0)
    return now + min(max((now - ended) * _SHARE, _MIN_PAUSE), _MAX_PAUSE)


def read_entry(store: Store, project: str, run: str, row: dict[str, Any] | None = None) -> Entry | None:
    """Read a run's entry; None if it has not changed since its row was written.

    Args:
        row: ``signature``, ``status`` and ``alerts`` of its row, if it has one that can be trusted.

    Raises:
        NotFound: it has no record: it was killed while it started, or its folder is being deleted.
        StoreError: a file cannot be read, or is damaged.
    """
    listed = ListedRun(store, project, run)
    signature = _signature(listed)
    segments = sum(parse_segment_name(name) is not None for name in listed.live)
    unchanged_status = None
    if row is not None and row["signature"] == signature:
        unchanged_status = row["status"]
    if unchanged_status is not None and unchanged_status not in (RUNNING, UNFINISHED):
        return None
    info = read_run(listed, project, run)
    if unchanged_status == info.status:
        return None
    alerts = sorted(name for name in listed.records if name.startswith(ALERT_PREFIX))
    columns = {**_row(info), "signature": signature, "segments": segments, "alerts": len(alerts)}
    extremes = read_extremes(listed, info)
    columns["progress"] = _progress(info, extremes)
    read_before = 0
    if row is not None:
        read_before = row["alerts"]
    new_alerts = _read_alerts(store, project, run, alerts[read_before:])
    attempts = attempt_rows(info, partial(last_point, store, project, run))
    return Entry(columns, _values(info, extremes), attempts, new_alerts)


def _signature(run: ListedRun) -> str:
    """The digest of the run's listings.

    They were taken before any file was read, so a later change gives another digest at the next look.
    """
    return hashlib.sha256(json.dumps([run.records, run.metrics, run.live]).encode()).hexdigest()[:32]


def _row(info: RunInfo) -> dict[str, Any]:
    newest = info.attempts[-1]
    git = info.provenance.get("git") or {}
    parent = info.parent
    ended = None
    if newest.ended is not None:
        ended = seconds_of(newest.ended)
    return {
        "project": info.project,
        "run": info.run,
        "status": known_text(info.status),
        "lifecycle": info.lifecycle,
        "started": seconds_of(info.started),
        "ended": ended,
        "seconds": info.seconds,
        "epoch": _integer(newest.epoch),
        "attempt": _attempt(newest.number),
        "sweep": _text(parent.get("sweep")),
        "trial": _integer(parent.get("trial")),
        "dataset": _text(parent.get("dataset")),
        "snapshot": _text(parent.get("snapshot")),
        "commit": _text(git.get("commit")),
        "seed": _integer(info.seed),
        "silent_after": _seconds(info.starts.get(newest.number, info.record).get("silent_after")),
    }


def _progress(info: RunInfo, extremes: Mapping[str, Extremes]) -> str:
    """The digest of how far the run has come: its attempt and epoch, and the points of its own metrics."""
    newest = info.attempts[-1]
    points = sorted((name, end.points) for name, end in extremes.items() if not name.startswith(_OF_MACHINE))
    return hashlib.sha256(json.dumps([newest.number, newest.epoch, points]).encode()).hexdigest()[:32]


def _read_alerts(store: Store, project: str, run: str, names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Read the newest alerts of a run; one that is damaged or gone is left out, as it tells nothing."""
    alerts = {}
    for name in names[-_MAX_ALERTS:]:
        with contextlib.suppress(Damaged, NotFound):
            alerts[name] = read_json(store, f"runs/project={project}/{run}/{name}")
    return alerts


def _values(info: RunInfo, extremes: Mapping[str, Extremes]) -> dict[tuple[str, str], Value]:
    values: dict[tuple[str, str], Value] = {}
    for name, param in info.flat_params.items():
        value = param_value(param)
        if value is not None:
            values["params", _name(name)] = value
    for name, tag in info.tags.items():
        values["tags", _name(str(name))] = _text_value(str(tag))
    for name, end in extremes.items():
        values["metrics", _name(name)] = Value(NUMBER, _number(end.last), None, end.min, end.max)
    return values


def param_value(param: Any) -> Value | None:
    """A param as a value of its type; a list becomes its JSON text, and None is no value."""
    if param is None:
        return None
    if isinstance(param, bool):
        return Value(BOOL, float(param))
    if isinstance(param, (int, float)):
        if isinstance(param, int) and abs(param) >= 10**MAX_DIGITS:
            return _text_value(str(param))
        return Value(NUMBER, _number(nearest(param)), key_of(param))
    return _text_value(as_text(param) or "")


def _text_value(text: str) -> Value:
    return Value(TEXT, None, known_text(text))


def _name(name: str) -> str:
    return known_text(name[:_MAX_NAME])


def _number(value: float) -> float | None:
    if math.isnan(value):
        return None
    return value


def _text(value: Any) -> str | None:
    if value is None:
        return None
    return known_text(str(value))


def _seconds(value: Any) -> float | None:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < math.inf:
        return float(value)
    return None


def _attempt(number: int) -> int:
    if number >= 2**31:  # its column has 32 bits
        raise InvalidInput(f"attempt = {number} is no attempt's number: remove the record of it")
    return number


def _integer(value: Any) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool) and -_INTEGERS <= value < _INTEGERS:
        return value
    return None
