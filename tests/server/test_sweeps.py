"""Sweeps, models, datasets and reports over HTTP show and do what the command line does."""

from collections.abc import Callable
from typing import Any
from unittest.mock import ANY

import pytest
from fastapi.testclient import TestClient

from resources.analysis.summary import summarize
from resources.backend import Backend
from resources.catalog import ProjectRow, SweepRow, TrialRow, utcnow
from resources.datasets.snapshots import take_snapshot
from resources.registry.leaderboard import leaderboard_of
from resources.scheduling import intents
from resources.scheduling.sweeps import open_sweep
from resources.sweep_spec import SweepSpec, parse_spec
from tests.searches import search
from tests.server.launched import carried_out
from tests.server.registry import promote_winner, score

Spec = Callable[..., SweepSpec]


def test_a_study_is_its_leaderboard_with_its_trials(
    client: TestClient, either_backend: Backend, small_spec: Spec
) -> None:
    backend = either_backend
    sweep = search(backend, small_spec(max_trials=4), score, limit=3)
    study = client.get(f"/hpo/studies/{sweep}").json()
    leaderboard = leaderboard_of(backend.store, backend.catalog, sweep)
    for name in ("objective", "direction", "counts", "planned", "epochs_trained", "saved"):
        assert study[name] == leaderboard[name], name
    assert [standing["key"] for standing in study["standings"]] == [
        standing["key"] for standing in leaderboard["standings"]
    ]
    assert [trial["number"] for trial in study["trials"]] == list(range(len(study["trials"])))
    by_key = {standing.key: standing for standing in summarize(backend.catalog, sweep).standings}
    for trial in study["trials"]:
        standing = by_key.get(trial["key"])
        assert trial["objective"] == (standing.objective if standing else None)
    assert len(study["timeline"]["attempts"]) >= len(by_key)
    assert (study["report"], study["model"]) == (None, None)


def test_a_list_of_studies_has_the_newest_first_and_their_leaders(
    client: TestClient, either_backend: Backend, small_spec: Spec
) -> None:
    backend = either_backend
    sweeps = [
        search(
            backend,
            small_spec(max_trials=4, objective={"metric": "score", "direction": direction}),
            score,
            limit=5,
        )
        for direction in ("maximize", "minimize")
    ]
    bounded = small_spec(name="bounded", max_trials=6, bounds={"score": {"max": 2.0}})
    sweeps.append(search(backend, bounded, score))
    sweeps.append(search(backend, small_spec(name="failing", max_trials=2, max_retries=0), lambda *_: None))
    studies = client.get("/hpo/studies").json()["studies"]
    assert [study["id"] for study in studies] == sweeps[::-1]
    for study in studies:
        summary = summarize(backend.catalog, study["id"])
        assert study["best"] == (summary.best.objective if summary.best else None), study["id"]
        assert study["counts"] == summary.counts
        assert study["trials"] == summary.planned
    assert [study["id"] for study in client.get("/hpo/studies?project=bounded").json()["studies"]] == [
        sweeps[2]
    ]
    assert len(client.get("/hpo/studies?limit=1").json()["studies"]) == 1


def test_a_sweep_with_an_unreadable_spec_is_listed_with_the_reason(
    client: TestClient, either_backend: Backend, small_spec: Spec
) -> None:
    sweep, other = (search(either_backend, small_spec(max_trials=1, seed=seed), score) for seed in (0, 1))
    before = client.get("/hpo/studies").json()["studies"]
    with either_backend.catalog.write() as session:
        row = session.get_one(SweepRow, sweep)
        row.spec = {**row.spec, "of_another_version": 1}
    whole, damaged = client.get("/hpo/studies").json()["studies"]
    assert (whole, whole["id"]) == (before[0], other)
    assert "of_another_version" in damaged["problem"]
    unknown = dict.fromkeys(("objective", "direction", "best", "trials"))
    assert damaged == {**before[1], **unknown, "problem": damaged["problem"]}


def test_why_a_trial_waits_is_said_for_each(
    client: TestClient, either_backend: Backend, small_spec: Spec
) -> None:
    sweep = search(either_backend, small_spec(max_trials=3), score, limit=2)
    with either_backend.catalog.write() as session:
        running = session.query(TrialRow).filter_by(sweep=sweep, status="running").first()
        assert running is not None
        running.waiting = "Insufficient nvidia.com/gpu"
        number = running.number
    trials = client.get(f"/hpo/studies/{sweep}").json()["trials"]
    assert trials[number]["waiting"] == "Insufficient nvidia.com/gpu"
    assert {trial["waiting"] for trial in trials if trial["status"] == "paused"} == {
        "to be promoted, when it is among the best of its rung"
    }


def test_an_unchanged_study_is_not_sent_again(
    client: TestClient, either_backend: Backend, small_spec: Spec
) -> None:
    sweep = search(either_backend, small_spec(max_trials=3), score, limit=2)
    path = f"/hpo/studies/{sweep}"

    def tag() -> str:
        return str(client.get(path).headers["ETag"])

    first = tag()
    again = client.get(path, headers={"If-None-Match": first})
    assert (again.status_code, again.content, again.headers["ETag"]) == (304, b"", first)
    assert client.get(path, headers={"If-None-Match": "*"}).status_code == 304
    assert client.post(f"{path}/pause").json()["control"] == "pause"
    second = tag()
    assert second != first
    with either_backend.catalog.write() as session:
        session.query(TrialRow).filter_by(sweep=sweep, status="running").update({"waiting": "Unschedulable"})
    assert tag() not in (first, second)


def test_a_sweep_without_gpu_hours_is_refused_also_beside_an_open_one(
    local: TestClient, backend: Backend, small: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    with backend.catalog.write() as session:
        session.add(
            ProjectRow(
                name="small", owners=[], weight=1.0, gpu_hours=0.0, former_names=[], created_at=utcnow()
            )
        )
    snapshot = take_snapshot(backend.store, backend.catalog, parse_spec(small()).dataset)
    run = {
        "project": "small",
        "trainable": "tests.trainables:train",
        "dataset": snapshot.digest,
        "params": {"x": 0.5},
        "epochs": 1,
    }
    run |= {"objective": {"metric": "score", "direction": "maximize"}, "resources": {"gpus": 1}}
    open_sweep(
        backend.catalog,
        parse_spec(small(resources={"gpus": 1})),
        snapshot.digest,
        driver="sensors",
        commit=None,
    )
    for path, body in (("hpo/studies", small(resources={"gpus": 1})), ("training-runs", run)):
        refused = local.post(f"/api/v1/{path}", json=body)
        assert refused.status_code == 422, refused.text
        assert "project small has 0 of its 0 GPU-hours left this month" in refused.text
    assert intents.list_unsettled(backend.catalog) == []


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (
            {"dataset": {"source": {"sql": "SELECT * FROM read_blob('/proc/self/environ')"}}},
            "dataset.source.sql = ",
        ),
        (
            {"dataset": {"source": {"files": "/etc/passwd", "format": "csv"}}},
            "dataset.source.files = '/etc/passwd' ",
        ),
        ({"dataset": {"source": {"folder": "/"}}}, "dataset.source.folder = '/' "),
        ({"dataset": {"source": "os:getcwd"}}, "dataset.source = 'os:getcwd' "),
        ({"dataset": {"transform": "pickle:loads"}}, "dataset.transform = 'pickle:loads' "),
        ({"trainable": "os:system"}, "trainable = 'os:system' "),
    ],
)
def test_a_spec_over_http_names_what_is_listed_and_nothing_else_of_the_machine(
    guarded: TestClient,
    backend: Backend,
    small: Callable[..., dict[str, Any]],
    bearer: Any,
    monkeypatch: pytest.MonkeyPatch,
    change: dict[str, Any],
    field: str,
) -> None:
    spec = small()
    dataset = {**spec["dataset"], **change.get("dataset", {})}
    monkeypatch.setenv("HALVING_SOURCES", "/data/teams")
    headers = bearer("ada", scope="write")
    refused = guarded.post(
        "/api/v1/hpo/studies", json={**spec, **change, "dataset": dataset}, headers=headers
    )
    assert (refused.status_code, field in refused.json()["detail"]) == (422, True), refused.text
    assert "is not accepted over HTTP" in refused.text
    assert intents.list_unsettled(backend.catalog) == []
    listed = {**spec["dataset"], "source": {"files": "/data/teams/*.parquet"}}
    accepted = guarded.post("/api/v1/hpo/studies", json={**spec, "dataset": listed}, headers=headers)
    assert accepted.status_code == 202, accepted.text


def test_a_training_run_over_http_is_no_function_of_pythons_own(
    local: TestClient, backend: Backend, small: Callable[..., dict[str, Any]]
) -> None:
    snapshot = take_snapshot(backend.store, backend.catalog, parse_spec(small()).dataset)
    run = {
        "project": "small",
        "trainable": "os:system",
        "dataset": snapshot.digest,
        "params": {"x": 0.5},
        "epochs": 1,
    }
    refused = local.post(
        "/api/v1/training-runs", json={**run, "objective": {"metric": "score", "direction": "maximize"}}
    )
    assert (refused.status_code, "trainable = 'os:system' is not accepted over HTTP" in refused.text) == (
        422,
        True,
    ), refused.text


def test_a_study_is_paused_resumed_extended_and_stopped(
    client: TestClient, either_backend: Backend, small_spec: Spec
) -> None:
    path = f"/hpo/studies/{search(either_backend, small_spec(max_trials=2), score, limit=1)}"
    for control, expected in (("pause", "pause"), ("resume", "run"), ("stop", "stop")):
        assert client.post(f"{path}/{control}").json()["control"] == expected
    assert client.post(f"{path}/extend", json={"max_trials": 9}).json()["max_trials"] == 9
    ended = f"/hpo/studies/{promote_winner(either_backend, small_spec(name='other', max_trials=1)).sweep}"
    answer = client.post(f"{ended}/pause")
    assert answer.status_code == 409
    assert "its search is over" in answer.json()["detail"]


def test_a_study_that_waits_for_dagster_says_why_and_can_be_stopped(
    client: TestClient, either_backend: Backend, small: Callable[..., dict[str, Any]]
) -> None:
    intent = client.post("/hpo/studies", json=small()).json()
    study = f"/hpo/studies/{intent['study']}"
    waits = client.get(study).json()
    assert (waits["id"], waits["name"], waits["status"]) == (intent["study"], "small", "waiting")
    assert "every few seconds" in waits["intent"]["waiting"]
    (listed,) = client.get("/hpo/studies", params={"project": "small"}).json()["studies"]
    assert (listed["id"], listed["status"], listed["counts"], listed["objective"]) == (
        intent["study"],
        "waiting",
        {},
        "score",
    )
    assert listed["waiting"] == waits["intent"]["waiting"]
    assert client.get("/hpo/studies", params={"project": "other"}).json()["studies"] == []
    for does, body in (("pause", None), ("resume", None), ("extend", {"max_trials": 99})):
        refused = client.post(f"{study}/{does}", json=body)
        assert (refused.status_code, "is not open yet" in refused.text) == (409, True), refused.text
    for _ in range(2):
        stopped = client.post(f"{study}/stop")
        assert (stopped.status_code, stopped.json()["status"]) == (200, "canceled"), stopped.text
    assert client.get(study).json()["intent"] == {
        **waits["intent"],
        "status": "canceled",
        "waiting": None,
        "error": ANY,
    }
    assert [entry["target"] for entry in client.get("/write-log").json()["entries"]].count(
        f"/api/v1{study}/stop"
    ) == 2
    with pytest.raises(intents.IntentCanceled):
        carried_out(either_backend, intent["intent"])


def test_a_study_that_was_asked_for_and_has_been_opened_is_stopped_as_any_other(
    client: TestClient, either_backend: Backend, small_spec: Spec
) -> None:
    snapshot = take_snapshot(either_backend.store, either_backend.catalog, small_spec().dataset)
    spec = small_spec(snapshot=snapshot.digest).model_dump(mode="json", by_alias=True, exclude_none=True)
    intent = client.post("/hpo/studies", json=spec).json()
    carried_out(either_backend, intent["intent"])
    (listed,) = client.get("/hpo/studies").json()["studies"]
    assert (listed["id"], listed["status"], listed["waiting"]) == (intent["study"], "searching", None)
    stopped = client.post(f"/hpo/studies/{intent['study']}/stop").json()
    assert (stopped["status"], stopped["control"]) == ("searching", "stop")
    assert client.get(f"/hpo/studies/{intent['study']}").json()["intent"] is None


def test_a_study_that_could_not_be_opened_says_why_and_there_is_nothing_to_stop(
    client: TestClient, either_backend: Backend, small: Callable[..., dict[str, Any]]
) -> None:
    intent = client.post("/hpo/studies", json=small()).json()
    failed = intents.Became(intents.FAILED, "r1", f"no such column in {either_backend.store.root}/x")
    intents.become(either_backend.catalog, intent["intent"], failed)
    study = client.get(f"/hpo/studies/{intent['study']}").json()
    assert (study["status"], study["intent"]["error"]) == ("failed", "no such column in the store/x")
    refused = client.post(f"/hpo/studies/{intent['study']}/stop")
    assert (refused.status_code, "was never opened: no such column" in refused.text) == (409, True), (
        refused.text
    )
