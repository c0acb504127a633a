"""Following what a run logs: the new points in this machine's journals and in the store's segments.

A follower's progress is a position in the data: another follower can go on from it, in another process or on
another machine. For each attempt the position has the number of its segments that were read, and how far its
journal was read. Each segment records how far the journal was when it was drained, so that a segment whose
points were read in the journal is skipped. A segment of which only a part was read is read as a whole, and
its points come twice, in the order of logging. So the stitched curve is, at each step, the point of the
highest attempt that came last.
"""

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq

from halving.errors import InvalidInput, NotFound
from halving.journal import directory
from halving.journal.format import Block, Reading
from halving.journal.tail import files_in, reading_of
from halving.metrics.manifest import RunFiles, project_folder, run_files, run_folder
from halving.metrics.parquet_reader import Files
from halving.metrics.points import EVERYWHERE
from halving.metrics.position import position_in_store, segments_of
from halving.metrics.segments import drained_of, live_folder
from halving.store.store import Store

Position = dict[int, tuple[int, dict[str, list[int]]]]
"""By attempt, the number of its segments that were read, and how far each appender's journal was read.

The latter is the number of the log segment, and the offset in it, by appender.
"""

BEGINNING: Position = {}
_MAX_SEGMENTS = 300  # read in one look; a run writes a segment every few seconds


class NewPoints(NamedTuple):
    """Points of one key of one attempt, in the order of logging.

    Attributes:
        steps: int64 (n,).
        times: ms since 1970, int64 (n,).
        values: float64 (n,).
    """

    attempt: int
    key: str
    steps: Any
    times: Any
    values: Any


class News(NamedTuple):
    """The points that are new since the last look.

    Attributes:
        complete: False where some points were left out, because they were more than the limit or retention
            has dropped them. Later news is complete again; the curves have the rest.
    """

    points: list[NewPoints]
    complete: bool


class RunFollower:
    """Follows one run; only one thread at a time may use it.

    Args:
        position: where to go on; None begins with what is logged from now on.

    Raises:
        StoreError: here and in :meth:`look`: the store cannot be read. The next look is then not complete.
    """

    def __init__(self, store: Store, project: str, run: str, position: Position | None = None) -> None:
        self._store = store
        self._project = project
        self._run = run
        self._attempts: dict[int, _Attempt] = {}
        self._listing: list[str] | None = None
        self._room = 0
        self._complete = True
        self._is_cut = False
        if position is None:
            files = run_files(store, project, run)
            for number in {*files.manifest.absorbed, *(attempt for attempt, _ in files.segments.values())}:
                try:
                    self._attempts[number] = _Attempt(*position_in_store(store, number, files))
                except NotFound:
                    # The attempt was compacted since it was listed. It is followed from its beginning; the
                    # look below leaves out what there is already.
                    self._attempts[number] = _Attempt(0, {})
            self.look((), 0)
        else:
            self._attempts = {
                number: _Attempt(segments, dict(reached)) for number, (segments, reached) in position.items()
            }

    @property
    def position(self) -> Position:
        """How far the run was read."""
        return {
            number: (attempt.segments, {appender: list(place) for appender, place in attempt.reached.items()})
            for number, attempt in self._attempts.items()
        }

    def look(self, keys: Collection[str], limit: int, folders: Collection[Path] | None = None) -> News:
        """Read the new points of some keys.

        Args:
            limit: the greatest number of points; more are left out.
            folders: the run's journals on this machine, where the caller has listed them already.
        """
        # If the store fails in this look, what it has read of the journals is lost, and the next look is not
        # complete.
        self._room = limit
        self._complete = not self._is_cut
        self._is_cut = True
        if folders is None:
            folders = directory.attempt_folders(self._store, self._project, self._run)
        # The journals come first, so that what is drained meanwhile is in the segments that are listed later.
        new_points = list(self._in_journals(folders, keys))
        listing = self._store.names(live_folder(self._project, self._run)) + self._store.names(
            run_folder(self._project, self._run)
        )
        if listing != self._listing:
            try:
                new_points += self._in_store(run_files(self._store, self._project, self._run), keys)
                self._listing = listing
            except FileNotFoundError:
                # The file has just been compacted; the next look reads its points elsewhere.
                self._listing = None
        kept = []
        for points in sorted(new_points, key=lambda points: points.attempt):
            self._room -= len(points.steps)
            if self._room >= 0:
                kept.append(points)
        self._is_cut = False
        return News(kept, self._complete and self._room >= 0)

    def _in_journals(self, folders: Collection[Path], keys: Collection[str]) -> Iterator[NewPoints]:
        for folder in folders:
            attempt = self._attempts.setdefault(directory.whose(folder).attempt, _Attempt(0, {}))
            yield from _points_of(directory.whose(folder).attempt, attempt.new_blocks(folder), keys)
        for number, attempt in self._attempts.items():
            if attempt.readings and not any(directory.whose(folder).attempt == number for folder in folders):
                # The run has ended and its journal is removed, but what is mapped can still be read.
                yield from _points_of(number, attempt.new_blocks(None), keys)

    def _in_store(self, files: RunFiles, keys: Collection[str]) -> Iterator[NewPoints]:
        reader = Files(self._store)
        absorbed = files.manifest.absorbed
        for number in sorted({*absorbed, *(attempt for attempt, _ in files.segments.values())}):
            attempt = self._attempts.setdefault(number, _Attempt(0, {}))
            if number in absorbed and absorbed[number].segments > attempt.segments:
                if not attempt.has_seen(absorbed[number].drained):
                    yield from self._compacted_points(reader, files, number, keys)
                attempt.go_to(absorbed[number].segments, absorbed[number].drained)
            unseen = [
                (sequence, name)
                for sequence, name in sorted(segments_of(files, number).items())
                if sequence >= attempt.segments
            ]
            if len(unseen) > _MAX_SEGMENTS:
                self._complete = self._complete and not keys
                unseen = unseen[-1:]
            for sequence, name in unseen:
                drained = self._drained_position(name)
                if not attempt.has_seen(drained) and keys:
                    for key, points in reader.segment(self._store.path(name), number, sorted(keys)).items():
                        if len(points.step):
                            yield NewPoints(number, key, points.step, points.time, points.value)
                attempt.go_to(sequence + 1, drained)

    def _compacted_points(
        self, reader: Files, files: RunFiles, number: int, keys: Collection[str]
    ) -> Iterator[NewPoints]:
        """All compacted points of an attempt, because it cannot be told any more which of them were read."""
        if files.manifest.history or not files.manifest.full or files.manifest.points > self._room:
            self._complete = False
            return
        path = self._store.path(f"{project_folder(self._project)}/{files.manifest.full}")
        for key in sorted(keys):
            points = reader.points(path, key, EVERYWHERE)
            own = points.take(points.attempt == number)
            if len(own.step):
                yield NewPoints(number, key, own.step, own.time, own.value)

    def _drained_position(self, name: str) -> dict[str, list[int]]:
        path = self._store.path(name)
        with self._store.missing_when_gone(path):
            return drained_of(pq.read_metadata(path, filesystem=self._store.filesystem).metadata)


class _Attempt:
    """How far one attempt was read, and the log segments that are being read."""

    def __init__(self, segments: int, reached: dict[str, list[int]]) -> None:
        self.segments = segments
        self.reached = reached
        self.readings: dict[tuple[str, int], Reading] = {}

    def has_seen(self, drained: Mapping[str, list[int]]) -> bool:
        """Whether the journal was read up to the position at which a segment was drained."""
        return bool(drained) and all(
            self.reached.get(appender, [-1, 0]) >= place for appender, place in drained.items()
        )

    def go_to(self, segments: int, drained: Mapping[str, list[int]]) -> None:
        """Advance behind so many segments, the last of which was drained up to here."""
        read = {appender for appender, _ in self.readings}
        merged = {
            appender: max(self.reached.get(appender, [-1, 0]), list(place))
            for appender, place in drained.items()
        }
        self.segments = segments
        self.reached = {name: place for name, place in self.reached.items() if name in read} | merged

    def new_blocks(self, folder: Path | None) -> Iterator[Block]:
        """Read what is new in the attempt's journal.

        A log segment is only read after the one before it was read to its end. Otherwise the store's segments
        have what is between them, and that comes first.

        Args:
            folder: the journal; None where it is removed, and only what was mapped before can be read.
        """
        present: dict[tuple[str, int], Path] = {}
        if folder:
            for appender, files in files_in(folder).items():
                present |= {(appender, number): path for number, path in files}
        for appender, number in sorted({*self.readings, *present}):
            last, offset = self.reached.get(appender, [-1, 0])
            reading = self.readings.get((appender, number))
            if reading is None:
                is_next = number == last + 1 and (last < 0 or (appender, last) in self.readings)
                if number != last and not is_next:
                    continue
                reading = reading_of(present[appender, number])
                if reading is None:
                    continue
                if number == last:
                    for _ in reading.blocks(end=offset):
                        pass  # These blocks were read before.
                self.readings[appender, number] = reading
            for block in reading.blocks():
                if isinstance(block, Block):
                    yield block
            if number == last:
                self.reached[appender] = [number, max(reading.offset, offset)]
            elif number > last:
                self.reached[appender] = [number, reading.offset]
        self.readings = {place: reading for place, reading in self.readings.items() if place in present}


def _points_of(attempt: int, blocks: Iterator[Block], keys: Collection[str]) -> Iterator[NewPoints]:
    import numpy as np

    for block in blocks:
        wanted = [(column, key) for column, key in enumerate(block.keys, 3) if key in keys]
        if wanted:
            # These are copies, because the rows are the mapped file itself, which must not be kept.
            steps = block.rows[:, 1].astype(np.int64)
            times = block.rows[:, 2].view(np.int64) // 1_000_000
            for column, key in wanted:
                yield NewPoints(attempt, key, steps, times, block.rows[:, column].copy().view(np.float64))


def position_of(json_position: Any) -> Position:
    """Parse a position from JSON, ``{attempt: [segments, {appender: [log segment, offset]}]}``.

    Raises:
        InvalidInput: it is not a position.
    """
    try:
        return {
            _count(int(number)): (
                _count(segments),
                {str(name): [_count(part), _count(offset)] for name, (part, offset) in reached.items()},
            )
            for number, (segments, reached) in json_position.items()
        }
    except (AttributeError, TypeError, ValueError):
        raise InvalidInput(
            f"the position {json_position!s:.80} of a run is not accepted: give one that a follower had"
        ) from None


def _count(number: Any) -> int:
    if isinstance(number, bool) or not isinstance(number, int) or not -1 <= number < 2**53:
        raise ValueError(number)
    return number
