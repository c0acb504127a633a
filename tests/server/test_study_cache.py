"""The cache of studies: each is read once, and a slow one holds up nobody else."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from halving import NotFound
from resources.backend import Backend
from resources.datasets.snapshots import take_snapshot
from resources.execution.external_loops import ExternalLoops
from resources.scheduling.sweeps import open_sweep
from resources.sweep_spec import parse_spec
from server import study_cache as module
from server.study_cache import StudyCache
from tests.backends import SMALL


@pytest.fixture
def studies(backend: Backend) -> list[str]:
    """Two studies whose trials run elsewhere."""
    spec = parse_spec(SMALL)
    snapshot = take_snapshot(backend.store, backend.catalog, spec.dataset)
    return [
        open_sweep(
            backend.catalog, spec, snapshot.digest, driver="api", commit=None, sweep=f"small-{name}"
        ).id
        for name in "ab"
    ]


@pytest.fixture
def cache(backend: Backend) -> Iterator[StudyCache]:
    cache = StudyCache(backend.catalog)
    yield cache
    cache.close()


def test_a_study_that_is_being_read_holds_up_no_other_and_is_read_once(
    cache: StudyCache, studies: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, other = studies
    may_end = threading.Event()
    begun = []

    class Slow(ExternalLoops):
        def __init__(self, catalog: Any, sweep: str, **options: Any) -> None:
            begun.append(sweep)
            if sweep == slow:
                may_end.wait(20)
            super().__init__(catalog, sweep, **options)

    monkeypatch.setattr(module, "ExternalLoops", Slow)
    with ThreadPoolExecutor(4) as pool:
        try:
            waiting = [pool.submit(cache.of, slow) for _ in range(2)]
            assert pool.submit(cache.of, other).result(10).scheduler.id == other
        finally:
            may_end.set()
        first, second = (future.result(10) for future in waiting)
    assert first is second is cache.of(slow)
    assert sorted(begun) == [slow, other]


def test_an_error_is_not_kept_and_a_study_that_there_is_none_of_takes_no_place(
    cache: StudyCache, studies: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MAX_STUDIES", 1)
    loops = cache.of(studies[0])
    for _ in range(2):
        with pytest.raises(NotFound):
            cache.of("none-1")
    assert cache.of(studies[0]) is loops
    cache.of(studies[1])
    assert cache.of(studies[0]) is not loops
