"""Sweeps, models, datasets and reports over HTTP show and do what the command line does."""

import time
from collections.abc import Callable
from datetime import date
from typing import Any
from unittest.mock import ANY

import pytest
from fastapi.testclient import TestClient
from itsdangerous import URLSafeTimedSerializer

from halving import resolve
from resources.analysis.summary import summarize
from resources.backend import Backend
from resources.catalog import ProjectRow, SweepRow, TrialRow, utcnow
from resources.datasets.snapshots import take_snapshot
from resources.features.partitions import partitions
from resources.registry.leaderboard import leaderboard_of
from resources.scheduling import intents
from resources.scheduling.sweeps import open_sweep
from resources.sweep_spec import SweepSpec, parse_spec
from server import checkpoint_links
from tests.searches import search
from tests.server.joined import with_features
from tests.server.launched import carried_out
from tests.server.registry import promote_winner, score
from tests.waiting import wait_for

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
    assert [each["key"] for each in study["standings"]] == [each["key"] for each in leaderboard["standings"]]
    assert [trial["number"] for trial in study["trials"]] == list(range(len(study["trials"])))
    by_key = {each.key: each for each in summarize(backend.catalog, sweep).standings}
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


def test_models_show_their_versions_and_change_their_stage(
    client: TestClient, either_backend: Backend, small_spec: Spec
) -> None:
    first, second = (
        promote_winner(either_backend, small_spec(max_trials=trials), checkpoint=b"%d" % trials)
        for trials in (1, 2)
    )
    (model,) = client.get("/models").json()["models"]
    assert [(version["version"], version["stage"]) for version in model["versions"]] == [
        ("1.0.0", "champion"),
        ("1.0.1", "staging"),
    ]
    assert client.get("/models/small").json() == model
    changed = client.post("/models/small/versions/1.0.1/promote").json()
    assert (changed["stage"], changed["checkpoint"]) == ("champion", second.checkpoint)
    assert client.post("/models/small/versions/1.0.0/promote").json()["stage"] == "champion"  # back again
    assert client.get("/models/small/champion").json()["checkpoint"] == first.checkpoint
    assert client.post("/models/small/versions/1.0.0/archive").json()["stage"] == "archived"
    assert client.get("/models/small/champion").status_code == 404
    for path in (
        "/models/small/versions/9.9.9/promote",
        "/models/nothing/versions/1.0.0/archive",
        "/models/nothing/rollback",
    ):
        assert client.post(path).status_code == 404


def test_people_decide_about_versions_in_the_name_of_their_tokens(
    guarded: TestClient, backend: Backend, small_spec: Spec, bearer: Any
) -> None:
    approval = {"required": True, "by": ["ann", "bob"]}
    promote_winner(backend, small_spec(max_trials=1))
    version = promote_winner(backend, small_spec(max_trials=2, approval=approval)).version
    ann = bearer("ann", scope="write")
    eve = bearer("eve", scope="write")
    address = f"/api/v1/models/small/versions/{version}"
    refused = guarded.post(f"{address}/promote", headers=ann)
    assert (refused.status_code, "waits for the approval of 1 of ann, bob" in refused.json()["detail"]) == (
        422,
        True,
    ), refused.text
    assert (
        "eve is not among those"
        in guarded.post(f"{address}/approve", headers=eve, json={"note": "mine"}).json()["detail"]
    )
    assert guarded.post(f"{address}/approve", headers=ann, json={"note": ""}).status_code == 422
    assert (
        guarded.post(f"{address}/reject", headers=ann, json={"note": "too slow"}).json()["stage"] == "staging"
    )
    assert "ann rejected it: too slow" in guarded.post(f"{address}/promote", headers=eve).json()["detail"]
    assert guarded.post(f"{address}/approve", headers=ann, json={"note": "fast now"}).status_code == 200
    assert guarded.post(f"{address}/promote", headers=eve).json()["stage"] == "champion"
    wait_for(
        lambda: resolve("small@champion", backend.store.root).version == version,
        60,
        "the store names the new champion",
    )
    assert (
        guarded.post("/api/v1/models/small/rollback", headers=eve, json={"note": "worse"}).json()["version"]
        == "1.0.0"
    )
    wait_for(
        lambda: resolve("small@champion", backend.store.root).version == "1.0.0",
        60,
        "the store names the champion before",
    )
    events = guarded.get("/api/v1/models/small/history", headers=eve).json()["events"]
    assert [
        (event["actor"], event["kind"], event["note"])
        for event in events
        if not event["actor"].startswith("sweep")
    ] == [
        ("ann", "rejected", "too slow"),
        ("ann", "approved", "fast now"),
        ("eve", "replaced", f"by {version}"),
        ("eve", "promoted", None),
        ("eve", "replaced", "by 1.0.0"),
        ("eve", "rolled back", "worse"),
    ]


def test_a_champion_is_fetched_by_a_signed_address(
    guarded: TestClient, backend: Backend, small_spec: Spec, bearer: Any
) -> None:
    weights = bytes(range(256)) * 10_000
    version = promote_winner(backend, small_spec(max_trials=1), checkpoint=weights)
    champion = guarded.get("/api/v1/models/small/champion", headers=bearer("ada")).json()
    assert (champion["checkpoint"], champion["input_schema"]) == (version.checkpoint, {"x": "double"})
    fetched = guarded.get(champion["url"])
    assert (fetched.status_code, fetched.content, int(fetched.headers["Content-Length"])) == (
        200,
        weights,
        len(weights),
    )
    assert fetched.headers["Content-Disposition"].startswith("attachment")


def test_an_address_of_a_checkpoint_holds_for_what_was_signed_and_not_for_ever(
    local: TestClient, backend: Backend, small_spec: Spec
) -> None:
    promote_winner(backend, small_spec(max_trials=1))
    url = local.get("/api/v1/models/small/champion").json()["url"]
    key = local.app.state.halving.signing_key  # type: ignore[attr-defined]

    old = URLSafeTimedSerializer(key, salt="checkpoint")
    signer = old.make_signer(b"checkpoint")
    signer.get_timestamp = lambda: int(time.time()) - checkpoint_links.SECONDS - 5  # type: ignore[method-assign]
    expired = signer.sign(old.dump_payload(backend.store.put_blob(b"weights"))).decode()
    other_use = URLSafeTimedSerializer(key, salt="session").dumps(backend.store.put_blob(b"weights"))
    for wrong in (
        url[:-2],
        url.replace("signed/", "signed/x"),
        *(f"/api/v1/signed/{signed}" for signed in (expired, other_use, "a")),
    ):
        assert local.get(wrong).status_code == 404, wrong


def test_a_report_has_its_scores_and_its_page_which_reaches_nothing(
    client: TestClient, either_backend: Backend, small_spec: Spec
) -> None:
    version = promote_winner(either_backend, small_spec(max_trials=1), page=b"<script>1</script>")
    report = client.get(f"/reports/{version.sweep}").json()
    assert report["metrics"] == {"accuracy": 0.9, "loss": None}
    page = client.get(f"/reports/{version.sweep}/page")
    assert page.content == b"<script>1</script>"
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    policy = page.headers["Content-Security-Policy"].split("; ")
    assert {"sandbox allow-scripts", "default-src 'none'"} <= set(policy)
    assert not [part for part in policy if "allow-same-origin" in part or part.startswith("connect-src")]
    assert client.get(f"/hpo/studies/{version.sweep}").json()["model"]["version"] == version.version
    assert client.get("/reports/nothing/page").status_code == 404


def test_reports_are_listed_the_newest_first(
    client: TestClient, either_backend: Backend, small_spec: Spec
) -> None:
    old, new = (
        promote_winner(either_backend, small_spec(name=name, max_trials=1)).sweep
        for name in ("zeta", "alpha")
    )
    listed = client.get("/reports").json()["reports"]
    assert [(report["sweep"], report["project"]) for report in listed] == [(new, "alpha"), (old, "zeta")]
    report = client.get(f"/reports/{old}").json()
    assert listed[1] == {
        "project": "zeta",
        **{name: report[name] for name in ("sweep", "metrics", "digest", "created_at", "page")},
    }
    assert client.get(listed[1]["page"].removeprefix("/api/v1")).content == b"<p>report"
    assert client.get("/reports", params={"limit": 1}).json()["reports"] == listed[:1]
    assert client.get("/reports", params={"project": "zeta"}).json()["reports"] == listed[1:]


def test_datasets_show_their_snapshots_and_the_sweeps_on_them(
    client: TestClient, either_backend: Backend, small_spec: Spec
) -> None:
    sweep = search(either_backend, small_spec(max_trials=1), score)
    (dataset,) = client.get("/datasets").json()["datasets"]
    assert dataset["name"] == "points"
    assert dataset["snapshots"][0]["sweeps"] == [sweep]
    assert client.get("/datasets/points").json() == dataset
    assert client.get("/datasets/nothing").json()["detail"] == "no dataset 'nothing'; there are points"


def test_a_snapshot_says_which_features_were_joined_to_it(
    client: TestClient, either_backend: Backend, small_spec: Spec
) -> None:
    snapshot = with_features(either_backend, date(2026, 3, 1), date(2026, 3, 2))
    made = partitions(either_backend.store, "clicks", 1)
    columns = [{"name": "ctr", "feature": "ctr"}, {"name": "at_night", "feature": "night"}]
    days = {"days": 2, "first": "2026-03-01", "last": "2026-03-02", "rows": sum(day.rows for day in made)}
    answered = client.get(f"/datasets/ctr/{snapshot.digest.removeprefix('sha256:')}").json()
    assert answered["views"] == [{"view": "clicks@1", "columns": columns, **days}]
    without_features = take_snapshot(either_backend.store, either_backend.catalog, small_spec().dataset)
    assert (
        client.get(f"/datasets/points/{without_features.digest.removeprefix('sha256:')}").json()["views"]
        == []
    )


def test_the_gates_of_a_version_are_judged_by_its_report(
    client: TestClient, either_backend: Backend, small_spec: Spec
) -> None:
    version = promote_winner(either_backend, small_spec(max_trials=1))
    gates = {gate["name"]: gate for gate in client.get(f"/reports/{version.sweep}/gates").json()["gates"]}
    assert not gates["finite_metrics"]["passed"]
    assert "loss" in gates["finite_metrics"]["reason"]
    assert "run record" in gates["lineage"]["reason"]  # the test trained nothing
    assert either_backend.store.root not in gates["lineage"]["reason"]
    assert gates["non_inferior"]["outcome"] == "pass"
    searching = search(either_backend, small_spec(name="other", max_trials=3), score, limit=2)
    assert client.get(f"/reports/{searching}/gates").status_code == 404
