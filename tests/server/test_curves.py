"""Curves over HTTP: what was logged comes out in each encoding, and nothing is read in vain."""

import json
import struct
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from fastapi.testclient import TestClient

from halving import Store, init
from halving.maintenance.compaction import compact
from halving.metrics import parquet_reader
from halving.query.api import curves
from halving.query.runs import read_json
from server.settings import Settings
from tests.server.clients import client_of
from tests.waiting import wait_for

BINARY = {"Accept": "application/vnd.halving.curves"}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture
def client(store: Store) -> Iterator[TestClient]:
    with client_of(Settings(root=store.root)) as client:
        yield client


@pytest.fixture
def undisturbed(store: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    """A client of a server that reads nothing but what it is asked for: it keeps no index."""
    monkeypatch.setattr("server.app.SERVICES", [])
    with client_of(Settings(root=store.root)) as client:
        yield client


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A client of a store that nobody changes: run ``r`` has three points, run ``empty`` none."""
    store = Store(tmp_path_factory.mktemp("shared") / "store")
    train(store, "r", 3)
    init(project="p", id="empty", root=store.root, system_metrics=None).finish()
    with client_of(Settings(root=store.root)) as client:
        yield client


def train(store: Store, run: str, points: int, keys: tuple[str, ...] = ("loss",), first: int = 0) -> None:
    """A run that logs and ends."""
    with init(project="p", id=run, root=store.root, system_metrics=None) as training:
        for step in range(first, first + points):
            training.log({key: step * (place + 0.5) for place, key in enumerate(keys)}, step=step)


def decode(body: bytes) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A binary answer as a page reads it: the header, and each curve's arrays."""
    (length,) = struct.unpack_from("<I", body)
    header = json.loads(body[4 : 4 + length])
    assert (4 + length) % 8 == 0
    arrays = []
    for curve in header["curves"]:
        offset = 4 + length + curve["offset"]
        own = {}
        for name, kind in (
            ("x", "<f8"),
            ("value", "<f4"),
            *((("min", "<f4"), ("max", "<f4")) if curve["bucketed"] else ()),
        ):
            assert offset % 8 == 0
            own[name] = np.frombuffer(body, kind, curve["rows"], offset)
            offset += own[name].nbytes + -own[name].nbytes % 8
        arrays.append(own)
    return header, arrays


def test_the_binary_answer_is_the_curves_of_the_sdk(store: Store, client: TestClient) -> None:
    train(store, "a", 10, ("acc", "loss"))
    train(store, "b", 3_000)
    query = {"run": ["p/b", "p/a"], "key": ["loss", "acc"], "max_points": 100}
    answer = client.get("/api/v1/curves", params=query, headers=BINARY)
    assert (answer.status_code, answer.headers["content-type"]) == (200, BINARY["Accept"])
    header, arrays = decode(answer.content)
    assert header["missing"] == [["p/b", "acc"]]
    assert [
        (described["run"], described["key"], described["points"], described["bucketed"])
        for described in header["curves"]
    ] == [
        ("p/b", "loss", 3_000, True),
        ("p/a", "acc", 10, False),
        ("p/a", "loss", 10, False),
    ]
    for described, own in zip(header["curves"], arrays, strict=True):
        table = curves(described["run"], described["key"], root=store, max_points=100)
        np.testing.assert_array_equal(own["x"], table["step"].to_numpy())
        for name in own.keys() - {"x"}:
            np.testing.assert_array_equal(own[name], table[name].to_numpy().astype(np.float32))
    assert client.post(
        "/api/v1/curves", json={"runs": query["run"], "keys": query["key"], "max_points": 100}, headers=BINARY
    ).content == (answer.content)


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        (None, "application/json"),
        ("", "application/json"),
        ("*/*", "application/json"),
        ("application/*", "application/json"),
        ("text/html, */*;q=0.1", "application/json"),
        ("application/json, application/vnd.halving.curves;q=0.1", "application/json"),
        ("application/json;q=0.1, application/vnd.halving.curves", "application/vnd.halving.curves"),
        ("Application/Vnd.Halving.Curves ; Q=1", "application/vnd.halving.curves"),
        ("application/vnd.halving.curves, */*", "application/vnd.halving.curves"),
        ("application/json;q=0, */*;q=0.5", "application/vnd.halving.curves"),
        (
            "application/vnd.apache.arrow.stream, application/json;q=0.9",
            "application/vnd.apache.arrow.stream",
        ),
        ("application/vnd.halving.curves;q=0", None),
        ("application/vnd.halving.curves2", None),
        ("text/html", None),
        ("*/*;q=0", None),
        ("application/json;q=nan", None),
    ],
)
def test_the_encoding_is_what_accept_prefers_and_never_one_that_it_refuses(
    shared: TestClient, accept: str | None, kind: str | None
) -> None:
    request = shared.build_request(
        "GET", "/api/v1/curves", params={"run": "p/r", "key": "loss"}, headers={"Accept": accept or ""}
    )
    if accept is None:
        del request.headers["accept"]
    answer = shared.send(request)
    if kind is None:
        assert (answer.status_code, answer.headers["content-type"]) == (406, "application/problem+json")
        for media_type in (
            "application/json",
            "application/vnd.halving.curves",
            "application/vnd.apache.arrow.stream",
        ):
            assert media_type in answer.json()["detail"]
    else:
        assert (answer.status_code, answer.headers["content-type"]) == (200, kind)


def test_curves_come_in_the_order_that_was_asked_for(store: Store, client: TestClient) -> None:
    for run, loss in (("a", 2.0), ("b", 1.0), ("c", 3.0)):
        with init(project="p", id=run, root=store.root, system_metrics=None) as training:
            training.log({"loss": loss, "acc": 1.0}, step=0)
    wait_for(lambda: client.get("/api/v1/runs").json()["total"] == 3, 60, "the runs to be indexed")

    def order(**query: Any) -> list[tuple[str, str]]:
        answer = client.get("/api/v1/curves", params={"key": ["loss", "acc"], **query})
        assert answer.status_code == 200, answer.text
        return [(curve["run"], curve["key"]) for curve in answer.json()["curves"]]

    def both(*runs: str) -> list[tuple[str, str]]:
        return [(f"p/{run}", key) for run in runs for key in ("acc", "loss")]

    for axis in ("step", "relative"):
        assert order(filter="project = p order by metrics.loss", x=axis) == both("b", "a", "c")
        assert order(filter="project = p order by metrics.loss desc", x=axis) == both("c", "a", "b")
        assert order(run=["p/c", "p/a", "p/c"], x=axis, low=-1) == both("c", "a")
        assert order(run=["p/a", "p/c"], x=axis, low=-1) == both("a", "c")


def test_any_answer_that_there_is_is_known_to_who_names_all(store: Store, client: TestClient) -> None:
    train(store, "r", 3)
    for path, status in (
        ("/api/v1/curves?run=p/r&key=loss", 304),
        ("/api/v1/curves?run=p/nothing&key=loss", 404),
        ("/api/v1/runs", 304),
        ("/api/v1/runs/groups?by=status", 304),
        ("/api/v1/runs/columns", 304),
        ("/api/v1/hpo/studies/nothing", 404),
        ("/", 304),
        ("/app.js", 304),
    ):
        assert client.get(path, headers={"If-None-Match": "*"}).status_code == status, path


def test_json_says_what_json_cannot_hold_in_words(store: Store, client: TestClient) -> None:
    with init(project="p", id="r", root=store.root, system_metrics=None) as run:
        for step, value in enumerate((1.0, float("nan"), float("inf"))):
            run.log({"loss": value}, step=step)
    assert client.get("/api/v1/curves", params={"run": "p/r", "key": ["loss", "k"]}).json() == {
        "x": "step",
        "curves": [
            {
                "run": "p/r",
                "key": "loss",
                "rows": 3,
                "points": 3,
                "bucketed": False,
                "x": [0.0, 1.0, 2.0],
                "value": [1.0, "NaN", "Infinity"],
            }
        ],
        "missing": [["p/r", "k"]],
    }


def test_arrow_is_the_table_of_the_sdk(store: Store, client: TestClient) -> None:
    train(store, "r", 500)
    answer = client.get(
        "/api/v1/curves",
        params={"run": "p/r", "key": ["loss", "k"], "max_points": 50},
        headers={"Accept": "application/vnd.apache.arrow.stream"},
    )
    table = pa.ipc.open_stream(answer.content).read_all()
    assert json.loads(table.schema.metadata[b"halving.missing"]) == [["p/r", "k"]]
    assert table.replace_schema_metadata(None).equals(curves("p/r", "loss", root=store, max_points=50))


@pytest.mark.parametrize("compacted", [True, False])
def test_times_are_seconds_since_1970_or_since_the_run_began_and_windows_are_in_them(
    store: Store, client: TestClient, compacted: bool
) -> None:
    train(store, "r", 100)
    if compacted:
        compact(store, "p", "r")
    began = datetime.fromisoformat(read_json(store, "runs/project=p/r/record.json")["started"]).timestamp()
    logged = np.array(
        [time.timestamp() for time in curves("p/r", "loss", root=store)["wall_time"].to_pylist()]
    )
    for axis, places in (("time", logged), ("relative", logged - began)):
        (own,) = decode(
            client.get(
                "/api/v1/curves", params={"run": "p/r", "key": "loss", "x": axis}, headers=BINARY
            ).content
        )[1]
        np.testing.assert_allclose(own["x"], places, atol=1e-6)
        window = {"run": "p/r", "key": "loss", "x": axis, "low": places[20], "high": places[80]}
        (own,) = decode(client.get("/api/v1/curves", params=window, headers=BINARY).content)[1]
        inside = (logged >= logged[20]) & (logged <= logged[80])
        np.testing.assert_allclose(own["x"], places[inside], atol=1e-6)


def test_an_answer_is_not_given_again_until_a_run_logs_more(store: Store, client: TestClient) -> None:
    train(store, "done", 10)
    live = init(project="p", id="live", root=store.root, system_metrics=None)
    query = {"run": ["p/done", "p/live"], "key": "loss"}
    tags = set()
    for step in range(3):
        live.log({"loss": float(step)}, step=step)
        answer = client.get("/api/v1/curves", params=query)
        assert answer.json()["curves"][1]["rows"] == step + 1
        tags.add(answer.headers["etag"])
        assert (
            client.get(
                "/api/v1/curves", params=query, headers={"If-None-Match": answer.headers["etag"]}
            ).status_code
            == 304
        )
    assert len(tags) == 3
    live.finish()
    assert client.get("/api/v1/curves", params=query).headers["etag"] not in tags
    tag = client.get("/api/v1/curves", params=query).headers["etag"]
    compact(store, "p", "done")
    assert client.get("/api/v1/curves", params=query).headers["etag"] != tag


@pytest.mark.parametrize(
    ("query", "status", "message"),
    [
        ({"run": "p/nope", "key": "loss"}, 404, "no run 'nope' in project 'p'"),
        ({"run": "p/nope", "key": "loss", "x": "relative"}, 404, "no run 'nope' in project 'p'"),
        ({"run": "r", "key": "loss"}, 422, "run 'r' is not accepted: give project/run"),
        ({"run": "p/../r", "key": "loss"}, 422, "run id '../r' is not accepted"),
        ({"run": "p/r", "key": "loss", "low": 2, "high": 1}, 422, "low 2 is not accepted"),
        ({"run": "p/r", "key": "loss", "low": "1e300"}, 200, ""),
        ({"run": "p/r", "key": "loss", "max_points": 5_001}, 422, "max_points"),
        ({"run": "p/r", "key": "loss", "max_points": 0}, 422, "max_points"),
        ({"run": "p/r", "key": "loss", "x": "epoch"}, 422, "relative"),
        ({"run": "p/r", "key": "loss", "low": "nan"}, 422, "low"),
        (
            {"run": "p/r", "key": [f"k{place}" for place in range(101)]},
            422,
            "keys is not accepted: give at most 100 items",
        ),
        ({"run": "p/r"}, 422, "key"),
        ({"run": "p/empty", "key": "loss"}, 200, ""),
    ],
)
def test_a_slip_is_answered_with_what_is_accepted(
    shared: TestClient, query: dict[str, Any], status: int, message: str
) -> None:
    answer = shared.get("/api/v1/curves", params=query)
    assert answer.status_code == status, answer.text
    assert message in answer.text


def test_a_filter_chooses_the_first_runs_of_its_order(store: Store, client: TestClient) -> None:
    for run, points in (("a", 1), ("b", 3), ("c", 2)):
        train(store, run, points)
    query = {"filter": "project = p order by metrics.loss desc", "top": 2, "key": "loss"}

    def chosen_ids() -> list[str]:
        return [curve["run"] for curve in client.get("/api/v1/curves", params=query).json()["curves"]]

    wait_for(lambda: chosen_ids() == ["p/b", "p/c"], 60, "the index has the runs")
    assert client.post("/api/v1/curves", json={"filter": "nope nope", "keys": ["loss"]}).json()["column"]
    assert (
        client.post("/api/v1/curves", json={"filter": "", "runs": ["p/a"], "keys": ["loss"]}).status_code
        == 422
    )


@pytest.mark.parametrize("compacted", [True, False])
def test_a_zoom_into_what_was_read_opens_no_file_and_is_the_curve_of_the_sdk(
    store: Store, undisturbed: TestClient, monkeypatch: pytest.MonkeyPatch, compacted: bool
) -> None:
    for run, points in (("short", 100), ("long", 20_000)):
        train(store, run, points)
        if compacted:
            compact(store, "p", run)
    opened: list[str] = []
    true_file = parquet_reader._File.__init__
    monkeypatch.setattr(
        parquet_reader._File,
        "__init__",
        lambda file, store, path: (opened.append(path), true_file(file, store, path))[1],
    )
    query = {"run": ["p/short", "p/long"], "key": "loss", "max_points": 100}
    undisturbed.get("/api/v1/curves", params=query, headers=BINARY)
    for low, high in ((10, 15_000), (50, 9_000)):
        before = list(opened)
        header, arrays = decode(
            undisturbed.get(
                "/api/v1/curves", params={**query, "low": low, "high": high}, headers=BINARY
            ).content
        )
        assert opened == before
        for described, own in zip(header["curves"], arrays, strict=True):
            table = curves(
                described["run"], "loss", root=store, max_points=100, window=(low, high), edges="whole"
            )
            np.testing.assert_array_equal(own["x"], table["step"].to_numpy())
            np.testing.assert_array_equal(own["value"], table["value"].to_numpy().astype(np.float32))
        del opened[len(before) :]
    train(store, "short", 10, first=200)
    (described,) = decode(
        undisturbed.get("/api/v1/curves", params={**query, "run": "p/short"}, headers=BINARY).content
    )[0]["curves"]
    assert described["points"] == 110
