"""Copies a run of another tool into the store; a copy that was stopped goes on where it stopped.

Nothing is copied twice: each segment, and the end of each attempt, records how far the source was read. A run
that has grown since it was copied gets another attempt with its new points, like a training that was
continued.
"""

import contextlib
import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from halving.errors import AlreadyExists, NotFound
from halving.identifiers import artifact_record, is_artifact_name
from halving.imports.copied import Progress, compare_facts, read_progress, read_record
from halving.imports.foreign_run import ForeignRun, MediaPoint, Piece, Position, Skipped, iso
from halving.imports.reading import T, reading
from halving.metrics.segments import DRAINED, encode, live_folder, points_table, segment_name
from halving.query.curve_stats import fill_last
from halving.query.runs import read_run
from halving.records.provenance import NOT_CAPTURED
from halving.records.run_record import RunRecords
from halving.store.json_files import to_json
from halving.store.store import Store

_PLURALS = {"audio": "audio clips", "html": "HTML"}


class CopyOutcome(NamedTuple):
    """The result of copying a run, with the numbers of points, media and artifacts that were copied.

    Attributes:
        outcome: ``new``, ``continued`` (a part of it was in the store already) or ``unchanged``.
    """

    outcome: str
    points: int
    media: int
    artifacts: int


class CopiedMeanwhile(AlreadyExists):
    """Another process copies the same run at this moment; what it copies is not copied here."""


def copy_run(
    store: Store, run: ForeignRun, skipped: Skipped, taken: Counter[str], *, following: bool = False
) -> CopyOutcome:
    """Copy what the store does not have of a run. It may be killed and called again.

    Args:
        following: the run is copied while it is written: until it has ended, its params and new tags are as
            its tool has them, and its files come with its end.
        taken: the counts of what is copied, by kind (``points``, ``images``, ``artifacts``, …), are added to
            it, also if an error ends the copying.

    Raises:
        AlreadyExists: another run has this name.
        CopiedMeanwhile: another process copies this one.
        SourceUnreadable: something of the run cannot be read; what came before it is copied.
        StoreError: the store refuses, or is unavailable.
    """
    records = RunRecords(store, run.project, run.run)
    record = read_record(records, run)
    before = Progress(1, 0, {}, ended=False)
    if record:
        before = read_progress(store, records)
        compare_facts(records, record, run, skipped, amending=following and not before.ended)
    pieces = _read(run, run.pieces(before.position))
    piece = next(pieces, None)
    if record and before.ended and piece is None:
        artifacts = _copy_artifacts(records, run, skipped, taken)
        _compare_summary(records, run, before, skipped)
        outcome = "continued" if artifacts else "unchanged"
        return CopyOutcome(outcome, 0, 0, artifacts)
    attempt = _begin(records, run, record, before, piece)
    if not record:
        taken.update(params=len(run.params), tags=len(run.tags))
    sequence = before.sequence
    if before.ended:
        sequence = 0
    copy = _AttemptCopy(store, records, attempt, sequence, before.position, taken)
    while piece is not None:
        copy.write(piece)
        piece = next(pieces, None)
    artifacts = 0
    if not following or run.status is not None:
        artifacts = _copy_artifacts(records, run, skipped, taken)
    if run.status is not None:
        copy.end(run.status, run.ended or run.started, run.summary)
    elif record and not copy.points + copy.media + artifacts:
        return CopyOutcome("unchanged", 0, 0, 0)
    outcome = "continued" if record else "new"
    return CopyOutcome(outcome, copy.points, copy.media, artifacts)


def _read(run: ForeignRun, parts: Iterable[T]) -> Iterator[T]:
    with reading(f"{run.origin['tool']}'s run {run.origin['run']}"):
        yield from parts


def _begin(
    records: RunRecords,
    run: ForeignRun,
    record: dict[str, Any] | None,
    before: Progress,
    piece: Piece | None,
) -> int:
    """The attempt to write: a new run's first, the one that has not ended, or a new one."""
    if record and not before.ended:
        return before.attempt
    git = run.provenance.get("git")
    unknown = {"dirty": None, "error": f"not recorded by {run.origin['tool']}"}
    params = run.params
    started = run.started
    if record:
        params = record["params"]
        if piece and piece.times:
            started = iso(min(piece.times))
    began = {
        "provenance": NOT_CAPTURED | run.provenance | {"git": git and {**unknown, **git}},
        "seed": None,
        "determinism": {},
        "started": started,
        "token": hashlib.sha256(to_json([run.origin, before.position])).hexdigest()[:16],
    }
    parent: dict[str, Any] = {"imported": run.origin}
    if run.tags:
        parent["tags"] = run.tags
    return records.start(params, parent, None, began)


def _compare_summary(records: RunRecords, run: ForeignRun, reached: Progress, skipped: Skipped) -> None:
    """Count a summary that has changed since the run's attempt was copied with its end."""
    end = json.loads(records.store.read(f"{records.folder}/end-{reached.attempt:04d}.json"))
    copied = end.get("summary") or {}
    if to_json({**copied, **run.summary}) != to_json(copied):  # as text, in which NaN equals itself
        skipped.add("runs' later changes of summaries: how an attempt ended never changes here")


def _copy_artifacts(records: RunRecords, run: ForeignRun, skipped: Skipped, taken: Counter[str]) -> int:
    """Copy the files that the run does not have yet, and count them."""
    count = 0
    for artifact in _read(run, run.artifacts()):
        if not is_artifact_name(artifact.name):
            skipped.add("files whose names have control characters, are no UTF-8 or longer than 2,000 bytes")
            continue
        with contextlib.suppress(NotFound):
            copied = json.loads(
                records.store.read(f"{records.folder}/artifacts/{artifact_record(artifact.name)}.json")
            )
            if artifact.size not in (None, copied["bytes"]):
                skipped.add(
                    "artifacts that have another size since they were copied: what is copied never changes "
                    "here"
                )
            continue
        with artifact.open() as content:
            size = len(content) if isinstance(content, bytes) else content.stat().st_size
            records.add_artifact(artifact.name, records.store.put_blob(content), size)
        count += 1
        taken["artifacts"] += 1
    return count


class _AttemptCopy:
    """Writes one attempt's pieces."""

    def __init__(
        self,
        store: Store,
        records: RunRecords,
        attempt: int,
        sequence: int,
        position: Position,
        taken: Counter[str],
    ) -> None:
        self._taken = taken
        self._store = store
        self._records = records
        self._attempt = attempt
        self._sequence = sequence
        self._whole = sequence == 0  # whether all of the attempt's points pass through here
        self._position = position
        self._last = dict[str, float]()
        self._latest = 0
        self.points = 0
        self.media = 0

    def write(self, piece: Piece) -> None:
        """Write a piece's media, and its points as the attempt's next segment."""
        for medium in piece.media:
            self._write_medium(medium)
            self._taken[_PLURALS.get(medium.media.kind, f"{medium.media.kind}s")] += 1
        if piece.values:
            table = _table(self._records.run, self._attempt, piece)
            segment = encode(table, {DRAINED: json.dumps(piece.position).encode()})
            folder = live_folder(self._records.project, self._records.run)
            try:
                self._store.create(f"{folder}/{segment_name(self._attempt, self._sequence)}", segment)
            except AlreadyExists:
                raise CopiedMeanwhile(
                    f"run {self._records.run!r} of project {self._records.project!r} is being copied by "
                    "another process"
                ) from None
            self._sequence += 1
            self._taken["points"] += len(piece.values)
            self._last |= zip((piece.keys[code] for code in piece.codes), piece.values, strict=True)
            self._latest = max(self._latest, *piece.times)
        self._position = piece.position
        self.points += len(piece.values)
        self.media += len(piece.media)

    def end(self, status: str, ended: str, summary: Mapping[str, float]) -> None:
        """Write how the attempt ended, and when, unless its points are later.

        The attempt's summary has the last points of all metrics, and the tool's ``summary`` beside or instead
        of them. A summary of a part of the points would look like one of all. So where the points did not all
        pass through here, they are read back if the tool has a summary, and otherwise there is none.
        """
        counted: dict[str, Any] = {}
        if self._whole:
            counted = {"points": self.points, "summary": {**self._last, **summary}}
        elif summary:
            info = read_run(self._store, self._records.project, self._records.run)
            (info,) = fill_last(self._store, [info])
            counted = {"summary": {**info.summary, **summary}}
        ended = max(ended, iso(self._latest))
        with contextlib.suppress(AlreadyExists):  # another process has just copied the same
            self._records.end(
                self._attempt, {"status": status, "time": ended, "imported": self._position, **counted}
            )
            self._taken["summary values"] += len(summary)

    def _write_medium(self, medium: MediaPoint) -> None:
        media = medium.media
        content = media.encode()
        reference = {
            **media.describe(),
            "kind": media.kind,
            "media_type": media.media_type,
            "caption": media.caption,
            "key": medium.key,
            "step": medium.step,
            "attempt": self._attempt,
            "wall_time": iso(medium.time),
            "digest": self._store.put_blob(content),
            "bytes": len(content),
        }
        name = f"{self._records.folder}/media/{self._attempt:04d}-{medium.place}.json"
        self._store.create(name, to_json(reference), sole=True)


def _table(run: str, attempt: int, piece: Piece) -> Any:
    """Sort the piece's points by key; those of a key stay as logged."""
    import numpy as np

    keys = sorted(piece.keys)
    places = {key: place for place, key in enumerate(keys)}
    codes = np.array([places[key] for key in piece.keys], np.int32)[np.array(piece.codes, np.int32)]
    order = np.argsort(codes, kind="stable")
    columns = (
        np.array(piece.steps, np.int64),
        np.array(piece.times, np.int64),
        np.array(piece.values, np.float64),
    )
    return points_table(run, attempt, keys, codes[order], *(column[order] for column in columns))
