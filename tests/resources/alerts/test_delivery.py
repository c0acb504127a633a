"""A message is delivered once, or kept with the reason why it was not."""

import base64
import hashlib
import hmac
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import select

from resources.alerts import delivery, http_post
from resources.alerts.alert import Alert
from resources.alerts.channels import add_channel
from resources.alerts.delivery import MAX_TRIES, Deliverer, judge_answer, pause_after
from resources.alerts.http_post import Answer
from resources.alerts.outbox import GATHER_SECONDS, MAX_PAUSE_SECONDS, raise_alert
from resources.catalog import AlertMessageRow, Catalog
from tests.alert_receiver import THIS_MACHINE, Receiver

SECRET = "whsec_" + base64.b64encode(b"k" * 32).decode()


@pytest.fixture
def now(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The catalog's time, which passes when a test says so."""
    times = [1_700_000_000.0]
    monkeypatch.setattr(catalog, "now", lambda: times[0])
    return times


@pytest.fixture
def hook(catalog: Catalog, receiver: Receiver, now: list[float]) -> Deliverer:
    """A deliverer with one alert whose time has come, for a webhook."""
    with catalog.write() as session:
        add_channel(session, "hook", "webhook", receiver.url, actor="ada", secret=SECRET)
        alert = Alert("k", "crashed", "run", "digits/a", "digits/a crashed", project="digits")
        raise_alert(session, alert, catalog.now())
    now[0] += GATHER_SECONDS
    return Deliverer(catalog, "https://halving.example.com", THIS_MACHINE)


def message_of(catalog: Catalog) -> AlertMessageRow:
    with catalog.read() as session:
        return session.scalars(select(AlertMessageRow)).one()


def test_a_webhook_gets_what_happened_signed_as_standard_webhooks_says(
    hook: Deliverer, receiver: Receiver, catalog: Catalog
) -> None:
    assert hook.deliver() == 1
    (body,) = receiver.bodies
    (alert,) = body["data"]["alerts"]
    assert body["type"] == "halving.alerts"
    assert alert["subject"] == "digits/a"
    assert alert["url"] == "https://halving.example.com/runs/digits/a"
    (headers,) = receiver.headers
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode()
    key = base64.b64decode(SECRET.removeprefix("whsec_"))
    content = json.dumps(body, ensure_ascii=False).encode()
    digest = hmac.new(key, signed + content, hashlib.sha256).digest()
    assert headers["webhook-signature"] == "v1," + base64.b64encode(digest).decode()
    assert message_of(catalog).state == "sent"


def test_a_refusal_that_may_pass_is_tried_again_under_the_same_id(
    hook: Deliverer, receiver: Receiver, catalog: Catalog, now: list[float]
) -> None:
    receiver.answers = [(503, {}), (429, {"Retry-After": "120"})]
    hook.deliver()
    row = message_of(catalog)
    assert (row.state, row.error) == ("waiting", "HTTP 503")
    now[0] = row.next_at
    hook.deliver()
    assert message_of(catalog).next_at == now[0] + 120
    now[0] += 119
    assert hook.deliver() == 0
    now[0] += 1
    assert hook.deliver() == 1
    assert list(receiver.taken) == [row.id]
    assert message_of(catalog).state == "sent"


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 301])
def test_a_refusal_that_stays_makes_a_dead_letter(
    hook: Deliverer, receiver: Receiver, catalog: Catalog, status: int
) -> None:
    receiver.answers = [(status, {})]
    hook.deliver()
    row = message_of(catalog)
    assert (row.state, row.error) == ("dead", f"HTTP {status}")


def test_a_receiver_that_never_answers_well_gets_no_more_than_its_tries(
    hook: Deliverer, receiver: Receiver, catalog: Catalog, now: list[float]
) -> None:
    receiver.failing = 1.0
    for _ in range(MAX_TRIES + 5):
        hook.deliver()
        now[0] = max(now[0], message_of(catalog).next_at)
    assert receiver.refused == MAX_TRIES
    assert message_of(catalog).state == "dead"


def test_a_private_address_is_a_dead_letter_that_says_why(hook: Deliverer, catalog: Catalog) -> None:
    Deliverer(catalog).deliver()
    row = message_of(catalog)
    assert row.state == "dead"
    assert "not a public address" in str(row.error)


def test_a_receiver_that_drips_bytes_does_not_hold_the_sender(
    hook: Deliverer, receiver: Receiver, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver.drips = True
    monkeypatch.setattr(http_post, "MAX_TRY_SECONDS", 0.3)
    assert hook.deliver() == 1
    row = message_of(catalog)
    assert row.state == "waiting"
    assert "Timeout" in str(row.error)


def test_an_answer_that_repeats_the_address_shows_nobody_the_secret(
    catalog: Catalog, receiver: Receiver, now: list[float]
) -> None:
    address = receiver.url.replace("/hook", "/services/T0/SECRETSECRET?token=HIDDENHIDDEN")
    with catalog.write() as session:
        add_channel(session, "team", "slack", address, actor="ada")
        raise_alert(session, Alert("k", "crashed", "run", "digits/a", "it crashed"), catalog.now())
    receiver.answers = [(404, {})]
    receiver.text = f"Cannot POST PATH, {address}"
    now[0] += GATHER_SECONDS
    Deliverer(catalog, None, THIS_MACHINE).deliver()
    error = str(message_of(catalog).error)
    assert error.startswith("HTTP 404: Cannot POST")
    assert "SECRET" not in error
    assert "HIDDEN" not in error


def test_a_message_that_cannot_be_sent_at_all_keeps_no_other_waiting(
    hook: Deliverer, receiver: Receiver, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> bytes:
        raise KeyError("broken")

    with catalog.write() as session:
        add_channel(session, "team", "slack", receiver.url, actor="ada")
        raise_alert(session, Alert("k2", "failed", "run", "digits/b", "it failed"), catalog.now() - 60)
    monkeypatch.setitem(delivery._BODIES, "slack", fail)
    hook.deliver()
    with catalog.read() as session:
        rows = {row.channel: row for row in session.scalars(select(AlertMessageRow))}
    assert {(row.channel, row.state) for row in rows.values()} >= {("team", "waiting")}
    assert "KeyError" in str(rows["team"].error)
    assert receiver.bodies


def test_a_receiver_that_does_not_answer_keeps_no_other_channel_waiting(
    hook: Deliverer, receiver: Receiver, catalog: Catalog, now: list[float]
) -> None:
    with catalog.write() as session:
        add_channel(session, "away", "slack", "http://127.0.0.1:9/x", actor="ada", events=["failed"])
        for number in range(5):
            name = f"p{number}"
            alert = Alert(name, "failed", "run", f"{name}/a", "it failed", project=name)
            raise_alert(session, alert, catalog.now() - 60)
    hook.deliver()
    with catalog.read() as session:
        rows = session.scalars(select(AlertMessageRow).where(AlertMessageRow.channel == "away")).all()
    assert sorted(row.tries for row in rows) == [0, 0, 0, 0, 1]
    assert all(row.next_at >= now[0] + 30 for row in rows if row.tries == 0)
    assert len(receiver.bodies) == 6


@given(tries=st.integers(1, 100), chance=st.floats(0, 1), least_pause=st.none() | st.floats(0, 1e9))
def test_pauses_grow_are_never_below_what_is_asked_and_have_an_end(
    tries: int, chance: float, least_pause: float | None
) -> None:
    pause = pause_after(tries, least_pause, chance)
    assert 0 < pause <= MAX_PAUSE_SECONDS
    assert pause >= min(least_pause or 0.0, MAX_PAUSE_SECONDS)
    assert pause_after(tries + 1, None, 0.0) >= pause_after(tries, None, 0.0)


@pytest.mark.parametrize(
    ("status", "is_delivered", "is_final"),
    [(200, True, False), (204, True, False), (408, False, False), (500, False, False), (404, False, True)],
)
def test_answers_mean_delivered_or_again_or_never(status: int, is_delivered: bool, is_final: bool) -> None:
    outcome = judge_answer(Answer(status, "", None))
    assert (outcome.error is None, outcome.is_final) == (is_delivered, is_final)
