"""Models over HTTP: versions, stages, decisions of people, and addresses of checkpoints."""

import time
from collections.abc import Callable
from typing import Any

from fastapi.testclient import TestClient
from itsdangerous import URLSafeTimedSerializer

from halving import resolve
from resources.backend import Backend
from resources.sweep_spec import SweepSpec
from server import checkpoint_links
from tests.server.registry import promote_winner
from tests.waiting import wait_for

Spec = Callable[..., SweepSpec]


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
