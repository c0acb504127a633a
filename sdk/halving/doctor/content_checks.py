"""Checks of a store's contents, and of the journals of killed processes on this machine."""

import contextlib
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from halving.doctor.checks import ERROR, OK, WARNING, Finding
from halving.errors import HalvingError, NotFound, StoreError
from halving.ingest.recovery import recover
from halving.journal import directory
from halving.store.cold import check_is_of, named_places
from halving.store.cold_roots import check_is_there
from halving.store.store import Store
from halving.text import size

_BLOBS = "artifacts/sha256"
_SHARDS = "shards/sha256"
_DIGEST = re.compile("[0-9a-f]{64}")
_SAMPLE = 200
_SAMPLE_BYTES = 256 << 20
_MAX_NAMED = 5


def check_journals(store: Store) -> Iterator[Finding]:
    """Find journals of dead processes on this machine, whose points are not in the store yet."""
    for reason in sorted(directory.find_untrusted(store)):
        yield Finding(ERROR, reason, "what is in these journals does not reach the store")
    left = [folder for folder in directory.attempt_folders(store) if _is_left(folder)]
    if not left:
        yield Finding(OK, f"no killed process has left points in {directory.journal_home(store)}")
        return
    attempts = [directory.whose(folder) for folder in left]
    listed = ", ".join(
        f"{attempt.project}/{attempt.run} (attempt {attempt.attempt})" for attempt in attempts[:_MAX_NAMED]
    )
    yield Finding(
        WARNING,
        f"killed processes have left the points of {len(left)} attempts in this machine's journals: {listed}",
        "they are not in the store, where others look, and these runs have no end",
        "halving recover",
        lambda: _recover(store),
    )


def check_cold(store: Store) -> Iterator[Finding]:
    """Check that the store's colder places exist, and belong to it."""
    places = named_places(store)
    for place in places:
        try:
            check_is_there(place)
        except HalvingError as error:
            means = (
                "checkpoints, artifacts and media of old runs cannot be read, and neither retention nor a "
                "backup begins"
            )
            yield Finding(
                ERROR,
                str(error),
                means,
                f"mount its disk, or look at its address and credentials: {place.root}",
            )
            continue
        try:
            check_is_of(store, place)
        except HalvingError as error:
            yield Finding(
                WARNING,
                str(error),
                "it is read, but nothing is moved there or deleted in it",
                "as the message says",
            )
        else:
            yield Finding(OK, f"the colder place {place.root} is there")
    if not places:
        yield Finding(OK, "the store has no colder place")


def check_digests(store: Store, *, whole: bool = False) -> Iterator[Finding]:
    """Check that blobs and shards have the content of their names' digests, in colder places, too.

    All are read, or a random sample of each of these, of at most 200 files and 256 MiB.
    """
    reading = _Reading()
    for area in (_BLOBS, _SHARDS):
        reading.look(store, area, whole)
    for place in named_places(store):
        with contextlib.suppress(StoreError):  # check_cold reports a place that does not exist.
            check_is_there(place)
            reading.look(place, _BLOBS, whole)
    for reason in reading.damaged_blobs:
        means = (
            "the checkpoint, artifact or report that it is, or is a part of, cannot be read; a training "
            "that resumes from it fails"
        )
        yield Finding(
            ERROR,
            reason,
            means,
            "bring it back from a backup: halving restore; or put the same content again",
        )
    for reason in reading.damaged_shards:
        means = "trainings on the snapshots that have it fail, or learn from wrong rows"
        yield Finding(
            ERROR,
            reason,
            means,
            "halving datasets fetch brings it back from another store; or a backup: halving restore",
        )
    if reading.damaged_blobs or reading.damaged_shards:
        return
    if reading.too_large and not reading.looked:
        summary = (
            f"each of {reading.too_large} blobs is larger than the sample ({size(_SAMPLE_BYTES)}), so none "
            "was read"
        )
        yield Finding(
            WARNING, summary, "whether they are what their names say is not known", "halving doctor --all"
        )
        return
    summary = f"{reading.looked} blobs and shards ({size(reading.bytes)}) are what their names say"
    if whole:
        yield Finding(OK, f"all {summary}")
    else:
        yield Finding(OK, f"a sample of {summary}; --all reads all")


@dataclass
class _Reading:
    """The result of reading files whose names are their digests.

    Attributes:
        too_large: the number of files that are larger than what is left of a sample.
        damaged_blobs, damaged_shards: a description of each damaged file.
    """

    looked: int = 0
    bytes: int = 0
    too_large: int = 0
    damaged_blobs: list[str] = field(default_factory=list)
    damaged_shards: list[str] = field(default_factory=list)

    def look(self, place: Store, area: str, whole: bool) -> None:
        """Read all files in an area of a place, or a sample.

        Raises:
            StoreError: the place cannot be listed.
        """
        left = _SAMPLE
        left_bytes = _SAMPLE_BYTES
        for name, count in _contents(place, area):
            if not whole and count > left_bytes:
                self.too_large += 1
                continue
            self._read(place, name, count)
            left -= 1
            left_bytes -= count
            if not whole and not left:
                return

    def _read(self, place: Store, name: str, count: int) -> None:
        digest = name.rpartition("/")[2]
        kind = "blob"
        damaged = self.damaged_blobs
        if name.startswith(_SHARDS):
            kind = "shard"
            damaged = self.damaged_shards
        self.looked += 1
        self.bytes += count
        actual = sha256()
        try:
            for part in place.parts(name):
                actual.update(part)
        except NotFound:  # It was collected meanwhile.
            return
        except StoreError as error:
            damaged.append(str(error))
            return
        if actual.hexdigest() != digest:
            damaged.append(
                f"the {kind} sha256:{digest} in {place.root} is damaged: its content hashes to "
                f"sha256:{actual.hexdigest()}"
            )


def _contents(place: Store, area: str) -> Iterator[tuple[str, int]]:
    """The names and sizes of files that are named by their digests, folder by folder in random order."""
    folders = place.names(area)
    random.shuffle(folders)
    for folder in folders:
        for name, count, _ in place.files(f"{area}/{folder}"):
            if _DIGEST.fullmatch(name.rpartition("/")[2]):
                yield name, count


def _is_left(folder: Path) -> bool:
    if not directory.claim(folder):
        return False  # A living process writes it.
    directory.release(folder, remove=False)
    return True


def _recover(store: Store) -> str:
    attempts = recover(store)
    done = [attempt for attempt in attempts if attempt.state == "recovered"]
    points = sum(attempt.points for attempt in done)
    return f"{points} points of {len(done)} attempts were written into the store"
