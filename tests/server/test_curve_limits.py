"""Limits on queries for curves: equal ones once, few at a time, none too long or too large, and a bounded memory of answers."""

import asyncio
import threading
import time

import pytest

from halving import InvalidInput
from server.curves.cache import Cache
from server.curves.limits import Budget, Limiter, Overloaded


def test_equal_questions_are_asked_once_and_two_run_at_a_time() -> None:
    running, most, asked = 0, 0, []
    lock = threading.Lock()

    def query(name: str) -> bytes:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
            asked.append(name)
        time.sleep(0.05)
        with lock:
            running -= 1
        return name.encode()

    async def ask() -> list[bytes]:
        limiter = Limiter(threads=2)
        return await asyncio.gather(*(limiter.answer(name, lambda _, name=name: query(name)) for name in "abcdabcd"))

    assert asyncio.run(ask()) == [name.encode() for name in "abcdabcd"]
    assert (sorted(asked), most) == (list("abcd"), 2)


def test_an_error_reaches_all_who_asked_and_is_not_kept() -> None:
    answers: list[bytes | None] = [b"later", None]

    def query(_: Budget) -> bytes:
        found = answers.pop()
        if found is None:
            time.sleep(0.05)
            raise InvalidInput("no")
        return found

    async def ask() -> None:
        limiter = Limiter()
        both = await asyncio.gather(*(limiter.answer("a", query) for _ in range(2)), return_exceptions=True)
        assert [type(one) for one in both] == [InvalidInput, InvalidInput]
        assert await limiter.answer("a", query) == b"later"

    asyncio.run(ask())


def test_a_question_that_takes_too_long_or_waits_behind_too_many_is_refused() -> None:
    ends = threading.Event()

    def query(budget: Budget) -> bytes:
        ends.wait(5)
        budget.spend(0)
        return b""

    async def ask() -> None:
        limiter = Limiter(threads=1, seconds=0.2, waiting=2)
        first, second = (asyncio.ensure_future(limiter.answer(name, query)) for name in "ab")
        await asyncio.sleep(0)
        with pytest.raises(Overloaded, match="2 questions for curves wait already"):
            await limiter.answer("c", query)
        for one in (first, second):
            with pytest.raises(Overloaded, match=r"not read within 0\.2 s"):
                await one
        ends.set()

    asyncio.run(ask())


def test_an_answer_has_no_more_rows_than_the_limit() -> None:
    budget = Budget(10, rows=100)
    budget.spend(60)
    with pytest.raises(InvalidInput, match="more than 100 rows"):
        budget.spend(41)


def test_the_memory_of_answers_is_bounded_and_keeps_what_was_asked_for_last() -> None:
    cache = Cache(most=100)
    for name in "abc":
        cache.put(name, b"x" * 33)
    assert cache.get("a") is not None
    cache.put("d", b"x" * 33)
    assert [cache.get(name) is not None for name in "abcd"] == [True, False, True, True]
    cache.put("e", b"x" * 101)
    assert [cache.get(name) for name in "abcde"] == [None] * 5
    cache.put("f", b"x" * 100)
    assert cache.get("f") == b"x" * 100
