"""Live streams from a real server: what a run logs comes soon, once it is there, whoever is killed."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from halving import InvalidInput, NotFound, Store, init
from halving.errors import StoreUnavailable
from halving.maintenance.compaction import compact
from server.live.cursor import cursor_of, positions_of, text_of
from server.live.hub import Hub, TooManyStreams
from server.live.subscription import Event, Subscription
from tests.server.processes import ServerProcess, Stream, server_of
from tests.waiting import wait_for

TRAINER = """
import sys, time
import halving
run = halving.init(project="p", id=sys.argv[1], root=sys.argv[2], system_metrics=None)
for step in range(int(sys.argv[3]), int(sys.argv[4])):
    run.log({"loss": step + 0.5, "other": 1.0}, step=step)
    time.sleep(0.01)
open("logged", "w").close()
if sys.argv[5:] == ["hang"]:
    time.sleep(600)
run.finish()
"""
Training = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture
def server(store: Store) -> Iterator[ServerProcess]:
    with server_of(store.root) as server:
        yield server


@pytest.fixture
def training(store: Store) -> Iterator[Training]:
    """Starts trainers, each of which is gone at the test's end, however that ends."""
    started = []

    def start(*arguments: object) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-c", TRAINER, "r", store.root, *map(str, arguments)]
        started.append(subprocess.Popen(command, cwd=Path(store.root).parent))
        return started[-1]

    yield start
    for trainer in started:
        trainer.kill()
        trainer.wait()


def log_points(
    first: int, end: int, run: str = "p/r", key: str = "loss"
) -> dict[tuple[str, str, int], float]:
    return {(run, key, step): step + 0.5 for step in range(first, end)}


def start(store: Store, run: str = "r") -> Any:
    return init(project="p", id=run, root=store.root, system_metrics=None)


@pytest.mark.slow
def test_points_are_seen_while_the_run_trains_and_then_its_end(store: Store, server: ServerProcess) -> None:
    runs = [start(store, name) for name in ("a", "b")]
    stream = Stream(f"{server.address}/api/v1/live", {"run": ["p/a", "p/b"], "key": ["loss", "acc"]})
    wait_for(lambda: stream.events_named("ready"), 60, "the stream is ready")
    assert sorted(data["run"] for data in stream.events_named("run")) == ["p/a", "p/b"]
    assert {data["status"] for data in stream.events_named("run")} == {"running"}
    for step in range(3):
        runs[0].log({"loss": step + 0.5, "unasked": 1.0}, step=step)
        wait_for(lambda: len(stream.points()) > step, 60, "the point is seen")  # noqa: B023
    (first, *_) = stream.events_named("points")
    assert (first["run"], first["key"], first["attempt"]) == ("p/a", "loss", 1)
    assert abs(first["t"][0] - time.time()) < 10
    runs[1].log({"acc": float("nan")}, step=7)
    runs[1].finish()
    wait_for(lambda: stream.events_named("end"), 5, "the end is seen")
    assert stream.events_named("end") == [{"run": "p/b", "status": "finished"}]
    assert stream.points() == {**log_points(0, 3, "p/a"), ("p/b", "acc", 7): "NaN"}
    runs[0].finish()
    wait_for(lambda: len(stream.events_named("end")) == 2, 5, "the other's end is seen")
    stream.close()


@pytest.mark.slow
def test_a_run_is_streamed_from_its_beginning_to_its_end(
    store: Store, server: ServerProcess, training: Training
) -> None:
    trainer = training(0, 200)
    wait_for(lambda: store.exists("runs/project=p/r/record.json"), 60, "the run has begun")
    stream = Stream(f"{server.address}/api/v1/training-runs/p/r/metrics", {"key": "loss"})
    assert stream.ended.wait(30)
    assert stream.points() == log_points(0, 200)
    assert [event.name for event in stream.events][-2:] in (["end", "at"], ["end", "ready"])
    assert trainer.wait(20) == 0
    again = Stream(f"{server.address}/api/v1/training-runs/p/r/metrics", {"key": "loss"})
    assert again.ended.wait(10)
    assert again.points() == log_points(0, 200)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_a_restart_of_the_server_loses_no_point(store: Store, server: ServerProcess, how: str) -> None:
    run = start(store)
    metrics = f"{server.address}/api/v1/training-runs/p/r/metrics"

    def log(first: int) -> None:
        for step in range(first, first + 100):
            run.log({"loss": step + 0.5}, step=step)

    log(0)
    streams = [Stream(metrics, {"key": "loss"})]
    for first in (0, 200):
        wait_for(
            lambda last=first + 99: streams[-1].is_past(last), 60, "the points are seen, and how far they go"
        )  # type: ignore[misc]
        server.kill() if how == "killed" else server.stop()
        assert streams[-1].ended.wait(10)
        log(first + 100)  # while no server is there
        server.start()
        log(first + 200)
        streams.append(Stream(metrics, {"key": "loss"}, streams[-1].last))
    run.finish()
    assert streams[-1].ended.wait(30)
    assert streams[-1].events_named("end")
    assert {place: value for stream in streams for place, value in stream.points().items()} == log_points(
        0, 500
    )


@pytest.mark.slow
def test_a_killed_trainer_is_seen_to_its_last_point_and_its_next_attempt_goes_on(
    store: Store, server: ServerProcess, training: Training
) -> None:
    trainer = training(0, 50, "hang")
    wait_for(lambda: store.exists("runs/project=p/r/record.json"), 60, "the run has begun")
    stream = Stream(f"{server.address}/api/v1/live", {"run": "p/r", "key": "loss"})
    wait_for(lambda: stream.events_named("ready"), 60, "the stream is ready")
    wait_for((Path(store.root).parent / "logged").exists, 60, "all is logged")
    os.kill(trainer.pid, signal.SIGKILL)
    trainer.wait()
    wait_for(lambda: (stream.events_named("run")[-1]["status"]) == "unfinished", 60, "the death is seen")
    assert max(step for _, _, step in stream.points()) == 49
    assert training(40, 60).wait(30) == 0
    wait_for(lambda: stream.events_named("end"), 60, "the end is seen")
    assert stream.events_named("run")[-1]["attempt"] == 2
    assert {data["attempt"] for data in stream.events_named("points")} == {1, 2}
    assert max(step for _, _, step in stream.points()) == 59
    stream.close()


@pytest.mark.slow
def test_what_was_compacted_since_the_cursor_is_not_lost(store: Store, server: ServerProcess) -> None:
    run = start(store)
    run.log({"loss": 0.5}, step=0)
    stream = Stream(f"{server.address}/api/v1/training-runs/p/r/metrics", {"key": "loss"})
    wait_for(lambda: stream.points() and stream.last, 60, "the point is seen, and how far it goes")
    stream.close()
    for step in range(1, 50):
        run.log({"loss": step + 0.5}, step=step)
    run.finish()
    compact(store, "p", "r")
    again = Stream(f"{server.address}/api/v1/training-runs/p/r/metrics", {"key": "loss"}, stream.last)
    assert again.ended.wait(10)
    assert {**stream.points(), **again.points()} == log_points(0, 50)


@pytest.mark.parametrize(
    ("query", "status", "message"),
    [
        ({"run": "p/nope", "key": "loss"}, 404, "no run 'nope'"),
        ({"run": "r", "key": "loss"}, 422, "give project/run"),
        ({"key": "loss"}, 422, "give either of them"),
        ({"run": "p/r"}, 422, "key"),
        ({"run": "p/r", "key": "loss", "cursor": "AAAA"}, 422, "the cursor AAAA"),
        ({"run": "p/r", "key": "loss", "cursor": "é" * 10}, 422, "is not accepted"),
        ({"run": [f"p/r{number}" for number in range(201)], "key": "loss"}, 422, "at most 200"),
    ],
)
def test_a_slip_is_answered_before_a_stream_begins(
    store: Store, local: Any, query: dict[str, Any], status: int, message: str
) -> None:
    answer = local.get("/api/v1/live", params=query)
    assert answer.status_code == status, answer.text
    assert message in answer.text


@pytest.mark.slow
def test_a_stop_of_the_server_ends_its_streams(store: Store, server: ServerProcess) -> None:
    run = start(store)
    stream = Stream(f"{server.address}/api/v1/live", {"run": "p/r", "key": "loss"})
    wait_for(lambda: stream.events_named("ready"), 60, "the stream is ready")
    server.stop(4)
    assert stream.ended.wait(2)
    run.finish()


def test_streams_are_no_more_than_are_given_and_one_that_has_left_counts_no_longer(store: Store) -> None:
    start(store).finish()

    async def streams() -> None:
        hub = Hub(store, max_streams=3, max_per_client=2)
        first, second = [await hub.open([("p", "r")], ["loss"], client="ada") for _ in range(2)]
        with pytest.raises(TooManyStreams, match="ada has 2 streams open"):
            await hub.open([("p", "r")], ["loss"], client="ada")
        await hub.open([("p", "r")], ["loss"], client="bob")
        with pytest.raises(TooManyStreams, match="3 streams are open"):
            await hub.open([("p", "r")], ["loss"], client=None)
        hub.leave(first)
        await hub.open([("p", "r")], ["loss"], client="ada")
        hub.leave(second)
        with pytest.raises(NotFound):
            await hub.open([("p", "nope")], ["loss"], client="ada")
        await hub.open([("p", "r")], ["loss"], client="ada")
        hub.close()

    asyncio.run(streams())


def test_who_needs_no_token_has_a_limit_of_streams_too(store: Store) -> None:
    start(store).finish()

    async def streams() -> None:
        hub = Hub(store, max_local=2)
        first, _ = [await hub.open([("p", "r")], ["loss"]) for _ in range(2)]
        with pytest.raises(TooManyStreams, match="this machine has 2 streams open"):
            await hub.open([("p", "r")], ["loss"])
        await hub.open([("p", "r")], ["loss"], client="ada")
        hub.leave(first)
        await hub.open([("p", "r")], ["loss"])
        hub.close()

    asyncio.run(streams())


def test_a_stream_given_up_while_the_store_was_silent_is_watched_by_nobody(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(store).finish()
    answers_again = threading.Event()
    true_names = Store.names

    def hang(of: Store, name: str) -> list[str]:
        answers_again.wait(20)
        return true_names(of, name)

    async def streams() -> None:
        hub = Hub(store)
        monkeypatch.setattr(hub._joining, "read", partial(hub._joining.read, seconds=0.1))
        monkeypatch.setattr(Store, "names", hang)
        with pytest.raises(StoreUnavailable, match=r"within 0\.1 s"):
            await hub.open([("p", "r")], ["loss"])
        answers_again.set()
        await asyncio.to_thread(
            wait_for,
            lambda: hub._joining._limiter.borrowed_tokens == 0,
            20,
            "the thread that waited has ended",
        )
        assert (hub._watchers, hub._streams, hub._thread) == ({}, {}, None)

    asyncio.run(streams())


def test_one_look_serves_all_viewers_and_nobody_looks_when_nobody_watches(any_store: Store) -> None:
    run = start(any_store)
    run.log({"loss": 0.5}, step=0)

    async def streams() -> None:
        hub = Hub(any_store, seconds=0.05)
        viewers = [await hub.open([("p", "r")], ["loss"]) for _ in range(20)]
        assert len(hub._watchers) == 1
        for viewer in viewers:
            batch = await viewer.next()
            assert batch is not None
            assert [event.name for event in batch[0]] == ["run"]
        run.log({"loss": 1.5}, step=1)
        for viewer in viewers:
            batch = await asyncio.wait_for(viewer.next(), 5)
            assert batch is not None
            assert [event.name for event in batch[0]] == ["points"]
            assert '"x":[1]' in batch[0][0].sent.decode()
        for viewer in viewers:
            hub.leave(viewer)
        await asyncio.to_thread(wait_for, lambda: hub._thread is None, 5, "the poller has ended")
        assert hub._watchers == {}

    asyncio.run(streams())
    run.finish()


def test_a_client_that_does_not_keep_up_is_told_to_read_again_and_takes_no_memory() -> None:
    async def slow() -> None:
        subscription = Subscription([("p", "r")], ["loss"], asyncio.get_running_loop(), max_bytes=1_000)
        for place in range(1_000):
            subscription.put(("p", "r"), [Event("points", b"x" * 100)], str(place))
            assert subscription.bytes <= 1_000
        subscription.wake()
        batch = await subscription.next()
        assert batch is not None
        events, positions = batch
        assert events[0].name == "resync"
        assert len(events) <= 11
        assert positions["p", "r"] == "999"

    asyncio.run(slow())


def test_a_cursor_says_what_was_put_in_and_what_is_none_is_refused() -> None:
    positions = {("p", "r"): {1: (3, {"main": [0, 4_711]})}, ("p", "s"): {}, ("q", "r"): {2: (0, {})}}
    cursor = cursor_of({run: text_of(position) for run, position in positions.items()})
    assert positions_of(cursor) == positions
    for wrong in ("", "x", "x" * 100_000, cursor[:-8], "é"):
        with pytest.raises(InvalidInput, match="cursor"):
            positions_of(wrong)


def test_the_stream_of_another_project_is_not_given(guarded: Any, bearer: Any, backend: Any) -> None:
    start(backend.store).finish()
    answer = guarded.get(
        "/api/v1/live", params={"run": "p/r", "key": "loss"}, headers=bearer("ada", projects=["q"])
    )
    assert answer.status_code == 404
