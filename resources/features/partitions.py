"""The days of a materialised feature view in the store: immutable Parquet files, and which of them count.

| file | what |
|---|---|
| ``features/NAME/VERSION/day=YYYY-MM-DD/SHA256.parquet`` | the rows whose events are of that day (UTC),
sorted by entity and time | | ``features/NAME/VERSION/day=YYYY-MM-DD/generation-NNNNNN.json`` | names the file
that counts; the highest number does |

The columns are the entity's, ``_event`` and ``_known`` (µs, UTC), then the features. A generation is created
once, so that of two processes that materialise a day at the same time one comes after the other. A file
without a generation is nobody's, because its writer died, and retention deletes it after a week.
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
        sha256: of the file, 64 hex digits.  rows, bytes: of it.
        definition: what the file's columns are.
        first, last: event times of its first and last row, µs since 1970; 0 where it has none.  last_known:
            the latest known time.
        made: what it was made of: the view's spec, the digests of its code, and when.
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
        first, last: only from this day on, or up to that one, both included.

    Raises:
        StoreError: the store cannot be read.
    """
    folder = view_folder(name, version)
    newest: dict[date, tuple[int, str]] = {}
    for path, _, _ in store.files(folder):
        found = _GENERATION.fullmatch(path.removeprefix(f"{folder}/"))
        if found:
            day = date.fromisoformat(found[1])
            generation = int(found[2])
            if (first is None or day >= first) and (last is None or day <= last):
                newest[day] = max(newest.get(day, (0, "")), (generation, path))
    names = [newest[day][1] for day in sorted(newest)]
    if len(names) == 1 or store.folder is not None:
        return [_read(store, name) for name in names]
    with ThreadPoolExecutor(_READERS) as pool:
        return list(pool.map(lambda name: _read(store, name), names))


def partition(store: Store, name: str, version: int, day: date) -> Partition | None:
    """One day of a view, if it is materialised."""
    found = partitions(store, name, version, day, day)
    return found[0] if found else None


def older_generations(store: Store, newest: Partition, first: int) -> list[Partition] | None:
    """A day as it counted before, from generation ``first`` on; None where one of these, or its file, is
    gone.
    """
    folder = day_folder(newest.definition.name, newest.definition.version, newest.day)
    there = {name for name, _, _ in store.files(folder)}
    names = [f"{folder}/generation-{generation:06}.json" for generation in range(first, newest.generation)]
    if not there.issuperset(names):
        return None
    older = [_read(store, name) for name in names]
    return older if there.issuperset(partition.name for partition in older) else None


def digest_of_partitions(found: Iterable[Partition]) -> str:
    """``sha256:…`` over the days' files: what a join stood on. It is the same for the same content."""
    lines = sorted(f"{one.definition.key} {one.day} {one.sha256}\n" for one in found)
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
    """Let a file be what counts for a day, and whether that changed anything: the same content again does
    not.

    It may be killed anywhere: then the day is what it was, and the next call does it.

    Args:
        file: on this machine; it is gone when it counts.
        times: of the first and the last event, and of the latest known time.

    Raises:
        StoreError: the store refused, or other processes publish the same day again and again.
    """
    digest = digest_of(file).removeprefix("sha256:")
    size = file.stat().st_size
    for attempt in range(_TRIES):
        current = partition(store, definition.name, definition.version, day)
        if current is not None and current.sha256 == digest:
            return current, False
        generation = 1 if current is None else current.generation + 1
        new = Partition(day, generation, digest, rows, size, definition, *times, made={**made, "at": now()})
        if attempt == 0:
            # Not create(): where a file of this content is there, nobody may name it yet, and retention may
            # be about to delete it.
            store.take_over(new.name, file)
        try:
            store.create(f"{new.name.rpartition('/')[0]}/generation-{generation:06}.json", _written(new))
        except AlreadyExists:
            continue  # another process was faster
        return new, True
    raise StoreError(
        f"other processes publish {definition.key} of {day} again and again; materialise it once more"
    )


def _written(new: Partition) -> bytes:
    # As a text, because JSON of the store is sorted, and the order of a definition's names counts.
    return to_json({**asdict(new), "day": new.day.isoformat(), "definition": new.definition.to_json()})


def _read(store: Store, name: str) -> Partition:
    try:
        given = json.loads(store.read(name))
        return Partition(
            **{
                **given,
                "day": date.fromisoformat(given["day"]),
                "definition": Definition.from_json(given["definition"]),
            }
        )
    except NotFound:
        raise StoreError(f"{store.address(name)} was deleted while it was read") from None
    except (ValueError, TypeError, KeyError) as error:
        raise StoreError(f"{store.address(name)} is damaged: {error}") from error
