"""What external loops tell of their trials, and what is decided on it."""

import json
import threading
from contextlib import closing
from typing import Any

import pytest
from fastapi.testclient import TestClient

from halving import Store
from halving.errors import StoreUnavailable
from halving.store.store import blob_name
from resources.backend import Backend
from resources.catalog import Catalog, RungResultRow, TrialRow
from resources.execution.external_loops import ExternalLoops
from resources.scheduling.loop_scheduler import LoopScheduler
from tests.server.loops import Small, ask, open_for_loops, open_study, tell


def test_what_is_told_again_is_answered_as_before(client: TestClient, external: Small) -> None:
    study = open_study(client, external(strategy={"median": {"sampler": "random", "max_budget": 3}}))
    assignment = ask(client, study)
    first = tell(client, study, assignment, 1, 0.3)
    assert (first["decision"], first["epochs"]) == ("continue", 2)
    tell(client, study, assignment, 2, 0.4)
    again = tell(client, study, assignment, 1, 0.9)
    assert (again["decision"], again["epochs"]) == ("continue", 2)
    ends = [tell(client, study, assignment, 3, value)["decision"] for value in (0.5, 0.6)]
    assert ends == ["complete", "complete"]


def test_what_is_decided_on_a_tell_is_written_in_one_transaction_with_the_lease(
    either_backend: Backend, external: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = either_backend.catalog
    writes = list[Catalog]()
    turn = Catalog._turn_to_write
    study = open_for_loops(
        either_backend, external(strategy={"median": {"sampler": "random", "max_budget": 2}})
    )

    def count(written: Catalog) -> Any:
        writes.append(written)
        return turn(written)

    monkeypatch.setattr(Catalog, "_turn_to_write", count)
    with closing(ExternalLoops(catalog, study)) as loops:
        assignment = loops.ask("w", 60)
        for epoch, decision in ((1, "continue"), (2, "complete")):
            writes.clear()
            verdict = loops.tell(0, 1, epoch, {"score": 0.5}, lease_seconds=5_000)
            assert (verdict.decision, len(writes)) == (decision, 1)
            if decision == "continue":
                with catalog.read() as session:
                    assert session.get_one(TrialRow, (study, 0)).lease_until >= assignment.lease_until + 4_000  # type: ignore[union-attr, operator]


def test_a_search_of_which_nothing_is_known_any_more_may_be_over(
    either_backend: Backend, external: Small
) -> None:
    scheduler = LoopScheduler(either_backend.catalog, open_for_loops(either_backend, external()))
    assert scheduler.may_be_over()
    assert scheduler.running() == 0
    assert not scheduler.may_be_over()
    scheduler._transactions.cache.forget()  # as after a transaction that failed
    assert scheduler.may_be_over()


def test_an_attempt_that_was_lost_is_not_told_to_go_on_when_it_tells_again(
    client: TestClient, external: Small
) -> None:
    study = open_study(
        client, external(strategy={"median": {"sampler": "random", "max_budget": 3}}, max_trials=1)
    )
    assignment = ask(client, study)
    assert tell(client, study, assignment, 1, 0.3)["decision"] == "continue"
    body = {"attempt": 1, "epoch": 1, "values": {"score": 0.3}}
    client.post(f"/hpo/studies/{study}/trials/0/release", json={"attempt": 1})
    assert client.post(f"/hpo/studies/{study}/trials/0/tell", json=body).status_code == 409
    assert ask(client, study)["attempt"] == 2
    assert client.post(f"/hpo/studies/{study}/trials/0/tell", json=body).status_code == 409


def test_nothing_is_decided_between_rungs_or_accepted_beyond_the_grant(
    client: TestClient, external: Small
) -> None:
    study = open_study(client, external(strategy={"random": {"budget": 5}}))
    assignment = ask(client, study)
    before = tell(client, study, assignment, 2, 0.1)
    assert (before["decision"], before["epochs"]) == ("continue", 5)
    path = f"/hpo/studies/{study}/trials/0/tell"
    beyond = client.post(path, json={"attempt": 1, "epoch": 6, "values": {"score": 1}})
    assert (beyond.status_code, "5 epochs are granted" in beyond.text) == (422, True)
    missing = client.post(path, json={"attempt": 1, "epoch": 5, "values": {"loss": 1}})
    assert (missing.status_code, missing.json()["detail"]) == (
        422,
        "values = loss is not accepted: score is missing; at a rung tell score",
    )
    assert tell(client, study, assignment, 5, 0.2)["decision"] == "complete"


def test_a_value_that_is_not_finite_ends_the_trial(client: TestClient, external: Small) -> None:
    study = open_study(client, external())
    ask(client, study)
    body = {"attempt": 1, "epoch": 1, "values": {"score": "NaN"}}
    answers = [client.post(f"/hpo/studies/{study}/trials/0/tell", json=body).json() for _ in range(2)]
    assert answers[0]["decision"] == answers[1]["decision"] == "stop"
    assert "'score' became nan" in answers[0]["reason"]


def test_a_value_that_is_not_finite_and_is_not_asked_for_is_left_out(
    client: TestClient, either_backend: Backend, external: Small
) -> None:
    study = open_study(client, external(strategy={"random": {"budget": 1}}))
    ask(client, study)
    values = {"score": 0.5, "a": "NaN", "b": "Infinity", "c": "-Infinity", "a\0b": 3.0}
    body = {"attempt": 1, "epoch": 1, "values": values}
    for _ in range(2):
        answer = client.post(f"/hpo/studies/{study}/trials/0/tell", json=body)
        assert (answer.status_code, answer.json()["decision"]) == (200, "complete"), answer.text
    with either_backend.catalog.read() as session:
        assert session.get_one(RungResultRow, (study, 0, 0)).metrics == {"score": 0.5, "a\0b": 3.0}
    assert client.get(f"/hpo/studies/{study}").status_code == 200


def test_too_many_values_or_overlong_names_are_refused_and_the_trial_goes_on(
    client: TestClient, external: Small
) -> None:
    study = open_study(client, external(strategy={"random": {"budget": 1}}))
    assignment = ask(client, study)
    for values in (
        {f"m{number}": 0.0 for number in range(1_001)},
        {"m" * 501: 0.0},
        {"": 0.0},
        {"\ud800": 0.0},
    ):
        body = json.dumps({"attempt": 1, "epoch": 1, "values": {"score": 0.5, **values}})
        refused = client.post(
            f"/hpo/studies/{study}/trials/0/tell", content=body, headers={"Content-Type": "application/json"}
        )
        assert (refused.status_code, "values" in refused.json()["detail"]) == (422, True), refused.text
    assert tell(client, study, assignment, 1, 0.5)["decision"] == "complete"


def test_a_checkpoint_missing_from_the_store_is_refused_and_the_trial_goes_on(
    client: TestClient, either_backend: Backend, external: Small
) -> None:
    study = open_study(client, external(strategy={"random": {"budget": 1}}))
    tell = "/hpo/studies/{}/trials/0/tell"
    ask(client, study)
    body = {"attempt": 1, "epoch": 1, "values": {"score": 0.5}, "checkpoint": "sha256:" + "2" * 64}
    refused = client.post(tell.format(study), json=body)
    assert (refused.status_code, "the store has no such blob" in refused.json()["detail"]) == (422, True), (
        refused.text
    )
    body["checkpoint"] = either_backend.store.put_blob(b"weights")
    assert client.post(tell.format(study), json=body).json()["decision"] == "complete"
    either_backend.store.delete(blob_name(str(body["checkpoint"])))  # as retention may
    assert client.post(tell.format(study), json=body).json()["decision"] == "complete", (
        "told again, it is answered as before"
    )


def test_a_silent_store_is_asked_again_later_while_other_loops_tell(
    client: TestClient, external: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = open_study(client, external(strategy={"random": {"budget": 1}}))
    options = ask(client, study)

    def hangs(_: Store, digest: str) -> bool:
        assert threading.current_thread().name == "AnyIO worker thread"
        raise StoreUnavailable("the store is away")

    monkeypatch.setattr(Store, "has_blob", hangs)
    body = {"attempt": 1, "epoch": 1, "values": {"score": 0.5}, "checkpoint": "sha256:" + "2" * 64}
    assert client.post(f"/hpo/studies/{study}/trials/0/tell", json=body).status_code == 503
    assert tell(client, study, options, 1, 0.5)["decision"] == "complete"
