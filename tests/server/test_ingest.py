"""Runs of clients without the store's credentials.

Each point is there once, durable when acknowledged, and readable by others.
"""

import gzip
import hashlib
import json
import math
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from fastapi.testclient import TestClient

from halving import sql
from halving.maintenance.compaction import compact
from halving.metrics.segments import DRAINED
from halving.query.runs import read_run
from halving.store.store import Store
from resources.backend import Backend
from server.ingest import batch
from server.ingest.batch import JSON, MAX_BYTES, MAX_POINTS
from server.ingest.memory_budget import BudgetExhausted, MemoryBudget
from server.settings import Settings
from tests.server.clients import client_of
from tests.server.ingested import ARROW, Begun, arrow, begin, points, stored_points, table_of

Bearer = Callable[..., dict[str, str]]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A client of a server for what is refused, and so leaves nothing for another test to find."""
    with client_of(Settings(root=str(tmp_path_factory.mktemp("shared")))) as client:
        yield client


def test_a_run_that_is_sent_as_json_is_one_like_any_other(local: TestClient, backend: Backend) -> None:
    run = begin(local, params={"lr": 0.1, "layers": [1, 2]}, tags={"team": "vision"}, seed=3)
    answer = run.send(0, points(0, 3) + points(0, 2, "acc"))
    assert answer.json() == {"points": 5, "next": 1}
    assert (
        run.send(
            1, [{"key": "loss", "step": 3, "value": "NaN"}, {"key": "loss", "step": 4, "value": "-Infinity"}]
        ).json()["next"]
        == 2
    )
    assert run.end().status_code == 200
    info = read_run(backend.store, "p", run.run)
    assert (info.status, info.params, info.tags, info.seed) == (
        "finished",
        {"lr": 0.1, "layers": [1, 2]},
        {"team": "vision"},
        3,
    )
    *finite, nan, infinite = stored_points(backend.store.root, run.run)
    assert finite == [(0, 0.0), (1, 1.0), (2, 2.0)]
    assert (nan[0], math.isnan(nan[1]), infinite) == (3, True, (4, -math.inf))
    content = local.get(f"/api/v1/runs/p/{run.run}").json()
    assert content["params"] == {"lr": 0.1, "layers": [1, 2]}


@pytest.mark.parametrize("encoding", ["", "zstd", "gzip"])
def test_the_same_points_as_arrow_are_the_same_segment(
    local: TestClient, backend: Backend, encoding: str
) -> None:
    batch = points(0, 500, "b") + points(0, 500, "a")
    as_json = begin(local)
    as_arrow = begin(local)
    body = arrow(table_of(batch))
    if encoding:
        body = pa.compress(body, encoding, asbytes=True)
    assert as_json.send(0, batch).status_code == 200
    assert as_arrow.send(0, body, Content_Type=ARROW, Content_Encoding=encoding).status_code == 200
    for key in ("a", "b"):
        assert stored_points(backend.store.root, as_arrow.run, key) == stored_points(
            backend.store.root, as_json.run, key
        )


def test_a_batch_may_have_any_columns_that_mean_the_same(local: TestClient, backend: Backend) -> None:
    table = pa.table(
        {
            "value": pa.array([1, 2], pa.float32()),
            "step": pa.array([1, 2], pa.uint8()),
            "key": pa.chunked_array(
                [pa.array(["x"]).dictionary_encode(), pa.array(["ü/é 指标"]).dictionary_encode()]
            ),
            "wall_time": pa.array([1, 2], pa.timestamp("us", "UTC")),
        }
    )
    run = begin(local)
    assert run.send(0, arrow(table), Content_Type=ARROW).status_code == 200
    assert stored_points(backend.store.root, run.run, "ü/é 指标") == [(2, 2.0)]


def test_a_batch_sent_again_arrives_once_at_any_server_and_after_compaction(
    local: TestClient, backend: Backend
) -> None:
    run = begin(local)
    first = points(0, 10)
    second = points(10, 20)
    with client_of(Settings(root=backend.store.root)) as other:
        elsewhere = Begun(other, *run[1:])
        for sent, other_one in ((run, elsewhere), (elsewhere, run)):
            assert sent.send(0, first).json() == other_one.send(0, first).json() == {"points": 10, "next": 1}
            assert (
                other_one.send(1, second).json() == sent.send(1, second).json() == {"points": 10, "next": 2}
            )
        assert stored_points(backend.store.root, run.run) == [(step, float(step)) for step in range(20)]
        assert run.end().status_code == 200
        compact(backend.store, "p", run.run)
        assert elsewhere.send(1, second).json() == {"points": 10, "next": 2}
        another = elsewhere.send(1, first)
        assert (another.status_code, "has another batch with sequence = 1" in another.json()["detail"]) == (
            409,
            True,
        )
        position: dict[str, str | int] = {"project": "p", "run": run.run, "attempt": 1}
        assert other.get("/api/v1/ingest", params=position).json()["next"] == 2
        assert elsewhere.send(2, points(20, 21)).json()["next"] == 3
    assert stored_points(backend.store.root, run.run) == [(20, 20.0)]  # the others are compacted
    assert compact(backend.store, "p", run.run).total == 21


def test_no_replica_acknowledges_a_batch_in_place_of_an_absorbed_one(
    local: TestClient, backend: Backend
) -> None:
    run = begin(local)
    with client_of(Settings(root=backend.store.root)) as other:
        elsewhere = Begun(other, *run[1:])
        assert elsewhere.send(0, points(0, 1)).json()["next"] == 1
        assert [run.send(number, points(number, number + 1)).status_code for number in (1, 2, 3)] == [200] * 3
        compact(backend.store, "p", run.run)
        another = elsewhere.send(1, points(1000, 1001))
        assert (another.status_code, "has another batch with sequence = 1" in another.json()["detail"]) == (
            409,
            True,
        )
        assert stored_points(backend.store.root, run.run) == []
        for number in (1, 2, 3):
            assert elsewhere.send(number, points(number, number + 1)).json()["next"] == number + 1
        assert elsewhere.send(4, points(4, 5)).json()["next"] == 5
    assert compact(backend.store, "p", run.run).total == 5


def test_a_batch_absorbed_too_long_ago_to_compare_is_refused(local: TestClient, backend: Backend) -> None:
    run = begin(local)
    for sequence in range(70):
        assert run.send(sequence, points(sequence, sequence + 1)).status_code == 200
        if sequence in (40, 69):
            compact(backend.store, "p", run.run)
    for sequence in (6, 69):  # of the last 64
        assert run.send(sequence, points(sequence, sequence + 1)).json() == {
            "points": 1,
            "next": sequence + 1,
        }
        assert run.send(sequence, points(1000, 1001)).status_code == 409
    for old in (points(5, 6), points(1000, 1001)):
        answer = run.send(5, old)
        assert (answer.status_code, answer.json()["next"]) == (409, 70)
        assert "is taken long since and was not compared: 70 is the next" in answer.json()["detail"]


def test_clients_with_wrong_clocks_keep_their_times_in_the_servers_order(
    local: TestClient, backend: Backend
) -> None:
    """One clock is in 1970, the other in 9999; times that run backwards make no other points."""
    times = {1: 0, 2: 253_402_300_799_000}
    for attempt, time in times.items():
        run = begin(local, run="skewed")
        assert run.attempt == attempt
        batch = [
            {"key": "größe/λ", "step": 10 * attempt + step, "value": step, "wall_time": abs(time - step)}
            for step in range(3)
        ]
        assert run.send(0, batch).status_code == 200
        assert run.end().status_code == 200
    info = read_run(backend.store, "p", "skewed")
    started = [attempt.started for attempt in info.attempts]
    assert sorted(started) == started
    assert all(began.startswith(f"{datetime.now(UTC):%Y-}") for began in started)
    rows = sql(
        "select step, wall_time from points where key = 'größe/λ' order by step", root=backend.store.root
    ).to_pylist()
    assert [row["step"] for row in rows] == [10, 11, 12, 20, 21, 22]
    assert [round(row["wall_time"].timestamp() * 1000) for row in rows] == [
        0,
        1,
        2,
        *(times[2] - step for step in range(3)),
    ]
    assert local.get("/api/v1/runs/p/skewed").json()["status"] == "finished"


def test_a_batch_may_have_as_many_keys_as_points(local: TestClient, backend: Backend) -> None:
    run = begin(local)
    names = [f"layer/{number:05d}" for number in range(12_000)]
    table = pa.table({"key": names, "step": [0] * len(names), "value": [0.5] * len(names)})
    assert run.send(0, arrow(table), Content_Type=ARROW).json()["points"] == 12_000
    assert stored_points(backend.store.root, run.run, names[-1]) == [(0, 0.5)]


def test_a_gap_is_refused_with_the_batch_that_is_missing(local: TestClient) -> None:
    run = begin(local)
    answer = run.send(2, points(0, 1))
    assert (answer.status_code, answer.json()["next"]) == (409, 0)
    assert "0 is the next" in answer.json()["detail"]


def test_two_clients_that_write_one_attempt_are_told_to_begin_one_each(
    local: TestClient,
) -> None:
    run = begin(local)
    assert run.send(0, points(0, 1)).status_code == 200
    answer = run.send(0, points(5, 6))
    assert answer.status_code == 409
    assert "two clients write this attempt" in answer.json()["detail"]
    other = begin(local, run=run.run)
    assert other.attempt == 2
    assert other.send(0, points(5, 6)).status_code == 200


def test_a_beginning_that_is_sent_again_with_its_token_begins_nothing(local: TestClient) -> None:
    run = begin(local, token="one")
    assert begin(local, run=run.run, token="one").attempt == 1
    assert begin(local, run=run.run, token="two").attempt == 2
    assert begin(local, run=run.run, token="two").attempt == 2
    answer = local.post("/api/v1/ingest/begin", json={"project": "p", "run": run.run, "params": {"lr": 2}})
    assert answer.status_code == 409
    assert "params never change" in answer.json()["detail"]


def test_an_attempt_ends_once(local: TestClient) -> None:
    run = begin(local)
    assert [run.end().status_code, run.end().status_code] == [200, 200]
    answer = run.end("failed")
    assert answer.status_code == 409
    assert "ended already, as 'finished'" in answer.json()["detail"]


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
def test_a_wrong_point_is_named(shared: TestClient, point: Any, message: str) -> None:
    answer = begin(shared).send(0, [point])
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
    shared: TestClient, body: bytes, headers: dict[str, str], message: str
) -> None:
    run = begin(shared)
    answer = run.send(0, body, **headers)
    assert answer.status_code == 422, answer.text
    assert message in answer.json()["detail"]
    assert run.send(0, points(0, 1)).json()["next"] == 1


@pytest.mark.parametrize("how", ["zstd", "gzip", "arrow zstd", "arrow lz4"])
def test_a_bomb_is_refused_before_it_is_in_memory(shared: TestClient, how: str) -> None:
    run = begin(shared)
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
    shared: TestClient, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "_from_small_json", lambda _: pytest.fail("it was read"))
    answer = begin(shared).send(0, gzip.compress(content), Content_Type=JSON, Content_Encoding="gzip")
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


def test_a_body_that_is_too_large_is_refused_with_and_without_its_length(shared: TestClient) -> None:
    run = begin(shared)
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


def test_another_project_than_the_tokens_is_forbidden_and_its_files_are_not_there(
    guarded: TestClient, bearer: Bearer
) -> None:
    everybody = bearer("all", scope="write")
    ada = bearer("ada", scope="write", projects=["mine"])
    reader = bearer("eve", scope="read")
    theirs = guarded.post("/api/v1/ingest/begin", json={"project": "theirs"}, headers=everybody).json()["run"]
    query = {"project": "theirs", "run": theirs, "attempt": 1, "sequence": 0}
    record = f"/api/v1/files/runs/project=theirs/{theirs}/end-0001.json"
    body = {"points": points(0, 1)}
    answers = [
        guarded.post("/api/v1/ingest/begin", json={"project": "theirs", "run": theirs}, headers=ada),
        guarded.post("/api/v1/ingest", params=query, json=body, headers=ada),
        guarded.post(
            "/api/v1/ingest/end", json={"project": "theirs", "run": theirs, "attempt": 1}, headers=ada
        ),
        guarded.put(record, content=b"{}", headers=ada),
        guarded.post("/api/v1/ingest", params=query, json=body, headers=reader),
    ]
    assert [answer.status_code for answer in answers] == [403] * 5
    assert "this token may not write into project 'theirs': it may into mine" in answers[1].json()["detail"]
    reads = [
        guarded.get("/api/v1/files", params={"folder": f"runs/project=theirs/{theirs}"}, headers=ada),
        guarded.get(f"/api/v1/files/runs/project=theirs/{theirs}/record.json", headers=ada),
        guarded.get("/api/v1/ingest", params={"project": "theirs", "run": theirs, "attempt": 1}, headers=ada),
    ]
    assert [answer.status_code for answer in reads] == [404] * 3
    assert guarded.post("/api/v1/ingest", params=query, json=body).status_code == 401
    assert guarded.post("/api/v1/ingest", params=query, json=body, headers=everybody).status_code == 200


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
def test_a_beginning_with_a_wrong_field_is_refused(shared: TestClient, fields: dict[str, Any]) -> None:
    body = json.dumps(fields).encode()
    assert (
        shared.post(
            "/api/v1/ingest/begin", content=body, headers={"Content-Type": "application/json"}
        ).status_code
        == 422
    )


@pytest.mark.parametrize(
    "name",
    [
        "runs/project=p/{run}/../../../catalog.db",
        "runs/project=p/{run}/%2e%2e/%2e%2e/catalog.db",
        "runs/project=p/{run}/artifacts/..%2F..%2Fx.json",
        "runs/project=p/{run}/artifacts/.hidden.json",
        "%2Fetc%2Fpasswd",
        "/etc/passwd",
        "runs/project=p/{run}//record.json",
        "runs/project=p/../record.json",
        "catalog.db",
        "metrics/project=p/run={run}/live/0001-000000.parquet",
        "metrics/project=p/run={run}/manifest-000001.json",
        "runs/project=p/{run}/other.json",
        "runs/project=p/{run}/artifacts/a/b.json",
    ],
)
def test_only_a_runs_own_records_can_be_written(shared: TestClient, name: str) -> None:
    run = begin(shared).run
    store = Store(shared.app.state.halving.settings.root)  # type: ignore[attr-defined]
    before = sorted(name for name, _, _ in store.files(""))
    answer = shared.put(f"/api/v1/files/{name.format(run=run)}", content=b"{}")
    assert answer.status_code in (404, 405, 422), answer.text
    assert sorted(name for name, _, _ in store.files("")) == before


@pytest.mark.parametrize(
    "name",
    [
        "runs/project=p/{run}/../../../catalog.db",
        "%2Fetc%2Fpasswd",
        "catalog.db",
        "runs/project=p/{run}/%2e%2e/x",
    ],
)
def test_only_a_runs_own_files_can_be_read(shared: TestClient, name: str) -> None:
    run = begin(shared).run
    assert shared.get(f"/api/v1/files/{name.format(run=run)}").status_code == 404
    assert shared.get("/api/v1/files", params={"folder": name.format(run=run)}).status_code == 404


_RECORD = {
    "project": "p",
    "run": "r",
    "params": {},
    "parent": {},
    "attempt": 1,
    "started": "2026-01-01T00:00:00+00:00",
    "token": "t",
}
_DIGEST = f"sha256:{hashlib.sha256(b'abc').hexdigest()}"


@pytest.mark.parametrize(
    ("rest", "content", "message"),
    [
        ("record.json", _RECORD | {"project": "q"}, "project = 'q' is not accepted"),
        ("record.json", _RECORD | {"params": 3}, "params = 3 is not accepted"),
        ("record.json", _RECORD | {"started": "yesterday"}, "started = 'yesterday' is not accepted"),
        ("record.json", _RECORD | {"attempt": 0}, "attempt = 0 is not accepted"),
        ("record.json", _RECORD | {"parent": {"tags": {"a": 1}}}, "parent.tags"),
        ("record.json", [], "give a JSON object"),
        (
            "record.json",
            _RECORD | {"started": "0001-01-01T00:00:00+14:00"},
            "give a time from 1970 to 9999 with its zone",
        ),
        (
            "record.json",
            _RECORD | {"started": "9999-12-31T23:00:00-14:00"},
            "give a time from 1970 to 9999 with its zone",
        ),
        ("record.json", _RECORD | {"params": {"a": {"b": "\ud800"}}}, "half of a surrogate pair"),
        ("record.json", _RECORD | {"params": {"a\0": 1}}, "params is not accepted: a text has NUL"),
        (
            "record.json",
            _RECORD | {"parent": {"tags": {"a": "\udfff"}}},
            "parent is not accepted: a text has NUL",
        ),
        ("record.json", _RECORD | {"params": {"a": [10**400]}}, "a number is larger than float64 holds"),
        (
            "record.json",
            _RECORD | {"params": json.loads('{"a":' * 51 + "0" + "}" * 51)},
            "params is not accepted: it is nested deeper",
        ),
        ("record.json", _RECORD | {"provenance": {"git": "abc"}}, "provenance.git = 'abc' is not accepted"),
        (
            "record.json",
            _RECORD | {"provenance": {"git": {"commit": 3}}},
            "provenance.git = {'commit': 3} is not accepted",
        ),
        ("record.json", _RECORD | {"attempt": 2**31}, "attempt = 2147483648 is not accepted"),
        (
            "end-0001.json",
            {"status": "so so", "time": _RECORD["started"]},
            "status = 'so so' is not accepted",
        ),
        (
            "end-0001.json",
            {"status": "finished", "time": _RECORD["started"], "summary": {"a": "b"}},
            "summary is not accepted",
        ),
        (
            "checkpoints/00000001-0001-000000.json",
            {"epoch": 1, "attempt": 1, "digest": "x", "reported": {}},
            "digest 'x' is not accepted",
        ),
        (
            "artifacts/a.json",
            {"name": "../b", "digest": _DIGEST, "bytes": 3},
            "artifact name '../b' is not accepted: give text of 1-2,000",
        ),
        (
            "artifacts/a-b.json",
            {"name": "a/b", "digest": _DIGEST, "bytes": 3},
            "'artifacts/a-b-c14cddc033f64b9d.json'",
        ),
        (
            "artifacts/a.json",
            {"name": "b", "digest": _DIGEST, "bytes": 3},
            "name = 'b' is not accepted: the file's name is",
        ),
        ("media/0001-main-000001-00000000.json", {"key": "k", "step": "1"}, "step = '1' is not accepted"),
    ],
)
def test_a_record_that_others_could_not_read_is_refused(
    shared: TestClient, rest: str, content: Any, message: str
) -> None:
    answer = shared.put(f"/api/v1/files/runs/project=p/r/{rest}", content=json.dumps(content).encode())
    assert answer.status_code == 422
    assert message in answer.json()["detail"]


def test_a_record_is_created_once(local: TestClient, backend: Backend) -> None:
    name = "runs/project=p/r/record.json"
    content = json.dumps(_RECORD).encode()
    assert [local.put(f"/api/v1/files/{name}", content=content).status_code for _ in range(2)] == [201, 201]
    other = local.put(f"/api/v1/files/{name}", content=json.dumps(_RECORD | {"token": "u"}).encode())
    assert other.status_code == 409
    assert (backend.store.read(name), local.get(f"/api/v1/files/{name}").content) == (content, content)
    assert local.get("/api/v1/files", params={"folder": "runs/project=p/r"}).json() == {
        "names": ["record.json"]
    }
    assert local.get("/api/v1/files", params={"folder": "runs/project=p/none"}).json() == {"names": []}


def test_a_blob_is_stored_where_its_content_is_what_its_name_says(
    local: TestClient, backend: Backend
) -> None:
    assert local.put(f"/api/v1/blobs/{_DIGEST}", content=b"abd").status_code == 422
    assert local.put("/api/v1/blobs/sha256:..", content=b"abd").status_code == 422
    assert not backend.store.has_blob(_DIGEST)
    large = b"0123456789" * 500_000  # more than any other body may have
    digest = f"sha256:{hashlib.sha256(large).hexdigest()}"
    for content, name in ((b"abc", _DIGEST), (large, digest), (large, digest)):
        assert local.put(f"/api/v1/blobs/{name}", content=content).status_code == 201
        assert Store(backend.store.root).get_blob(name) == content
