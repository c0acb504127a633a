"""The drain of a journal into segments: records are taken in bulk, sorted by key, encoded and published.

A segment's metadata says how far the journal was drained with it. So a process that continues after a kill
asks the store what it has, and no point arrives twice.
"""

import contextlib
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from halving.errors import BatchMissing
from halving.ingest.segment_sink import sink_of
from halving.journal.format import Block
from halving.journal.tail import Source, columns_of
from halving.journal.trust import media_file, read_file
from halving.metrics.manifest import run_files
from halving.metrics.position import position_in_store
from halving.metrics.segments import points_table
from halving.store.json_files import to_json
from halving.store.retry import warn
from halving.store.store import Store


class Drain:
    """Drains one attempt's journal into the store.

    Attributes:
        sequence: the number of the next segment.
        drained: how far the journal is in the store: name of an appender to ``[number of its log segment,
            offset in it]``.
        points: points published by this object.
        unspooled: bytes of artifacts that are in the store, and no longer in the journal.
        lost_media: artifacts whose content was not in the journal.
        last: key to the value that was logged last, of what was published.
    """

    def __init__(self, store: Store, project: str, run: str, attempt: int, folder: Path) -> None:
        self._store = store
        self._project = project
        self._run = run
        self._attempt = attempt
        self._folder = folder
        self._sink = sink_of(store, project, run, attempt)
        self.sequence = 0
        self.drained: dict[str, list[int]] = {}
        self.points = self.lost_media = self.unspooled = 0
        self.last: dict[str, float] = {}
        self._taken: list[Block] = []
        self._notes: list[tuple[str, dict[str, Any]]] = []  # Each note with the name of its reference.
        self._reached: dict[str, list[int]] = {}
        self._segment: bytes | None = None

    def resume(self) -> None:
        """Continue after what the store has of this attempt."""
        self.sequence, self.drained = position_in_store(
            self._store, self._attempt, run_files(self._store, self._project, self._run)
        )
        self._reached = dict(self.drained)

    def take(self, sources: Iterable[Source]) -> bool:
        """Take what was logged since the last call, up to a segment's worth; False where nothing was."""
        if self._taken or self._notes:
            return True
        taken: list[Block] = []
        notes: list[tuple[str, dict[str, Any]]] = []
        reached = dict(self._reached)
        count = 0
        for appender, number, reading in sources:
            for record in reading.blocks():
                if isinstance(record, Block):
                    taken.append(record)
                    count += record.points
                else:
                    notes.append(
                        (
                            f"{self._attempt:04d}-{appender}-{number:06d}-{record.pop('offset'):08d}.json",
                            record,
                        )
                    )
                if count >= self._sink.max_points:
                    break
            reached[appender] = [number, reading.offset]
            if count >= self._sink.max_points:
                break
        self._taken = taken
        self._notes = notes
        self._reached = reached
        return bool(taken or notes)

    def forget(self, appender: str) -> None:
        """Forget an appender whose records are drained and files deleted; no other gets its name."""
        self._reached.pop(appender, None)

    def publish(self) -> None:
        """Publish what was taken.

        If this raises, what was taken is kept, and the next call writes the very same bytes.

        Raises:
            StoreError: the store refuses.
        """
        while self._notes:
            self._publish_reference(*self._notes[0])
            self._notes.pop(0)
        if not self._taken:
            return
        if self._segment is None:
            columns = columns_of(self._taken)
            self._count = len(columns.values)
            self._last = columns.last()
            self._segment = self._sink.encode(points_table(self._run, self._attempt, *columns), self._reached)
        try:
            self._sink.publish(self.sequence, self._segment)
        except BatchMissing as missing:
            if missing.next > self.sequence:  # somebody else writes this attempt
                raise
            # Acknowledged points are no longer in the journal, so those that are logged from now on must not
            # wait for them.
            warn(
                f"{self._store.root} lacks the points of run {self._run} that it has taken before (batches "
                f"{missing.next} to "
                f"{self.sequence - 1}): was its store restored from a backup? What is logged from now on "
                "is sent on"
            )
            self.sequence = missing.next
            self._sink.publish(self.sequence, self._segment)
        self.sequence += 1
        self.points += self._count
        self.last |= self._last
        self.drained = {appender: list(position) for appender, position in self._reached.items()}
        self._taken = []
        self._segment = None

    def _publish_reference(self, name: str, note: dict[str, Any]) -> None:
        """Store a logged artifact's content, and then the row that refers to it.

        Doing it again writes the same row under the same name.
        """
        target = f"runs/project={self._project}/{self._run}/media/{name}"
        published = self._store.exists(target)
        try:
            spooled = media_file(self._folder, note.get("file"))
            content = b""
            if not published:
                content = read_file(spooled)
        except (OSError, ValueError):
            # It is missing, unreadable, or no artifact, which is no reason to hold up the points after it.
            self.lost_media += not published
            return
        if not published:
            wall_time = datetime.fromtimestamp(note["time"] / 1e9, UTC).isoformat(timespec="milliseconds")
            row = {key: value for key, value in note.items() if key not in ("file", "time")}
            digest = self._store.put_blob(content)
            reference = {
                **row,
                "attempt": self._attempt,
                "wall_time": wall_time,
                "digest": digest,
                "bytes": len(content),
            }
            self._store.create(target, to_json(reference), sole=True)
        with contextlib.suppress(OSError):
            self.unspooled += spooled.stat().st_size
            spooled.unlink()
