"""Runs of clients without the store's credentials.

Each point is there once, durable when acknowledged, and readable by others.
"""

import math
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from fastapi.testclient import TestClient

from halving import sql
from halving.maintenance.compaction import compact
from halving.query.runs import read_run
from resources.backend import Backend
from server.settings import Settings
from tests.server.clients import client_of
from tests.server.ingested import ARROW, Begun, arrow, begin, points, stored_points, table_of


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
