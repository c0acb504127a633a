"""Asks of external loops: repeated ones, ones that come at once, and more than have a turn."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from fastapi.testclient import TestClient

from resources.backend import Backend
from resources.catalog import TrialRow
from resources.execution.external_loops import ExternalLoops
from resources.scheduling.scheduler import Scheduler
from resources.search.decide import Wait
from server.fair_queue import FairQueue
from tests.server.loops import Small, ask, drive, open_study, tell
from tests.waiting import wait_for

REPORTS = {
    "tell": ("attempt", "epoch", "values"),
    "heartbeat": ("attempt",),
    "fail": ("attempt", "error"),
    "release": ("attempt",),
}


def test_a_study_whose_loops_read_their_own_data_needs_no_dataset(
    client: TestClient, external: Small
) -> None:
    spec = external(max_trials=1)
    del spec["dataset"], spec["snapshot"]
    study = open_study(client, spec)
    assert ask(client, study)["trial"] == 0
    assert client.get(f"/hpo/studies/{study}").json()["spec"]["dataset"]["name"] == "no-data"
    judged = client.post("/hpo/studies?driver=api", json={**spec, "predictor": "my_project:predict"})
    assert (judged.status_code, "dataset is missing" in judged.text) == (422, True), judged.text
    launched = client.post("/hpo/studies", json={**spec, "trainable": "my_project:train"})
    assert (launched.status_code, "dataset is missing" in launched.text) == (422, True), launched.text


def test_two_loops_at_once_share_the_trials_and_take_none_twice(
    client: TestClient, either_backend: Backend, external: Small
) -> None:
    study = open_study(client, external(max_trials=12))
    with ThreadPoolExecutor(2) as pool:
        for _ in pool.map(lambda _: drive(client, study), range(2)):
            pass
    trials = Scheduler(either_backend.catalog, study).state().trials
    assert len(trials) == 12
    assert {str(trial.status) for trial in trials} <= {"completed", "paused"}


def test_a_repeated_ask_with_its_key_gets_the_same_trial_also_when_it_is_over(
    client: TestClient, external: Small
) -> None:
    study = open_study(client, external(strategy={"random": {"budget": 1}}))
    first = ask(client, study, headers={"Idempotency-Key": "k1"})
    other = ask(client, study, headers={"Idempotency-Key": "k2"})
    again = ask(client, study, headers={"Idempotency-Key": "k1"})
    tell(client, study, first, 1, 0.5)
    later = ask(client, study, headers={"Idempotency-Key": "k1"})
    assert [assignment["trial"] for assignment in (first, other, again, later)] == [0, 1, 0, 0]
    assert [assignment["attempt"] for assignment in (first, again, later)] == [1, 1, 1]


def test_a_repeated_ask_holds_the_lease_it_names_and_goes_on_from_the_trial(
    client: TestClient, either_backend: Backend, external: Small
) -> None:
    study = open_study(
        client, external(strategy={"median": {"sampler": "random", "max_budget": 3}}, max_trials=1)
    )
    key = {"Idempotency-Key": "k"}
    checkpoint = either_backend.store.put_blob(b"weights")
    ask(client, study, headers=key, json={"lease_seconds": 2})
    body = {"attempt": 1, "epoch": 1, "values": {"score": 0.5}, "checkpoint": checkpoint, "lease_seconds": 2}
    assert client.post(f"/hpo/studies/{study}/trials/0/tell", json=body).json()["epochs"] == 2
    for _ in range(2):  # also while nothing is to be done for others
        again = ask(client, study, headers=key, json={"lease_seconds": 600})
        assert (again["attempt"], again["epoch"], again["epochs"], again["checkpoint"]) == (
            1,
            1,
            2,
            checkpoint,
        )
        with either_backend.catalog.read() as session:
            assert session.get_one(TrialRow, (study, 0)).lease_until == pytest.approx(again["lease_until"])
        assert again["lease_until"] > either_backend.catalog.now() + 300
        assert client.post(f"/hpo/studies/{study}/ask").status_code == 204


def test_a_repeated_ask_for_an_attempt_that_is_over_promises_no_lease(
    client: TestClient, external: Small
) -> None:
    study = open_study(
        client, external(strategy={"median": {"sampler": "random", "max_budget": 2}}, max_trials=1)
    )
    key = {"Idempotency-Key": "k"}
    first = ask(client, study, headers=key)
    tell(client, study, first, 1, 0.5)
    client.post(f"/hpo/studies/{study}/trials/0/release", json={"attempt": 1})
    released = ask(client, study, headers=key)
    assert (released["attempt"], released["epoch"], released["epochs"], released["lease_until"]) == (
        1,
        1,
        1,
        None,
    )
    second = ask(client, study, headers={"Idempotency-Key": "other"})
    assert (second["attempt"], second["epoch"], second["epochs"]) == (2, 1, 2)
    assert ask(client, study, headers=key)["lease_until"] is None
    assert tell(client, study, second, 2, 0.5)["decision"] == "complete"
    assert ask(client, study, headers={"Idempotency-Key": "other"})["lease_until"] is None


def test_asks_with_one_key_that_come_at_once_get_one_trial(client: TestClient, external: Small) -> None:
    study = open_study(client, external())
    together = threading.Barrier(4)

    def ask_together(_: int) -> int:
        together.wait(10)
        return int(ask(client, study, headers={"Idempotency-Key": "k"})["trial"])

    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(ask_together, range(4))) == {0}


def test_loops_of_one_study_hold_few_threads_and_no_other_study_up(
    client: TestClient, either_backend: Backend, external: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = open_study(client, external())
    other = open_study(client, external(seed=3))
    threads = []
    may_end = threading.Event()

    def ask(loops: ExternalLoops, *_: Any, **__: Any) -> Wait:
        if loops.scheduler.id == slow:
            threads.append(threading.get_ident())
            may_end.wait(30)
        return Wait()

    monkeypatch.setattr(ExternalLoops, "ask", ask)
    askers = client.app.state.halving.loop_queue._askers  # type: ignore[attr-defined]
    with ThreadPoolExecutor(6) as pool:
        try:
            asking = [pool.submit(client.post, f"/hpo/studies/{slow}/ask") for _ in range(6)]
            at_once = 4 if either_backend.catalog.engine.dialect.name == "postgresql" else 1
            wait_for(
                lambda: slow in askers and askers[slow].asking == 6 and len(threads) >= at_once,
                60,
                "all have come",
                every=0.01,
            )
            assert client.post(f"/hpo/studies/{other}/ask").status_code == 204
            assert len(threads) == at_once
        finally:
            may_end.set()
        assert {request.result(30).status_code for request in asking} == {204}


def test_loops_beyond_their_turns_are_told_when_to_ask_again(client: TestClient) -> None:
    app: Any = client.app
    app.state.halving = replace(app.state.halving, loop_queue=FairQueue(1, 1, waiting=0))
    body = {"attempt": 1, "epoch": 1, "values": {}, "error": "it burns"}
    for path, names in (("ask", ()), *((f"trials/0/{name}", names) for name, names in REPORTS.items())):
        answer = client.post(f"/hpo/studies/digits-1234/{path}", json={name: body[name] for name in names})
        assert (answer.status_code, bool(answer.headers.get("Retry-After"))) == (503, True), path
