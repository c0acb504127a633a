"""Pages of links: each built once in some seconds, in bounded memory, a few at a time."""

import asyncio

import pytest

from halving.errors import NotFound
from server.links.page_cache import FRESH_SECONDS, PageCache
from server.links.pages import SealedPage


class Building:
    """Counts how often pages are built; each of them has so many bytes."""

    def __init__(self, size: int = 10) -> None:
        self.count = 0
        self._size = size

    def __call__(self) -> SealedPage:
        self.count += 1
        return SealedPage(b"x" * self._size, "sandbox")


def test_many_who_open_a_link_at_once_have_its_page_built_once() -> None:
    building = Building()
    now = [100.0]
    cache = PageCache(clock=lambda: now[0])

    async def open_together(count: int) -> None:
        pages = await asyncio.gather(*(cache.page("a", building) for _ in range(count)))
        assert {page.html for page in pages} == {b"x" * 10}

    asyncio.run(open_together(40))
    assert building.count == 1
    now[0] += FRESH_SECONDS + 0.1
    asyncio.run(cache.page("a", building))
    assert building.count == 2


def test_the_page_that_was_opened_the_longest_time_ago_leaves_memory_first() -> None:
    cache = PageCache(max_bytes=25)
    building = {name: Building() for name in "abc"}

    async def open_in_turn(names: str) -> None:
        for name in names:
            await cache.page(name, building[name])

    asyncio.run(open_in_turn("abac"))
    asyncio.run(open_in_turn("ab"))
    assert {name: each.count for name, each in building.items()} == {"a": 1, "b": 2, "c": 1}


def test_a_page_that_is_larger_than_memory_allows_is_shown_and_not_kept() -> None:
    cache = PageCache(max_bytes=5)
    building = Building()
    assert len(asyncio.run(cache.page("a", building)).html) == 10
    asyncio.run(cache.page("a", building))
    assert building.count == 2


def test_what_ends_a_link_takes_its_page_out_of_memory() -> None:
    cache = PageCache()
    building = Building()
    asyncio.run(cache.page("a", building))
    cache.forget("a")
    cache.forget("a")
    asyncio.run(cache.page("a", building))
    assert building.count == 2


def test_what_cannot_be_built_is_tried_again_after_some_seconds() -> None:
    now = [100.0]
    cache = PageCache(clock=lambda: now[0])
    tries = []

    def gone() -> SealedPage:
        tries.append(now[0])
        raise NotFound("no such run")

    for _ in range(3):
        with pytest.raises(NotFound, match="no such run"):
            asyncio.run(cache.page("a", gone))
    assert len(tries) == 1
    now[0] += FRESH_SECONDS + 0.1
    assert asyncio.run(cache.page("a", Building())).policy == "sandbox"
