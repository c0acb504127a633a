"""What runs write into alerts is shown as it is: it mentions nobody, and looks like nothing else."""

import json

import pytest

from resources.alerts.messages import discord_body, plain_text, slack_body, subject_line, teams_body
from resources.alerts.outbox import Message
from resources.catalog import AlertChannelRow, AlertRow

NASTY = "a *b* _c_ `d` <!channel> <@U1> @everyone [x](http://evil.example)\n\N{LARGE RED CIRCLE} run crashed"


@pytest.fixture
def message() -> Message:
    fields = {"key": "k", "event": "logged", "level": "info", "kind": "run", "subject": "digits/a"}
    alert = AlertRow(id=1, project="digits", title=NASTY, text="", at=0.0, **fields)
    return Message("msg_1", 1, AlertChannelRow(name="c", kind="slack", address=""), (alert,))


def test_slack_takes_nothing_of_a_title_for_markup(message: Message) -> None:
    content = json.loads(slack_body(message, "https://halving.example.com"))
    (block,) = content["blocks"]
    text, link = block["elements"][0]["elements"]
    assert block["type"] == "rich_text"
    assert (text["type"], link["type"]) == ("text", "link")
    assert "<!channel>" in text["text"]
    assert link["url"] == "https://halving.example.com/runs/digits/a"
    assert "<!channel>" not in content["text"]


def test_a_title_of_several_lines_is_one_line_and_so_no_second_alert(message: Message) -> None:
    assert len(plain_text(message.alerts, None).splitlines()) == 1
    assert "\n" not in subject_line(message.alerts)
    assert "\n" not in json.loads(discord_body(message, None))["content"]
    card = json.loads(teams_body(message, None))["attachments"][0]["content"]
    assert len(card["body"]) == 1


def test_discord_mentions_nobody_and_escapes_marks(message: Message) -> None:
    content = json.loads(discord_body(message, None))
    assert content["allowed_mentions"] == {"parse": []}
    assert "\\*b\\*" in content["content"]
    assert "\\[x\\]" in content["content"]
