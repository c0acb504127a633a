"""Batches and beginnings of clients that are refused, each in one sentence."""

import gzip
import json
import tracemalloc
import zlib
from typing import Any

import pyarrow as pa
import pytest
from fastapi.testclient import TestClient

from halving.metrics.segments import DRAINED
from resources.backend import Backend
from server.ingest import batch
from server.ingest.batch import JSON, MAX_BYTES, MAX_POINTS
from server.ingest.memory_budget import BudgetExhausted, MemoryBudget
from server.settings import Settings
from tests.server.clients import client_of
from tests.server.ingested import ARROW, arrow, begin, points, table_of

_GOOD = points(0, 1)[0]


@pytest.mark.parametrize(
    ("point", "message"),
    [
        (_GOOD | {"loss": 1}, r"points[0].loss is not accepted: a point has key, step, value, wall_time"),
        ({"key": "a", "step": 0}, "points[0].value is missing"),
        (_GOOD | {"key": "a\nb"}, "key 'a\\nb' is not accepted"),
        (_GOOD | {"key": 3}, "points[0].key is not accepted: give a string"),
        (_GOOD | {"key": "x" * 257}, "is not accepted: give 1-256 characters"),
        (_GOOD | {"step": 1.5}, "points[0].step = 1.5 is not accepted"),
        (_GOOD | {"step": 2**63}, "points[0].step = 9223372036854775808 is not accepted"),
        (_GOOD | {"value": "high"}, "points[0].value = 'high' is not accepted"),
        (_GOOD | {"value": None}, "points[0].value = None is not accepted"),
        (_GOOD | {"value": 10**400}, "is not accepted: give a number"),
        (_GOOD | {"wall_time": "now"}, "points[0].wall_time = 'now' is not accepted: give ms since 1970"),
        (_GOOD | {"wall_time": 10**18}, "points[0].wall_time = 1000000000000000000 is not accepted"),
        ("a", "points[0] is not accepted: give an object"),
    ],
)
def test_a_wrong_point_is_named(unchanged: TestClient, point: Any, message: str) -> None:
    answer = begin(unchanged).send(0, [point])
    assert answer.status_code == 422
    assert message in answer.json()["detail"]


_TABLE = table_of(points(0, 3))


@pytest.mark.parametrize(
    ("body", "headers", "message"),
    [
        (b"{}", {"Content_Type": "application/json"}, 'give {"points": ['),
        (b"[" * 100_000, {"Content_Type": "application/json"}, "the body is not JSON"),
        (b'{"points": []}', {"Content_Type": "application/json"}, "the batch has 0 points"),
        (b"\xff", {"Content_Type": "application/json"}, "the body is not JSON"),
        (b"a,b", {"Content_Type": "text/csv"}, "Content-Type 'text/csv' is not accepted"),
        (b"none", {"Content_Type": ARROW}, "the body is not an Arrow IPC stream"),
        (arrow(_TABLE)[:-40], {"Content_Type": ARROW}, "not an Arrow IPC stream"),
        (arrow(_TABLE), {"Content_Type": ARROW, "Content_Encoding": "zstd"}, "the body is not zstd"),
        (
            arrow(_TABLE),
            {"Content_Type": ARROW, "Content_Encoding": "br"},
            "'br' is not accepted: give zstd, gzip or none",
        ),
        (arrow(_TABLE.drop(["step"])), {"Content_Type": ARROW}, "column 'step' is missing"),
        (
            arrow(_TABLE.append_column("run", _TABLE["key"])),
            {"Content_Type": ARROW},
            "column 'run' is not accepted",
        ),
        (
            arrow(_TABLE.set_column(0, "key", _TABLE["step"])),
            {"Content_Type": ARROW},
            "column 'key' of type int64 is not accepted",
        ),
        (
            arrow(_TABLE.set_column(1, "step", _TABLE["value"])),
            {"Content_Type": ARROW},
            "column 'step' of type double is not accepted",
        ),
        (
            arrow(_TABLE.set_column(3, "value", _TABLE["key"])),
            {"Content_Type": ARROW},
            "column 'value' of type string is not accepted",
        ),
        (
            arrow(_TABLE.set_column(3, "value", pa.array([1.0, None, 2.0]))),
            {"Content_Type": ARROW},
            "column 'value' has nulls",
        ),
        (
            arrow(_TABLE.set_column(2, "wall_time", pa.array([-1, 0, 1]))),
            {"Content_Type": ARROW},
            "'wall_time' is not accepted",
        ),
        (arrow(_TABLE.slice(0, 0)), {"Content_Type": ARROW}, "the batch has 0 points"),
        (
            arrow(_TABLE.replace_schema_metadata({DRAINED: b'{"main": [1]}'})),
            {"Content_Type": ARROW},
            "halving.drained is not accepted: give a JSON object of names to [number, offset]",
        ),
    ],
    ids=range(18),
)
def test_a_wrong_batch_is_refused_in_one_sentence(
    unchanged: TestClient, body: bytes, headers: dict[str, str], message: str
) -> None:
    run = begin(unchanged)
    answer = run.send(0, body, **headers)
    assert answer.status_code == 422, answer.text
    assert message in answer.json()["detail"]
    assert run.send(0, points(0, 1)).json()["next"] == 1


@pytest.mark.parametrize("how", ["zstd", "gzip", "arrow zstd", "arrow lz4"])
def test_a_bomb_is_refused_before_it_is_in_memory(unchanged: TestClient, how: str) -> None:
    run = begin(unchanged)
    if how.startswith("arrow"):
        table = table_of(points(0, 1000))
        answer = run.send(0, arrow(table, compression=how.removeprefix("arrow ")), Content_Type=ARROW)
        message = "compressed Arrow buffers are not accepted"
    else:
        body = _zeros(how, 8 * MAX_BYTES)
        assert len(body) < MAX_BYTES
        tracemalloc.start()
        answer = run.send(0, body, Content_Type=ARROW, Content_Encoding=how)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        message = f"more than {MAX_BYTES} bytes when it is decompressed"
        assert peak < 4 * MAX_BYTES
    assert answer.status_code == 422
    assert message in answer.json()["detail"]


@pytest.mark.parametrize(
    "content", [b'{"points": [' + b"[]," * 300_000 + b"[]]}", b'{"points": [' + b" " * (9 << 20) + b"]}"]
)
def test_json_that_would_take_the_server_for_itself_is_refused_before_it_is_read(
    unchanged: TestClient, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "_from_small_json", lambda _: pytest.fail("it was read"))
    answer = begin(unchanged).send(0, gzip.compress(content), Content_Type=JSON, Content_Encoding="gzip")
    assert answer.status_code == 422
    assert "at most 8 MiB and 200000 points" in answer.text


def _zeros(encoding: str, count: int) -> bytes:
    """So many zeros, compressed in parts."""
    piece = b"\0" * (1 << 20)
    if encoding == "gzip":
        packer = zlib.compressobj(wbits=31)
        return b"".join([*(packer.compress(piece) for _ in range(count >> 20)), packer.flush()])
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, encoding) as stream:
        for _ in range(count >> 20):
            stream.write(piece)
    return bytes(sink.getvalue())


def test_a_body_that_is_too_large_is_refused_with_and_without_its_length(unchanged: TestClient) -> None:
    run = begin(unchanged)
    large = b" " * (MAX_BYTES + 1)
    assert run.send(0, large, Content_Type="application/json").status_code == 413
    assert run.send(0, iter([large]), Content_Type="application/json").status_code == 413
    many = pa.table(
        {"key": ["a"] * (MAX_POINTS + 1), "step": range(MAX_POINTS + 1), "value": [0.5] * (MAX_POINTS + 1)}
    )
    body = arrow(many.set_column(0, "key", many["key"].dictionary_encode()))
    answer = run.send(0, body, Content_Type=ARROW)
    assert (answer.status_code, f"the batch has {MAX_POINTS + 1} points" in answer.json()["detail"]) == (
        422,
        True,
    )


def test_what_finds_no_room_is_sent_again_and_keeps_no_room() -> None:
    budget = MemoryBudget(100)
    with budget.reserve(80):
        with pytest.raises(BudgetExhausted, match="send this again in 1 s") as full, budget.reserve(30):
            pass
        assert (full.value.status, full.value.retry_seconds) == (429, 1)
        with budget.reserve(20):
            pass
    with budget.reserve(500):  # alone
        pass


def test_a_batch_without_room_is_answered_with_429_and_when_to_send_it_again(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.state.INGEST_BYTES", 0)
    with client_of(Settings(root=backend.store.root)) as client:
        run = begin(client)
        budget = client.app.state.halving.ingest_memory  # type: ignore[attr-defined]
        with budget.reserve(1):
            answer = run.send(0, points(0, 1))
        assert (answer.status_code, answer.headers["Retry-After"]) == (429, "1")
        assert run.send(0, points(0, 1)).json()["next"] == 1


@pytest.mark.parametrize(
    "fields",
    [
        {"project": "p", "unknown": 1},
        {"project": "ü"},
        {"project": "../p"},
        {"project": "p", "run": "a/b"},
        {"project": "p", "run": "läuft"},
        {"project": "p", "tags": {"a": 1}},
        {"project": "p", "params": [1]},
        {"project": "p", "seed": 2**63},
        {"project": "p", "params": {"a": "\ud800"}},
        {"project": "p", "tags": {"a\0": "b"}},
        {"project": "p", "params": {"a": 10**400}},
        {"project": "p", "params": {"a": json.loads("[" * 60 + "]" * 60)}},
    ],
)
def test_a_beginning_with_a_wrong_field_is_refused(unchanged: TestClient, fields: dict[str, Any]) -> None:
    body = json.dumps(fields).encode()
    assert (
        unchanged.post(
            "/api/v1/ingest/begin", content=body, headers={"Content-Type": "application/json"}
        ).status_code
        == 422
    )
