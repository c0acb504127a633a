"""What the index has of one run, as it is read from the store."""

import hashlib
import json
import math
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from halving.errors import InvalidInput
from halving.metrics.last_point import last_point
from halving.metrics.segments import parse_segment_name
from halving.query.curve_stats import read_extremes
from halving.query.curve_table import as_text
from halving.query.run_filter import known_text
from halving.query.runs import RUNNING, UNFINISHED, RunInfo, read_run, seconds_of
from halving.store.store import Store
from resources.analysis.run_index.attempt_rows import AttemptColumns, attempt_rows
from resources.analysis.run_index.exact_numbers import LONGEST, key_of, nearest
from resources.analysis.run_index.listed_run import ListedRun
from resources.catalog.index_tables import BOOL, NUMBER, TEXT

OPEN_SECONDS = 4.0
"""A run that is training is looked at as often; the others when a tenth of the time since they ended has
passed.
"""
_YOUNG_SHARE = 0.4
_YOUNG_SECONDS = 1.0
"""One that began less than ten seconds ago is looked at sooner, below the two seconds between a server's
refreshes at first.
"""
_SHARE = 0.1
_SHORTEST = 10.0
_LONGEST = 86_400.0
_LONGEST_NAME = 500  # characters: in four bytes each they fit into an index of Postgres
_INTEGERS = 2**63  # what a database's integers hold


class Value(NamedTuple):
    """As :class:`resources.catalog.RunValueRow` has it, except that ``best`` needs the sweep's objectives."""

    type: int
    number: float | None
    text: str | None = None
    min: float | None = None
    max: float | None = None
    best: float | None = None


@dataclass(frozen=True)
class Entry:
    """A run as it was read.

    Attributes:
        row: the columns of its row in ``runs``, but for id, revision and ``look_again``.
        values: by kind (params, metrics, tags) and name.
        held: rows of its attempts in ``run_attempts``, but for the run's id.
    """

    row: dict[str, Any]
    values: dict[tuple[str, str], Value]
    held: list[AttemptColumns]


def next_look(row: dict[str, Any], now: float) -> float:
    """When it is worth looking at a run again, given its row: a resumed run is seen soon, and old runs are
    rarely looked at.

    A run that has just begun is looked at by every refresh, for clients of MLflow say its params only then.
    """
    if row["status"] == RUNNING:
        return now + min(max((now - row["started"]) * _YOUNG_SHARE, _YOUNG_SECONDS), OPEN_SECONDS)
    ended = row["ended"] if row["ended"] is not None else row["started"] + (row["seconds"] or 0.0)
    return now + min(max((now - ended) * _SHARE, _SHORTEST), _LONGEST)


def read_entry(store: Store, project: str, run: str, known: dict[str, Any] | None = None) -> Entry | None:
    """A run's entry; None if it is as it was.

    Args:
        known: ``signature`` and ``status`` of its row, if it has one that can be trusted.

    Raises:
        NotFound: it has no record: it was killed while it started, or its folder is being deleted.
        StoreError: a file cannot be read, or is damaged.
    """
    listed = ListedRun(store, project, run)
    signature = _signature(listed)
    segments = sum(parse_segment_name(name) is not None for name in listed.live)
    unchanged = known is not None and known["signature"] == signature
    if unchanged and known and known["status"] not in (RUNNING, UNFINISHED):
        return None
    info = read_run(listed, project, run)
    if unchanged and known and known["status"] == info.status:
        return None
    row = {**_row(info), "signature": signature, "segments": segments}
    return Entry(row, _values(listed, info), attempt_rows(info, partial(last_point, store, project, run)))


def _signature(run: ListedRun) -> str:
    """What the run's listings are; they were taken before anything is read, so that what changes meanwhile is
    seen next time.
    """
    return hashlib.sha256(json.dumps([run.records, run.metrics, run.live]).encode()).hexdigest()[:32]


def _row(info: RunInfo) -> dict[str, Any]:
    newest = info.attempts[-1]
    git = info.provenance.get("git") or {}
    parent = info.parent
    return {
        "project": info.project,
        "run": info.run,
        "status": known_text(info.status),
        "lifecycle": info.lifecycle,
        "started": seconds_of(info.started),
        "ended": None if newest.ended is None else seconds_of(newest.ended),
        "seconds": info.seconds,
        "epoch": _integer(newest.epoch),
        "attempt": _attempt(newest.number),
        "sweep": _text(parent.get("sweep")),
        "trial": _integer(parent.get("trial")),
        "dataset": _text(parent.get("dataset")),
        "snapshot": _text(parent.get("snapshot")),
        "commit": _text(git.get("commit")),
        "seed": _integer(info.seed),
    }


def _values(store: Store, info: RunInfo) -> dict[tuple[str, str], Value]:
    found = {
        ("params", _name(name)): value
        for name, given in info.flat_params.items()
        if (value := param_value(given))
    }
    found |= {("tags", _name(str(name))): _text_value(str(value)) for name, value in info.tags.items()}
    for name, extremes in read_extremes(store, info).items():
        found["metrics", _name(name)] = Value(
            NUMBER, _number(extremes.last), None, extremes.min, extremes.max
        )
    return found


def param_value(given: Any) -> Value | None:
    """A param by its type; lists are their JSON text, and None is no value."""
    if given is None:
        return None
    if isinstance(given, bool):
        return Value(BOOL, float(given))
    if isinstance(given, (int, float)):
        if isinstance(given, int) and abs(given) >= 10**LONGEST:
            return _text_value(str(given))
        return Value(NUMBER, _number(nearest(given)), key_of(given))
    return _text_value(as_text(given) or "")


def _text_value(text: str) -> Value:
    return Value(TEXT, None, known_text(text))


def _name(name: str) -> str:
    return known_text(name[:_LONGEST_NAME])


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value


def _text(value: Any) -> str | None:
    return None if value is None else known_text(str(value))


def _attempt(number: int) -> int:
    if number >= 2**31:  # a database keeps 32 bits of it
        raise InvalidInput(f"attempt = {number} is no attempt's number: remove the record of it")
    return number


def _integer(value: Any) -> int | None:
    fits = isinstance(value, int) and not isinstance(value, bool) and -_INTEGERS <= value < _INTEGERS
    return value if fits else None
