"""Alerts over HTTP: who sees which, and that only administrators know where they are sent to."""

from collections.abc import Callable, Iterator

import pytest
from fastapi.testclient import TestClient

from resources.alerts.alert import Alert
from resources.alerts.channels import add_channel
from resources.alerts.outbox import (
    claim_messages,
    raise_alert,
    settle_failed,
    write_messages,
)
from resources.backend import Backend
from server.settings import Settings
from tests.alert_receiver import Receiver, running_receiver
from tests.server.clients import client_of
from tests.waiting import wait_for

ALERTS = "/api/v1/alerts"
SLACK = "https://hooks.example.com/services/T0/B0/VERYSECRET"
NEW = {"name": "team", "kind": "slack", "address": SLACK}


def crash(backend: Backend, project: str | None) -> None:
    with backend.catalog.write() as session:
        title = f"{project}/a crashed"
        alert = Alert(f"key of {project}", "crashed", "run", f"{project}/a", title, project=project)
        raise_alert(session, alert, backend.catalog.now())


def test_a_channel_is_added_listed_and_removed_and_its_address_is_never_shown(local: TestClient) -> None:
    assert local.post(f"{ALERTS}/channels", json=NEW).json() == {"name": "team", "secret": None}
    listed = local.get(f"{ALERTS}/channels")
    (channel,) = listed.json()["channels"]
    assert (channel["kind"], channel["host"], channel["created_by"]) == (
        "slack",
        "hooks.example.com",
        "local",
    )
    assert "VERYSECRET" not in listed.text
    assert local.post(f"{ALERTS}/channels", json=NEW).status_code == 409
    assert "VERYSECRET" not in local.get("/api/v1/write-log").text
    assert local.delete(f"{ALERTS}/channels/team").json() == {"removed": "team"}
    assert local.delete(f"{ALERTS}/channels/team").status_code == 404
    assert local.get(f"{ALERTS}/channels").json() == {"channels": []}


def test_a_webhooks_key_is_shown_once(local: TestClient) -> None:
    added = local.post(f"{ALERTS}/channels", json={**NEW, "kind": "webhook"}).json()
    assert added["secret"].startswith("whsec_")
    assert added["secret"] not in local.get(f"{ALERTS}/channels").text


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"kind": "pager"}, "kind = 'pager' is not accepted"),
        ({"address": "ftp://example.com"}, "address is not accepted"),
        ({"address": "https://a@127.0.0.1/"}, "user name"),
        ({"events": ["chrashed"]}, "did you mean 'crashed'?"),
        ({"name": "a/b"}, "channel"),
        ({"secret": "x"}, "secret is not accepted for slack"),
    ],
)
def test_a_wrong_channel_is_refused_with_the_field(
    local: TestClient, change: dict[str, object], reason: str
) -> None:
    refused = local.post(f"{ALERTS}/channels", json={**NEW, **change})
    assert refused.status_code == 422
    assert reason in refused.json()["detail"]
    assert "VERYSECRET" not in refused.text


def test_a_token_sees_the_alerts_of_its_projects_and_no_channels(
    backend: Backend, guarded: TestClient, bearer: Callable[..., dict[str, str]]
) -> None:
    for project in ("digits", "letters", None):
        crash(backend, project)
    limited = bearer("limited", scope="read", projects=["digits"])
    subjects = [alert["project"] for alert in guarded.get(ALERTS, headers=limited).json()["alerts"]]
    assert subjects == [None, "digits"]
    assert guarded.get(f"{ALERTS}?project=letters", headers=limited).status_code == 404
    everything = guarded.get(f"{ALERTS}?project=letters", headers=bearer("all", scope="read"))
    assert [alert["project"] for alert in everything.json()["alerts"]] == [None, "letters"]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/channels"),
        ("POST", "/channels"),
        ("DELETE", "/channels/team"),
        ("POST", "/channels/team/test"),
        ("GET", "/dead"),
        ("POST", "/dead/msg_1/retry"),
    ],
)
def test_only_administrators_reach_channels_and_dead_letters(
    guarded: TestClient, bearer: Callable[..., dict[str, str]], method: str, path: str
) -> None:
    for scope in ("read", "write"):
        refused = guarded.request(method, ALERTS + path, headers=bearer(f"{scope}-er", scope=scope), json=NEW)
        assert refused.status_code == 403
    assert guarded.request(method, ALERTS + path, json=NEW).status_code == 401


def test_a_dead_letter_is_listed_with_its_reason_and_sent_again(local: TestClient, backend: Backend) -> None:
    with backend.catalog.write() as session:
        add_channel(session, "hook", "webhook", "https://hooks.invalid/", actor="ada")
    crash(backend, "digits")
    assert write_messages(backend.catalog, 0.0) == 1
    (message,) = claim_messages(backend.catalog, 1)
    settle_failed(backend.catalog, message, "HTTP 404", None)
    (dead,) = local.get(f"{ALERTS}/dead").json()["messages"]
    assert (dead["channel"], dead["error"], dead["alerts"]) == ("hook", "HTTP 404", ["digits/a crashed"])
    (alert,) = local.get(ALERTS).json()["alerts"]
    assert alert["deliveries"] == [{"channel": "hook", "state": "dead", "tries": 1, "error": "HTTP 404"}]
    assert local.post(f"{ALERTS}/dead/{dead['message']}/retry").json() == {"messages": 1}
    assert local.post(f"{ALERTS}/dead/msg_none/retry").status_code == 404


def test_a_rule_is_set_listed_and_removed_by_who_may_write_in_its_project(
    guarded: TestClient, bearer: Callable[..., dict[str, str]]
) -> None:
    rule = {"silent_after": 900.0, "bounds": [{"metric": "val_loss", "above": 10.0, "below": None}]}
    writer = bearer("writer", scope="write", projects=["digits"])
    written = guarded.put(f"{ALERTS}/rules/digits", headers=writer, json=rule)
    assert written.json() == {"project": "digits", **rule}
    assert guarded.put(f"{ALERTS}/rules/letters", headers=writer, json=rule).status_code == 404
    assert guarded.put(f"{ALERTS}/rules/*", headers=writer, json=rule).status_code == 404
    reader = bearer("reader", scope="read")
    assert guarded.put(f"{ALERTS}/rules/digits", headers=reader, json=rule).status_code == 403
    stranger = bearer("stranger", scope="read", projects=["letters"])
    assert guarded.get(f"{ALERTS}/rules", headers=stranger).json() == {"rules": []}
    assert len(guarded.get(f"{ALERTS}/rules", headers=reader).json()["rules"]) == 1
    removed = guarded.delete(f"{ALERTS}/rules/digits", headers=writer)
    assert removed.json() == {"removed": "digits"}
    assert guarded.delete(f"{ALERTS}/rules/digits", headers=writer).status_code == 404


@pytest.mark.parametrize(
    "rule",
    [
        {"silent_after": 1.0},
        {"bounds": [{"metric": "loss"}]},
        {"bounds": [{"metric": "loss", "above": 1.0, "below": 0.0}]},
        {"bounds": [{"metric": "", "above": 1.0}]},
    ],
)
def test_a_wrong_rule_is_refused(local: TestClient, rule: dict[str, object]) -> None:
    assert local.put(f"{ALERTS}/rules/digits", json=rule).status_code == 422


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with running_receiver() as receiver:
        yield receiver


def test_a_test_message_reaches_a_listed_network_and_no_other(backend: Backend, receiver: Receiver) -> None:
    hook = {"name": "hook", "kind": "webhook", "address": receiver.url}
    for networks, error in (((), "not a public address"), (("127.0.0.0/8",), None)):
        with client_of(Settings(root=backend.store.root, alert_networks=networks)) as client:
            client.post(f"{ALERTS}/channels", json=hook)
            outcome = client.post(f"{ALERTS}/channels/hook/test").json()
        if error is None:
            assert outcome == {"channel": "hook", "error": None}
        else:
            assert error in outcome["error"]
    (body,) = receiver.bodies
    assert body["data"]["alerts"][0]["title"] == "This is a test of Halving's alerts"


@pytest.mark.slow
def test_a_server_sends_what_was_raised(backend: Backend, receiver: Receiver) -> None:
    with client_of(Settings(root=backend.store.root, alert_networks=("127.0.0.0/8",))) as client:
        client.post(f"{ALERTS}/channels", json={"name": "hook", "kind": "webhook", "address": receiver.url})
        crash(backend, "digits")
        wait_for(lambda: receiver.bodies, 60, "the message of the alert")
    assert receiver.bodies[0]["data"]["alerts"][0]["subject"] == "digits/a"
