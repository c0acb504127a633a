"""A store that is short of room or does not answer is told, and so is its end."""

from collections import namedtuple
from pathlib import Path

import pytest
from sqlalchemy import select

from halving import Store
from halving.errors import StoreUnavailable
from resources.backend import Backend
from resources.catalog import AlertRow
from resources.watch import Watch
from resources.watch.shortage import AWAY_SECONDS, StoreLooks, is_short

GB = 1 << 30


@pytest.mark.parametrize(
    ("free", "total", "short"),
    [
        (40 * GB, 1_000 * GB, True),
        (50 * GB, 1_000 * GB, False),
        (51 * GB, 100_000 * GB, False),
        (49 * GB, 100_000 * GB, True),
        (GB - 1, 2 * GB, True),
        (GB, 2 * GB, False),
    ],
)
def test_room_is_short_below_a_twentieth_fifty_gib_or_one(free: int, total: int, short: bool) -> None:
    assert is_short(free, total) is short


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


def watch_of(backend: Backend, clock: Clock) -> Watch:
    watch = Watch(backend.catalog, backend.store)
    watch._store_looks = StoreLooks(backend.store, clock)
    watch.look()
    return watch


def titles(backend: Backend) -> list[str]:
    with backend.catalog.read() as session:
        return list(session.scalars(select(AlertRow.title).order_by(AlertRow.id)))


def test_a_full_disk_is_told_until_there_is_room(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    free = [500 * GB]
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage(1_000 * GB, 0, free[0]))
    clock = Clock()
    watch = watch_of(backend, clock)
    counts = []
    for amount in (500, 10, 9, 200):
        free[0] = amount * GB
        clock.now += 31
        counts.append(watch.look())
    assert counts == [0, 1, 0, 1]
    assert titles(backend) == [
        "the store has 10.0 GiB of 1000.0 GiB left",
        "the store has enough room again",
    ]


def test_a_store_that_is_away_for_a_moment_is_not_told(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    clock = Clock()
    watch = watch_of(backend, clock)
    names = Store.names
    is_away = [False]

    def names_or_error(store: Store, prefix: str) -> list[str]:
        if is_away[0]:
            raise StoreUnavailable("away")
        return names(store, prefix)

    monkeypatch.setattr(Store, "names", names_or_error)
    counts = []
    for away, seconds in ((True, 31), (False, 31), (True, 31), (True, AWAY_SECONDS), (True, 31), (False, 31)):
        is_away[0] = away
        clock.now += seconds
        counts.append(watch.look())
    assert counts == [0, 0, 0, 1, 0, 1]
    assert titles(backend) == ["the store does not answer", "the store answers again"]
