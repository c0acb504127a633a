"""What a server acknowledged outlives it."""

from collections.abc import Callable
from typing import Any

import httpx2
import pytest
from sqlalchemy import select

import halving
from resources.backend import Backend
from resources.catalog import IntentRow
from resources.datasets.snapshots import take_snapshot
from resources.registry import stages
from resources.registry.publishing import publish
from resources.sweep_spec import parse_spec
from tests.server import plain_http
from tests.server.processes import server_of
from tests.server.registry import promote_winner
from tests.waiting import wait_for

KEY = {"Idempotency-Key": "0b1c"}
Small = Callable[..., dict[str, Any]]


@pytest.mark.slow
@pytest.mark.parametrize("what", ["training-runs", "hpo/studies"])
def test_what_was_acknowledged_outlives_a_kill_and_is_there_once(
    backend: Backend, small: Small, what: str
) -> None:
    snapshot = take_snapshot(backend.store, backend.catalog, parse_spec(small()).dataset)
    run = {
        "project": "single",
        "trainable": "tests.trainables:train",
        "dataset": snapshot.key,
        "objective": {"metric": "score", "direction": "maximize"},
        "params": {"x": 0.4},
        "epochs": 3,
    }
    with server_of(backend.store.root) as server:

        def ask() -> httpx2.Response:
            body = run if what == "training-runs" else small()
            return plain_http.post(f"{server.address}/api/v1/{what}", json=body, headers=KEY, timeout=30)

        first = ask()
        server.kill()
        assert first.status_code == 202, first.text
        server.start()
        again = ask()
        assert (again.status_code, again.json()) == (202, first.json())
    with backend.catalog.read() as session:
        (intent,) = session.scalars(select(IntentRow))
    assert (intent.id, intent.status) == (first.json()["intent"], "waiting")


@pytest.mark.slow
def test_a_starting_server_publishes_the_champion_of_a_killed_process(backend: Backend, small: Small) -> None:
    for seed in (0, 1):
        row = promote_winner(backend, parse_spec(small(seed=seed)))
        stages.promote(backend.catalog, "small", row.version, actor="ann", note="for the test", force=True)
    assert publish(backend.store, backend.catalog) == []
    stages.rollback(backend.catalog, "small", actor="ann")  # and the process is gone

    def champion() -> str:
        return halving.resolve("small@champion", root=backend.store.root).version

    assert champion() == "1.0.1"
    with server_of(backend.store.root):
        wait_for(lambda: champion() == "1.0.0", 60, "the store names the champion of the catalog")
