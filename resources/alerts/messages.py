"""What a message says, in the form of each kind of channel.

Titles and texts may hold what a run logged, so nothing in them is taken for markup, a mention or a link by
the receiver.
"""

import base64
import hashlib
import hmac
import json
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from resources.alerts.outbox import Message
from resources.catalog import AlertRow

MAX_LINES = 10
"""Alerts that a chat message shows one by one."""
_MAX_TITLE = 300
_MAX_TEXT = 1_000
_MAX_SLACK = 2_900
_MAX_DISCORD = 2_000  # characters of a message, which Discord allows
_MARKS = {
    "error": "\N{LARGE RED CIRCLE}",
    "warn": "\N{LARGE YELLOW CIRCLE}",
    "info": "\N{LARGE GREEN CIRCLE}",
}
_PAGES = {"run": "/runs/", "sweep": "/sweeps/", "model": "/models/"}
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069]")


def subject_line(alerts: Sequence[AlertRow]) -> str:
    """One line on what a message tells of; of several alerts the first, and how many there are."""
    first = _title_of(alerts[0])
    if len(alerts) == 1:
        return first
    return f"{first} (and {len(alerts) - 1} more like it)"


def plain_text(alerts: Sequence[AlertRow], page_url: str | None) -> str:
    """The whole message as plain text, such as for a mail."""
    return "\n".join(_lines(alerts, page_url, lambda text: text))


def webhook_body(message: Message, page_url: str | None) -> bytes:
    """The JSON of a webhook, as Standard Webhooks recommends it: ``type``, ``timestamp``, ``data``."""
    alerts = [_as_json(alert, page_url) for alert in message.alerts]
    content = {"type": "halving.alerts", "timestamp": alerts[-1]["at"], "data": {"alerts": alerts}}
    return json.dumps(content, ensure_ascii=False).encode()


def webhook_headers(message: str, body: bytes, secret: str, now: float) -> dict[str, str]:
    """The headers by which a receiver knows a message and its sender (https://www.standardwebhooks.com).

    Args:
        message: the message's id; a receiver that has had it does nothing a second time.
        secret: ``whsec_`` and the key in base64.
        now: seconds since the epoch; receivers refuse old messages.
    """
    timestamp = str(int(now))
    key = base64.b64decode(secret.removeprefix("whsec_"))
    digest = hmac.new(key, f"{message}.{timestamp}.".encode() + body, hashlib.sha256).digest()
    signature = base64.b64encode(digest).decode()
    return {
        "webhook-id": message,
        "webhook-timestamp": timestamp,
        "webhook-signature": f"v1,{signature}",
    }


def slack_body(message: Message, page_url: str | None) -> bytes:
    """The JSON of a Slack webhook (https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks)."""
    # Rich text is literal, but mrkdwn takes marks such as *this*, and has no way to say that they are none.
    text = _shorten("\n".join(_lines(message.alerts, page_url, lambda line: line)), _MAX_SLACK)
    elements = [_slack_element(line) for line in text.splitlines(keepends=True)]
    section = {"type": "rich_text_section", "elements": elements}
    blocks = [{"type": "rich_text", "elements": [section]}]
    content = {"text": _escape_for_slack(subject_line(message.alerts)), "blocks": blocks}
    return json.dumps(content, ensure_ascii=False).encode()


def discord_body(message: Message, page_url: str | None) -> bytes:
    """The JSON of a Discord webhook (https://docs.discord.com/developers/resources/webhook)."""
    text = "\n".join(_lines(message.alerts, page_url, _escape_markdown))
    content = {"content": _shorten(text, _MAX_DISCORD), "allowed_mentions": {"parse": []}}
    return json.dumps(content, ensure_ascii=False).encode()


def teams_body(message: Message, page_url: str | None) -> bytes:
    """The JSON of a workflow's webhook in Teams: an Adaptive Card (https://adaptivecards.microsoft.com)."""
    lines = _lines(message.alerts, page_url, _escape_markdown)
    blocks = [{"type": "TextBlock", "text": line, "wrap": True} for line in lines]
    card = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": blocks,
    }
    attachment = {"contentType": "application/vnd.microsoft.card.adaptive", "content": card}
    return json.dumps({"type": "message", "attachments": [attachment]}, ensure_ascii=False).encode()


def address_of(alert: AlertRow, page_url: str | None) -> str | None:
    """The address of the page about what an alert tells of; None where there is no page."""
    page = _PAGES.get(alert.kind)
    if page_url is None or page is None:
        return None
    return f"{page_url.rstrip('/')}{page}{quote(alert.subject)}"


def _lines(alerts: Sequence[AlertRow], page_url: str | None, escape: Callable[[str], str]) -> list[str]:
    lines = []
    for alert in alerts[:MAX_LINES]:
        lines.append(f"{_MARKS.get(alert.level, '')} {escape(_title_of(alert))}".strip())
        if alert.text and len(alerts) == 1:
            lines.append(escape(_shorten(alert.text, _MAX_TEXT)))
        address = address_of(alert, page_url)
        if address is not None:
            lines.append(address)
    if len(alerts) > MAX_LINES:
        lines.append(f"and {len(alerts) - MAX_LINES} more: halving alerts")
    return lines


def _title_of(alert: AlertRow) -> str:
    """The title on one line, so that none looks like two alerts."""
    return _shorten(" ".join(alert.title.split()), _MAX_TITLE)


def _slack_element(line: str) -> dict[str, str]:
    if line.startswith(("https://", "http://")) and " " not in line:
        return {"type": "link", "url": line.strip(), "text": line}
    return {"type": "text", "text": line}


def _as_json(alert: AlertRow, page_url: str | None) -> dict[str, Any]:
    return {
        "id": alert.id,
        "event": alert.event,
        "level": alert.level,
        "project": alert.project,
        "kind": alert.kind,
        "subject": alert.subject,
        "title": alert.title,
        "text": alert.text,
        "at": datetime.fromtimestamp(alert.at, UTC).isoformat(timespec="milliseconds"),
        "url": address_of(alert, page_url),
    }


def _shorten(text: str, longest: int) -> str:
    text = _CONTROL.sub("", text)
    if len(text) <= longest:
        return text
    return text[: longest - 1] + "…"


def _escape_for_slack(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _escape_markdown(text: str) -> str:
    return re.sub(r"([\\`*_{}\[\]()#+!|<>~@])", r"\\\1", text)
