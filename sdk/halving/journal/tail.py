"""The tail of a journal: the records that the store does not have yet.

How far the store has got is a position: the name of an appender to the number of its log segment and the
offset in it, as each segment of points records it. So draining, recovery and reading agree on what is
missing, and no point is written or shown twice.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from halving.journal.format import Block, Reading
from halving.journal.log_segment import log_segment_files, map_log_segment

_YIELD_EVERY = 64  # keys handled between two chances for other threads


class Source(NamedTuple):
    """A log segment to read from."""

    appender: str
    number: int
    reading: Reading


class Columns(NamedTuple):
    """Points sorted by key, and within a key as they were logged.

    Attributes:
        keys: the distinct keys, sorted.
        codes: int32 array of shape (n,): each point's place in ``keys``.
        steps: int64, (n,).
        times: ms since 1970, int64, (n,).
        values: float64, (n,).
    """

    keys: list[str]
    codes: Any
    steps: Any
    times: Any
    values: Any

    def last(self) -> dict[str, float]:
        """Each key's value that was logged last."""
        import numpy as np

        ends = np.flatnonzero(np.diff(self.codes, append=-1))
        return dict(zip(self.keys, self.values[ends].tolist(), strict=True))


class Follower:
    """Reads what is logged into journals, each record once."""

    def __init__(self) -> None:
        self._readings: dict[Path, Reading] = {}  # each has read what was there at the last call

    def new_records(self, folders: Iterable[Path]) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
        """What is new in attempts' folders: keys, their steps (n,) and their values (n, number of keys)."""
        import numpy as np

        paths = [path for folder in folders for files in files_in(folder).values() for _, path in files]
        self._readings = {path: reading for path, reading in self._readings.items() if path in paths}
        for path in paths:
            reading = self._readings.get(path) or reading_of(path)
            if reading is None:
                continue
            self._readings[path] = reading
            for block in reading.blocks():
                if isinstance(block, Block):
                    yield block.keys, block.rows[:, 1].view(np.int64), block.rows[:, 3:-1].view(np.float64)


def sources_after(folder: Path, position: Mapping[str, list[int]]) -> list[Source]:
    """The log segments in an attempt's folder from a position on.

    Raises:
        OSError: the folder is gone, or cannot be read.
    """
    sources = []
    for appender, files in log_segment_files(folder).items():
        first, offset = position.get(appender, [-1, 0])
        for number, path in files:
            if number < first or (reading := reading_of(path)) is None:
                continue
            if number == first:
                for _ in reading.blocks(end=offset):
                    pass
            sources.append(Source(appender, number, reading))
    return sources


def points_after(folder: Path, position: Mapping[str, list[int]]) -> Columns | None:
    """The points in an attempt's folder from a position on; None where there are none.

    It raises as :func:`sources_after` does.
    """
    sources = sources_after(folder, position)
    blocks = [block for source in sources for block in source.reading.blocks() if isinstance(block, Block)]
    if not blocks:
        return None
    return columns_of(blocks)


def columns_of(blocks: Iterable[Block]) -> Columns:
    """The points of at least one block of records, as columns."""
    import numpy as np

    # The steps, times, values and places in the log, by key.
    parts: dict[str, list[tuple[Any, Any, Any, Any]]] = {}
    for names, rows, places in _by_keys(blocks):
        whole = rows.view(np.int64)
        values = rows.view(np.float64)
        steps = whole[:, 1]
        times = whole[:, 2] // 1_000_000
        for column, key in enumerate(names, 3):
            parts.setdefault(key, []).append((steps, times, values[:, column], places))
    keys = sorted(parts)
    columns = []
    for number, key in enumerate(keys):
        columns.append(_in_order(parts[key]))
        if number % _YIELD_EVERY == 0:
            time.sleep(0)
    codes = np.repeat(np.arange(len(keys), dtype=np.int32), [len(values) for _, _, values in columns])
    return Columns(keys, codes, *(np.concatenate(column) for column in zip(*columns, strict=True)))


def files_in(folder: Path) -> dict[str, list[tuple[int, Path]]]:
    """The files that :func:`log_segment_files` finds; none where the folder cannot be read."""
    try:
        return log_segment_files(folder)
    except OSError:  # the run has ended and removed it
        return {}


def reading_of(path: Path) -> Reading | None:
    """A reading of another process's log segment.

    None where it was drained meanwhile, is empty, or is no log segment.
    """
    try:
        return Reading(map_log_segment(path), verify=True)
    except (FileNotFoundError, ValueError):
        return None


def _by_keys(blocks: Iterable[Block]) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    """The records of each set of keys joined: keys, rows (n, words), and each row's place in the log (n,)."""
    import numpy as np

    groups: dict[tuple[str, ...], list[tuple[Any, int]]] = {}
    place = 0
    for keys, _, rows in blocks:
        groups.setdefault(keys, []).append((rows, place))
        place += len(rows)
    for keys, parts in groups.items():
        lengths = np.array([len(rows) for rows, _ in parts])
        starts = np.array([start for _, start in parts]) - np.concatenate([[0], np.cumsum(lengths)[:-1]])
        yield (
            keys,
            np.concatenate([rows for rows, _ in parts]),
            np.arange(lengths.sum()) + np.repeat(starts, lengths),
        )


def _in_order(parts: list[tuple[Any, Any, Any, Any]]) -> tuple[Any, Any, Any]:
    """One key's steps, times and values as they were logged."""
    import numpy as np

    if len(parts) == 1:
        return parts[0][:3]
    steps, times, values, places = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.argsort(places)
    return steps[order], times[order], values[order]
