"""Servers on one catalog and one store are one: any of them goes on with what another began."""

import secrets
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from halving import init
from resources.backend import Backend
from server.access.idempotency import REPLAYED
from tests.postgres import Postgres
from tests.s3 import S3
from tests.server import plain_http
from tests.server.processes import Stream, server_of
from tests.waiting import wait_for

KEY = {"Idempotency-Key": "0b1c"}
Small = Callable[..., dict[str, Any]]


@pytest.fixture
def shared(postgres: Postgres, s3: S3, monkeypatch: pytest.MonkeyPatch) -> Iterator[Backend]:
    """A backend on Postgres and S3, which servers that are started find."""
    name = secrets.token_hex(6)
    url = postgres.database(f"t{name}")
    monkeypatch.setenv("HALVING_CATALOG", url)
    backend = Backend(root=s3.root(name), catalog_url=url)
    yield backend
    backend.catalog.close()


def test_a_replica_goes_on_with_the_stream_of_another_and_repeats_its_answers(
    shared: Backend, small: Small
) -> None:
    root = shared.store.root
    with server_of(root) as replica, server_of(root) as other:
        run = init(project="p", id="r", root=root, system_metrics=None)
        path = "/api/v1/training-runs/p/r/metrics"
        for step in range(50):
            run.log({"loss": step + 0.5}, step=step)
        begun = Stream(f"{replica.address}{path}", {"key": "loss"})
        wait_for(lambda: begun.is_past(49), 60, "the points are seen, and how far they go")
        begun.close()
        for step in range(50, 100):
            run.log({"loss": step + 0.5}, step=step)
        resumed = Stream(f"{other.address}{path}", {"key": "loss"}, begun.last)
        wait_for(lambda: resumed.is_past(99), 60, "the rest is seen")
        resumed.close()
        run.finish()  # not before: of a run that is compacted a resumed stream repeats the points
        assert {step for _, _, step in begun.points()} == set(range(50))
        assert sorted(int(x) for data in resumed.events_named("points") for x in data["x"]) == list(
            range(50, 100)
        )
        requests = [
            plain_http.post(f"{server.address}/api/v1/hpo/studies", json=small(), headers=KEY, timeout=30)
            for server in (replica, other)
        ]
    assert [answer.status_code for answer in requests] == [202, 202], requests[0].text
    assert requests[1].json() == requests[0].json()
    assert [REPLAYED in answer.headers for answer in requests] == [False, True]
