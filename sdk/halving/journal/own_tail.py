"""The unread part of the journal that this process and its forked children write.

This process's own log segments are read from its memory.
"""

import contextlib
from collections.abc import Mapping
from pathlib import Path

from halving.journal.appender import Appender
from halving.journal.format import Block, Reading
from halving.journal.log_segment import MAIN, is_written, log_segment_name
from halving.journal.tail import Source, files_in, reading_of, sources_after


class OwnTail:
    """Reads each record once, and deletes the log segments that are drained.

    Args:
        folder: the attempt's journal folder.
        appender: fills this process's log segments.
    """

    def __init__(self, folder: Path, appender: Appender) -> None:
        self._folder = folder
        self._appender = appender
        self._readings: dict[tuple[str, int], Reading] = {}
        self._ended: list[tuple[str, int]] = []

    def sources(self) -> list[Source]:
        """All log segments, each read up to where it was read before."""
        self._ended = []
        readings: dict[tuple[str, int], Reading] = {}
        for number, log_segment in sorted(self._appender.log_segments.items()):
            if log_segment.sealed:  # looked at before its records are read
                self._ended.append((MAIN, number))
            readings[MAIN, number] = self._readings.get((MAIN, number)) or Reading(
                log_segment.memory, verify=False
            )
        for appender, files in self._child_files().items():
            alive = is_written(files[-1][1])  # here, too
            for number, path in files:
                if reading := self._readings.get((appender, number)) or reading_of(path):
                    readings[appender, number] = reading
                    if not alive or number != files[-1][0]:
                        self._ended.append((appender, number))
        self._readings |= readings
        return [Source(*place, reading) for place, reading in readings.items()]

    def delete_ended(self) -> set[str]:
        """Delete the log segments that nobody fills any more; the store must have all their records.

        Returns:
            The names of appenders that have no log segments left. They never come back.
        """
        for appender, number in self._ended:
            self._readings.pop((appender, number), None)
            path: Path | None = self._folder / log_segment_name(appender, number)
            if appender == MAIN and (log_segment := self._appender.log_segments.pop(number, None)):
                path = log_segment.path
            if path is not None:
                with contextlib.suppress(OSError):
                    path.unlink()
        return {appender for appender, _ in self._ended if appender != MAIN} - {
            appender for appender, _ in self._readings
        }

    def has_children(self, position: Mapping[str, list[int]]) -> bool:
        """Whether a forked child still logs, or has logged more than what was drained up to a position."""
        if any(is_written(path) for files in self._child_files().values() for _, path in files):
            return True
        with contextlib.suppress(OSError):  # the folder was removed
            sources = sources_after(self._folder, position)
            return any(
                next(source.reading.blocks(), None) is not None
                for source in sources
                if source.appender != MAIN
            )
        return False

    def points_in_memory(self, position: Mapping[str, list[int]]) -> int:
        """How many points after a position no disk has taken: they are lost with this process."""
        count = 0
        (last, offset) = position.get(MAIN, [-1, 0])
        for number, log_segment in list(self._appender.log_segments.items()):
            if log_segment.path is None and number >= last:
                blocks = [
                    block
                    for block in Reading(log_segment.memory, verify=False).blocks()
                    if isinstance(block, Block)
                ]
                count += sum(block.points for block in blocks if number > last or block.start >= offset)
        return count

    def _child_files(self) -> dict[str, list[tuple[int, Path]]]:
        return {appender: files for appender, files in files_in(self._folder).items() if appender != MAIN}
