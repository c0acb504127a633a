"""What waits for a client that does not keep up."""

import asyncio

from server.live.subscription import POINTS, Backlog, Event, Subscription

RUN = ("digits", "a")


async def waiting(max_bytes: int, *events: Event) -> list[str] | None:
    subscription = Subscription([RUN], ["loss"], asyncio.get_running_loop(), max_bytes)
    subscription.put(RUN, events, "here")
    subscription.wake()
    batch = await subscription.next()
    return None if batch is None else [event.name for event in batch[0]]


def test_points_are_dropped_and_what_a_run_became_is_not() -> None:
    state = Event.of("run", {"status": "finished"})
    end = Event.of("end", {})
    assert asyncio.run(waiting(500, state, Event.of(POINTS, {"x": [1] * 1_000}), end)) == [
        "resync",
        "run",
        "end",
    ]


def test_a_client_that_takes_nothing_at_all_is_left() -> None:
    assert asyncio.run(waiting(500, *[Event.of("run", {"status": "running"})] * 100)) is None


def test_the_backlog_of_all_clients_is_bounded_and_the_slowest_loses_points() -> None:
    async def streams() -> None:
        loop = asyncio.get_running_loop()
        backlog = Backlog(10_000)
        slow, quick, left = (Subscription([RUN], ["loss"], loop, backlog=backlog) for _ in range(3))
        state = Event.of("run", {"status": "running"})
        points = Event(POINTS, b"x" * 1_000)
        left.put(RUN, [points] * 3, "left")
        left.close()
        quick.put(RUN, [points], "here")
        slow.put(RUN, [state, *[points] * 8], "here")
        assert slow.bytes > 8_000  # what waited for the one that left counts no longer
        for place in range(50):
            quick.put(RUN, [points], str(place))
            assert slow.bytes + quick.bytes <= 10_000
            if place == 1:
                assert slow.bytes < 1_000
        quick.wake()
        slow.wake()
        events, _ = await slow.next() or ([], None)
        assert [event.name for event in events] == ["resync", "run"]

    asyncio.run(streams())


def test_much_that_waits_is_taken_in_parts_and_the_position_comes_after_the_last() -> None:
    async def parts() -> None:
        subscription = Subscription([RUN], ["loss"], asyncio.get_running_loop())
        points = [Event(POINTS, bytes([place]) * 50_000) for place in range(9)]
        subscription.put(RUN, points, "here")
        subscription.wake()
        taken = []
        positions = None
        while positions is None:
            batch = await subscription.next()
            assert batch is not None
            assert sum(len(event.sent) for event in batch[0]) < 200_000
            taken += batch[0]
            positions = batch[1]
        assert (taken, positions, subscription.bytes) == (points, {RUN: "here"}, 0)

    asyncio.run(parts())
