"""What a dead process left in its journal: drained into the store by the next open of the run, or by ``halving recover``."""

import contextlib
import json
import warnings
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from halving.errors import AlreadyExists, NotFound
from halving.ingest.drain import Drain, Taken, points_of, position_in_store, segments_of, sources_behind
from halving.journal import directory
from halving.journal.format import Block, is_written, log_segment_files
from halving.metrics.manifest import RunFiles, run_files
from halving.records.run_record import RunRecords
from halving.store.json_files import now
from halving.store.store import Store

if TYPE_CHECKING:
    import pyarrow as pa


class Recovered(NamedTuple):
    """What became of one attempt's journal.

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

    Idempotent, and safe to be killed: what has reached the store is not written again. An attempt that left no end gets one,
    with the status ``crashed``.

    Args:
        project, run: only these.
    """
    directory.clear_unfinished(store, project, run)
    return [_recover(store, folder) for folder in directory.attempt_folders(store, project, run)]


def recover_run(store: Store, project: str, run: str) -> None:
    """Drain what earlier attempts at a run left here. A store that refuses is no reason not to train: it is tried again later."""
    for found in recover(store, project, run):
        if found.state.startswith("kept"):
            warnings.warn(f"halving: attempt {found.attempt} of {run} left points that are not in the store: {found.state}", stacklevel=4)


def tail(store: Store, project: str, run: str, files: RunFiles) -> "pa.Table | None":
    """Points in this machine's journals that are in none of ``files``: what a live run has logged in the last seconds.

    Raises:
        FileNotFoundError: more was drained since the files were listed: list them again.
    """
    import pyarrow as pa

    tables = []
    for folder in directory.attempt_folders(store, project, run):
        with contextlib.suppress(NotFound, ValueError):
            attempt = int(folder.name)
            before = position_in_store(store, attempt, files)
            taken = [
                Taken(source.reading, block)
                for source in sources_behind(folder, before[1])
                for block in source.reading.blocks()
                if isinstance(block, Block)
            ]
            try:
                after = position_in_store(store, attempt, run_files(store, project, run))
            except NotFound as error:
                raise FileNotFoundError(f"{folder}: what was drained of it is compacted") from error
            if after != before:
                raise FileNotFoundError(f"{folder}: more of it is drained")
            if taken:
                tables.append(points_of(run, attempt, taken)[0])
    return pa.concat_tables(tables, promote_options="permissive").unify_dictionaries() if tables else None


def _recover(store: Store, folder: Path) -> Recovered:
    whose = directory.whose(folder)
    if not directory.claim(folder):
        return Recovered(*whose, 0, "live")
    drain = Drain(store, *whose, folder)
    finished = False
    try:
        drain.resume()
        # Asked before the end is read: what a child writes after that is seen in its files again.
        written = any(is_written(path) for files in log_segment_files(folder).values() for _, path in files)
        sources = sources_behind(folder, drain.drained)
        while drain.take(sources):
            drain.publish()
        _end(store, folder, whose, drain)
        finished = not written
    except Exception as error:  # noqa: BLE001  # whatever the store or a damaged journal raises: kept, named, tried again
        return Recovered(*whose, drain.points, f"kept: {type(error).__name__}: {error}")
    finally:
        directory.release(folder, remove=finished)
    return Recovered(*whose, drain.points, "recovered" if finished else "kept: a process forked by the run still lives")


def _end(store: Store, folder: Path, whose: directory.Whose, drain: Drain) -> None:
    """Record how the attempt ended, as its process could not. What it lacks is read from the segments, whoever wrote them."""
    try:
        ended: dict[str, Any] = json.loads((folder / "end.json").read_bytes())
        points, last, _ = _content(store, whose, int(ended.pop("segments")), drain.sequence)
        ended["summary"] |= last
        ended["points"] += points
    except (FileNotFoundError, ValueError):  # killed, perhaps while it wrote that
        _, _, moment = _content(store, whose, drain.sequence - 1, drain.sequence)
        ended = {"status": "crashed", "time": moment or now()}
    ended["dropped_points"] = ended.get("dropped_points", 0) + drain.lost_media
    with contextlib.suppress(AlreadyExists):  # it did end, and was killed while it cleaned up
        RunRecords(store, whose.project, whose.run).end(whose.attempt, ended)


def _content(store: Store, whose: directory.Whose, first: int, end: int) -> tuple[int, dict[str, float], str | None]:
    """Points, last value by key and latest time of an attempt's segments ``first`` to ``end - 1``, as far as they are not compacted."""
    import pyarrow.parquet as pq

    names = segments_of(run_files(store, whose.project, whose.run), whose.attempt)
    points, latest = 0, None
    last: dict[str, float] = {}
    for sequence in range(max(first, 0), end):
        if sequence not in names:
            continue
        with contextlib.suppress(FileNotFoundError):
            table = pq.ParquetFile(store.path(names[sequence]), filesystem=store.filesystem).read(columns=["key", "wall_time", "value"])
            points += len(table)
            last |= dict(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True))
            latest = max(table["wall_time"].to_pylist())
    return points, last, latest.astimezone(UTC).isoformat(timespec="milliseconds") if latest else None
