"""``halving alerts``: channels, rules, what was told, and what did not arrive."""

import json
from pathlib import Path

import pytest

from resources.alerts.alert import Alert
from resources.alerts.outbox import claim_messages, raise_alert, settle_failed, write_messages
from tests.commands.shell import Shell

HOOK = "https://hooks.example.com/SECRET"


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def raise_one(shell: Shell) -> None:
    with shell.backend.catalog.write() as session:
        alert = Alert("k", "crashed", "run", "digits/a", "digits/a crashed", project="digits")
        raise_alert(session, alert, shell.backend.catalog.now())


def test_channels_are_added_listed_and_removed_without_their_secrets(shell: Shell) -> None:
    status, out, _ = shell.call(
        "alerts", "add", "ci", "webhook", HOOK, "--events", "crashed,failed", "--json"
    )
    added = json.loads(out)
    assert (status, added["name"]) == (0, "ci")
    assert added["secret"].startswith("whsec_")
    _, out, _ = shell.call("alerts", "channels")
    assert "hooks.example.com" in out
    assert "crashed, failed" in out
    assert "SECRET" not in out
    assert shell.call("alerts", "remove", "ci")[0] == 0
    status, _, err = shell.call("alerts", "remove", "ci")
    assert (status, "no channel 'ci'" in err) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("add", "x", "slak", HOOK), "kind = 'slak' is not accepted"),
        (("add", "x", "slack", "ftp://a"), "address is not accepted"),
        (("add", "x", "slack", HOOK, "--events", "chrashed"), "did you mean 'crashed'?"),
        (("list", "--event", "chrashed"), "did you mean 'crashed'?"),
        (("list", "--limit", "0"), "limit = 0 is not accepted"),
        (("rule", "digits"), "the rule is empty"),
        (("rule", "digits", "--silent-after", "15"), "give a time such as 90s"),
        (("rule", "digits", "--silent-after", "1s"), "silent_after = 1 is not accepted"),
        (("rule", "digits", "--bound", "acc"), "give METRIC > VALUE"),
        (("rule", "digits", "--remove"), "has no rule of alerts"),
        (("retry", "msg_1"), "no dead letter for 1 of message = msg_1: give one that"),
        (("test", "x"), "no channel 'x'"),
    ],
)
def test_wrong_arguments_are_refused_with_the_field(
    shell: Shell, arguments: tuple[str, ...], reason: str
) -> None:
    status, out, err = shell.call("alerts", *arguments)
    assert (status, out) == (1, "")
    assert reason in err


def test_a_rule_is_set_shown_and_removed(shell: Shell) -> None:
    arguments = ("--silent-after", "15m", "--bound", "val_loss > 10")
    _, out, _ = shell.call("alerts", "rule", "digits", *arguments)
    assert out == "digits: people are told of 15.0 min of silence, val_loss > 10\n"
    _, out, _ = shell.call("alerts", "rules", "--json")
    (rule,) = json.loads(out)["rules"]
    assert (rule["project"], rule["silent_after"]) == ("digits", 900.0)
    assert shell.call("alerts", "rule", "digits", "--remove")[0] == 0
    assert "no rules" in shell.call("alerts", "rules")[1]


def test_the_list_says_what_happened_and_whether_it_arrived(shell: Shell) -> None:
    assert "no alerts" in shell.call("alerts", "list")[1]
    shell.call("alerts", "add", "ci", "webhook", HOOK)
    raise_one(shell)
    _, out, _ = shell.call("alerts", "list", "--project", "digits", "--event", "crashed")
    assert "digits/a crashed" in out
    assert "ci: waiting" in out
    assert "no alerts" in shell.call("alerts", "list", "--project", "letters")[1]


def test_dead_letters_are_listed_and_sent_again(shell: Shell) -> None:
    catalog = shell.backend.catalog
    assert "every message has arrived" in shell.call("alerts", "dead")[1]
    shell.call("alerts", "add", "ci", "webhook", HOOK)
    raise_one(shell)
    write_messages(catalog, 0.0)
    (message,) = claim_messages(catalog, 1)
    settle_failed(catalog, message, "HTTP 404", None)
    _, out, _ = shell.call("alerts", "dead")
    assert "HTTP 404 (tried 1 times)" in out
    assert "1 message will be tried again" in shell.call("alerts", "retry", "all")[1]
    assert "every message has arrived" in shell.call("alerts", "dead")[1]


def test_a_test_message_to_a_private_address_says_why_it_did_not_arrive(shell: Shell) -> None:
    shell.call("alerts", "add", "ci", "webhook", "http://127.0.0.1:9/")
    status, out, _ = shell.call("alerts", "test", "ci")
    assert status == 1
    assert "not a public address" in out
