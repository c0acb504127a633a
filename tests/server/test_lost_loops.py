"""Trials of external loops that die, fail, or are given back."""

from fastapi.testclient import TestClient
from sqlalchemy import text

from resources.backend import Backend
from resources.catalog import TrialRow
from resources.execution.external_loops import ExternalLoops
from tests.clock import Clock
from tests.server.loops import Small, ask, open_for_loops, open_study, tell


def test_a_loop_that_dies_loses_its_trial_to_another_loop(either_backend: Backend, external: Small) -> None:
    clock = Clock()
    loops = ExternalLoops(
        either_backend.catalog, open_for_loops(either_backend, external(max_trials=1)), clock=clock
    )
    first = loops.ask("dies", 60)
    for now in (59, 10, 10):  # the lease runs out, is doubted, and is lost
        clock.now += now
        loops.settle()  # or it would not look again so soon
        again = loops.ask("lives", 60)
    assert (first.trial, first.attempt, again.trial, again.attempt) == (0, 1, 0, 2)  # type: ignore[union-attr]
    loops.close()


def test_a_heartbeat_renews_the_lease_and_tells_of_a_pause(client: TestClient, external: Small) -> None:
    study = open_study(client, external())
    assignment = ask(client, study, json={"lease_seconds": 5})
    beat = f"/hpo/studies/{study}/trials/0/heartbeat"
    renewed = client.post(beat, json={"attempt": 1, "lease_seconds": 500}).json()
    assert renewed["lease_until"] > assignment["lease_until"] + 400
    client.post(f"/hpo/studies/{study}/pause")
    assert client.post(beat, json={"attempt": 1}).json()["decision"] == "pause"
    assert (
        client.post(f"/hpo/studies/{study}/trials/0/release", json={"attempt": 1}).json()["decision"]
        == "pause"
    )
    assert client.post(beat, json={"attempt": 1}).status_code == 409
    for _ in range(2):  # also while nobody looks again
        nothing = client.post(f"/hpo/studies/{study}/ask")
        assert (nothing.status_code, nothing.headers["Held-Back"]) == (204, "the sweep's user has paused it")
    client.post(f"/hpo/studies/{study}/resume")
    assert ask(client, study)["attempt"] == 2


def test_a_trial_that_is_handed_out_again_comes_with_the_checkpoint_that_was_told(
    client: TestClient, either_backend: Backend, external: Small
) -> None:
    study = open_study(client, external(strategy={"median": {"sampler": "random", "max_budget": 3}}))
    digest = either_backend.store.put_blob(b"weights")
    assignment = ask(client, study)
    tell = f"/hpo/studies/{study}/trials/0/tell"
    for epoch, told_with in ((1, {"checkpoint": digest}), (2, {})):
        body = {"attempt": assignment["attempt"], "epoch": epoch, "values": {"score": 0.5}, **told_with}
        assert client.post(tell, json=body).json()["decision"] == "continue"
    client.post(f"/hpo/studies/{study}/trials/0/release", json={"attempt": 1})
    again = ask(client, study)
    assert (again["attempt"], again["epoch"], again["epochs"], again["checkpoint"]) == (2, 2, 3, digest)
    wrong = client.post(
        tell, json={"attempt": 2, "epoch": 3, "values": {"score": 0.5}, "checkpoint": "model.pt"}
    )
    assert wrong.status_code == 422


def test_a_failed_trial_is_tried_again_and_then_given_up(client: TestClient, external: Small) -> None:
    study = open_study(client, external(max_retries=1))
    decisions = []
    for attempt in (1, 2):
        assert ask(client, study)["attempt"] == attempt
        body = {"attempt": attempt, "error": "it burns"}
        decisions += [
            client.post(f"/hpo/studies/{study}/trials/0/fail", json=body).json()["decision"] for _ in range(2)
        ]
    assert decisions == ["retry", "retry", "stop", "stop"]


def test_who_ends_an_attempt_is_in_the_write_log_once_or_it_is_not_ended(
    client: TestClient, either_backend: Backend, external: Small
) -> None:
    study = open_study(client, external())
    trial = f"/hpo/studies/{study}/trials"
    for number in range(3):
        ask(client, study)
        client.post(f"{trial}/{number}/heartbeat", json={"attempt": 1})
    ends = {
        "0/release": {"attempt": 1},
        "1/fail": {"attempt": 1, "error": "it burns", "final": True},
        "2/release": {"attempt": 1},
    }
    with either_backend.catalog.write() as session:
        session.execute(text("ALTER TABLE write_log RENAME TO gone"))
    assert client.post(f"{trial}/0/release", json={"attempt": 1}).status_code == 500
    with either_backend.catalog.write() as session:
        session.execute(text("ALTER TABLE gone RENAME TO write_log"))
        assert session.get_one(TrialRow, (study, 0)).status == "running"
    for path, body in ends.items():
        assert [client.post(f"{trial}/{path}", json=body).status_code for _ in range(2)] == [200, 200]
    entries = client.get("/write-log").json()["entries"]
    ended = [
        (entry["actor"], entry["target"])
        for entry in entries
        if "/trials/" in entry["route"] and entry["status"] == 200
    ]
    assert ended == [("local", f"/api/v1{trial}/{path}") for path in reversed(ends)]


def test_a_study_that_is_stopped_ends_with_the_last_trial_that_is_given_back(
    client: TestClient, either_backend: Backend, external: Small
) -> None:
    study = open_study(client, external(strategy={"random": {"budget": 1}}))
    assignment = ask(client, study)
    last = ask(client, study)
    tell(client, study, assignment, 1, 0.5)
    client.post(f"/hpo/studies/{study}/stop")
    client.post(f"/hpo/studies/{study}/trials/{last['trial']}/release", json={"attempt": 1})
    assert client.get(f"/hpo/studies/{study}").json()["status"] == "finished"
    assert client.post(f"/hpo/studies/{study}/ask").status_code == 410


def test_a_stopped_study_without_a_running_trial_has_ended_at_once(
    client: TestClient, external: Small
) -> None:
    study = open_study(client, external())
    tell(client, study, ask(client, study), 1, 0.5)
    client.post(f"/hpo/studies/{study}/stop")
    assert client.get(f"/hpo/studies/{study}").json()["status"] == "finished"
