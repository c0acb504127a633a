"""From the journal to segments: records are taken in bulk, sorted by key, encoded and published.

A segment's metadata says how far the journal was drained with it. So whoever goes on after a kill asks the store what it
has, and no point arrives twice.
"""

import contextlib
import json
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from halving.errors import NotFound
from halving.journal.format import Block, Reading, log_segment_files, map_log_segment
from halving.metrics.manifest import RunFiles, run_files
from halving.metrics.segments import DRAINED, drained_of, encode, live_folder, parse_segment_name, points_table, segment_name
from halving.store.json_files import to_json
from halving.store.store import Store

if TYPE_CHECKING:
    import pyarrow as pa

_POINTS = 1_000_000  # in one segment, about
_YIELD_EVERY = 64  # keys handled between two chances for other threads


class Source(NamedTuple):
    """A log segment to take from."""

    appender: str
    number: int
    reading: Reading


class Taken(NamedTuple):
    """A block of records that is on its way."""

    reading: Reading
    block: Block


class Drain:
    """Drains one attempt's journal into the store.

    Attributes:
        points: points published by this object.
        unspooled: bytes of artifacts that are in the store.
        last: key to the value that was logged last, of what was published.
    """

    def __init__(self, store: Store, project: str, run: str, attempt: int, folder: Path) -> None:
        self._store, self._project, self._run, self._attempt, self._folder = store, project, run, attempt, folder
        self.sequence = 0
        self.drained: dict[str, list[int]] = {}
        self.points = self.lost_media = self.unspooled = 0
        self.last: dict[str, float] = {}  # key to the value logged last
        self._taken: list[Taken] = []
        self._notes: list[dict[str, Any]] = []
        self._reached: dict[str, list[int]] = {}
        self._segment: bytes | None = None

    def resume(self) -> None:
        """Go on behind what the store has of this attempt."""
        self.sequence, self.drained = position_in_store(self._store, self._attempt, run_files(self._store, self._project, self._run))
        self._reached = dict(self.drained)

    def take(self, sources: Iterable[Source]) -> bool:
        """Take what was logged since the last time, up to a segment's worth; says whether there was anything."""
        if self._taken or self._notes:
            return True
        taken: list[Taken] = []
        notes: list[dict[str, Any]] = []
        reached, count = dict(self._reached), 0
        for appender, number, reading in sources:
            for found in reading.blocks():
                if isinstance(found, Block):
                    taken.append(Taken(reading, found))
                    count += found.records * (found.length // 8 - 4)
                else:
                    notes.append({**found, "appender": appender, "log_segment": number})
                if count >= _POINTS:
                    break
            reached[appender] = [number, reading.offset]
            if count >= _POINTS:
                break
        self._taken, self._notes, self._reached = taken, notes, reached
        return bool(taken or notes)

    def forget(self, appender: str) -> None:
        """A appender is drained and its files are gone: its name never comes back."""
        self._reached.pop(appender, None)

    def publish(self) -> None:
        """Write what was taken. Raising leaves it here, to be tried again with the very same bytes.

        Raises:
            StoreError: the store refuses.
        """
        while self._notes:
            self._publish_reference(self._notes[0])
            self._notes.pop(0)
        if not self._taken:
            return
        if self._segment is None:
            table, self._last = points_of(self._run, self._attempt, self._taken)
            self._count = len(table)
            self._segment = encode(table, {DRAINED: json.dumps(self._reached).encode()})
        name = f"{live_folder(self._project, self._run)}/{segment_name(self._attempt, self.sequence)}"
        self._store.create(name, self._segment, sole=True)  # the journal's lock is this attempt's alone
        self.sequence += 1
        self.points += self._count
        self.last |= self._last
        self.drained = {appender: list(position) for appender, position in self._reached.items()}
        self._taken, self._segment = [], None

    def _publish_reference(self, note: dict[str, Any]) -> None:
        """Store a logged artifact's content and then the row that refers to it, under a name that repeating does not change."""
        name = f"{self._attempt:04d}-{note['appender']}-{note['log_segment']:06d}-{note['offset']:08d}.json"
        target = f"runs/project={self._project}/{self._run}/media/{name}"
        spooled = self._folder / note["file"]
        if not self._store.exists(target):
            try:
                content = spooled.read_bytes()
            except OSError:  # gone, or unreadable: no reason to hold up the points behind it
                self.lost_media += 1
                return
            moment = datetime.fromtimestamp(note["time"] / 1e9, UTC).isoformat(timespec="milliseconds")
            row = {name: value for name, value in note.items() if name not in ("file", "time", "appender", "log_segment", "offset")}
            digest = self._store.put_blob(content)
            reference = {**row, "attempt": self._attempt, "wall_time": moment, "digest": digest, "bytes": len(content)}
            self._store.create(target, to_json(reference), sole=True)
        with contextlib.suppress(OSError):
            self.unspooled += spooled.stat().st_size
            spooled.unlink()


def sources_behind(folder: Path, drained: dict[str, list[int]]) -> list[Source]:
    """The log segments in an attempt's folder behind a position, each read up to where it was drained."""
    sources = []
    for appender, files in log_segment_files(folder).items():
        number, offset = drained.get(appender, [-1, 0])
        for log_segment, path in files:
            if log_segment < number:
                continue
            try:
                reading = Reading(map_log_segment(path), verify=True)
            except (FileNotFoundError, ValueError):  # drained meanwhile, or empty
                continue
            if not reading.valid:
                continue
            if log_segment == number:
                for _ in reading.blocks(end=offset):
                    pass
            sources.append(Source(appender, log_segment, reading))
    return sources


def segments_of(files: RunFiles, attempt: int) -> dict[int, str]:
    """An attempt's live segments by their sequence."""
    parsed = [(parse_segment_name(name.rpartition("/")[2]), name) for name in files.segments]
    return {place[1]: name for place, name in parsed if place and place[0] == attempt}


def position_in_store(store: Store, attempt: int, files: RunFiles) -> tuple[int, dict[str, list[int]]]:
    """The next sequence number of an attempt, and how far its journal is drained: ``{appender: [log_segment, offset]}``."""
    import pyarrow.parquet as pq

    absorbed = files.manifest.absorbed.get(attempt) if files.manifest else None
    own = segments_of(files, attempt)
    if not own:
        return (absorbed.segments, dict(absorbed.drained)) if absorbed else (0, {})
    sequence = max(own)
    try:
        metadata = pq.read_metadata(store.path(own[sequence]), filesystem=store.filesystem).metadata
    except FileNotFoundError:
        raise NotFound(f"{own[sequence]} was compacted meanwhile") from None
    return sequence + 1, drained_of(metadata)


def points_of(run: str, attempt: int, taken: list[Taken]) -> "tuple[pa.Table, dict[str, float]]":
    """A table of the records' points, sorted by key and within a key as they were logged; and each key's last value."""
    import numpy as np

    parts: dict[str, list[tuple[Any, Any, Any, Any]]] = {}  # key to steps, times, values and places in the log
    for names, rows, places in _by_keys(taken):
        whole, values = rows.view(np.int64), rows.view(np.float64)
        steps, times = whole[:, 1], whole[:, 2] // 1_000_000
        for column, key in enumerate(names, 3):
            parts.setdefault(key, []).append((steps, times, values[:, column], places))
    keys, columns, last = sorted(parts), [], {}
    for number, key in enumerate(keys):
        columns.append(_in_order(parts[key]))
        last[key] = float(columns[-1][2][-1])
        if number % _YIELD_EVERY == 0:
            time.sleep(0)
    counts = [len(values) for _, _, values in columns]
    codes = np.repeat(np.arange(len(keys), dtype=np.int32), counts)
    steps, times, values = (np.concatenate(column) for column in zip(*columns, strict=True))
    return points_table(run, attempt, keys, codes, steps, times, values), last


def _by_keys(taken: list[Taken]) -> Iterable[tuple[tuple[str, ...], Any, Any]]:
    """The records of each set of keys joined: keys, rows of shape (n, words), and each row's place in the log, (n,)."""
    import numpy as np

    groups: dict[tuple[str, ...], list[tuple[Any, int]]] = {}
    place = 0
    for reading, block in taken:
        groups.setdefault(reading.keys[block.schema], []).append((reading.rows(block), place))
        place += block.records
    for keys, blocks in groups.items():
        lengths = np.array([len(rows) for rows, _ in blocks])
        starts = np.array([start for _, start in blocks]) - np.concatenate([[0], np.cumsum(lengths)[:-1]])
        yield keys, np.concatenate([rows for rows, _ in blocks]), np.arange(lengths.sum()) + np.repeat(starts, lengths)


def _in_order(parts: list[tuple[Any, Any, Any, Any]]) -> tuple[Any, Any, Any]:
    """One key's steps, times and values as they were logged."""
    import numpy as np

    if len(parts) == 1:
        return parts[0][:3]
    steps, times, values, places = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.argsort(places)
    return steps[order], times[order], values[order]
