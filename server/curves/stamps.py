"""Stamps of runs that change when the runs get points, far cheaper than reading them.

A stamp is made of the store, of when the run was recorded, of the names of its metric files, which never
change, and of how far its journals on this machine are written.
"""

import threading
from collections import defaultdict
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from pathlib import Path

from halving.journal import directory
from halving.journal.format import Reading
from halving.journal.tail import files_in, reading_of
from halving.metrics.manifest import run_folder
from halving.metrics.segments import live_folder
from halving.query.runs import in_threads
from halving.store.store import Store


class Stamps:
    """Makes stamps of a store's runs. What was read of a journal is not read again."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._readings: dict[Path, Reading] = {}
        self._lock = threading.Lock()  # a reading is moved on by one thread at a time

    def of(self, runs: Sequence[tuple[str, str]]) -> list[bytes]:
        """The stamp of each ``(project, run)``; a run without points has one, too.

        Raises:
            StoreError: the store cannot be listed.
        """
        # The journals first: what is drained meanwhile is in the files that are listed after them.
        journals = self._journals()
        if self._store.folder is not None:
            stamps = [self._stamp(run) for run in runs]
        else:
            stamps = list(in_threads(self._stamp, runs))
        return [
            stamp + b"\1" + "\0".join(journals.get(run, ())).encode()
            for run, stamp in zip(runs, stamps, strict=True)
        ]

    def _stamp(self, run: tuple[str, str]) -> bytes:
        names = self._store.names(live_folder(*run)) + self._store.names(run_folder(*run))
        # A run that was deleted and recorded again under its id may have the same names.
        record = self._store.filesystem.get_file_info(
            self._store.path(f"runs/project={run[0]}/{run[1]}/record.json")
        )
        state = (self._store.root, record.mtime_ns, *names)
        return blake2b("\0".join(map(str, state)).encode(), digest_size=16).digest()

    def _journals(self) -> dict[tuple[str, str], list[str]]:
        """How far each journal on this machine is written, by run."""
        positions: dict[tuple[str, str], list[str]] = defaultdict(list)
        with self._lock:
            paths = set()
            for folder in directory.attempt_folders(self._store):
                whose = directory.whose(folder)
                for path in (path for files in files_in(folder).values() for _, path in files):
                    reading = self._readings.get(path) or reading_of(path)
                    if reading is not None:
                        self._readings[path] = reading
                        paths.add(path)
                        for _ in reading.blocks():
                            pass
                        positions[whose.project, whose.run].append(
                            f"{whose.attempt}/{path.name}:{reading.offset}"
                        )
            for path in self._readings.keys() - paths:
                del self._readings[path]
        return positions


def etag_of(kind: str, question: str, stamps: Iterable[bytes]) -> str:
    """The ETag of an answer: a digest of its encoding, the question, and the runs' stamps."""
    digest = blake2b(f"{kind}\0{question}\0".encode(), digest_size=16)
    for stamp in stamps:
        digest.update(stamp + b"\2")
    return f'"{digest.hexdigest()}"'
