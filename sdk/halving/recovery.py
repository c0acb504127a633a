"""What a dead process left in its journal: drained into the store by the next open of the run, or by ``halving recover``."""

import contextlib
import json
import warnings
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from halving import journal_home
from halving.drain import Drain, Source, Taken, points_of, position_in_store
from halving.errors import AlreadyExists, NotFound
from halving.journal import Block, Reading, is_written, map_piece, piece_files
from halving.layout import RunFiles
from halving.records import RunRecords, now
from halving.store import Store

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
    return [_recover(store, folder) for folder in journal_home.attempt_folders(store, project, run)]


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
    for folder in journal_home.attempt_folders(store, project, run):
        with contextlib.suppress(NotFound, ValueError):
            attempt = int(folder.name)
            _, drained = position_in_store(store, attempt, files)
            lanes = piece_files(folder)
            for lane, (number, offset) in drained.items():
                if (numbers := [other for other, _ in lanes.get(lane, [])]) and min(numbers) > number + 1:
                    raise FileNotFoundError(f"{folder}: {lane}-{number:06d} at {offset} is drained")
            taken = [
                Taken(source.reading, block)
                for source in _sources(folder, drained)
                for block in source.reading.blocks()
                if isinstance(block, Block)
            ]
            if taken:
                tables.append(points_of(run, attempt, taken)[0])
    return pa.concat_tables(tables, promote_options="permissive").unify_dictionaries() if tables else None


def _recover(store: Store, folder: Path) -> Recovered:
    whose = journal_home.whose(folder)
    if not journal_home.claim(folder):
        return Recovered(*whose, 0, "live")
    drain = Drain(store, *whose, folder)
    finished = False
    try:
        drain.resume()
        sources = _sources(folder, drain.drained)
        while drain.take(sources):
            drain.publish()
        _end(store, folder, whose, drain)
        finished = not any(is_written(path) for files in piece_files(folder).values() for _, path in files)
    except Exception as error:  # noqa: BLE001  # whatever the store or a damaged journal raises: kept, named, tried again
        return Recovered(*whose, drain.points, f"kept: {type(error).__name__}: {error}")
    finally:
        journal_home.release(folder, remove=finished)
    return Recovered(*whose, drain.points, "recovered" if finished else "kept: a process forked by the run still lives")


def _sources(folder: Path, drained: dict[str, list[int]]) -> list[Source]:
    """The pieces behind a position, each read up to where it was drained."""
    sources = []
    for lane, files in piece_files(folder).items():
        number, offset = drained.get(lane, [-1, 0])
        for piece, path in files:
            if piece < number:
                continue
            try:
                reading = Reading(map_piece(path), verify=True)
            except ValueError:  # empty: its process was killed while it made it
                continue
            if not reading.valid:
                continue
            if piece == number:
                for _ in reading.blocks(end=offset):
                    pass
            sources.append(Source(lane, piece, reading))
    return sources


def _end(store: Store, folder: Path, whose: journal_home.Whose, drain: Drain) -> None:
    """Record how the attempt ended, as its process could not."""
    try:
        ended: dict[str, Any] = json.loads((folder / "end.json").read_bytes())
        ended["summary"] = {**ended["summary"], **drain.last}
        ended["points"] += drain.points
    except (FileNotFoundError, ValueError):
        last = datetime.fromtimestamp(drain.ended / 1000, UTC).isoformat(timespec="milliseconds") if drain.ended else now()
        ended = {"status": "crashed", "time": last, "dropped_points": drain.lost_media}
    with contextlib.suppress(AlreadyExists):  # it did end, and was killed while it cleaned up
        RunRecords(store, whose.project, whose.run).end(whose.attempt, ended)
