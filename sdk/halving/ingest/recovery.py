"""Recovery: the journal that a killed process left is drained into the store.

That happens when its run is opened again, or by ``halving recover``.
"""

import contextlib
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from halving.errors import AlreadyExists, NotFound
from halving.ingest.drain import Drain
from halving.journal import directory
from halving.journal.log_segment import is_written, log_segment_files
from halving.journal.tail import sources_after
from halving.journal.trust import read_file
from halving.metrics.last_point import last_point
from halving.metrics.manifest import run_files
from halving.metrics.position import segments_of
from halving.records.run_record import RunRecords
from halving.store.json_files import now
from halving.store.retry import warn
from halving.store.store import Store


class Recovered(NamedTuple):
    """What the recovery of one attempt's journal did.

    Attributes:
        points: points written now.
        state: ``recovered``; ``live`` (a process still writes it); or ``kept: REASON``.
    """

    project: str
    run: str
    attempt: int
    points: int
    state: str


def recover(store: Store, project: str | None = None, run: str | None = None) -> list[Recovered]:
    """Drain the journals that dead processes left on this machine.

    It may be killed and called again: what has reached the store is not written again. An attempt that left
    no end gets one, with the status ``crashed``. Journals that another user may have forged are left alone,
    with a warning.

    Args:
        project, run: only these.
    """
    for reason in sorted(directory.find_untrusted(store, project, run)):
        warn(reason)
    return _recover_all(store, project, run)


def recover_run(store: Store, project: str, run: str) -> None:
    """Drain the journals that earlier attempts at a run left here.

    A store that refuses does not stop the training; the journals are kept.
    """
    for recovered in _recover_all(store, project, run):
        if recovered.state.startswith("kept"):
            warn(
                f"attempt {recovered.attempt} of {run} left points that are not in the store yet: "
                f"{recovered.state}. They stay on this machine; "
                "`halving recover` tries again"
            )


def _recover_all(store: Store, project: str | None, run: str | None) -> list[Recovered]:
    directory.clear_unfinished(store, project, run)
    return [_recover(store, folder) for folder in directory.attempt_folders(store, project, run)]


def _recover(store: Store, folder: Path) -> Recovered:
    whose = directory.whose(folder)
    if not directory.claim(folder):
        return Recovered(*whose, 0, "live")
    drain = Drain(store, *whose, folder)
    finished = False
    try:
        drain.resume()
        # Looked at before the records are read: a child that still lives then keeps the journal, and what it
        # writes is drained later.
        written = any(is_written(path) for files in log_segment_files(folder).values() for _, path in files)
        sources = sources_after(folder, drain.drained)
        while drain.take(sources):
            drain.publish()
        _end(store, folder, whose, drain)
        finished = not written
    except Exception as error:  # noqa: BLE001
        # Whatever the store or a damaged journal raises, the journal is kept.
        return Recovered(*whose, drain.points, f"kept: {type(error).__name__}: {error}")
    finally:
        directory.release(folder, remove=finished)
    state = "recovered"
    if not finished:
        state = "kept: a process forked by the run still lives"
    return Recovered(*whose, drain.points, state)


def _end(store: Store, folder: Path, whose: directory.Whose, drain: Drain) -> None:
    """Record how the attempt ended, which its process could not do.

    What is missing of its counts is read from the segments.
    """
    try:
        ended: dict[str, Any] = json.loads(read_file(folder / "end.json"))
        points, last = _content(store, whose, int(ended.pop("segments")), drain.sequence)
        ended["summary"] |= last
        ended["points"] += points
    except (FileNotFoundError, ValueError):  # the process was killed, perhaps while it wrote that file
        ended = {"status": "crashed", "time": _last_sign(store, whose)}
    ended["dropped_points"] = ended.get("dropped_points", 0) + drain.lost_media
    with contextlib.suppress(AlreadyExists):
        # The process may have recorded its end, and have been killed before it removed the journal.
        RunRecords(store, whose.project, whose.run).end(whose.attempt, ended)


def _last_sign(store: Store, whose: directory.Whose) -> str:
    """When a killed attempt last trained: at its newest point, else when it began (ISO 8601)."""
    newest = last_point(store, whose.project, whose.run, whose.attempt)
    if newest is not None:
        return datetime.fromtimestamp(newest, UTC).isoformat(timespec="milliseconds")
    with contextlib.suppress(NotFound):  # its record is gone
        return RunRecords(store, whose.project, whose.run).began(whose.attempt)
    return now()


def _content(store: Store, whose: directory.Whose, first: int, end: int) -> tuple[int, dict[str, float]]:
    """The count of points and each key's last value, of an attempt's segments from ``first`` up to ``end``.

    Segments that are compacted are left out.
    """
    import pyarrow.parquet as pq

    names = segments_of(run_files(store, whose.project, whose.run), whose.attempt)
    points = 0
    last: dict[str, float] = {}
    for sequence in range(max(first, 0), end):
        if sequence not in names:
            continue
        with contextlib.suppress(NotFound):  # it is compacted since it was listed
            with store.open_file(names[sequence]) as file:
                table = pq.ParquetFile(file).read(columns=["key", "value"])
            points += len(table)
            last |= dict(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True))
    return points, last
