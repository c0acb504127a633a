"""Alerts are raised once, gathered into messages, and claimed by one process at a time."""

from typing import Any

import pytest
from sqlalchemy import select

from resources.alerts.alert import Alert
from resources.alerts.channels import add_channel, remove_channel
from resources.alerts.outbox import (
    DEAD,
    GATHER_SECONDS,
    LEASE_SECONDS,
    MAX_ALERTS,
    SENT,
    claim_messages,
    raise_alert,
    send_again,
    settle_failed,
    settle_sent,
    write_messages,
)
from resources.catalog import AlertMessageRow, AlertRow, Catalog

URL = "https://hooks.example.com/halving"


@pytest.fixture
def now(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The catalog's time, which passes when a test says so."""
    times = [1_000_000.0]
    monkeypatch.setattr(catalog, "now", lambda: times[0])
    return times


def crash(run: str, **changes: Any) -> Alert:
    fields: dict[str, Any] = {
        "key": f"run:digits/{run}:1:crashed",
        "event": "crashed",
        "kind": "run",
        "subject": f"digits/{run}",
        "title": f"digits/{run} crashed",
        "project": "digits",
    }
    return Alert(**{**fields, **changes})


def add_hook(catalog: Catalog, name: str = "hook", **limits: Any) -> None:
    with catalog.write() as session:
        add_channel(session, name, "webhook", URL, actor="ada", **limits)


def say(catalog: Catalog, *alerts: Alert) -> list[bool]:
    with catalog.write() as session:
        return [raise_alert(session, alert, catalog.now()) for alert in alerts]


def states(catalog: Catalog) -> list[tuple[str, int]]:
    with catalog.read() as session:
        rows = session.scalars(select(AlertMessageRow).order_by(AlertMessageRow.created))
        return [(row.state, row.tries) for row in rows]


def test_what_is_noticed_twice_is_one_alert_and_one_message(catalog: Catalog, now: list[float]) -> None:
    add_hook(catalog)
    assert say(catalog, crash("a"), crash("a")) == [True, False]
    assert say(catalog, crash("a")) == [False]
    now[0] += GATHER_SECONDS
    assert write_messages(catalog) == 1
    assert write_messages(catalog) == 0
    (message,) = claim_messages(catalog, 10)
    assert [alert.subject for alert in message.alerts] == ["digits/a"]


def test_an_alert_is_rolled_back_with_what_it_tells_of(catalog: Catalog, now: list[float]) -> None:
    add_hook(catalog)

    def raise_and_fail() -> None:
        with catalog.write() as session:
            raise_alert(session, crash("a"), catalog.now())
            raise RuntimeError

    with pytest.raises(RuntimeError):
        raise_and_fail()
    with catalog.read() as session:
        assert session.scalars(select(AlertRow)).all() == []
    assert say(catalog, crash("a")) == [True]


def test_alike_alerts_are_one_message_and_others_are_their_own(catalog: Catalog, now: list[float]) -> None:
    add_hook(catalog)
    say(catalog, *(crash(f"r{number}") for number in range(3)))
    say(catalog, crash("x", key="other", project="letters"))
    say(catalog, crash("y", key="third", event="diverged"))
    assert write_messages(catalog) == 0  # others like them may follow
    now[0] += GATHER_SECONDS
    assert write_messages(catalog) == 3
    counts = sorted(len(message.alerts) for message in claim_messages(catalog, 10))
    assert counts == [1, 1, 3]


def test_many_alerts_do_not_wait_and_are_cut_into_messages(catalog: Catalog, now: list[float]) -> None:
    add_hook(catalog)
    say(catalog, *(crash(f"r{number}") for number in range(MAX_ALERTS + 3)))
    assert write_messages(catalog) == 2
    messages = claim_messages(catalog, 10)
    assert sorted(len(message.alerts) for message in messages) == [3, MAX_ALERTS]


def test_a_channel_gets_only_the_events_and_projects_that_it_wants(
    catalog: Catalog, now: list[float]
) -> None:
    add_hook(catalog, "all")
    add_hook(catalog, "letters", projects=["letters"])
    add_hook(catalog, "diverged", events=["diverged"])
    say(catalog, crash("a"))
    say(catalog, crash("disk", key="disk", event="store short", kind="store", project=None))
    now[0] += GATHER_SECONDS
    write_messages(catalog)
    channels = sorted(
        (message.channel.name, message.alerts[0].event) for message in claim_messages(catalog, 10)
    )
    assert channels == [("all", "crashed"), ("all", "store short"), ("letters", "store short")]


def test_a_claimed_message_is_nobody_elses_until_its_lease_is_over(
    catalog: Catalog, now: list[float]
) -> None:
    add_hook(catalog)
    say(catalog, crash("a"))
    now[0] += GATHER_SECONDS
    write_messages(catalog)
    (first,) = claim_messages(catalog, 1)
    assert claim_messages(catalog, 1) == []
    now[0] += LEASE_SECONDS
    (second,) = claim_messages(catalog, 1)
    assert second.id == first.id
    settle_failed(catalog, first, "too late", None)  # the first process's outcome counts no more
    assert states(catalog) == [("waiting", 2)]
    settle_sent(catalog, first)  # but a message that has arrived has arrived
    assert states(catalog) == [(SENT, 2)]


def test_a_clock_that_was_set_back_holds_no_message_up(catalog: Catalog, now: list[float]) -> None:
    add_hook(catalog)
    say(catalog, crash("a"))
    now[0] -= 86_400
    assert write_messages(catalog) == 1
    (message,) = claim_messages(catalog, 1)
    settle_failed(catalog, message, "busy", 3_600.0)
    now[0] -= 86_400
    assert len(claim_messages(catalog, 1)) == 1


def test_a_dead_letter_is_kept_with_its_reason_and_sent_again_on_request(
    catalog: Catalog, now: list[float]
) -> None:
    add_hook(catalog)
    say(catalog, crash("a"))
    now[0] += GATHER_SECONDS
    write_messages(catalog)
    (message,) = claim_messages(catalog, 1)
    settle_failed(catalog, message, "HTTP 404: no such hook", None)
    assert states(catalog) == [(DEAD, 1)]
    assert claim_messages(catalog, 1) == []
    with catalog.write() as session:
        assert send_again(session, [message.id], now[0]) == 1
    (again,) = claim_messages(catalog, 1)
    assert again.id == message.id


def test_messages_of_a_removed_channel_become_dead_letters(catalog: Catalog, now: list[float]) -> None:
    add_hook(catalog)
    say(catalog, crash("a"))
    now[0] += GATHER_SECONDS
    write_messages(catalog)
    with catalog.write() as session:
        remove_channel(session, "hook")
    assert claim_messages(catalog, 1) == []
    assert states(catalog) == [(DEAD, 0)]
