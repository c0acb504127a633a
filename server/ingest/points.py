"""Append batches of points to runs, each batch once.

It holds whatever is sent again, and whichever replica takes it.
"""

import json
import threading
from collections import OrderedDict
from typing import NamedTuple

import pyarrow.parquet as pq

from halving.errors import AlreadyExists, HalvingError, NotFound
from halving.metrics.manifest import Absorbed, newest_generation, read_manifest, run_files
from halving.metrics.position import segments_of
from halving.metrics.segments import BATCH, DRAINED, batch_of, encode, live_folder, points_table, segment_name
from halving.store.store import Store
from server.ingest.batch import Columns

_ATTEMPTS = 20_000  # of which the next sequence is remembered


class Attempt(NamedTuple):
    """The attempt that a batch belongs to."""

    project: str
    run: str
    number: int


class OutOfOrder(HalvingError):
    """A batch whose sequence is not the next one, and that is not known to be in the store.

    Attributes:
        next: the sequence to go on with.
    """

    def __init__(self, attempt: Attempt, sequence: int, why: str, expected: int) -> None:
        super().__init__(
            f"sequence = {sequence} of attempt {attempt.number} of {attempt.project}/{attempt.run} {why}"
        )
        self.next = expected


class _Next(NamedTuple):
    """An attempt's next sequence, which no manifest up to ``generation`` has absorbed."""

    sequence: int
    generation: int


class IngestedPoints:
    """Appends batches to attempts.

    Several threads, and several servers on one store, may append to one attempt.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._next: OrderedDict[Attempt, _Next] = OrderedDict()
        self._lock = threading.Lock()

    def append(self, attempt: Attempt, sequence: int, columns: Columns, digest: str) -> None:
        """Store a batch as the attempt's segment with this number, unless it is there already.

        It is durable when this returns.

        Args:
            digest: of the batch, by which it is known again.

        Raises:
            NotFound: the attempt was never begun.
            OutOfOrder: a batch before it is missing, or it comes so late that it can be compared no more.
            AlreadyExists: there is another batch with this number.
            StoreError: the store refuses.
        """
        following = self._next.get(attempt)
        if following is None or sequence != following.sequence:
            following = self._look(attempt)
            if sequence > following.sequence:
                why = f"comes too early: {following.sequence} is the next; send one batch after the other"
                raise OutOfOrder(attempt, sequence, why, following.sequence)
            if sequence < following.sequence:
                self._check_same(attempt, sequence, digest)
                return
        metadata = {BATCH: digest.encode()}
        if columns.drained:
            metadata[DRAINED] = json.dumps(columns.drained).encode()
        table = points_table(attempt.run, attempt.number, *columns[:5])
        try:
            self._store.create(_name(attempt, sequence), encode(table, metadata))
        except AlreadyExists:  # another server has taken it, or one that was killed before it said so
            self._check_same(attempt, sequence, digest)
        else:
            self._check_live(attempt, sequence, digest, following.generation)
        self._remember(attempt, sequence + 1)

    def next_sequence(self, attempt: Attempt) -> int:
        """The sequence of the batch to send next.

        Raises:
            NotFound: the attempt was never begun.
        """
        return self._look(attempt).sequence

    def _look(self, attempt: Attempt) -> _Next:
        """Look up the next sequence in the store."""
        folder = f"runs/project={attempt.project}/{attempt.run}"
        if attempt not in self._next and not _is_begun(self._store, folder, attempt.number):
            raise NotFound(
                f"no attempt {attempt.number} of run {attempt.run!r} in project {attempt.project!r}: begin "
                "it first"
            )
        files = run_files(self._store, attempt.project, attempt.run)
        absorbed = files.manifest.absorbed.get(attempt.number, Absorbed(0))
        expected = max(absorbed.segments, *(number + 1 for number in segments_of(files, attempt.number)), 0)
        self._remember(attempt, expected, files.manifest.generation)
        return _Next(expected, files.manifest.generation)

    def _check_live(self, attempt: Attempt, sequence: int, digest: str, generation: int) -> None:
        """Refuse a batch that was created in place of another one, which a compaction has absorbed.

        A segment is deleted only after the manifest that absorbs it is published. So where the name was free
        because another server's segment had been there, the manifest says so now. This is looked up for every
        batch, because no time is too short for another server and a compaction; while it is the
        ``generation`` of which the sequence was known to be the next, a listing is all it takes.
        """
        if newest_generation(self._store, attempt.project, attempt.run) == generation:
            return
        manifest = read_manifest(self._store, attempt.project, attempt.run)
        absorbed = manifest.absorbed.get(attempt.number, Absorbed(0)).segments
        if sequence < absorbed:
            # Readers do not need it, even if it is this batch that was absorbed.
            self._store.delete(_name(attempt, sequence))
            self._check_same(attempt, sequence, digest)
        self._remember(attempt, max(sequence + 1, absorbed), manifest.generation)

    def _check_same(self, attempt: Attempt, sequence: int, digest: str) -> None:
        """Refuse a batch if the store has another one with its number.

        The last batches that a compaction absorbed are compared, too.

        One that was absorbed long ago is refused, too: it may be another one, and who sends it does not know
        where the attempt is.
        """
        stored = self._digest_of(attempt, sequence)
        if not stored:
            expected = self._look(attempt).sequence
            raise OutOfOrder(
                attempt,
                sequence,
                f"is taken long since and was not compared: {expected} is the next",
                expected,
            )
        if not digest.startswith(stored):
            raise AlreadyExists(
                f"attempt {attempt.number} of {attempt.project}/{attempt.run} has another batch with "
                f"sequence = {sequence}: two clients write this attempt; begin one for each"
            )

    def _digest_of(self, attempt: Attempt, sequence: int) -> str:
        """The first digits of the digest of the stored batch with this number; empty if not known."""
        try:
            with self._store.open_file(_name(attempt, sequence)) as file:
                digest = batch_of(pq.read_metadata(file).metadata)
        except NotFound:
            digest = ""
        absorbed = read_manifest(self._store, attempt.project, attempt.run).absorbed.get(
            attempt.number, Absorbed(0)
        )
        if sequence >= absorbed.segments:
            return digest
        return absorbed.batches.get(str(sequence), "")

    def _remember(self, attempt: Attempt, expected: int, generation: int = 0) -> None:
        with self._lock:
            before = self._next.get(attempt, _Next(0, 0))
            self._next[attempt] = _Next(max(expected, before.sequence), max(generation, before.generation))
            self._next.move_to_end(attempt)
            while len(self._next) > _ATTEMPTS:
                self._next.popitem(last=False)


def _name(attempt: Attempt, sequence: int) -> str:
    return f"{live_folder(attempt.project, attempt.run)}/{segment_name(attempt.number, sequence)}"


def _is_begun(store: Store, folder: str, number: int) -> bool:
    if store.exists(f"{folder}/start-{number:04d}.json"):
        return True
    try:
        return int(json.loads(store.read(f"{folder}/record.json"))["attempt"]) == number
    except NotFound:
        return False
