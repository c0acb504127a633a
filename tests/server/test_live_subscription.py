"""What waits for a client that does not keep up."""

import asyncio

from server.live.subscription import POINTS, Event, Subscription

RUN = ("digits", "a")


async def waiting(most: int, *events: Event) -> list[str] | None:
    subscription = Subscription([RUN], ["loss"], asyncio.get_running_loop(), most)
    subscription.put(RUN, events, "here")
    subscription.wake()
    batch = await subscription.next()
    return None if batch is None else [event.name for event in batch[0]]


def test_points_are_dropped_and_what_a_run_became_is_not() -> None:
    state, end = Event.of("run", {"status": "finished"}), Event.of("end", {})
    assert asyncio.run(waiting(500, state, Event.of(POINTS, {"x": [1] * 1_000}), end)) == ["resync", "run", "end"]


def test_a_client_that_takes_nothing_at_all_is_left() -> None:
    assert asyncio.run(waiting(500, *[Event.of("run", {"status": "running"})] * 100)) is None
