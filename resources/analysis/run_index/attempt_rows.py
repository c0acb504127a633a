"""How long the attempts of a run held which machines and GPUs; only of runs that are not trials."""

import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from halving.query.run_filter import known_text
from halving.query.runs import RUNNING, RunAttempt, RunInfo, seconds_of
from halving.records.gpus import seen_gpus
from resources.catalog.held_time import seconds_by_month

SCRIPT = "script"
RERUN = "rerun"
ELSEWHERE = "elsewhere"
"""Kinds of :class:`resources.catalog.RunAttemptRow`."""
_CRASHED = "crashed"  # the status that recovery gives a killed attempt; it ended at its last point
_TRIAL_KEY = re.compile(r"(.+)\.(\d{4,9})")
_FIRST, _LAST = (datetime(*day, tzinfo=UTC).timestamp() for day in ((1, 1, 1), (9999, 11, 30)))
# An attempt that seems to be longer was timed by two clocks. All of it counts in the month of its end.
_MAX_SECONDS = 10 * 366 * 86_400.0

AttemptColumns = dict[str, Any]
"""The columns of an attempt's row without its run; an attempt has a row for each month."""


def attempt_rows(info: RunInfo, last_sign: Callable[[int], float | None]) -> list[AttemptColumns]:
    """The rows of a run's attempts; none for a trial's own run, whose attempts the catalog has.

    Args:
        last_sign: a function of an attempt's number, that gives the time of its last point, in seconds since
            the epoch. It is called for attempts whose end is not recorded.
    """
    if "sweep" in info.parent and "tracked" not in info.parent:
        return []
    trial: dict[str, Any] = {"sweep": None, "trial": None}
    trial_key = _TRIAL_KEY.fullmatch(info.run)
    if trial_key:
        trial = {"sweep": trial_key[1], "trial": int(trial_key[2])}
    begins = [seconds_of(attempt.started) for attempt in info.attempts]
    rows: list[AttemptColumns] = []
    for attempt, began, next_began in zip(info.attempts, begins, [*begins[1:], None], strict=True):
        seconds = _seconds(attempt, began, next_began, last_sign)
        columns = {
            "attempt": attempt.number,
            "status": known_text(attempt.status),
            "estimated": attempt.ended is None or attempt.status == _CRASHED,
            **_machines(info, info.starts.get(attempt.number, info.record)),
            **trial,
        }
        months = _by_month(seconds, began)
        rows += [
            {**columns, "month": month, "seconds": part, "last": month == max(months)}
            for month, part in months.items()
        ]
    return rows


def _by_month(seconds: float, began: float) -> dict[str, float]:
    until = min(max(began + seconds, _FIRST), _LAST)
    since = min(max(began, _FIRST), until)
    if until - since >= _MAX_SECONDS:
        since = until
    return seconds_by_month(seconds, since, until)


def _seconds(
    attempt: RunAttempt, began: float, next_began: float | None, last_sign: Callable[[int], float | None]
) -> float:
    if attempt.status == RUNNING or attempt.ended is not None:
        return attempt.seconds or 0.0
    until = last_sign(attempt.number)
    if until is None:
        until = began
    if next_began is not None:
        until = min(until, next_began)
    return max(0.0, until - began)


def _machines(info: RunInfo, start: dict[str, Any]) -> AttemptColumns:
    hardware = (start.get("provenance") or {}).get("hardware") or {}
    ranks = start.get("ranks") or {}
    if not hardware or {"imported", "tracked"} & info.parent.keys():
        return {"kind": ELSEWHERE, "nodes": 1, "gpus": 0, "cpus": 0.0, "gpu_type": None}
    gpus = seen_gpus(hardware, ranks.get("visible_gpus") or ())
    kind = SCRIPT
    if "rerun_of" in info.parent:
        kind = RERUN
    gpu_type = gpus.kind
    if gpu_type is not None:
        gpu_type = known_text(gpu_type)
    return {
        "kind": kind,
        "nodes": int(ranks.get("nodes") or 1),
        "gpus": gpus.number,
        "cpus": float(hardware.get("cpus") or 0.0),
        "gpu_type": gpu_type,
    }
