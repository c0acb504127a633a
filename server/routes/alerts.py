"""Alerts: what was told to whom; and for administrators, where alerts are sent to."""

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Body, Path, Query, Response
from pydantic import BaseModel, Field, SecretStr
from sqlalchemy.orm import Session

from halving.errors import NotFound
from resources.alerts.addresses import parse_networks
from resources.alerts.alert import EVENTS, check_event
from resources.alerts.channels import (
    KINDS,
    add_channel,
    channel_as_dict,
    find_channel,
    list_channels,
    remove_channel,
)
from resources.alerts.delivery import send_test
from resources.alerts.listing import MAX_ALERTS, list_alerts, list_dead_letters
from resources.alerts.outbox import send_again
from resources.tenancy.projects import all_names_of
from resources.tenancy.usage import ALL
from resources.watch import rules
from resources.watch.rules import MAX_BOUNDS, list_rules, remove_rule, set_rule
from server.access.idempotency import Idempotent
from server.access.policy import RoutePolicy
from server.answers import answer
from server.identity.caller import Viewer
from server.state import Shared

router = APIRouter(prefix="/alerts", tags=["alerts"])
POLICIES = [
    RoutePolicy("/alerts/channels", scope="admin"),
    RoutePolicy("/alerts/channels/", scope="admin"),
    RoutePolicy("/alerts/dead", scope="admin"),
    RoutePolicy("/alerts/dead/", scope="admin"),
]

RuleProject = Annotated[
    str, Path(description="The project; * is all that have no rule of their own.", examples=["digits"])
]
ChannelName = Annotated[str, Path(description="The channel's name.", examples=["team-slack"])]


class Delivery(BaseModel):
    """What became of an alert on its way to a channel."""

    channel: str = Field(examples=["team-slack"])
    state: str = Field(description="waiting, sent or dead.", examples=["sent"])
    tries: int = Field(examples=[1])
    error: str | None = Field(description="Why the last try failed.", examples=[None])


class Alert(BaseModel):
    """Something that happened, and who was told."""

    id: int
    at: datetime
    event: str = Field(examples=["crashed"])
    level: str = Field(description="info, warn or error.", examples=["error"])
    project: str | None = Field(examples=["digits"])
    kind: str = Field(description="What the subject is.", examples=["run"])
    subject: str = Field(examples=["digits/0198a"])
    title: str
    text: str
    deliveries: list[Delivery]


class Alerts(BaseModel):
    """The newest alerts first."""

    alerts: list[Alert]


class Events(BaseModel):
    """All events."""

    events: dict[str, str] = Field(description="Each with when it is told.")


class Channel(BaseModel):
    """Where alerts are sent to; its address and its secret are not shown."""

    name: str = Field(examples=["team-slack"])
    kind: str = Field(examples=["slack"])
    host: str | None = Field(examples=["hooks.slack.com"])
    projects: list[str] | None = Field(description="Only their alerts; null: all.")
    events: list[str] | None = Field(description="Only these events; null: all.")
    created_by: str = Field(examples=["ada"])
    created_at: datetime


class Channels(BaseModel):
    """All channels by name."""

    channels: list[Channel]


class NewChannel(BaseModel):
    """A channel to be added."""

    name: str = Field(max_length=200, examples=["team-slack"])
    kind: str = Field(description=f"One of {', '.join(KINDS)}.", max_length=20, examples=["slack"])
    address: SecretStr = Field(
        description="As the service gives it; of email smtps://USER@HOST?from=…&to=….",
        max_length=2_000,
        examples=["https://hooks.slack.com/services/T0/B0/x"],
    )
    secret: SecretStr | None = Field(
        default=None,
        description="A webhook's key (default: a new one), a mailbox's password.",
        max_length=500,
    )
    projects: list[str] | None = Field(default=None, max_length=1_000)
    events: list[str] | None = Field(default=None, max_length=100)


class AddedChannel(BaseModel):
    """A channel that was added."""

    name: str = Field(examples=["ci"])
    secret: str | None = Field(description="By which a webhook's messages are signed; shown this once.")


class Bound(BaseModel):
    """A value that a metric should not pass: either above or below."""

    metric: str = Field(max_length=500, examples=["val_loss"])
    above: float | None = Field(default=None, examples=[10.0])
    below: float | None = Field(default=None, examples=[None])


class NewRule(BaseModel):
    """What of a project's runs is told."""

    silent_after: float | None = Field(
        default=None, description="Seconds that a run may log nothing; null: any.", examples=[900.0]
    )
    bounds: list[Bound] = Field(default=[], max_length=MAX_BOUNDS)


class Rule(BaseModel):
    """A project's rule."""

    project: str = Field(description="* is all that have no rule of their own.", examples=["digits"])
    silent_after: float | None
    bounds: list[Bound]


class Rules(BaseModel):
    """Rules by project."""

    rules: list[Rule]


class DeadLetter(BaseModel):
    """A message that did not reach its channel."""

    message: str = Field(examples=["msg_0f3a"])
    channel: str
    created: datetime
    tries: int
    error: str | None
    alerts: list[str] = Field(description="The titles of the alerts that it tells of.")


class DeadLetters(BaseModel):
    """The newest messages first."""

    messages: list[DeadLetter]


class TestOutcome(BaseModel):
    """Whether a channel took a message."""

    channel: str
    error: str | None = Field(description="Why not; null: it has taken it.")


class Removed(BaseModel):
    """What was removed."""

    removed: str = Field(description="Its name.", examples=["team-slack"])


class Count(BaseModel):
    """A number of messages."""

    messages: int


@router.get("", response_model=Alerts)
def get_alerts(
    state: Shared,
    caller: Viewer,
    project: Annotated[str | None, Query(description="Only alerts of this project.")] = None,
    event: Annotated[
        str | None, Query(description="Only alerts of this event.", examples=["crashed"])
    ] = None,
    before: Annotated[
        int | None, Query(ge=1, le=2**63 - 1, description="Only alerts with a smaller id: the next page.")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_ALERTS)] = 100,
) -> Response:
    """What people were told, the newest first, and whether it arrived."""
    if event is not None:
        check_event(event)
    chosen = caller.visible_projects
    if project is not None:
        chosen = [project]
    with state.catalog.read() as session:
        names = None
        if chosen is not None:
            names = all_names_of(session, chosen)
        alerts = list_alerts(session, projects=names, event=event, before=before, limit=limit)
    return answer({"alerts": alerts})


@router.get("/events", response_model=Events)
def get_events() -> Response:
    """The events that alerts tell of."""
    return answer({"events": EVENTS})


@router.get("/rules", response_model=Rules)
def get_rules(state: Shared, caller: Viewer) -> Response:
    """What of which project's runs is told, beside their failures."""
    with state.catalog.read() as session:
        rules = [rule for rule in list_rules(session) if rule.project == ALL or caller.sees(rule.project)]
    return answer({"rules": [rule.as_dict() for rule in rules]})


@router.put("/rules/{project}", response_model=Rule)
def put_rule(
    state: Shared,
    caller: Viewer,
    run_once: Idempotent,
    project: RuleProject,
    rule: Annotated[NewRule, Body()],
) -> Response:
    """Set a project's rule in place of the one that it had."""
    bounds = [rules.Bound(**bound.model_dump()) for bound in rule.bounds]

    def write(session: Session) -> tuple[int, dict[str, object]]:
        written = set_rule(session, project, rule.silent_after, bounds, actor=caller.actor)
        return 200, written.as_dict()

    return run_once(write)


@router.delete("/rules/{project}", response_model=Removed)
def delete_rule(run_once: Idempotent, project: RuleProject) -> Response:
    """Remove a project's rule."""

    def write(session: Session) -> tuple[int, dict[str, object]]:
        remove_rule(session, project)
        return 200, {"removed": project}

    return run_once(write)


@router.get("/channels", response_model=Channels)
def get_channels(state: Shared) -> Response:
    """Where alerts are sent to. For administrators."""
    with state.catalog.read() as session:
        return answer({"channels": [channel_as_dict(row) for row in list_channels(session)]})


@router.post("/channels", response_model=AddedChannel)
def post_channel(
    state: Shared, caller: Viewer, run_once: Idempotent, channel: Annotated[NewChannel, Body()]
) -> Response:
    """Add a channel. For administrators."""
    key = None
    if channel.secret is not None:
        key = channel.secret.get_secret_value()

    def write(session: Session) -> tuple[int, dict[str, object]]:
        row = add_channel(
            session,
            channel.name,
            channel.kind,
            channel.address.get_secret_value(),
            actor=caller.actor,
            secret=key,
            projects=channel.projects,
            events=channel.events,
        )
        secret = None
        if row.kind == "webhook":
            secret = row.secret
        return 200, {"name": row.name, "secret": secret}

    return run_once(write)


@router.delete("/channels/{name}", response_model=Removed)
def delete_channel(run_once: Idempotent, name: ChannelName) -> Response:
    """Remove a channel; messages that wait for it become dead letters. For administrators."""

    def write(session: Session) -> tuple[int, dict[str, object]]:
        remove_channel(session, name)
        return 200, {"removed": name}

    return run_once(write)


@router.post("/channels/{name}/test", response_model=TestOutcome)
def test_channel(state: Shared, name: ChannelName) -> Response:
    """Send a message to a channel now, which says that it is a test. For administrators."""
    with state.catalog.read() as session:
        channel = find_channel(session, name)
    outcome = send_test(state.catalog, channel, parse_networks(state.settings.alert_networks))
    return answer({"channel": channel.name, "error": outcome.error})


@router.get("/dead", response_model=DeadLetters)
def get_dead_letters(state: Shared, limit: Annotated[int, Query(ge=1, le=1_000)] = 100) -> Response:
    """Messages that did not reach their channel, and why. For administrators."""
    with state.catalog.read() as session:
        return answer({"messages": list_dead_letters(session, limit)})


@router.post("/dead/{message}/retry", response_model=Count)
def retry_dead_letter(
    state: Shared,
    run_once: Idempotent,
    message: Annotated[str, Path(description="Of a message that did not arrive.", examples=["msg_0f3a"])],
) -> Response:
    """Let a message be tried again. For administrators."""

    def write(session: Session) -> tuple[int, dict[str, object]]:
        count = send_again(session, [message], state.catalog.now())
        if not count:
            raise NotFound(f"no message {message!r:.100} that did not arrive")
        return 200, {"messages": count}

    return run_once(write)
