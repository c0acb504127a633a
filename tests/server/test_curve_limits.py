"""Limits on curve queries: equal ones once, few at a time, bounded time, rows and memory."""

import asyncio
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from halving import InvalidInput, Store, init
from halving.maintenance import rollups
from halving.maintenance.compaction import compact
from halving.metrics import parquet_reader
from halving.query.api import curve_rows
from halving.query.curve_reader import RunCurves
from resources.backend import Backend
from server.curves import service
from server.curves.answer import BINARY, JSON
from server.curves.cache import Cache
from server.curves.limits import Budget, Limiter, Overloaded
from server.curves.reader_cache import ReaderCache
from server.curves.shared_lookups import SharedLookups


@pytest.fixture
def store(backend: Backend) -> Store:
    return backend.store


def test_equal_questions_are_asked_once_and_two_run_at_a_time() -> None:
    running = 0
    highest = 0
    questions = []
    lock = threading.Lock()

    def query(name: str) -> bytes:
        nonlocal running, highest
        with lock:
            running += 1
            highest = max(highest, running)
            questions.append(name)
        time.sleep(0.05)
        with lock:
            running -= 1
        return name.encode()

    async def ask() -> list[bytes]:
        limiter = Limiter(threads=2)
        return await asyncio.gather(
            *(limiter.answer(name, lambda _, name=name: query(name)) for name in "abcdabcd")
        )

    assert asyncio.run(ask()) == [name.encode() for name in "abcdabcd"]
    assert (sorted(questions), highest) == (list("abcd"), 2)


def test_an_error_reaches_all_who_asked_and_is_not_kept() -> None:
    answers: list[bytes | None] = [b"later", None]

    def query(_: Budget) -> bytes:
        answer = answers.pop()
        if answer is None:
            time.sleep(0.05)
            raise InvalidInput("no")
        return answer

    async def ask() -> None:
        limiter = Limiter()
        both = await asyncio.gather(*(limiter.answer("a", query) for _ in range(2)), return_exceptions=True)
        assert [type(error) for error in both] == [InvalidInput, InvalidInput]
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
        for request in (first, second):
            with pytest.raises(Overloaded, match=r"not read within 0\.2 s"):
                await request
        ends.set()

    asyncio.run(ask())


def test_waiting_questions_share_the_next_lookup_and_never_an_earlier_one() -> None:
    began = threading.Semaphore(0)
    goes_on = threading.Semaphore(0)
    looks: list[list[str]] = []

    def stamps(runs: Sequence[tuple[str, str]]) -> list[bytes]:
        looks.append([run for _, run in runs])
        of_this = f"{len(looks)}".encode()
        began.release()
        assert goes_on.acquire(timeout=60)
        return [of_this + run.encode() for _, run in runs]

    async def ask() -> list[list[bytes]]:
        shared = SharedLookups(stamps)
        lookups = []
        for runs in ("ab", "bc"):
            lookups.append(asyncio.create_task(shared.stamps_of([("p", run) for run in runs])))
            assert await asyncio.to_thread(began.acquire, timeout=60)
        for runs in ("a", "ba", "c"):
            lookups.append(asyncio.create_task(shared.stamps_of([("p", run) for run in runs])))
        goes_on.release(3)
        return list(await asyncio.gather(*lookups))

    answers = asyncio.run(ask())
    assert (sorted(looks[0]), sorted(looks[1]), sorted(looks[2]), len(looks)) == (
        ["a", "b"],
        ["b", "c"],
        ["a", "b", "c"],
        3,
    )
    assert answers == [[b"1a", b"1b"], [b"2b", b"2c"], [b"3a"], [b"3b", b"3a"], [b"3c"]]


def test_an_answer_has_no_more_rows_than_the_limit() -> None:
    budget = Budget(10, rows=100)
    budget.spend(60)
    with pytest.raises(InvalidInput, match="more than 100 rows"):
        budget.spend(41)


@pytest.mark.parametrize("compacted", [True, False])
def test_a_curve_is_read_no_further_than_its_time_allows_and_later_as_a_whole(
    store: Store, compacted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with init(project="p", id="r", root=store.root, system_metrics=None) as run:
        for step in range(50):
            run.log({"loss": 1.0}, step=step)
            if step % 10 == 9:
                run.flush()
    if compacted:
        monkeypatch.setattr(rollups, "ROW_GROUP", 10)
        compact(store, "p", "r")
    reads: list[int] = []
    true_read = parquet_reader._File.read
    monkeypatch.setattr(
        parquet_reader._File,
        "read",
        lambda file, *arguments: (reads.append(1), true_read(file, *arguments))[1],
    )

    def over(_: int) -> None:
        if len(reads) == 2:
            raise Overloaded("the time is over")

    kept = ReaderCache(store)
    options: dict[str, Any] = {"root": store, "max_points": 1_000, "opened": kept.opener({("p", "r"): b"1"})}
    with pytest.raises(Overloaded):
        curve_rows(["p/r"], ["loss"], after_each=over, **options)
    assert len(reads) == 2
    (curve,) = curve_rows(["p/r"], ["loss"], **options)
    assert len(curve.step) == 50


def test_the_memory_of_answers_is_bounded_and_keeps_what_was_asked_for_last() -> None:
    cache = Cache(max_bytes=100)
    for name in "abc":
        cache.put(name, b"x" * 33)
    assert cache.get("a") is not None
    cache.put("d", b"x" * 33)
    assert [cache.get(name) is not None for name in "abcd"] == [True, False, True, True]
    cache.put("e", b"x" * 101)
    assert [cache.get(name) for name in "abcde"] == [None] * 5
    cache.put("f", b"x" * 100)
    assert cache.get("f") == b"x" * 100


def test_the_reader_cache_is_bounded_and_reopens_runs_with_other_points(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for run in "abc":
        with init(project="p", id=run, root=store.root, system_metrics=None) as training:
            for step in range(1_000):
                training.log({"loss": 1.0}, step=step)
    kept = ReaderCache(store, max_bytes=200_000)

    def read(run: str, stamp: bytes) -> RunCurves:
        reader = kept.opener({("p", run): stamp})("p", run, ["loss"])
        assert len(reader.units("loss", 1_000)) == 1_000
        return reader

    first = read("a", b"1")
    assert read("a", b"1") is first
    second = read("a", b"2")
    assert second is not first
    read("b", b"1")
    assert read("a", b"2") is second
    read("c", b"1")  # in the place of b
    assert read("a", b"2") is second


def test_as_json_fewer_rows_are_given_and_the_answer_names_the_other_encodings(
    store: Store, local: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    with init(project="p", id="r", root=store.root, system_metrics=None) as run:
        for step in range(20):
            run.log({"a": 1.0, "b": 2.0}, step=step)
    monkeypatch.setitem(service._LIMITS, JSON, (30, service._LIMITS[JSON][1]))
    query = {"run": "p/r", "key": ["a", "b"]}
    refused = local.get("/api/v1/curves", params=query)
    assert (
        refused.status_code,
        BINARY in refused.json()["detail"],
        "30 rows" in refused.json()["detail"],
    ) == (422, True, True)
    assert local.get("/api/v1/curves", params=query, headers={"Accept": BINARY}).status_code == 200
    assert local.get("/api/v1/curves", params={**query, "key": "a"}).status_code == 200


def test_a_store_that_does_not_answer_keeps_nobody_waiting_for_ever(
    store: Store, local: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers_again = threading.Event()
    state = local.app.state.halving  # type: ignore[attr-defined]
    monkeypatch.setattr(state.curves._limiter, "seconds", 0.1)
    monkeypatch.setattr(state.curves._lookups, "_stamps", lambda *_: answers_again.wait(20))
    try:
        answers = [local.get("/api/v1/curves", params={"run": "p/r", "key": "a"}) for _ in range(5)]
    finally:
        answers_again.set()
    assert [(answer.status_code, "Retry-After" in answer.headers) for answer in answers] == [(503, True)] * 5
