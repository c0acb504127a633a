"""The fair queue: never more at a time than there are, in all and of one token, and an end to waiting."""

import asyncio
from collections import Counter

import pytest

from server.errors import Busy
from server.fair_queue import FairQueue


def test_no_more_questions_are_answered_at_a_time_than_in_all_and_of_one_token() -> None:
    queue = FairQueue(3, 2)
    now = Counter[str]()
    highest = Counter[str]()

    async def ask(token: str) -> None:
        async with queue.turn(token):
            now[token] += 1
            highest[token], highest["all"] = max(highest[token], now[token]), max(highest["all"], now.total())
            await asyncio.sleep(0)
            now[token] -= 1

    async def all_ask() -> None:
        await asyncio.gather(*(ask(token) for token in ("ada", "bob", "eve") for _ in range(10)))

    asyncio.run(all_ask())
    assert (highest.pop("all"), max(highest.values())) == (3, 2)


def test_one_tokens_slow_questions_leave_turns_to_others_and_are_bounded() -> None:
    async def slow_and_others() -> None:
        queue = FairQueue(2, 1, waiting=2)
        ended = asyncio.Event()

        async def slow() -> None:
            async with queue.turn("ada"):
                await ended.wait()

        asking = [asyncio.create_task(slow()) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(Busy, match="2 requests like this one"):
            async with queue.turn("ada"):
                pass
        async with queue.turn("bob"):
            pass
        ended.set()
        await asyncio.gather(*asking)

    asyncio.run(slow_and_others())


def test_a_question_that_failed_or_was_given_up_leaves_its_turn() -> None:
    async def one_after_another() -> None:
        queue = FairQueue(1, 1, seconds=0.01)
        with pytest.raises(ZeroDivisionError):
            async with queue.turn("ada"):
                raise ZeroDivisionError
        async with queue.turn("ada"):
            with pytest.raises(Busy, match="no turn within"):
                async with queue.turn("bob"):
                    pass
        async with queue.turn("bob"):
            pass

    asyncio.run(one_after_another())
