"""The days of a materialised feature view in the store: immutable Parquet files, and which of them count.

In ``features/NAME/VERSION/day=YYYY-MM-DD/``, a file ``SHA256.parquet`` has the rows whose events are of that
day (UTC), sorted by entity and time. ``generation-NNNNNN.json`` names the file that counts; the one with the
highest number is valid.

The columns are the entity's, ``_event`` and ``_known`` (µs, UTC), then the features. A generation is created
only once, so of two processes that materialise a day at the same time one comes after the other. A file
without a generation is left by a writer that died, and retention deletes it after a week.
"""

import json
import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from datetime import date
from hashlib import sha256
from pathlib import Path
from typing import Any

from halving import Store
from halving.errors import AlreadyExists, NotFound, StoreError
from halving.features.definition import Definition
from halving.store.json_files import now, to_json
from halving.store.store import digest_of

_GENERATION = re.compile(r"day=(\d{4}-\d\d-\d\d)/generation-(\d{6,})\.json")
_READERS = 16  # at once, because an object store answers slowly
_TRIES = 100


@dataclass(frozen=True)
class Partition:
    """One day of a view as it counts.

    Attributes:
        sha256: the file's hash, 64 hex digits.
        rows, bytes: the size of the file.
        definition: the view with the file's columns.
        first, last: event times of its first and last row, µs since 1970; 0 without rows.
        last_known: the latest known time.
        made: what it was made of: the view's spec, the digests of its code, and the time.
    """

    day: date
    generation: int
    sha256: str
    rows: int
    bytes: int
    definition: Definition
    first: int
    last: int
    last_known: int
    made: dict[str, Any] = field(default_factory=dict, compare=False)

    @property
    def name(self) -> str:
        """The file's name in the store."""
        return f"{day_folder(self.definition.name, self.definition.version, self.day)}/{self.sha256}.parquet"


def view_folder(name: str, version: int) -> str:
    """``features/clicks/1``."""
    return f"features/{name}/{version}"


def day_folder(name: str, version: int, day: date) -> str:
    """``features/clicks/1/day=2026-11-25``."""
    return f"{view_folder(name, version)}/day={day.isoformat()}"


def partitions(
    store: Store, name: str, version: int, first: date | None = None, last: date | None = None
) -> list[Partition]:
    """The days of a view that are materialised, in order.

    Args:
        first, last: the first and the last day to give.

    Raises:
        StoreError: the store cannot be read.
    """
    folder = view_folder(name, version)
    newest: dict[date, tuple[int, str]] = {}
    for path, _, _ in store.files(folder):
        match = _GENERATION.fullmatch(path.removeprefix(f"{folder}/"))
        if match:
            day = date.fromisoformat(match[1])
            generation = int(match[2])
            if (first is None or day >= first) and (last is None or day <= last):
                newest[day] = max(newest.get(day, (0, "")), (generation, path))
    names = [newest[day][1] for day in sorted(newest)]
    if len(names) == 1 or store.folder is not None:
        return [_read(store, name) for name in names]
    with ThreadPoolExecutor(_READERS) as pool:
        return list(pool.map(lambda name: _read(store, name), names))


def partition(store: Store, name: str, version: int, day: date) -> Partition | None:
    """One day of a view, if it is materialised."""
    return next(iter(partitions(store, name, version, day, day)), None)


def older_generations(store: Store, newest: Partition, first: int) -> list[Partition] | None:
    """The older generations of a day from ``first`` on; None if one of them, or its file, is gone."""
    folder = day_folder(newest.definition.name, newest.definition.version, newest.day)
    there = {name for name, _, _ in store.files(folder)}
    names = [f"{folder}/generation-{generation:06}.json" for generation in range(first, newest.generation)]
    if not there.issuperset(names):
        return None
    older = [_read(store, name) for name in names]
    if not there.issuperset(partition.name for partition in older):
        return None
    return older


def digest_of_partitions(days: Iterable[Partition]) -> str:
    """``sha256:…`` over the files of days, which is the same for the same content."""
    lines = sorted(f"{partition.definition.key} {partition.day} {partition.sha256}\n" for partition in days)
    return "sha256:" + sha256("".join(lines).encode()).hexdigest()


def publish(
    store: Store,
    definition: Definition,
    day: date,
    file: Path,
    rows: int,
    times: tuple[int, int, int],
    made: dict[str, Any],
) -> tuple[Partition, bool]:
    """Publish a file as a day of a view; return the day's partition, and whether anything changed.

    The same content again changes nothing. If it is killed anywhere, the day is what it was, and the next
    call does it.

    Args:
        file: on this machine; it is moved into the store.
        times: the first and the last event, and the latest known time.

    Raises:
        StoreError: the store refused, or other processes publish the same day again and again.
    """
    digest = digest_of(file).removeprefix("sha256:")
    size = file.stat().st_size
    for attempt in range(_TRIES):
        current = partition(store, definition.name, definition.version, day)
        if current is not None and current.sha256 == digest:
            return current, False
        generation = 1
        if current is not None:
            generation += current.generation
        new = Partition(day, generation, digest, rows, size, definition, *times, made={**made, "at": now()})
        if attempt == 0:
            # Not create(): a file of this content may be there that no generation names, and that retention
            # is about to delete.
            store.take_over(new.name, file)
        try:
            store.create(f"{new.name.rpartition('/')[0]}/generation-{generation:06}.json", _to_json(new))
        except AlreadyExists:
            continue  # another process was faster
        return new, True
    raise StoreError(
        f"other processes publish {definition.key} of {day} again and again; materialise it once more"
    )


def _to_json(new: Partition) -> bytes:
    # The definition is a text, because JSON of the store is sorted, and the order of its names counts.
    return to_json({**asdict(new), "day": new.day.isoformat(), "definition": new.definition.to_json()})


def _read(store: Store, name: str) -> Partition:
    try:
        content = json.loads(store.read(name))
        return Partition(
            **{
                **content,
                "day": date.fromisoformat(content["day"]),
                "definition": Definition.from_json(content["definition"]),
            }
        )
    except NotFound:
        raise StoreError(f"{store.address(name)} was deleted while it was read") from None
    except (ValueError, TypeError, KeyError) as error:
        raise StoreError(f"{store.address(name)} is damaged: {error}") from error
