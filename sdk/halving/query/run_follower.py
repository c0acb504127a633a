"""What a run logs while it is watched: each time only what is new, from the journals on this machine and from
the store's segments.

How far a follower has got is a position in the data, not in the follower: another one goes on from it, in
another process or on another machine. Of each attempt it has the number of its segments that were seen, and
how far its journal was, as each segment records it; so a segment whose points were seen in the journal is not
read. A segment of which only a part was seen is read as a whole, and its points come twice, in the order of
logging: whoever keeps, at each step, the point of the highest attempt that came last has the stitched curve.
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
from halving.store.filesystem import missing_when_gone
from halving.store.store import Store

Position = dict[int, tuple[int, dict[str, list[int]]]]
"""Of each attempt: how many of its segments were seen, and appender to the log segment and the offset in it
that were reached.
"""

BEGINNING: Position = {}
_MOST_SEGMENTS = 300  # that are read in one look; a run writes one in some seconds


class NewPoints(NamedTuple):
    """Points of one key of one attempt, in the order of logging: steps int64, times ms since 1970 int64,
    values float64, each (n,).
    """

    attempt: int
    key: str
    steps: Any
    times: Any
    values: Any


class News(NamedTuple):
    """What is new.

    Attributes:
        complete: False where some of it was left out, because it was more than the limit or retention has
            dropped it. What comes later is complete again; read the curves to have the rest.
    """

    points: list[NewPoints]
    complete: bool


class RunFollower:
    """Follows one run. To be used by one thread at a time.

    Args:
        position: go on from here; None: from now on.

    Raises:
        StoreError: the store cannot be read; here and in :meth:`look`, after which the next look is not
            complete.
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
                    # compacted since it was listed: then it is seen from its beginning, and that is left out
                    # below
                    self._attempts[number] = _Attempt(0, {})
            self.look((), 0)
        else:
            self._attempts = {
                number: _Attempt(segments, dict(reached)) for number, (segments, reached) in position.items()
            }

    @property
    def position(self) -> Position:
        """What was seen so far."""
        return {
            number: (attempt.segments, {appender: list(place) for appender, place in attempt.reached.items()})
            for number, attempt in self._attempts.items()
        }

    def look(self, keys: Collection[str], most: int, folders: Collection[Path] | None = None) -> News:
        """What is new of some keys.

        Args:
            most: points; what is more is left out.
            folders: the run's journals on this machine, where they are known already.
        """
        # What a look has read of the journals before the store failed is gone with it.
        self._room = most
        self._complete = not self._is_cut
        self._is_cut = True
        if folders is None:
            folders = directory.attempt_folders(self._store, self._project, self._run)
        # The journals first: what is drained meanwhile is in the segments that are listed after it.
        found = list(self._in_journals(folders, keys))
        listing = self._store.names(live_folder(self._project, self._run)) + self._store.names(
            run_folder(self._project, self._run)
        )
        if listing != self._listing:
            try:
                found += self._in_store(run_files(self._store, self._project, self._run), keys)
                self._listing = listing
            except FileNotFoundError:  # compacted at this moment: the next look finds it in its new place
                self._listing = None
        kept = []
        for points in sorted(found, key=lambda points: points.attempt):
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
                # the run has ended: what is mapped can still be read
                yield from _points_of(number, attempt.new_blocks(None), keys)

    def _in_store(self, files: RunFiles, keys: Collection[str]) -> Iterator[NewPoints]:
        reader = Files(self._store)
        absorbed = files.manifest.absorbed
        for number in sorted({*absorbed, *(attempt for attempt, _ in files.segments.values())}):
            attempt = self._attempts.setdefault(number, _Attempt(0, {}))
            if number in absorbed and absorbed[number].segments > attempt.segments:
                if not attempt.has_seen(absorbed[number].drained):
                    yield from self._compacted(reader, files, number, keys)
                attempt.go_to(absorbed[number].segments, absorbed[number].drained)
            unseen = [
                (sequence, name)
                for sequence, name in sorted(segments_of(files, number).items())
                if sequence >= attempt.segments
            ]
            if len(unseen) > _MOST_SEGMENTS:
                self._complete = self._complete and not keys
                unseen = unseen[-1:]
            for sequence, name in unseen:
                drained = self._drained(name)
                if not attempt.has_seen(drained) and keys:
                    for key, points in reader.segment(self._store.path(name), number, sorted(keys)).items():
                        if len(points.step):
                            yield NewPoints(number, key, points.step, points.time, points.value)
                attempt.go_to(sequence + 1, drained)

    def _compacted(
        self, reader: Files, files: RunFiles, number: int, keys: Collection[str]
    ) -> Iterator[NewPoints]:
        """All points of an attempt that are compacted: which of them were seen cannot be told any more."""
        if files.manifest.history or not files.manifest.full:
            self._complete = False
            return
        path = self._store.path(f"{project_folder(self._project)}/{files.manifest.full}")
        for key in sorted(keys) if files.manifest.points <= self._room else ():
            points = reader.points(path, key, EVERYWHERE)
            own = points.take(points.attempt == number)
            if len(own.step):
                yield NewPoints(number, key, own.step, own.time, own.value)
        self._complete = self._complete and files.manifest.points <= self._room

    def _drained(self, name: str) -> dict[str, list[int]]:
        path = self._store.path(name)
        with missing_when_gone(self._store, path):
            return drained_of(pq.read_metadata(path, filesystem=self._store.filesystem).metadata)


class _Attempt:
    """How much of one attempt was seen, and the log segments that are being read."""

    def __init__(self, segments: int, reached: dict[str, list[int]]) -> None:
        self.segments = segments
        self.reached = reached
        self.readings: dict[tuple[str, int], Reading] = {}

    def has_seen(self, drained: Mapping[str, list[int]]) -> bool:
        """Whether the journal was read as far as it was drained with a segment."""
        return bool(drained) and all(
            self.reached.get(appender, [-1, 0]) >= place for appender, place in drained.items()
        )

    def go_to(self, segments: int, drained: Mapping[str, list[int]]) -> None:
        """So many segments were seen, the last of which was drained up to here."""
        read = {appender for appender, _ in self.readings}
        merged = {
            appender: max(self.reached.get(appender, [-1, 0]), list(place))
            for appender, place in drained.items()
        }
        self.segments, self.reached = (
            segments,
            {**{name: place for name, place in self.reached.items() if name in read}, **merged},
        )

    def new_blocks(self, folder: Path | None) -> Iterator[Block]:
        """What is new in the attempt's journal; None where that is removed: what is left is what was mapped
        before.

        A log segment is only read when the one before it was, to its end: else what is between them is in the
        store's segments, and comes first.
        """
        present = {
            (appender, number): path
            for appender, files in (files_in(folder) if folder else {}).items()
            for number, path in files
        }
        for appender, number in sorted({*self.readings, *present}):
            last, offset = self.reached.get(appender, [-1, 0])
            reading = self.readings.get((appender, number))
            if reading is None:
                is_next = number == last + 1 and (last < 0 or (appender, last) in self.readings)
                if (
                    not (number == last or is_next)
                    or (reading := reading_of(present[appender, number])) is None
                ):
                    continue
                for _ in reading.blocks(end=offset) if number == last else ():
                    pass
                self.readings[appender, number] = reading
            for found in reading.blocks():
                if isinstance(found, Block):
                    yield found
            if number >= last:
                self.reached[appender] = [number, max(reading.offset, offset if number == last else 0)]
        self.readings = {place: reading for place, reading in self.readings.items() if place in present}


def _points_of(attempt: int, blocks: Iterator[Block], keys: Collection[str]) -> Iterator[NewPoints]:
    import numpy as np

    for block in blocks:
        wanted = [(column, key) for column, key in enumerate(block.keys, 3) if key in keys]
        if wanted:
            # Copies: the rows are the mapped file itself, which must not be held.
            steps = block.rows[:, 1].astype(np.int64)
            times = block.rows[:, 2].view(np.int64) // 1_000_000
            for column, key in wanted:
                yield NewPoints(attempt, key, steps, times, block.rows[:, column].copy().view(np.float64))


def position_of(plain: Any) -> Position:
    """A position that was written as JSON, ``{attempt: [segments, {appender: [log segment, offset]}]}``.

    Raises:
        InvalidInput: it is none.
    """
    try:
        return {
            _count(int(number)): (
                _count(segments),
                {str(name): [_count(part), _count(offset)] for name, (part, offset) in reached.items()},
            )
            for number, (segments, reached) in plain.items()
        }
    except (AttributeError, TypeError, ValueError):
        raise InvalidInput(
            f"the position {plain!s:.80} of a run is not accepted: give one that a follower had"
        ) from None


def _count(number: Any) -> int:
    if isinstance(number, bool) or not isinstance(number, int) or not -1 <= number < 2**53:
        raise ValueError(number)
    return number
