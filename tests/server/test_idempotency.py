"""A write that is sent again with its key is answered as before, and not done again: on every database."""

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from fastapi.testclient import TestClient
from httpx2 import Response
from sqlalchemy import func, select

from resources.backend import Backend
from resources.catalog import AnswerRow, SnapshotRow
from resources.datasets.snapshots import take_snapshot
from resources.scheduling.sweeps import resume_sweep
from resources.sweep_spec import SweepSpec, parse_spec
from server.access.idempotency import KEPT, REPLAYED
from tests.searches import search

Spec = Callable[..., SweepSpec]
Small = Callable[..., dict[str, Any]]
Bearer = Callable[..., dict[str, str]]
KEY = {"Idempotency-Key": "0b1c"}


def score(trial: int, params: Mapping[str, Any], epochs: int) -> dict[str, float]:
    return {"score": params["x"] * epochs}


@pytest.fixture
def study(either_backend: Backend, small_spec: Spec) -> str:
    """The path of a study that searches."""
    return f"/hpo/studies/{search(either_backend, small_spec(max_trials=2), score, limit=1)}"


def test_a_write_is_done_once_for_its_key(client: TestClient, either_backend: Backend, study: str) -> None:
    first = client.post(f"{study}/extend", json={"max_trials": 9}, headers=KEY)
    assert (first.status_code, REPLAYED in first.headers) == (200, False)
    again = client.post(f"{study}/extend", json={"max_trials": 9}, headers=KEY)
    assert (again.status_code, again.json(), again.headers[REPLAYED]) == (200, first.json(), "true")
    assert client.post(f"{study}/extend", json={"max_trials": 9}).status_code == 422
    paused = client.post(f"{study}/pause", headers={"Idempotency-Key": "p"})
    resume_sweep(either_backend.catalog, study.rpartition("/")[2])
    assert client.post(f"{study}/pause", headers={"Idempotency-Key": "p"}).json() == paused.json()
    assert client.get(study).json()["control"] == "run"


def test_a_key_belongs_to_one_request(client: TestClient, study: str) -> None:
    client.post(f"{study}/extend", json={"max_trials": 9}, headers=KEY)
    for path, body in (
        (f"{study}/extend", {"max_trials": 10}),
        (f"{study}/pause", None),
        (f"{study}/extend?a=1", {"max_trials": 9}),
    ):
        answer = client.post(path, json=body, headers=KEY)
        assert answer.status_code == 422, path
        assert "another request" in answer.json()["detail"]
    assert client.get(study).json()["planned"] == 9
    for wrong in ("", "x" * 256):
        assert client.post(f"{study}/pause", headers={"Idempotency-Key": wrong}).status_code == 422


def test_a_write_that_failed_has_left_nothing_and_is_tried_again(
    client: TestClient, either_backend: Backend, study: str
) -> None:
    assert client.post(f"{study}/extend", json={"max_trials": 1}, headers=KEY).status_code == 422
    with either_backend.catalog.read() as session:
        assert session.scalar(select(func.count()).select_from(AnswerRow)) == 0
    assert client.post(f"{study}/extend", json={"max_trials": 9}, headers=KEY).status_code == 200


def test_of_writes_with_one_key_that_come_together_one_is_done(client: TestClient, study: str) -> None:
    def extend() -> Response:
        """As a client does: who has waited too long for the others is told to come again, and does."""
        while (
            answer := client.post(f"{study}/extend", json={"max_trials": 9}, headers=KEY)
        ).status_code == 503:
            time.sleep(float(answer.headers["Retry-After"]))
        return answer

    with ThreadPoolExecutor(6) as pool:
        answers = [future.result() for future in [pool.submit(extend) for _ in range(6)]]
    assert [answer.status_code for answer in answers] == [200] * 6
    assert sum(REPLAYED not in answer.headers for answer in answers) == 1


def test_a_key_is_forgotten_after_a_day(client: TestClient, either_backend: Backend, study: str) -> None:
    client.post(f"{study}/pause", headers=KEY)
    with either_backend.catalog.write() as session:
        row = session.scalars(select(AnswerRow)).one()
        row.created_at -= KEPT + timedelta(seconds=1)
    assert REPLAYED not in client.post(f"{study}/resume", headers=KEY).headers


def test_an_answer_is_given_again_whatever_has_changed_since(
    client: TestClient, either_backend: Backend, small: Small
) -> None:
    snapshot = take_snapshot(either_backend.store, either_backend.catalog, parse_spec(small()).dataset)
    training = {
        "project": "single",
        "trainable": "tests.trainables:train",
        "dataset": snapshot.key,
        "params": {"x": 0.4},
    }
    training |= {"objective": {"metric": "score", "direction": "maximize"}, "epochs": 3}
    study = {**small(), "snapshot": snapshot.digest}
    by_prefix = {name: value for name, value in study.items() if name != "dataset"} | {
        "snapshot": f"points@{snapshot.digest[7:10]}"
    }
    requests = [("/training-runs", training), ("/hpo/studies", study), ("/hpo/studies", by_prefix)]
    keys = [{"Idempotency-Key": f"k{number}"} for number in range(len(requests))]
    answers = [
        client.post(path, json=body, headers=key) for (path, body), key in zip(requests, keys, strict=True)
    ]
    assert [answer.status_code for answer in answers] == [202, 202, 202], [answer.text for answer in answers]
    with either_backend.catalog.write() as session:
        session.delete(session.get_one(SnapshotRow, snapshot.digest))
    assert [client.post(path, json=body).status_code for path, body in requests] == [404, 404, 404]
    again = [
        client.post(path, json=body, headers=key) for (path, body), key in zip(requests, keys, strict=True)
    ]
    assert [(answer.status_code, answer.json()) for answer in again] == [
        (202, answer.json()) for answer in answers
    ]
    assert [REPLAYED in answer.headers for answer in again] == [True, True, True]


def test_what_is_done_once_is_in_the_write_log_once(client: TestClient, study: str) -> None:
    for _ in range(3):
        assert client.post(f"{study}/pause", headers=KEY).status_code == 200
    assert [(entry["route"], entry["status"]) for entry in client.get("/write-log").json()["entries"]] == [
        ("/api/v1/hpo/studies/{study}/pause", 200)
    ]


def test_who_asks_has_keys_of_their_own(
    guarded: TestClient, backend: Backend, small_spec: Spec, bearer: Callable[..., dict[str, str]]
) -> None:
    study = f"/api/v1/hpo/studies/{search(backend, small_spec(max_trials=2), score, limit=1)}"
    for name in ("ada", "bob"):
        answer = guarded.post(f"{study}/pause", headers={**bearer(name, scope="write"), **KEY})
        assert (answer.status_code, REPLAYED in answer.headers) == (200, False)
